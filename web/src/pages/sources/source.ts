import type { Schemas } from "../../api/client";

export type Source = Schemas["PipConnection"];
export type Config = Schemas["PipConfig"];
export type Secrets = NonNullable<Schemas["PipCredentials"]>;

export const frequencies = [
  "manual",
  "every_5_minutes",
  "every_15_minutes",
  "hourly",
  "every_6_hours",
  "daily",
  "weekly",
] as const;

export const providers = ["http_json", "scim", "s3", "sql", "ldap", "git"] as const;

const written = (config: Partial<Config>) => JSON.stringify(config, null, 2);

/** What a source of each provider looks like: the form begins with it. `account`: it takes a name and a password. */
export const samples: Record<
  (typeof providers)[number],
  { url: string; more: string; records?: boolean; account?: boolean }
> = {
  http_json: { url: "https://hr.example.com/api/people", more: "", records: true },
  scim: { url: "https://directory.example.com/scim/v2/Users", more: "" },
  s3: {
    url: "https://s3.eu-west-1.amazonaws.com/bucket/people.csv",
    more: written({ format: "csv", s3: { region: "eu-west-1" } }),
    records: true,
    account: true,
  },
  sql: {
    url: "postgres://db.example.com:5432/people",
    more: written({ sql: { query: "SELECT id, grade FROM people" } }),
    account: true,
  },
  ldap: {
    url: "ldaps://ldap.example.com",
    more: written({
      ldap: {
        base_dn: "ou=people,dc=example,dc=com",
        filter: "(objectClass=person)",
        attributes: ["uid"],
        lists: ["memberOf"],
      },
    }),
    account: true,
  },
  git: {
    url: "https://git.example.com/hr/facts.git",
    more: written({ git: { path: "data/people.yaml" } }),
    records: true,
  },
};

/** The ways to sign in at a source. `keep` stands for the stored credentials. */
export const ways = ["none", "token", "password", "oauth", "header"] as const;
export type Way = (typeof ways)[number] | "keep";

/** The members of each record as lines of `name = path`. */
export function linesOf(fields: Record<string, string> = {}): string {
  return Object.entries(fields)
    .map(([name, path]) => `${name} = ${path}`)
    .join("\n");
}

/** The members that lines of `name = path` ask for; null: a line is neither that nor one name. */
export function fieldsOf(lines: string): Record<string, string> | null {
  const out: Record<string, string> = {};
  for (const line of lines.split("\n").map((l) => l.trim())) {
    if (!line) continue;
    const [name, ...rest] = line.split("=");
    const from = (rest.length > 0 ? rest.join("=") : (name ?? "")).trim();
    if (!name?.trim() || !from) return null;
    out[name.trim()] = from;
  }
  return out;
}

// The members of a configuration that have a field of their own in the form.
const own = ["url", "records", "key", "fields"];

/** The members of a configuration that the form shows as JSON. */
export function moreOf(config: Config | undefined): string {
  const more = Object.fromEntries(Object.entries(config ?? {}).filter(([name]) => !own.includes(name)));
  return Object.keys(more).length > 0 ? JSON.stringify(more, null, 2) : "";
}

/** The object that a text of JSON is; an empty text is an empty one, null is none. */
export function objectOf(text: string): Record<string, unknown> | null {
  if (!text.trim()) return {};
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** The credentials that were typed; undefined: none were. */
export function credentialsOf(way: Way, s: Record<string, string>, provider: Source["provider"]): Secrets | undefined {
  switch (way) {
    case "token":
      return { token: s.token ?? "" };
    case "password":
      return {
        username: s.username ?? "",
        password: s.password ?? "",
        ...(provider === "s3" && s.session_token ? { session_token: s.session_token } : {}),
      };
    case "oauth":
      return { oauth: { client_id: s.client_id ?? "", client_secret: s.client_secret ?? "" } };
    case "header":
      return { headers: { [(s.header ?? "").trim()]: s.value ?? "" } };
    default:
      return undefined;
  }
}

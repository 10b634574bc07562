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

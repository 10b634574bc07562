import type { Schemas } from "../../api/client";

export type Description = Schemas["NotifyDescription"];

/** The settings of a form as the API takes them: those that the type has and that are filled in. */
export function settingsOf(
  type: Pick<Description, "settings">,
  values: Record<string, unknown>,
): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const setting of type.settings) {
    const value = values[setting.name];
    if (typeof value === "string" && value.trim() !== "") out[setting.name] = value.trim();
    if (Array.isArray(value) && value.length > 0) out[setting.name] = value;
  }
  return out;
}

/** A setting that is one text or several, as several. */
export function listOf(value: unknown): string[] {
  if (typeof value === "string") return value === "" ? [] : [value];
  return Array.isArray(value) ? value.map(String) : [];
}

/** A set of members of a credential, as the value of a choice. */
export const setName = (members: string[]) => members.join("+");

/** Whether a setting must be filled in, with a credential of these members. */
export function needed(setting: Description["settings"][number], members: string[]): boolean {
  return setting.required || (setting.credential !== undefined && members.includes(setting.credential));
}

/** What the choice of a credential says while the stored one stays. */
export const keep = "keep";

/** The members of the credential that a form asks for; undefined while the stored one stays. */
export function chosenSet(sets: string[][], credential: string | null): string[] | undefined {
  return credential === keep ? undefined : (sets.find((s) => setName(s) === credential) ?? sets[0]);
}

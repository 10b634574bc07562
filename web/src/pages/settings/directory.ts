import type { Schemas } from "../../api/client";
import { changed, type Pair, recordOf } from "./pairs";

/** What a directory may give, as its form has it. */
export interface Grants {
  groups: Pair<string[]>[];
  default_roles: string[];
  match_subject: boolean;
}

/** What of the settings a form changes. Only that is sent, so that nothing is undone that others changed. */
export function changeOf(grants: Grants, record: Schemas["ScimDirectory"]): Schemas["ScimChange"] {
  const { groups, default_roles, match_subject } = grants;
  return changed({ role_map: recordOf(groups), default_roles, match_subject }, record);
}

/** The first group that stands in two rows. Their names are compared ignoring case and spaces around them. */
export function twice(groups: Pair<string[]>[]): string | undefined {
  const seen = new Set<string>();
  for (const { name } of groups) {
    const folded = name.trim().toLowerCase();
    if (folded !== "" && seen.has(folded)) return name.trim();
    seen.add(folded);
  }
  return undefined;
}

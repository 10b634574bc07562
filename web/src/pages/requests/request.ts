import type { Schemas } from "../../api/client";

type AccessRequest = Schemas["AccessRequest"];

/** The units in which an approver says how long a grant lasts, in seconds. */
export const units = { minutes: 60, hours: 3600, days: 86_400 } as const;
export type Unit = keyof typeof units;

/** When the next of the grants ends, in milliseconds; undefined: none does within a day. */
export function nextEnd(requests: AccessRequest[], now: number): number | undefined {
  const ends = requests.flatMap((r) => (r.status === "approved" && r.expires_at ? [Date.parse(r.expires_at)] : []));
  const next = Math.min(...ends.filter((end) => end > now && end - now < 86_400_000));
  return Number.isFinite(next) ? next : undefined;
}

/** Whether access is for the person, so that somebody else decides. The server knows for sure. */
export function isOwn(subject: string, me: { id: string; username: string; email: string }): boolean {
  return [me.id, me.username, me.email].some((name) => name.toLowerCase() === subject.toLowerCase());
}

import type { Schemas } from "../../api/client";

type AccessRequest = Schemas["AccessRequest"];

/** The units in which an approver says how long a grant lasts, in seconds. */
export const units = { minutes: 60, hours: 3600, days: 86_400 } as const;
export type Unit = keyof typeof units;

/** A length of time as a form has it: an empty amount is none. */
export type Span = { amount: number | string; unit: Unit };

/** The seconds of a length of time; undefined: there is none. */
export function secondsOf(span: Span): number | undefined {
  if (span.amount === "") return undefined;
  return Math.round(Number(span.amount) * units[span.unit]);
}

/** A number of seconds in the largest unit that it is a whole number of. */
export function spanOf(seconds: number): Span {
  const unit = (["days", "hours"] as const).find((u) => seconds % units[u] === 0) ?? "minutes";
  return { amount: seconds / units[unit], unit };
}

/** When the next of the grants or open requests ends, in milliseconds; undefined: none does within a day. */
export function nextEnd(requests: AccessRequest[], now: number): number | undefined {
  const ends = requests.flatMap((r) => {
    const end = r.status === "approved" ? r.expires_at : r.status === "pending" ? r.lapses_at : null;
    return end ? [Date.parse(end)] : [];
  });
  const next = Math.min(...ends.filter((end) => end > now && end - now < 86_400_000));
  return Number.isFinite(next) ? next : undefined;
}

/** Whether access is for the person, so that somebody else decides. The server knows for sure. */
export function isOwn(subject: string, me: { id: string; username: string; email: string }): boolean {
  return [me.id, me.username, me.email].some((name) => name.toLowerCase() === subject.toLowerCase());
}

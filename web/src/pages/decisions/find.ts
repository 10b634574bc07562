import { client, type Environment, must, type Schemas } from "../../api/client";

type Decision = Schemas["AuditDecision"];

/** When a decision was made, by its id: the first 48 bits of a version 7 UUID are milliseconds (RFC 9562). */
export function timeOfId(id: string): number {
  const ms = Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16);
  return Number.isFinite(ms) ? ms : 0;
}

/** The entry of one decision. The log is read by time, so a few seconds around it are looked through. */
export async function findDecision(
  id: string,
  at: string | null,
  environment: Environment,
  signal: AbortSignal,
): Promise<Decision | null> {
  const known = at ? Date.parse(at) : Number.NaN;
  const spans = Number.isNaN(known)
    ? [[timeOfId(id), 60_000]]
    : [
        [known, 2],
        [known, 60_000],
      ];
  for (const [middle = 0, width = 0] of spans) {
    let cursor: string | undefined;
    for (let page = 0; page < 20; page++) {
      const answer = must(
        await client.GET("/api/v1/decisions/audit", {
          params: {
            query: {
              environment,
              limit: 1000,
              cursor,
              start_date: new Date(middle - width).toISOString(),
              end_date: new Date(middle + width).toISOString(),
            },
          },
          signal,
        }),
      );
      const found = answer.logs.find((d) => d.decision_id === id);
      if (found) return found;
      cursor = answer.next_cursor;
      if (!cursor) break;
    }
  }
  return null;
}

import type { Schemas } from "../../api/client";

/** The regions that a tenant can be in. */
export const regions: Schemas["Tenant"]["region"][] = [
  "us-east-1",
  "us-west-2",
  "ca-central-1",
  "eu-west-1",
  "eu-central-1",
  "eu-north-1",
  "ap-southeast-1",
  "ap-northeast-1",
  "ap-south-1",
];

/** Converts what a field of a local date and time contains to the time that the API takes; none for an empty field. */
export function windowOf(local: string): string | undefined {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** How much of a move is done, from 0 to 100. The last tenth is for what follows the copy of the rows. */
export function percentOf(move: Schemas["RegionDeployment"]): number {
  if (move.status === "completed") return 100;
  if (move.phase === "switched") return 95;
  if (move.rows_total === 0) return 0;
  return Math.min(90, Math.floor((90 * move.rows_copied) / move.rows_total));
}

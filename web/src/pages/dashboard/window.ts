/** The periods that the dashboard can show. */
export const windows = ["15m", "1h", "6h", "24h", "7d", "30d", "90d"] as const;
export type Window = (typeof windows)[number];

import type { Schemas } from "../../api/client";

/** How far a classification of all resources is. */
export interface Progress {
  examined: number;
  left: number;
  classified: number;
  unchanged: number;
  skipped: number;
  errors: string[];
}

/**
 * Adds what one batch did. A batch begins where the one before it ended; the round is over once it examined as many
 * as there are, or one batch found none. The environment may grow or shrink meanwhile.
 */
export function step(before: Progress | null, total: number, batch: Schemas["ResourceBulk"]): Progress {
  const examined = (before?.examined ?? 0) + batch.examined;
  return {
    examined,
    left: batch.examined === 0 ? 0 : Math.max(0, total - batch.skipped - examined),
    classified: (before?.classified ?? 0) + batch.classified,
    unchanged: (before?.unchanged ?? 0) + batch.unchanged,
    skipped: batch.skipped,
    errors: [...(before?.errors ?? []), ...batch.errors],
  };
}

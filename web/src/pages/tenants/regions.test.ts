import { describe, expect, it } from "vitest";
import type { Schemas } from "../../api/client";
import { percentOf, windowOf } from "./regions";

type Move = Schemas["RegionDeployment"];
const move = (change: Partial<Move>) =>
  ({ status: "in_progress", phase: "copying", rows_total: 200, rows_copied: 0, ...change }) as Move;

describe("windowOf", () => {
  it("has no time for an empty field", () => {
    expect(windowOf("")).toBeUndefined();
  });
  it("reads the field in the reader's time zone", () => {
    expect(windowOf("2027-01-02T03:04")).toBe(new Date(2027, 0, 2, 3, 4).toISOString());
  });
});

describe("percentOf", () => {
  it.each([
    [move({ phase: "waiting", rows_total: 0 }), 0],
    [move({ rows_copied: 100 }), 45],
    [move({ phase: "paused", rows_copied: 400 }), 90],
    [move({ phase: "switched", rows_copied: 200 }), 95],
    [move({ phase: "done", status: "completed", rows_total: 0 }), 100],
  ])("%#", (m, want) => {
    expect(percentOf(m)).toBe(want);
  });
});

import { expect, test } from "vitest";
import { marks } from "./TimeChart";

test.each([
  [0, [0, 1]],
  [1, [0, 0.25, 0.5, 0.75, 1]],
  [7, [0, 2, 4, 6, 8]],
  [100, [0, 25, 50, 75, 100]],
  [1234, [0, 500, 1000, 1500]],
])("up to %d the axis has %j", (most, want) => {
  expect(marks(most)).toEqual(want);
});

import { expect, test } from "vitest";
import { sides } from "./Changes";

test.each([
  [
    { from: "a", to: "b" },
    { before: "a", after: "b" },
  ],
  [
    { from: null, to: true },
    { before: null, after: true },
  ],
  [{ to: 2 }, { before: undefined, after: 2 }],
  ["set", { before: undefined, after: "set" }],
  [{ other: 1 }, { before: undefined, after: { other: 1 } }],
])("the sides of %j", (change, want) => {
  expect(sides(change)).toEqual(want);
});

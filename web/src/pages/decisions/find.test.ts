import { expect, it } from "vitest";
import { timeOfId } from "./find";

it("reads the time of a decision from its id", () => {
  expect(new Date(timeOfId("01a20606-9874-7569-86a1-069e8fd56778")).toISOString()).toBe("2026-11-23T01:30:25.268Z");
  expect(timeOfId("not an id")).toBe(0);
});

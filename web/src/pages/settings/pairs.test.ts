import { expect, test } from "vitest";
import { changed, pairsOf, recordOf } from "./pairs";

test("rows and objects become each other", () => {
  const map = { staff: ["viewer"], boss: ["admin", "auditor"] };
  const pairs = pairsOf(map);
  expect(pairs.map((p) => p.name)).toEqual(["boss", "staff"]);
  expect(new Set(pairs.map((p) => p.key)).size).toBe(2);
  expect(recordOf(pairs)).toEqual(map);
  expect(pairsOf(undefined)).toEqual([]);
});

test("rows without a name are left out, and names lose their spaces", () => {
  expect(
    recordOf([
      { key: 1, name: "  ", value: "x" },
      { key: 2, name: " clearance ", value: "c" },
    ]),
  ).toEqual({ clearance: "c" });
});

test("only what differs is sent", () => {
  const before = { name: "a", roles: ["x"], map: { b: ["y"], a: ["x"] }, enabled: true };
  expect(changed({ name: "a", roles: ["x"], map: { a: ["x"], b: ["y"] }, enabled: true }, before)).toEqual({});
  expect(changed({ name: "b", roles: [], map: { a: ["x"] }, enabled: false }, before)).toEqual({
    name: "b",
    roles: [],
    map: { a: ["x"] },
    enabled: false,
  });
});

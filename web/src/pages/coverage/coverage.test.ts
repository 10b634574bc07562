import { expect, test } from "vitest";
import { cellOf, coverageOf } from "./coverage";

const resource = (id: number, name: string) => ({
  id,
  name,
  resource_kind: "api" as const,
  data_classification: "internal" as const,
});
const control = (id: number, resource_id: number | null, status: "active" | "draft" | "inactive" = "active") => ({
  id,
  name: `c${id}`,
  status,
  resource_id,
});
const resources = [resource(1, "b"), resource(2, "a"), resource(3, "c")];

test("resources without an active control of their own come first, by name", () => {
  const got = coverageOf(resources, [control(1, 2), control(2, 3, "draft"), control(3, null)]);
  expect(got.rows.map((r) => [r.resource.name, r.protected])).toEqual([
    ["b", false],
    ["c", false],
    ["a", true],
  ]);
  expect(got).toMatchObject({ gaps: 2, wide: 1 });
});

test("controls of the whole tenant are the first columns; those of no use are none", () => {
  const got = coverageOf(resources, [control(1, 2), control(2, null), control(3, 1, "inactive"), control(4, 99)]);
  expect(got.controls.map((c) => c.id)).toEqual([2, 1]);
});

test.each([
  [control(1, 1), "bound"],
  [control(1, 2), ""],
  [control(1, null), "wide"],
  [control(1, 1, "draft"), "draft"],
  [control(1, null, "draft"), "draft"],
] as const)("%j is %j to resource 1", (c, want) => expect(cellOf(c, resource(1, "b"))).toBe(want));

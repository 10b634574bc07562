import { expect, test } from "vitest";
import { lanesOf } from "./timeline";

const point = (at: number, lane: string, denied = false) => ({ at, lane, denied });

test("nothing has no lanes", () => expect(lanesOf([])).toEqual([]));

test("one decision stands in the middle", () => {
  expect(lanesOf([point(5, "/a")])).toEqual([{ name: "/a", marks: [{ left: 50, denied: false, count: 1 }] }]);
});

test("the busiest lane comes first, and close decisions of one outcome are one mark", () => {
  const lanes = lanesOf([point(0, "/b"), point(0, "/a"), point(1, "/a"), point(2, "/a", true), point(1000, "/a")]);
  expect(lanes.map((l) => l.name)).toEqual(["/a", "/b"]);
  expect(lanes[0]?.marks).toEqual([
    { left: 0, denied: false, count: 2 },
    { left: 0, denied: true, count: 1 },
    { left: 100, denied: false, count: 1 },
  ]);
});

test("no decision is lost, however many lanes there would be", () => {
  const points = Array.from({ length: 3000 }, (_, i) => point(i, `/${i % 300}`, i % 7 === 0));
  const lanes = lanesOf(points);
  expect(lanes).toHaveLength(11);
  expect(lanes.at(-1)?.name).toBe("");
  expect(lanes.flatMap((l) => l.marks).reduce((n, m) => n + m.count, 0)).toBe(3000);
});

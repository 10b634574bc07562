import { expect, test } from "vitest";
import { step } from "./classification";

const batch = (examined: number, skipped = 0, errors: string[] = []) => ({
  environment: "sandbox" as const,
  examined,
  classified: examined - errors.length,
  unchanged: 0,
  skipped,
  errors,
});

test("batches add up until every resource had its turn", () => {
  let p = step(null, 250, batch(100, 20));
  expect(p).toMatchObject({ examined: 100, left: 130, skipped: 20 });
  p = step(p, 250, batch(100, 20, ["7: no"]));
  expect(p).toMatchObject({ examined: 200, left: 30, classified: 199, errors: ["7: no"] });
  expect(step(p, 250, batch(30, 20))).toMatchObject({ examined: 230, left: 0, errors: ["7: no"] });
});

test.each([
  ["nothing is there", step(null, 0, batch(0))],
  ["resources went away meanwhile", step(step(null, 300, batch(100)), 300, batch(0))],
  ["people classified the rest meanwhile", step(step(null, 300, batch(100)), 300, batch(100, 150))],
  ["more came than there were", step(null, 10, batch(50))],
])("the round ends when %s", (_, p) => expect(p.left).toBe(0));

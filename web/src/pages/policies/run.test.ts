import { describe, expect, it } from "vitest";
import { type Outcome, parseInput, stepsOf, stepsOfText, tintsOf } from "./run";

const outcome = (steps: Outcome["steps"]): Outcome => ({
  effect: "DENY",
  reason: "",
  text: "",
  steps,
  notes: [],
  ms: 0,
  traced: true,
});

describe("stepsOf", () => {
  it("keeps the conditions, with their lines and values", () => {
    expect(
      stepsOf([
        { step_number: 1, step_type: "policy_matched", description: "", result: true, details: {} },
        {
          step_number: 2,
          step_type: "condition_eval",
          description: "d",
          result: false,
          details: {
            rule: "allow",
            line: 8,
            source: '"hr" in input.user.roles',
            values: { "input.user.roles": ["x"] },
          },
        },
      ]),
    ).toEqual([{ line: 8, source: '"hr" in input.user.roles', held: false, values: [["input.user.roles", ["x"]]] }]);
  });
});

describe("tintsOf", () => {
  it("colours lines by their last condition", () => {
    const step = (line: number, held: boolean) => ({ line, held, source: "", values: [] });
    expect(tintsOf(outcome([step(3, true), step(4, false), step(0, true)]))).toEqual({ 3: "held", 4: "failed" });
  });
  it("colours nothing before a run", () => expect(tintsOf(null)).toEqual({}));
});

describe("stepsOfText", () => {
  it("reads the lines of an explanation in each language", () => {
    const text =
      'Control "c" denied.\n  line 5: input.user.id == "x"  (must hold; input.user.id = "y")\n  línea 6: count(a) > 1';
    expect(stepsOfText(text, false).map((s) => [s.line, s.source])).toEqual([
      [5, 'input.user.id == "x"'],
      [6, "count(a) > 1"],
    ]);
  });
});

describe("parseInput", () => {
  it("takes objects alone", () => {
    expect(parseInput('{"a":1}').input).toEqual({ a: 1 });
    for (const text of ["[1]", "null", "3", "{", ""]) expect(parseInput(text).error).toBeTruthy();
  });
});

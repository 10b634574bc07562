import { describe, expect, it } from "vitest";
import { differences, inputOfScenario, leavesOf, listOf, startOf, valueAt, withValue } from "./input";

describe("the input of the simulator", () => {
  it("reads and writes values by their path", () => {
    const input = withValue(withValue({ user: { id: "ada" } }, "user.role", "hr"), "action.method", "GET");
    expect(input).toEqual({ user: { id: "ada", role: "hr" }, action: { method: "GET" } });
    expect(valueAt(input, "user.role")).toBe("hr");
    expect(valueAt(input, "user.role.deeper")).toBeUndefined();
    expect(valueAt(input, "user.constructor")).toBeUndefined();
    expect(withValue({ user: "ada" }, "user.role", "hr")).toEqual({ user: { role: "hr" } });
  });
  it("removes what is emptied, and the objects around it", () => {
    const input = { user: { id: "ada" }, action: { method: "GET" } };
    expect(withValue(input, "user.id", undefined)).toEqual({ action: { method: "GET" } });
    expect(withValue({ user: { id: 1, role: 2 } }, "user.id", undefined)).toEqual({ user: { role: 2 } });
    expect(input.user).toEqual({ id: "ada" });
  });
  it("expands the attributes of a scenario", () => {
    expect(inputOfScenario({ user: { id: "ada" }, "user.role": "hr", flag: false })).toEqual({
      user: { id: "ada", role: "hr" },
      flag: false,
    });
    expect(inputOfScenario({ "user.role": "hr", user: { id: "ada" } })).toEqual({ user: { role: "hr", id: "ada" } });
  });
  it("starts with what the control takes by itself", () => {
    const attribute = { label: "", description: "", values: [] };
    expect(
      startOf([
        { ...attribute, key: "limit", type: "number", default_value: 0 },
        { ...attribute, key: "user.id", type: "string", default_value: null },
      ]),
    ).toEqual({ limit: 0 });
  });
  it("keeps the type of what a list is compared with", () => {
    expect(listOf(["1", "2", "x"], [7, 8])).toEqual([1, 2, "x"]);
    expect(listOf(["1"], ["7"])).toEqual(["1"]);
    expect(listOf([" "], [7])).toEqual([" "]);
  });
  it("names each path at which two inputs differ", () => {
    expect(leavesOf({ a: { b: [1], c: {} } })).toEqual([
      ["a.b", [1]],
      ["a.c", {}],
    ]);
    expect(differences({ a: { b: 1 }, same: [1] }, { a: { c: null }, same: [1] })).toEqual([
      { path: "a.b", a: 1, b: undefined },
      { path: "a.c", a: undefined, b: null },
    ]);
  });
});

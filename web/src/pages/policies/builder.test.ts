import { describe, expect, it } from "vitest";
import { condition, controlOf, hasParameter, literal, packageName, reference, setParameter } from "./builder";

describe("condition", () => {
  it.each([
    [{ attribute: "user.roles", operator: "has", value: "hr" }, '"hr" in input.user.roles'],
    [{ attribute: "action.method", operator: "is", value: "GET" }, 'input.action.method == "GET"'],
    [
      { attribute: "resource.attributes.level", operator: "greater", value: "3" },
      "input.resource.attributes.level > 3",
    ],
    [{ attribute: "resource.path", operator: "startsWith", value: "/a" }, 'startswith(input.resource.path, "/a")'],
    [{ attribute: "user.id", operator: "exists", value: "" }, "_ = input.user.id"],
  ] as const)("of %j is %s", (row, rego) => expect(condition(row)).toBe(rego));

  it("lets no value leave its quotes", () => {
    const rego = condition({ attribute: "user.id", operator: "is", value: '" } allow if true #' });
    expect(rego).toBe('input.user.id == "\\" } allow if true #"');
  });
  it("lets no attribute leave its reference", () => {
    expect(reference('user.x"] == 1 #')).toBe('input.user["x\\"] == 1 #"]');
  });
});

describe("literal", () => {
  it.each([
    ["3", "3"],
    ["-0.5", "-0.5"],
    ["03", '"03"'],
    ["true", "true"],
    ["True", '"True"'],
    [" x ", '"x"'],
  ])("of %s is %s", (text, rego) => expect(literal(text)).toBe(rego));
});

describe("packageName", () => {
  it.each([
    ["Payroll access", "payroll_access"],
    ["Façade 2", "fac_ade_2"],
    ["3 strikes", "control_3_strikes"],
    ["", "control_new"],
  ])("of %s is %s", (name, pkg) => expect(packageName(name)).toBe(pkg));
});

describe("controlOf", () => {
  it("leaves out rows that are not filled in", () => {
    const rego = controlOf("A", [{ key: 1, attribute: "user.id", operator: "is", value: "" }], "");
    expect(rego).not.toContain("input.user.id");
    expect(rego).not.toContain("allow if");
  });
});

describe("setParameter", () => {
  const code = 'package a\n\nroles := []\n\nlimits := {\n\t"a": ["}"],\n\t"b": 2,\n}\n\nallow if count(roles) > 0\n';
  it("replaces a value on one line and one over several", () => {
    expect(setParameter(code, "roles", ["hr"])).toContain('roles := ["hr"]\n');
    expect(setParameter(code, "limits", { c: 1 })).toBe(
      'package a\n\nroles := []\n\nlimits := {"c":1}\n\nallow if count(roles) > 0\n',
    );
  });
  it("touches nothing that is not a parameter", () => {
    expect(hasParameter(code, "allow")).toBe(false);
    expect(setParameter(code, "allow", 1)).toBe(code);
  });
});

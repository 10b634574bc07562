import { describe, expect, it } from "vitest";
import { packageOf, shell } from "./library";

describe("a library", () => {
  it("names its package", () => {
    expect(packageOf("# METADATA\n# title: x\npackage lib.roles\n\nimport rego.v1\n")).toBe("lib.roles");
    expect(packageOf("# package lib.no\n")).toBe("");
    expect(packageOf("")).toBe("");
  });
  it("begins below lib", () => {
    expect(packageOf(shell("roles"))).toBe("lib.roles");
    expect(packageOf(shell("lib.roles.hr"))).toBe("lib.roles.hr");
  });
});

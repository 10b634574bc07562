import { ensureSyntaxTree } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { describe, expect, it } from "vitest";
import { rego } from "./rego";

function tokens(source: string): [string, string][] {
  const state = EditorState.create({ doc: source, extensions: [rego()] });
  const found: [string, string][] = [];
  ensureSyntaxTree(state, source.length, 1000)?.iterate({
    enter: (node) => {
      if (node.name !== "Document") found.push([node.name, source.slice(node.from, node.to)]);
    },
  });
  return found;
}

describe("the language of controls", () => {
  it("tells keywords, roots, calls and rule heads apart", () => {
    const found = tokens("allow if count(input.user.roles) > 1");
    const kind = (text: string) => found.find((t) => t[1] === text)?.[0];
    expect(kind("if")).toBe("keyword");
    expect(new Set([kind("allow"), kind("count"), kind("input"), kind("user")]).size).toBe(4);
  });
  it("carries a raw string over lines", () => {
    const found = tokens("x := `a\nif b` if true");
    expect(found.filter((t) => t[0] === "string").map((t) => t[1])).toEqual(["`a", "if b`"]);
  });
  it("ends a string at its quote, escaped ones left out", () => {
    expect(tokens('x := "a\\"b" # if').map((t) => t[1])).toContain('"a\\"b"');
  });
});

import { Text } from "@codemirror/state";
import { describe, expect, it } from "vitest";
import { diagnosticsOf, offsetOf, placeOf } from "./places";

const doc = Text.of(["package a", 'x := "🙂" + y', ""]);

describe("offsetOf", () => {
  it.each([
    ["the start", 1, 1, 0],
    ["a word", 1, 9, 8],
    ["past an emoji, which is two units and one column", 2, 9, 10 + 9],
    ["a column of 0", 2, 0, 10],
    ["a column past the line", 1, 99, 9],
    ["a line of 0", 0, 1, 0],
    ["a line past the end", 99, 1, doc.length],
  ])("finds %s", (_, line, column, offset) => {
    expect(offsetOf(doc, line, column)).toBe(offset);
  });
  it("is undone by placeOf", () => {
    expect(placeOf(doc, offsetOf(doc, 2, 9))).toEqual({ line: 2, column: 9 });
  });
});

describe("diagnosticsOf", () => {
  it("underlines the word at the place", () => {
    const [found] = diagnosticsOf(doc, [{ line: 2, column: 12, severity: "error", message: "unsafe" }]);
    expect(doc.sliceString(found?.from ?? 0, found?.to)).toBe("y");
  });
  it("stays within the text", () => {
    const [found] = diagnosticsOf(doc, [{ line: 9, column: 9, severity: "warning", message: "m" }]);
    expect([found?.from, found?.to]).toEqual([doc.length, doc.length]);
  });
});

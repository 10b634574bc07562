import type { Diagnostic } from "@codemirror/lint";
import type { Text } from "@codemirror/state";
import type { Schemas } from "../api/client";

type Issue = Schemas["RegoIssue"];

/**
 * The offset of a place that the server names: lines from 1, columns from 1 in code points. CodeMirror counts UTF-16
 * units, so one emoji shifts what follows it. Places outside the text are moved into it.
 */
export function offsetOf(doc: Text, line: number, column: number): number {
  const at = doc.line(Math.min(Math.max(line, 1), doc.lines));
  let units = 0;
  let points = 1;
  for (const char of at.text) {
    if (points >= column) break;
    units += char.length;
    points++;
  }
  return at.from + units;
}

/** The place of an offset as the server counts: lines from 1, columns from 1 in code points. */
export function placeOf(doc: Text, offset: number): { line: number; column: number } {
  const at = doc.lineAt(offset);
  return { line: at.number, column: [...at.text.slice(0, offset - at.from)].length + 1 };
}

/** What the editor underlines for the server's findings: the word at the place, or the line's end. */
export function diagnosticsOf(doc: Text, issues: Issue[]): Diagnostic[] {
  return issues.map((issue) => {
    const from = offsetOf(doc, issue.line, issue.column);
    const line = doc.lineAt(from);
    const word = /^[\w.]+|^\S/.exec(doc.sliceString(from, line.to))?.[0].length ?? 0;
    const to = Math.min(from + Math.max(word, 1), line.to);
    return {
      from: Math.min(from, line.to),
      to: Math.max(to, Math.min(from, line.to)),
      severity: issue.severity,
      message: issue.message,
      source: issue.rule,
    };
  });
}

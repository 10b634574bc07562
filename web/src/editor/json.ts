import { StreamLanguage } from "@codemirror/language";
import { tags } from "@lezer/highlight";

/** JSON, as far as colours, brackets and indentation go. What is wrong with it is said by whoever reads it. */
export const json = StreamLanguage.define<{ depth: number }>({
  name: "json",
  startState: () => ({ depth: 0 }),
  copyState: (state) => ({ ...state }),
  token(stream, state) {
    if (stream.eatSpace()) return null;
    if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return stream.match(/^\s*:/, false) ? "propertyName" : "string";
    if (stream.match(/^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/)) return "number";
    if (stream.match(/^(?:true|false)\b/)) return "bool";
    if (stream.match(/^null\b/)) return "null";
    const char = stream.next();
    if (char === "{" || char === "[") state.depth++;
    if (char === "}" || char === "]") state.depth = Math.max(0, state.depth - 1);
    return "punctuation";
  },
  indent: (state, after, context) => Math.max(0, state.depth - (/^\s*[}\]]/.test(after) ? 1 : 0)) * context.unit,
  languageData: { closeBrackets: { brackets: ["[", "{", '"'] } },
  tokenTable: { propertyName: tags.propertyName },
});

import {
  HighlightStyle,
  LanguageSupport,
  StreamLanguage,
  type StringStream,
  syntaxHighlighting,
} from "@codemirror/language";
import { tags } from "@lezer/highlight";

interface State {
  /** Within a raw string, which may span lines. */
  raw: boolean;
  depth: number;
}

const keywords = new Set("package import as default not with some every in if contains else".split(" "));
const literals = new Set(["true", "false", "null"]);

function token(stream: StringStream, state: State): string | null {
  if (state.raw) {
    while (!stream.eol()) {
      if (stream.next() === "`") {
        state.raw = false;
        break;
      }
    }
    return "string";
  }
  if (stream.eatSpace()) return null;
  const start = stream.column();
  if (stream.match("#")) {
    stream.skipToEnd();
    return /^#\s*METADATA/.test(stream.current()) ? "docComment" : "comment";
  }
  if (stream.eat("`")) {
    state.raw = true;
    return token(stream, state);
  }
  if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
  if (stream.match(/^\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/)) return "number";
  if (stream.match(/^[A-Za-z_][A-Za-z0-9_]*/)) {
    const word = stream.current();
    if (keywords.has(word)) return "keyword";
    if (literals.has(word)) return "bool";
    if (word === "input" || word === "data") return "variableName.special";
    if (stream.match(/^\s*\(/, false)) return "variableName.function";
    return start === 0 ? "variableName.definition" : "variableName";
  }
  if (stream.match(/^(?::=|==|!=|<=|>=|[=<>+\-*/%&|])/)) return "operator";
  const char = stream.next();
  if (char && "{[(".includes(char)) state.depth++;
  if (char && "}])".includes(char)) state.depth = Math.max(0, state.depth - 1);
  return "punctuation";
}

/** The language of controls: keywords, roots, calls, rule heads, raw strings, indentation by brackets. */
export const regoLanguage = StreamLanguage.define<State>({
  name: "rego",
  startState: () => ({ raw: false, depth: 0 }),
  copyState: (state) => ({ ...state }),
  token,
  indent: (state, after, context) => {
    const closing = /^\s*[}\])]/.test(after) ? 1 : 0;
    return Math.max(0, state.depth - closing) * context.unit;
  },
  languageData: { commentTokens: { line: "#" }, closeBrackets: { brackets: ["(", "[", "{", '"', "`"] } },
  tokenTable: {
    docComment: tags.docComment,
    "variableName.special": tags.special(tags.variableName),
    "variableName.function": tags.function(tags.variableName),
    "variableName.definition": tags.definition(tags.variableName),
  },
});

// The colours are variables of app.css, at least 4.5:1 on the editor's ground in both schemes.
const highlight = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--cm-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--cm-string)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--cm-number)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--cm-comment)", fontStyle: "italic" },
  { tag: tags.docComment, color: "var(--cm-comment)", fontWeight: "600" },
  { tag: tags.special(tags.variableName), color: "var(--cm-root)", fontWeight: "600" },
  { tag: tags.function(tags.variableName), color: "var(--cm-call)" },
  { tag: tags.definition(tags.variableName), color: "var(--cm-head)", fontWeight: "600" },
  { tag: tags.propertyName, color: "var(--cm-root)" },
]);

export const colours = syntaxHighlighting(highlight);

export function rego(): LanguageSupport {
  return new LanguageSupport(regoLanguage);
}

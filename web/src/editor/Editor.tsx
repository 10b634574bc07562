import {
  autocompletion,
  type CompletionSource,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { bracketMatching, foldKeymap, indentOnInput, indentUnit } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightActiveLine,
  hoverTooltip,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { forwardRef, useEffect, useImperativeHandle, useRef } from "react";
import type { Schemas } from "../api/client";
import { nonce } from "../ui/nonce";
import { diagnosticsOf, placeOf } from "./places";
import { colours, rego } from "./rego";
import "./editor.css";

/** What hangs on lines: conditions that held, that failed, and where it was decided. */
export type Tints = Record<number, "held" | "failed" | "decided">;

const setTints = StateEffect.define<Tints>();
const tintField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, tr) {
    let next = tr.docChanged ? Decoration.none : marks;
    for (const effect of tr.effects) {
      if (!effect.is(setTints)) continue;
      const builder = new RangeSetBuilder<Decoration>();
      for (const line of Object.keys(effect.value)
        .map(Number)
        .sort((a, b) => a - b)) {
        if (line < 1 || line > tr.state.doc.lines) continue;
        const at = tr.state.doc.line(line).from;
        builder.add(at, at, Decoration.line({ class: `cm-tint-${effect.value[line]}` }));
      }
      next = builder.finish();
    }
    return next;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** What a screen can ask of its editor. */
export interface EditorHandle {
  /** Goes to a line, from 1. */
  goTo(line: number): void;
  focus(): void;
  /** Where the cursor is: line and column from 1, in code points. */
  place(): { line: number; column: number };
}

export interface EditorProps {
  value: string;
  onChange?: (value: string) => void;
  language: "rego" | "json" | "text";
  label: string;
  /** How to leave by keyboard, read with the label. */
  description?: string;
  issues?: Schemas["RegoIssue"][];
  tints?: Tints;
  run?: () => void;
  save?: () => void;
  complete?: CompletionSource;
  /** Markup-free words about the name under the pointer. */
  hover?: (word: string) => Promise<string> | string;
  minHeight?: number;
  maxHeight?: number | string;
}

/** A text editor for controls, inputs and differences. */
export const Editor = forwardRef<EditorHandle, EditorProps>(function Editor(props, handle) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const readOnly = !props.onChange;

  useImperativeHandle(handle, () => ({
    goTo(line) {
      const v = view.current;
      if (!v) return;
      const at = v.state.doc.line(Math.min(Math.max(line, 1), v.state.doc.lines));
      v.dispatch({ selection: { anchor: at.from }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
      v.focus();
    },
    focus: () => view.current?.focus(),
    place: () => {
      const v = view.current;
      return v ? placeOf(v.state.doc, v.state.selection.main.head) : { line: 1, column: 1 };
    },
  }));

  // biome-ignore lint/correctness/useExhaustiveDependencies: the editor is made once; later values come by the effects below
  useEffect(() => {
    if (!host.current) return;
    const call = (name: "run" | "save") => () => {
      const action = latest.current[name];
      action?.();
      return action !== undefined;
    };
    const attributes: Record<string, string> = { "aria-label": props.label, tabindex: "0" };
    if (props.description) attributes["aria-description"] = props.description;
    const made = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: props.value,
        extensions: [
          EditorView.cspNonce.of(nonce),
          ...basics,
          languageOf(props.language),
          readOnly ? [EditorState.readOnly.of(true), EditorView.editable.of(false)] : [],
          keymap.of([
            { key: "Mod-Enter", run: call("run"), preventDefault: true },
            { key: "Mod-s", run: call("save"), preventDefault: true },
          ]),
          keymap.of(keys),
          props.complete ? autocompletion({ override: [(context) => latest.current.complete?.(context) ?? null] }) : [],
          props.hover ? hoverOf((word) => latest.current.hover?.(word) ?? "") : [],
          props.issues ? lintGutter() : [],
          tintField,
          new Compartment().of(EditorView.contentAttributes.of(attributes)),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current.onChange?.(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, [props.language, readOnly]);

  useEffect(() => {
    const v = view.current;
    if (!v || v.state.doc.toString() === props.value) return;
    v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: props.value } });
  }, [props.value]);
  useEffect(() => {
    const v = view.current;
    if (v && props.issues) v.dispatch(setDiagnostics(v.state, diagnosticsOf(v.state.doc, props.issues)));
  }, [props.issues]);
  useEffect(() => {
    view.current?.dispatch({ effects: setTints.of(props.tints ?? {}) });
  }, [props.tints]);

  return (
    <div
      ref={host}
      className="gh-editor"
      style={
        {
          "--editor-min": `${props.minHeight ?? 160}px`,
          "--editor-max": cssLength(props.maxHeight),
        } as React.CSSProperties
      }
    />
  );
});

function cssLength(length: number | string | undefined): string {
  return typeof length === "number" ? `${length}px` : (length ?? "none");
}

function languageOf(language: EditorProps["language"]): Extension {
  if (language === "rego") return [rego(), indentUnit.of("\t"), EditorState.tabSize.of(4)];
  if (language === "json") return [json(), indentUnit.of("  ")];
  return [];
}

const keys = [
  ...closeBracketsKeymap,
  ...completionKeymap,
  ...defaultKeymap,
  ...searchKeymap,
  ...historyKeymap,
  ...foldKeymap,
  ...lintKeymap,
  indentWithTab,
];

const basics: Extension[] = [
  lineNumbers(),
  history(),
  drawSelection(),
  indentOnInput(),
  bracketMatching(),
  closeBrackets(),
  highlightActiveLine(),
  highlightSelectionMatches(),
  search({ top: true }),
  colours,
  EditorView.lineWrapping,
];

function hoverOf(ask: (word: string) => Promise<string> | string): Extension {
  return hoverTooltip(async (v, pos) => {
    const line = v.state.doc.lineAt(pos);
    const left = /[\w.]*$/.exec(line.text.slice(0, pos - line.from))?.[0] ?? "";
    const right = /^\w*/.exec(line.text.slice(pos - line.from))?.[0] ?? "";
    const word = left + right;
    if (!word) return null;
    const text = await ask(word);
    if (!text) return null;
    return {
      pos: pos - left.length,
      end: pos + right.length,
      create: () => {
        const dom = document.createElement("div");
        dom.className = "cm-hover";
        dom.textContent = text;
        return { dom };
      },
    };
  });
}

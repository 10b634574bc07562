import type { CompletionSource } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, foldKeymap, indentOnInput, indentUnit } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import {
  Compartment,
  EditorState,
  type Extension,
  Prec,
  RangeSetBuilder,
  StateEffect,
  StateField,
} from "@codemirror/state";
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
import { json } from "./json";
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
  /** Lays the text out. */
  format?: () => void;
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
    const call = (name: "run" | "save" | "format") => () => {
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
            { key: "Shift-Alt-f", run: call("format"), preventDefault: true },
          ]),
          keymap.of(keys),
          readOnly ? [] : assisted(props.complete && ((context) => latest.current.complete?.(context) ?? null)),
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
  if (language === "json") return [json, indentUnit.of("  ")];
  return [];
}

const keys = [
  { key: "Mod-f", run: find },
  ...defaultKeymap,
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
  highlightActiveLine(),
  colours,
  EditorView.lineWrapping,
];

/** Opens the search panel, which comes with the first search. */
function find(view: EditorView): boolean {
  void import("@codemirror/search").then(({ highlightSelectionMatches, openSearchPanel, search, searchKeymap }) => {
    if (!view.dom.isConnected) return;
    const more = [search({ top: true }), highlightSelectionMatches(), Prec.high(keymap.of(searchKeymap))];
    view.dispatch({ effects: StateEffect.appendConfig.of(more) });
    openSearchPanel(view);
  });
  return true;
}

/** Completion and closing brackets, which come once somebody is in the editor. */
function assisted(complete: CompletionSource | undefined): Extension {
  let asked = false;
  return EditorView.domEventHandlers({
    focus: (_, view) => {
      if (asked) return;
      asked = true;
      void import("@codemirror/autocomplete").then(({ autocompletion, closeBrackets, closeBracketsKeymap }) => {
        if (!view.dom.isConnected) return;
        const more = [closeBrackets(), Prec.high(keymap.of(closeBracketsKeymap))];
        view.dispatch({
          effects: StateEffect.appendConfig.of([more, complete ? autocompletion({ override: [complete] }) : []]),
        });
      });
    },
  });
}

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

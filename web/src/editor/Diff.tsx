import { unifiedMergeView } from "@codemirror/merge";
import { EditorState } from "@codemirror/state";
import { EditorView, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { nonce } from "../ui/nonce";
import { colours, rego } from "./rego";
import "./editor.css";

/** The differences from one text to another, unchanged stretches folded. */
export function Diff({ from, to, label }: { from: string; to: string; label: string }) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!host.current) return;
    const view = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: to,
        extensions: [
          EditorView.cspNonce.of(nonce),
          lineNumbers(),
          rego(),
          colours,
          EditorView.lineWrapping,
          EditorState.readOnly.of(true),
          EditorView.editable.of(false),
          EditorView.contentAttributes.of({
            "aria-label": label,
            tabindex: "0",
            role: "textbox",
            "aria-readonly": "true",
          }),
          unifiedMergeView({
            original: from,
            mergeControls: false,
            gutter: true,
            collapseUnchanged: { margin: 3, minSize: 6 },
          }),
        ],
      }),
    });
    return () => view.destroy();
  }, [from, to, label]);
  return (
    <div
      ref={host}
      className="gh-editor"
      style={{ "--editor-min": "60px", "--editor-max": "520px" } as React.CSSProperties}
    />
  );
}

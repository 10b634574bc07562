import { Button, Checkbox, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";
import type { Schemas } from "../../api/client";
import { Editor, type EditorHandle } from "../../editor/Editor";
import { offsetOf } from "../../editor/places";
import { useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { JsonView } from "../../ui/JsonView";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useEnvironment, useMe } from "../../ui/scope";
import { LibraryUsers } from "../libraries/LibraryUsers";
import { complete, fixes, format, hover, useDiagnostics } from "./assist";
import { InputPicker } from "./InputPicker";
import type { Policy } from "./policy";
import { inputOfDecision, type Outcome, parseInput, runStored, runText, tintsOf } from "./run";

// An explanation comes with the first run.
const Explanation = lazy(async () => ({ default: (await import("../../ui/Conditions")).Explanation }));

const emptyInput = {
  user: { id: "ada", roles: ["staff"] },
  action: { method: "GET", name: "read" },
  resource: { type: "api", path: "/" },
};

/** Control, input and what comes of them, side by side. */
export function Code({
  policy,
  code,
  setCode,
  dirty,
  save,
  addTest,
}: {
  policy: Policy;
  code: string;
  setCode?: (code: string) => void;
  dirty: boolean;
  save?: () => void;
  addTest?: (test: Schemas["PolicyTestCase"]) => void;
}) {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const editor = useRef<EditorHandle>(null);
  const [text, setText] = useState(() => JSON.stringify(policy.test_cases[0]?.input ?? emptyInput, null, 2));
  const { issues, checking } = useDiagnostics(code);
  const parsed = useMemo(() => parseInput(text), [text]);
  const [params] = useSearchParams();
  const run = useMutation({
    mutationFn: async (): Promise<Outcome | null> => {
      if (!parsed.input) return null;
      // What is typed and not stored runs as it is: nothing of it is stored for that.
      if (dirty || !can("simulator:write")) return runText(code, parsed.input);
      return runStored(policy.id, environment, parsed.input);
    },
  });
  // A decision that the address names is loaded and run.
  const decision = params.get("decision");
  const loaded = useQuery({
    queryKey: ["decision-input", policy.id, environment, decision],
    enabled: decision !== null && can("policies:write"),
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: () => inputOfDecision(policy.id, environment, decision ?? ""),
  });
  useEffect(() => {
    if (loaded.data) setText(JSON.stringify(loaded.data, null, 2));
  }, [loaded.data]);

  const library = policy.kind === "library";
  const outcome = run.data ?? null;
  const tints = useMemo(() => tintsOf(outcome), [outcome]);
  const start = () => run.mutate();
  const layout = useMutation({
    mutationFn: async (source: string) => ({ source, formatted: await format(source) }),
    // What was typed meanwhile is kept.
    onSuccess: ({ source, formatted }) => {
      if (formatted !== null && source === latest.current) setCode?.(formatted);
    },
  });
  const latest = useRef(code);
  latest.current = code;
  const layOut = setCode && can("editor:read") ? () => layout.mutate(code) : undefined;
  const goTo = (line: number) => editor.current?.goTo(line);
  return (
    <div className="gh-bench">
      <div className="gh-bench-code">
        <Panel
          title={t("workbench.control")}
          flush
          actions={
            <>
              {layOut && (
                <Button size="compact-sm" variant="default" loading={layout.isPending} onClick={layOut}>
                  {t("workbench.format")}
                </Button>
              )}
              <span className="gh-dim" role="status">
                {layout.data?.formatted === null && layout.data.source === code
                  ? `${t("workbench.notFormatted")} `
                  : ""}
                {checking ? t("workbench.checking") : t("workbench.found", { count: issues.length })}
              </span>
            </>
          }
        >
          <Editor
            ref={editor}
            language="rego"
            label={t("workbench.control")}
            description={t("workbench.leaveEditor")}
            value={code}
            onChange={setCode}
            issues={issues}
            tints={tints}
            run={library ? undefined : start}
            save={dirty ? save : undefined}
            format={layOut}
            complete={can("editor:read") ? complete : undefined}
            hover={can("editor:read") ? hover : undefined}
            minHeight={420}
            maxHeight="calc(100dvh - 330px)"
          />
          <Findings issues={issues} goTo={goTo} code={code} apply={can("editor:read") ? setCode : undefined} />
        </Panel>
      </div>
      {library ? (
        <LibraryUsers library={policy} />
      ) : (
        <div className="gh-bench-side">
          <Panel
            title={t("workbench.input")}
            flush
            actions={<InputPicker policy={policy} pick={(input) => setText(JSON.stringify(input, null, 2))} />}
          >
            <Editor
              language="json"
              label={t("workbench.input")}
              description={t("workbench.leaveEditor")}
              value={text}
              onChange={setText}
              run={start}
              minHeight={150}
              maxHeight={300}
            />
            <div className="gh-panel-body gh-row">
              <Button
                leftSection={<Icon name="play" />}
                loading={run.isPending}
                disabled={!parsed.input}
                onClick={start}
              >
                {t("workbench.run")}
              </Button>
              <kbd className="gh-kbd">Ctrl Enter</kbd>
              {parsed.error && <span className="gh-bad-text">{t("workbench.badInput", { error: parsed.error })}</span>}
              {loaded.error ? <ErrorPanel error={loaded.error} /> : null}
            </div>
          </Panel>
          <Panel title={t("workbench.outcome")}>
            {run.error ? (
              <ErrorPanel error={run.error} />
            ) : outcome ? (
              <Result outcome={outcome} goTo={goTo} />
            ) : (
              <p className="gh-dim" style={{ margin: 0 }}>
                {t("workbench.notRun")}
              </p>
            )}
            {outcome && addTest && parsed.input && <AddTest input={parsed.input} outcome={outcome} add={addTest} />}
          </Panel>
        </div>
      )}
    </div>
  );
}

function Findings({
  issues,
  goTo,
  code,
  apply,
}: {
  issues: Schemas["RegoIssue"][];
  goTo: (line: number) => void;
  code: string;
  apply?: (code: string) => void;
}) {
  const { t } = useI18n();
  const offered = useQuery({
    queryKey: ["fixes", code],
    queryFn: () => fixes(code),
    enabled: apply !== undefined && issues.length > 0,
    staleTime: 60_000,
  });
  if (issues.length === 0) return null;
  const mend = async (fix: Schemas["IdeFix"]) => {
    const { Text } = await import("@codemirror/state");
    const doc = Text.of(code.split("\n"));
    const from = offsetOf(doc, fix.range.start.line, fix.range.start.column);
    const to = offsetOf(doc, fix.range.end.line, fix.range.end.column);
    apply?.(code.slice(0, from) + fix.new_text + code.slice(to));
  };
  return (
    <ul className="gh-findings" aria-label={t("workbench.findings")}>
      {issues.slice(0, 50).map((issue) => (
        <li key={`${issue.line}:${issue.column}:${issue.message}`} data-severity={issue.severity}>
          <button type="button" onClick={() => goTo(issue.line)}>
            <strong>{t("common.line", { line: issue.line })}</strong> {issue.message}
          </button>
        </li>
      ))}
      {offered.data?.slice(0, 5).map((fix) => (
        <li key={`${fix.title}${fix.range.start.line}`}>
          <Button size="compact-xs" variant="default" onClick={() => void mend(fix)}>
            {fix.title}
          </Button>
        </li>
      ))}
    </ul>
  );
}

/** What came of a run: the decision, why, and the way to it. Without goTo, lines are named and lead nowhere. */
export function Result({ outcome, goTo }: { outcome: Outcome; goTo?: (line: number) => void }) {
  const { t, duration } = useI18n();
  const [failedOnly, setFailedOnly] = useState(false);
  const [output, setOutput] = useState(false);
  const steps = failedOnly ? outcome.steps.filter((s) => !s.held) : outcome.steps;
  return (
    <div className="gh-stack" style={{ gap: 12 }} aria-live="polite">
      {outcome.error && (
        <div className="gh-error" role="alert">
          {outcome.error}
        </div>
      )}
      {outcome.effect && (
        <div className="gh-verdict" data-effect={outcome.effect}>
          <StatusOf value={outcome.effect} />
          <strong>{outcome.reason}</strong>
          <span className="gh-dim">{duration(outcome.ms)}</span>
        </div>
      )}
      {outcome.explanation ? (
        <Suspense fallback={null}>
          <Explanation explanation={outcome.explanation} goTo={goTo} />
        </Suspense>
      ) : (
        outcome.text && <p className="gh-why">{outcome.text}</p>
      )}
      {outcome.notes.map((note) => (
        <p key={note} className="gh-note">
          {note}
        </p>
      ))}
      {outcome.traced && outcome.steps.length > 0 && (
        <section aria-label={t("workbench.trace")}>
          <div className="gh-row" style={{ justifyContent: "space-between" }}>
            <h3 className="gh-small-title">{t("workbench.trace")}</h3>
            <Checkbox
              size="xs"
              label={t("workbench.failedOnly")}
              checked={failedOnly}
              onChange={(e) => setFailedOnly(e.currentTarget.checked)}
            />
          </div>
          <ol className="gh-trace">
            {steps.map((s, i) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the list never changes
              <li key={i} data-held={s.held}>
                <span aria-hidden="true">{s.held ? "✓" : "✕"}</span>
                <span className="gh-sr">{s.held ? t("decisions.holds") : t("decisions.fails")}</span>
                <code>{s.source}</code>
                {goTo ? (
                  <button type="button" className="gh-line" onClick={() => goTo(s.line)}>
                    {t("common.line", { line: s.line })}
                  </button>
                ) : (
                  <span className="gh-line-name">{t("common.line", { line: s.line })}</span>
                )}
                {s.values.map(([path, value]) => (
                  <code key={path} className="gh-value">
                    {path} = {JSON.stringify(value)}
                  </code>
                ))}
              </li>
            ))}
          </ol>
        </section>
      )}
      {!outcome.traced && outcome.effect && <p className="gh-dim">{t("workbench.untraced")}</p>}
      {outcome.output !== undefined && (
        <>
          <Button
            size="compact-xs"
            variant="subtle"
            onClick={() => setOutput(!output)}
            aria-expanded={output}
            w="fit-content"
          >
            {t("workbench.output")}
          </Button>
          {output && <JsonView value={outcome.output} label={t("workbench.output")} />}
        </>
      )}
    </div>
  );
}

function AddTest({
  input,
  outcome,
  add,
}: {
  input: Record<string, unknown>;
  outcome: Outcome;
  add: (test: Schemas["PolicyTestCase"]) => void;
}) {
  const { t } = useI18n();
  const [name, setName] = useState("");
  if (!outcome.effect) return null;
  const expected = outcome.effect === "ALLOW" || outcome.effect === "MASK";
  return (
    <form
      className="gh-row"
      style={{ marginTop: 14 }}
      onSubmit={(event) => {
        event.preventDefault();
        add({ name: name.trim(), input, expected });
        setName("");
      }}
    >
      <TextInput
        aria-label={t("workbench.testName")}
        placeholder={t("workbench.testName")}
        value={name}
        onChange={(e) => setName(e.currentTarget.value)}
        required
        flex={1}
      />
      <Button type="submit" variant="default" disabled={!name.trim()}>
        {expected ? t("workbench.keepAllowed") : t("workbench.keepDenied")}
      </Button>
    </form>
  );
}

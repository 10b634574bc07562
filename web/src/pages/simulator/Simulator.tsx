import { Button, SegmentedControl, Select, Tabs } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { useSearchParams } from "react-router";
import { api, client, must, type Schemas } from "../../api/client";
import { Editor } from "../../editor/Editor";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Result } from "../policies/Code";
import { outcomeOf, parseInput } from "../policies/run";
import "../policies/workbench.css";
import "../resources/resources.css";
import "./simulator.css";
import { Compare } from "./Compare";
import { Export } from "./Export";
import { History } from "./History";
import { InputForm } from "./InputForm";
import { inputOfScenario, startOf } from "./input";
import { type Kept, keyOf, useRun } from "./runs";
import { Scenarios } from "./Scenarios";

type Scenario = Schemas["SimulatorScenario"];
const tabs = ["run", "compare", "history"] as const;
const text = (input: unknown) => JSON.stringify(input, null, 2);

/** Tries a control on an input without touching what is live. The address names the control, the run and the tab. */
export default function Simulator() {
  const { t, word } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const [params, setParams] = useSearchParams();
  const [chosenTab, chooseTab] = useFilter("tab");
  const tab = tabs.find((name) => name === chosenTab) ?? "run";
  const controls = api.useQuery("get", "/api/v1/pis/policies/loadable", { params: { query: { environment } } });
  const control = controls.data?.find((c) => String(c.id) === params.get("policy"));
  const idOf = (name: string) => Number(params.get(name)) || undefined;
  const show = (next: Record<string, string | number | null>) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(next)) {
          if (value === null) after.delete(name);
          else after.set(name, String(value));
        }
        return after;
      },
      { replace: true },
    );
  if (controls.error) {
    return (
      <>
        <PageHeader title={t("nav.simulator")} about={t("simulator.about")} />
        <ErrorPanel error={controls.error} retry={() => void controls.refetch()} />
      </>
    );
  }
  return (
    <>
      <PageHeader title={t("nav.simulator")} about={t("simulator.about")}>
        <Select
          aria-label={t("simulator.choose")}
          placeholder={t("simulator.choose")}
          data={(controls.data ?? []).map((c) => ({
            value: String(c.id),
            label: c.status === "enabled" ? c.name : `${c.name} (${word("common", "state", c.status)})`,
          }))}
          value={control ? String(control.id) : null}
          onChange={(id) => show({ policy: id, run: null, scenario: null })}
          searchable
          limit={100}
          w={300}
          maw="100%"
        />
      </PageHeader>
      <Tabs value={tab} onChange={(next) => chooseTab(next === "run" ? null : next)} keepMounted={false}>
        <Tabs.List mb="md">
          {tabs.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {t(`simulator.tab_${name}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="run">
          {!controls.data ? (
            <Skeleton label={t("nav.simulator")} />
          ) : controls.data.length === 0 ? (
            <Empty
              title={t("policies.empty")}
              about={t("simulator.emptyAbout")}
              action={can("policies:write") ? <Link to="/policies/new">{t("policies.new")}</Link> : undefined}
            />
          ) : control ? (
            <Bench
              key={`${environment}:${control.id}`}
              control={control}
              run={idOf("run")}
              scenario={idOf("scenario")}
              show={show}
            />
          ) : (
            <Empty title={t("simulator.choose")} about={t("simulator.chooseAbout")} />
          )}
        </Tabs.Panel>
        <Tabs.Panel value="compare">
          <Compare first={idOf("first")} second={idOf("second")} />
        </Tabs.Panel>
        <Tabs.Panel value="history">
          <History
            policyId={control?.id}
            compare={(first, second) =>
              show({ tab: "compare", first: Math.min(first, second), second: Math.max(first, second) })
            }
          />
        </Tabs.Panel>
      </Tabs>
    </>
  );
}

function Bench({
  control,
  run: runId,
  scenario: scenarioId,
  show,
}: {
  control: Schemas["SimulatorLoadable"];
  run: number | undefined;
  scenario: number | undefined;
  show: (next: Record<string, string | number | null>) => void;
}) {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const path = { policy_id: control.id };
  const attributes = api.useQuery("get", "/api/v1/pis/policies/{policy_id}/attributes", {
    params: { path, query: { environment } },
  });
  const scenarios = api.useQuery("get", "/api/v1/pis/scenarios", {
    params: { query: { environment, policy_id: control.id } },
  });
  const kept = useRun(runId, environment);
  const [typed, setTyped] = useState<string | null>(null);
  const [asJson, setAsJson] = useState(false);
  const [before, setBefore] = useState<number | null>(null);

  const scenario = scenarios.data?.find((s) => s.id === scenarioId);
  // What is typed goes first, then the run or the scenario that the address names.
  const start = useMemo(() => {
    if (kept.data) return text(kept.data.record.input_json);
    if (scenario) return text(inputOfScenario(scenario.attributes));
    return text(startOf(attributes.data ?? []));
  }, [kept.data, scenario, attributes.data]);
  const input = typed ?? start;
  const parsed = useMemo(() => parseInput(input), [input]);
  const ofScenario =
    scenario !== undefined && JSON.stringify(parsed.input) === JSON.stringify(inputOfScenario(scenario.attributes));

  const run = useMutation({
    mutationFn: async () =>
      must(
        await client.POST("/api/v1/pis/policies/{policy_id}/simulate", {
          params: { path, query: { environment } },
          body: {
            input_json: parsed.input,
            ...(ofScenario ? { scenario_id: scenario.id, test_type: "scenario" } : { test_type: "manual" }),
          },
        }),
      ),
    onSuccess: ({ simulation_id, checksum, ...record }) => {
      if (simulation_id === null) return;
      const made: Kept = { simulation_id, checksum, checksum_valid: true, record };
      queries.setQueryData(keyOf(simulation_id, environment), made);
      setBefore(runId ?? null);
      setTyped(input);
      show({ run: simulation_id });
    },
  });
  const write = can("simulator:write");
  const go = () => {
    if (write && parsed.input && !run.isPending) run.mutate();
  };
  // In the fields of the form too; the editor has the key of its own.
  useHotkeys([["mod+Enter", go]], []);
  const choose = (chosen: Scenario | null) => {
    if (chosen) setTyped(text(inputOfScenario(chosen.attributes)));
    show({ scenario: chosen?.id ?? null });
  };
  // Another run of the history replaces what is typed.
  useEffect(() => {
    if (kept.data && run.data?.simulation_id !== kept.data.simulation_id) setTyped(null);
  }, [kept.data, run.data]);

  const form = attributes.data && attributes.data.length > 0;
  return (
    <div className="gh-bench gh-simulator">
      <Panel
        title={t("workbench.input")}
        actions={
          form ? (
            <SegmentedControl
              size="xs"
              aria-label={t("simulator.shape")}
              value={asJson ? "json" : "form"}
              onChange={(v) => setAsJson(v === "json")}
              data={[
                { value: "form", label: t("simulator.form") },
                { value: "json", label: "JSON" },
              ]}
            />
          ) : undefined
        }
      >
        <div className="gh-stack" style={{ gap: 14 }}>
          {scenarios.error ? <ErrorPanel error={scenarios.error} retry={() => void scenarios.refetch()} /> : null}
          {scenarios.data && (
            <Scenarios
              policyId={control.id}
              scenarios={scenarios.data}
              chosen={scenario}
              input={parsed.input}
              changed={!ofScenario}
              choose={choose}
            />
          )}
          {attributes.error ? (
            <ErrorPanel error={attributes.error} retry={() => void attributes.refetch()} />
          ) : !attributes.data ? (
            <Skeleton label={t("workbench.input")} rows={4} columns={1} />
          ) : form && !asJson && parsed.input ? (
            <InputForm attributes={attributes.data} input={parsed.input} change={(next) => setTyped(text(next))} />
          ) : (
            <Editor
              language="json"
              label={t("workbench.input")}
              description={t("workbench.leaveEditor")}
              value={input}
              onChange={setTyped}
              run={go}
              minHeight={220}
              maxHeight={520}
            />
          )}
          {form === false && <p className="gh-dim gh-flat">{t("simulator.readsNothing")}</p>}
          {parsed.error && <span className="gh-bad-text">{t("workbench.badInput", { error: parsed.error })}</span>}
          {write && (
            <div className="gh-row">
              <Button leftSection={<Icon name="play" />} loading={run.isPending} disabled={!parsed.input} onClick={go}>
                {t("workbench.run")}
              </Button>
              <kbd className="gh-kbd">Ctrl Enter</kbd>
            </div>
          )}
        </div>
      </Panel>
      <div className="gh-bench-side">
        {run.error ? <ErrorPanel error={run.error} /> : null}
        {kept.error ? <ErrorPanel error={kept.error} retry={() => void kept.refetch()} /> : null}
        {kept.data ? (
          <RunOf kept={kept.data} before={before} show={show} />
        ) : runId !== undefined && kept.isFetching ? (
          <Skeleton label={t("workbench.outcome")} rows={4} />
        ) : (
          !kept.error && <Empty title={t("simulator.notRun")} about={t("simulator.notRunAbout")} />
        )}
      </div>
    </div>
  );
}

/** One run: the decision in words and colour, why, the way to it, and the lines of the control that decided. */
function RunOf({
  kept,
  before,
  show,
}: {
  kept: Kept;
  before: number | null;
  show: (next: Record<string, string | number | null>) => void;
}) {
  const { t } = useI18n();
  const { record } = kept;
  return (
    <>
      <Panel
        title={t("simulator.run", { id: kept.simulation_id })}
        actions={
          <>
            {before !== null && before !== kept.simulation_id && (
              <Button
                size="compact-xs"
                variant="default"
                onClick={() => show({ tab: "compare", first: before, second: kept.simulation_id })}
              >
                {t("simulator.compareBefore")}
              </Button>
            )}
            <Export id={kept.simulation_id} />
          </>
        }
      >
        <Result outcome={outcomeOf(record)} />
        <p className="gh-dim gh-run-facts">
          <StatusOf value={record.environment} /> {t("workbench.version", { version: record.policy.version })} ·{" "}
          {record.user.name} · <Time at={record.timestamp} />{" "}
          {!kept.checksum_valid && <Status tone="bad">{t("simulator.tampered")}</Status>}
        </p>
      </Panel>
      {record.source_lines.length > 0 && (
        <Panel
          title={t("simulator.lines")}
          flush
          actions={<Link to={`/policies/${record.policy.id}`}>{t("simulator.openControl")}</Link>}
        >
          <ol className="gh-lines" aria-label={t("simulator.lines")}>
            {record.source_lines.map((l) => (
              <li key={l.line} data-outcome={l.outcome}>
                <span className="gh-dim">{l.line}</span>
                <span aria-hidden="true" className="gh-line-mark">
                  {l.outcome === "held" ? "✓" : l.outcome === "failed" ? "✕" : l.outcome ? "●" : ""}
                </span>
                {l.outcome && <span className="gh-sr">{t(`simulator.line_${l.outcome}`)}</span>}
                <code>{l.text}</code>
              </li>
            ))}
          </ol>
        </Panel>
      )}
    </>
  );
}

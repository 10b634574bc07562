import { Button, Checkbox } from "@mantine/core";
import { useState } from "react";
import { client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterDate, FilterSelect, Filters } from "../../ui/Filters";
import { StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useEnvironment, useFilter } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Export } from "./Export";

type Entry = Schemas["SimulatorEntry"];
const names = ["whose", "decision", "start_date", "end_date"];
const decisions = ["ALLOW", "DENY", "MASK", "NO_MATCH"] as const;

/** The runs that were kept: one's own, or everybody's of the chosen control. */
export function History({
  policyId,
  compare,
}: {
  policyId: number | undefined;
  compare: (first: number, second: number) => void;
}) {
  const { t, number, duration } = useI18n();
  const environment = useEnvironment();
  const [whose] = useFilter("whose");
  const [wanted] = useFilter("decision");
  const [start] = useFilter("start_date");
  const [end] = useFilter("end_date");
  const clear = useClearFilters(names);
  const [ticked, setTicked] = useState<number[]>([]);
  const own = policyId === undefined || whose === "own";
  const decision = decisions.find((d) => d === wanted);
  const window = {
    decision,
    start_date: start || undefined,
    // A day is meant to its end.
    end_date: end.length === 10 ? `${end}T23:59:59.999Z` : end || undefined,
  };
  const path = own ? "/api/v1/pis/test-history" : "/api/v1/pis/policies/{policy_id}/test-history";
  const { source, total } = useSkipped<Entry>(["get", path, environment, policyId, window], async (offset, signal) => {
    const query = { environment, limit: 100, offset, ...window };
    const page = must(
      own
        ? await client.GET("/api/v1/pis/test-history", { params: { query }, signal })
        : await client.GET("/api/v1/pis/policies/{policy_id}/test-history", {
            params: { path: { policy_id: policyId }, query },
            signal,
          }),
    );
    return { rows: page.entries, total: page.total };
  });
  const tick = (id: number, on: boolean) =>
    setTicked((before) => (on ? [...before.slice(-1), id] : before.filter((other) => other !== id)));
  const [first, second] = ticked;
  const columns: Column<Entry>[] = [
    {
      id: "tick",
      header: t("simulator.compare"),
      hiddenHeader: true,
      width: 36,
      cell: (r) =>
        r.can_export && (
          <Checkbox
            size="xs"
            aria-label={t("simulator.tick", { id: r.id })}
            checked={ticked.includes(r.id)}
            onChange={(e) => tick(r.id, e.currentTarget.checked)}
          />
        ),
    },
    {
      id: "time",
      header: t("common.time"),
      cell: (r) =>
        r.can_export ? (
          <Link to="/simulator" params={{ policy: r.policy_id, run: r.id }}>
            <Time at={r.timestamp} />
          </Link>
        ) : (
          <Time at={r.timestamp} />
        ),
    },
    { id: "decision", header: t("decisions.decision"), cell: (r) => <StatusOf value={r.decision} /> },
    { id: "policy", header: t("decisions.control"), cell: (r) => r.policy_name },
    { id: "user", header: t("simulator.by"), cell: (r) => r.user },
    {
      id: "input",
      header: t("workbench.input"),
      cell: (r) => <span title={r.input_summary}>{r.input_summary}</span>,
    },
    {
      id: "took",
      header: t("decisions.took"),
      numeric: true,
      cell: (r) => duration(r.execution_time_ms),
    },
    {
      id: "export",
      header: t("simulator.export"),
      cell: (r) => (r.can_export ? <Export id={r.id} /> : <span className="gh-dim">{t("common.none")}</span>),
    },
  ];
  return (
    <>
      <Filters
        count={
          source.rows && total !== undefined
            ? t("common.countOf", { shown: number(source.rows.length), total: number(total) })
            : ""
        }
      >
        {policyId !== undefined && (
          <FilterSelect
            name="whose"
            label={t("simulator.whose")}
            options={[{ value: "own", label: t("simulator.own") }]}
            width={190}
          />
        )}
        <FilterSelect
          name="decision"
          label={t("decisions.decision")}
          options={decisions.map((d) => ({ value: d, label: t(`common.state_${d}`) }))}
        />
        <FilterDate name="start_date" label={t("decisions.from")} />
        <FilterDate name="end_date" label={t("decisions.to")} />
        <Button
          variant="default"
          disabled={first === undefined || second === undefined}
          onClick={() => first !== undefined && second !== undefined && compare(first, second)}
        >
          {t("simulator.compareTicked")}
        </Button>
      </Filters>
      <DataTable
        label={t("simulator.tab_history")}
        columns={columns}
        source={source}
        rowKey={(r) => r.id}
        selected={(r) => ticked.includes(r.id)}
        filtered={whose !== "" || decision !== undefined || start !== "" || end !== ""}
        clear={clear}
        empty={<Empty title={t("simulator.noRuns")} about={t("simulator.noRunsAbout")} />}
      />
    </>
  );
}

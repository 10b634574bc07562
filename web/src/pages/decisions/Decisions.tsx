import { lazy, Suspense } from "react";
import { useNavigate } from "react-router";
import { api, client, must, type Schemas } from "../../api/client";
import { usePaged } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterDate, FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Subject } from "./Subject";
import "./decision.css";

// Only who looks at one subject or one resource loads it.
const Timeline = lazy(async () => ({ default: (await import("./Timeline")).Timeline }));

type Decision = Schemas["AuditDecision"];
const names = ["decision", "user_id", "policy_id", "resource_id", "start_date", "end_date"];

export default function Decisions() {
  const { t, number, duration } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const navigate = useNavigate();
  const clear = useClearFilters(names);
  const [decision] = useFilter("decision");
  const [user] = useFilter("user_id");
  const [policy] = useFilter("policy_id");
  const [resource] = useFilter("resource_id");
  const [start] = useFilter("start_date");
  const [end] = useFilter("end_date");
  const filters = {
    decision: decision === "PERMIT" || decision === "DENY" ? (decision as "PERMIT" | "DENY") : undefined,
    user_id: user || undefined,
    policy_id: Number(policy) || undefined,
    resource_id: resource || undefined,
    start_date: start || undefined,
    // A day is meant to its end.
    end_date: end.length === 10 ? `${end}T23:59:59.999Z` : end || undefined,
  };
  const { source, total } = usePaged<Decision>(
    ["get", "/api/v1/decisions/audit", environment, filters],
    async (cursor, signal) => {
      const page = must(
        await client.GET("/api/v1/decisions/audit", {
          params: { query: { environment, limit: 200, cursor: cursor as string | undefined, ...filters } },
          signal,
        }),
      );
      return { rows: page.logs, total: page.filtered, next: page.next_cursor };
    },
  );
  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  const resources = api.useQuery(
    "get",
    "/api/v1/resources",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("resources:read") },
  );
  const timelineOf = user ? "user" : resource ? "resource" : undefined;
  const columns: Column<Decision>[] = [
    {
      id: "time",
      header: t("common.time"),
      cell: (d) => (
        <Link to={`/decisions/${d.decision_id}`} params={{ at: d.timestamp }}>
          <Time at={d.timestamp} />
        </Link>
      ),
    },
    { id: "effect", header: t("decisions.decision"), cell: (d) => <StatusOf value={d.effect ?? d.decision} /> },
    { id: "user", header: t("decisions.user"), cell: (d) => <Subject decision={d} /> },
    {
      id: "action",
      header: t("decisions.action"),
      cell: (d) => <code>{d.action}</code>,
    },
    {
      id: "resource",
      header: t("decisions.resource"),
      cell: (d) => <span title={d.resource.path}>{d.resource.path || d.resource.id || d.resource.type}</span>,
    },
    {
      id: "policy",
      header: t("decisions.control"),
      cell: (d) =>
        d.policy_id ? (
          <Link to={`/policies/${d.policy_id}`}>{d.policy_name}</Link>
        ) : (
          (d.policy_name ?? <span className="gh-dim">{t("common.none")}</span>)
        ),
    },
    { id: "reason", header: t("decisions.reason"), cell: (d) => <span title={d.reason}>{d.reason}</span> },
    { id: "took", header: t("decisions.took"), numeric: true, cell: (d) => duration(d.evaluation_time_ms) },
  ];
  return (
    <>
      <PageHeader title={t("decisions.title")} about={t("decisions.about")} />
      <Filters
        count={
          source.rows && total !== undefined
            ? t("common.countOf", { shown: number(source.rows.length), total: number(total) })
            : ""
        }
      >
        <FilterSelect
          name="decision"
          label={t("decisions.decision")}
          options={[
            { value: "PERMIT", label: t("common.state_PERMIT") },
            { value: "DENY", label: t("common.state_DENY") },
          ]}
        />
        <FilterText name="user_id" label={t("decisions.userExact")} width={170} />
        {policies.data && (
          <FilterSelect
            name="policy_id"
            label={t("decisions.control")}
            options={policies.data.policies.map((p) => ({ value: String(p.id), label: p.name }))}
            width={170}
          />
        )}
        {resources.data && (
          <FilterSelect
            name="resource_id"
            label={t("decisions.resource")}
            options={resources.data.resources.map((r) => ({ value: String(r.id), label: r.name }))}
            width={170}
          />
        )}
        <FilterDate name="start_date" label={t("decisions.from")} />
        <FilterDate name="end_date" label={t("decisions.to")} />
      </Filters>
      {timelineOf && source.rows && source.rows.length > 1 && (
        <Suspense>
          <Timeline decisions={source.rows} of={timelineOf} />
        </Suspense>
      )}
      <DataTable
        label={t("decisions.title")}
        columns={columns}
        source={source}
        rowKey={(d) => d.decision_id}
        open={(d) =>
          void navigate(`/decisions/${d.decision_id}?environment=${environment}&at=${encodeURIComponent(d.timestamp)}`)
        }
        filtered={Object.values(filters).some((f) => f !== undefined)}
        clear={clear}
        empty={<Empty title={t("decisions.empty")} about={t("decisions.emptyAbout")} />}
      />
    </>
  );
}

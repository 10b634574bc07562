import { client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { StatusOf } from "../../ui/Status";
import { Link, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Run = Schemas["IntegrationRun"];

/** Whether systems of a kind answer back. */
export const answers = (kind: Schemas["Integration"]["kind"]) => kind === "workflow" || kind === "approval_queue";

/** What an integration was started with, and what it answered. */
export function Runs({ of: i }: { of: Schemas["Integration"] }) {
  const { t } = useI18n();
  const { can } = useMe();
  const path = { integration_id: i.id };
  const { source } = useSkipped<Run>(
    ["get", "/api/v1/integrations/{integration_id}/runs", path],
    async (skip, signal) => {
      const params = { path, query: { skip, limit: 50 } };
      const page = must(await client.GET("/api/v1/integrations/{integration_id}/runs", { params, signal }));
      return { rows: page.runs, total: page.total };
    },
  );
  const cause = (r: Run) => {
    const text = r.cause.test ? t("integrations.runTest") : r.cause.summary;
    const decision = r.cause.decision_id;
    return decision && can("audit:read") ? <Link to={`/decisions/${encodeURIComponent(decision)}`}>{text}</Link> : text;
  };
  const columns: Column<Run>[] = [
    { id: "run", header: t("integrations.run"), cell: (r) => String(r.id) },
    { id: "status", header: t("notifications.status"), cell: (r) => <StatusOf value={r.status} /> },
    { id: "cause", header: t("integrations.runCause"), cell: cause },
    {
      id: "message",
      header: t("integrations.runMessage"),
      cell: (r) => <bdi title={r.message}>{r.message || "–"}</bdi>,
    },
    { id: "by", header: t("integrations.runBy"), cell: (r) => <bdi>{r.answered_by || "–"}</bdi> },
    { id: "created", header: t("integrations.runCreated"), cell: (r) => <Time at={r.created_at} /> },
    { id: "ended", header: t("integrations.runEnded"), cell: (r) => <Time at={r.ended_at} /> },
  ];
  return (
    <DataTable
      label={t("integrations.runs")}
      columns={columns}
      source={source}
      rowKey={(r) => r.id}
      empty={<Empty title={t("integrations.runsEmpty")} about={t("integrations.runsAbout")} />}
    />
  );
}

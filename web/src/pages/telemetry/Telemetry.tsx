import { Button } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, api, client, must, type Schemas } from "../../api/client";
import { usePaged } from "../../api/paged";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { TelemetryForm } from "./TelemetryForm";

type Entry = Schemas["TelemetryEntry"];

/** What is sent to the license server, when, what came of it, and what the license allows now. */
export default function Telemetry() {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const [editing, setEditing] = useState(false);
  const config = api.useQuery("get", "/api/v1/telemetry/config", {}, { retry: false });
  const none = config.error instanceof ApiError && config.error.status === 404;
  const known = none ? undefined : config.data;
  const done = { onSettled: () => refresh(queries, "telemetry") };
  const send = api.useMutation("post", "/api/v1/telemetry/send-now", done);
  const test = api.useMutation("post", "/api/v1/telemetry/test-connection", done);
  const write = can("telemetry:write");
  const header = (
    <PageHeader
      title={t("nav.telemetry")}
      about={t("telemetry.about")}
      mark={(known || none) && <StatusOf value={known?.enabled ? "enabled" : "disabled"} />}
    >
      {write && known && (
        <>
          <Button variant="default" loading={test.isPending} onClick={() => test.mutate({})}>
            {t("telemetry.test")}
          </Button>
          {known.enabled && (
            <Button variant="default" loading={send.isPending} onClick={() => send.mutate({})}>
              {t("telemetry.send")}
            </Button>
          )}
        </>
      )}
      {write && (known || none) && (
        <Button onClick={() => setEditing(true)}>{known ? t("telemetry.change") : t("telemetry.connect")}</Button>
      )}
    </PageHeader>
  );
  if (config.error && !none) {
    return (
      <>
        {header}
        <ErrorPanel error={config.error} retry={() => void config.refetch()} />
      </>
    );
  }
  if (config.isPending) {
    return (
      <>
        {header}
        <Skeleton label={t("nav.telemetry")} />
      </>
    );
  }
  return (
    <div className="gh-stack">
      {header}
      {send.error ? <ErrorPanel error={send.error} /> : null}
      {send.data && (
        <p className="gh-note gh-flat" data-tone="good" role="status">
          {t("telemetry.sent")}
        </p>
      )}
      {test.error ? <ErrorPanel error={test.error} /> : null}
      {test.data && (
        <p className="gh-note gh-flat" data-tone={test.data.status === "success" ? "good" : "warn"} role="status">
          {test.data.status === "success" ? t("telemetry.connected") : t("telemetry.notConnected")}{" "}
          {test.data.status !== "success" && <span lang="en">{test.data.message}</span>}
        </p>
      )}
      <div className="gh-grid">
        <License />
        <Schedule config={known} />
      </div>
      {known ? <Preview /> : <Empty title={t("telemetry.nothing")} about={t("telemetry.nothingAbout")} />}
      <History write={write && known !== undefined} />
      {editing && <TelemetryForm config={known} close={() => setEditing(false)} />}
    </div>
  );
}

/** What the license allows, as it is known now. */
function License() {
  const { t } = useI18n();
  const license = api.useQuery("get", "/api/v1/telemetry/license-status");
  const l = license.data;
  return (
    <Panel
      title={t("telemetry.license")}
      className="gh-half-wide"
      actions={
        <Button
          size="compact-sm"
          variant="default"
          loading={license.isFetching}
          onClick={() => void license.refetch({ cancelRefetch: false })}
        >
          {t("telemetry.ask")}
        </Button>
      }
    >
      {license.error ? (
        <ErrorPanel error={license.error} retry={() => void license.refetch()} />
      ) : !l ? (
        <Skeleton label={t("telemetry.license")} rows={4} columns={2} />
      ) : (
        <div className="gh-stack" style={{ gap: 12 }}>
          <dl className="gh-facts">
            <dt>{t("telemetry.tier")}</dt>
            <dd>{l.tier}</dd>
            <dt>{t("telemetry.server")}</dt>
            <dd>
              {l.license_admin_url ? (
                <Status tone={l.connected ? "good" : "bad"}>
                  {l.connected ? t("telemetry.answers") : t("telemetry.silent")}
                </Status>
              ) : (
                t("common.none")
              )}
            </dd>
            <dt>{t("telemetry.verified")}</dt>
            <dd>
              <Time at={l.last_verification} />
            </dd>
            {l.trial_end_date && (
              <>
                <dt>{t("telemetry.trial")}</dt>
                <dd>
                  <Time at={l.trial_end_date} />
                </dd>
              </>
            )}
            <dt>{t("telemetry.tests")}</dt>
            <dd>
              <Allowed yes={l.can_test_policies} why={l.test_policies_message} />
            </dd>
            <dt>{t("telemetry.promotion")}</dt>
            <dd>
              <Allowed yes={l.can_promote_to_production} why={l.promote_message} />
            </dd>
          </dl>
          {[l.warning, l.promote_warning].filter(Boolean).map((warning) => (
            <p key={warning} className="gh-note gh-flat" data-tone="warn" lang="en">
              {warning}
            </p>
          ))}
          <p className="gh-flat gh-dim">{t("telemetry.decisions")}</p>
        </div>
      )}
    </Panel>
  );
}

function Allowed({ yes, why }: { yes: boolean; why: string }) {
  const { t } = useI18n();
  return (
    <>
      <Status tone={yes ? "good" : "bad"}>{yes ? t("telemetry.allowed") : t("telemetry.refused")}</Status>
      {!yes && (
        <div className="gh-dim" lang="en">
          {why}
        </div>
      )}
    </>
  );
}

/** When reports are sent, and how. */
function Schedule({ config }: { config?: Schemas["TelemetryConfig"] }) {
  const { t, number } = useI18n();
  const scheduler = api.useQuery("get", "/api/v1/telemetry/scheduler-status");
  const s = scheduler.data;
  return (
    <Panel title={t("telemetry.schedule")} className="gh-half-wide">
      {scheduler.error ? (
        <ErrorPanel error={scheduler.error} retry={() => void scheduler.refetch()} />
      ) : !s ? (
        <Skeleton label={t("telemetry.schedule")} rows={4} columns={2} />
      ) : (
        <dl className="gh-facts">
          <dt>{t("telemetry.frequency")}</dt>
          <dd>{t(`telemetry.every_${s.frequency}`)}</dd>
          <dt>{t("telemetry.next")}</dt>
          <dd>{s.next_scheduled_at ? <Time at={s.next_scheduled_at} /> : t("telemetry.notScheduled")}</dd>
          <dt>{t("telemetry.last")}</dt>
          <dd>
            <Time at={s.last_transmission_at} />
          </dd>
          {config && (
            <>
              <dt>{t("telemetry.url")}</dt>
              <dd style={{ overflowWrap: "anywhere" }}>{config.business_admin_url || t("common.none")}</dd>
              <dt>{t("telemetry.key")}</dt>
              <dd>{config.api_key_configured ? t("telemetry.keySet") : t("common.none")}</dd>
              <dt>{t("telemetry.encrypted")}</dt>
              <dd>{config.encryption_enabled ? t("common.yes") : t("common.no")}</dd>
              <dt>{t("telemetry.anonymous")}</dt>
              <dd>{config.anonymization_enabled ? t("common.yes") : t("common.no")}</dd>
              <dt>{t("telemetry.retention")}</dt>
              <dd>{number(config.local_retention_days)}</dd>
            </>
          )}
        </dl>
      )}
    </Panel>
  );
}

/** Exactly what would be sent now. */
function Preview() {
  const { t } = useI18n();
  const preview = useQuery({
    queryKey: ["get", "/api/v1/telemetry/preview", "text"],
    queryFn: async ({ signal }) =>
      must(await client.GET("/api/v1/telemetry/preview", { parseAs: "text", signal })) as string,
  });
  return (
    <Panel title={t("telemetry.preview")}>
      <div className="gh-stack" style={{ gap: 10 }}>
        <p className="gh-flat">{t("telemetry.previewAbout")}</p>
        {preview.error ? (
          <ErrorPanel error={preview.error} retry={() => void preview.refetch()} />
        ) : preview.data === undefined ? (
          <Skeleton label={t("telemetry.preview")} rows={6} columns={1} />
        ) : (
          <>
            <JsonView label={t("telemetry.report")} value={JSON.parse(preview.data)} />
            <Copyable label={t("telemetry.bytes")} text={preview.data.trim()} />
          </>
        )}
      </div>
    </Panel>
  );
}

/** The reports that were sent, and those that did not arrive. */
function History({ write }: { write: boolean }) {
  const { t, number } = useI18n();
  const queries = useQueryClient();
  const size = 100;
  const { source } = usePaged<Entry>(["get", "/api/v1/telemetry/history"], async (cursor, signal) => {
    const skip = Number(cursor ?? 0);
    const rows = must(
      await client.GET("/api/v1/telemetry/history", { params: { query: { limit: size, skip } }, signal }),
    );
    return { rows, total: skip + rows.length, next: rows.length === size ? skip + size : undefined };
  });
  const retry = api.useMutation("post", "/api/v1/telemetry/history/{log_id}/retry", {
    onSettled: () => refresh(queries, "telemetry"),
  });
  const columns: Column<Entry>[] = [
    { id: "time", header: t("common.time"), cell: (e) => <Time at={e.transmission_date} /> },
    { id: "status", header: t("telemetry.status"), cell: (e) => <StatusOf value={e.status} /> },
    {
      id: "answer",
      header: t("telemetry.answer"),
      cell: (e) => (
        <span title={e.error_details ?? undefined} lang="en">
          {e.error_details || [e.response_code || "", e.response_message].join(" ").trim()}
        </span>
      ),
    },
    { id: "retries", header: t("telemetry.retries"), numeric: true, cell: (e) => number(e.retry_count) },
    { id: "arrived", header: t("telemetry.arrived"), cell: (e) => <Time at={e.transmitted_at} /> },
  ];
  if (write) {
    columns.push({
      id: "again",
      header: t("common.retry"),
      hiddenHeader: true,
      cell: (e) =>
        e.status === "failed" && (
          <Button
            size="compact-xs"
            variant="default"
            loading={retry.isPending && retry.variables.params.path.log_id === e.id}
            aria-label={t("telemetry.retryOne", { id: String(e.id) })}
            onClick={() => retry.mutate({ params: { path: { log_id: e.id } } })}
          >
            {t("common.retry")}
          </Button>
        ),
    });
  }
  return (
    <Panel title={t("telemetry.history")}>
      {retry.error ? <ErrorPanel error={retry.error} /> : null}
      <DataTable
        label={t("telemetry.transmissions")}
        columns={columns}
        source={source}
        rowKey={(e) => e.id}
        empty={<Empty title={t("telemetry.noHistory")} about={t("telemetry.noHistoryAbout")} />}
        maxHeight={420}
      />
    </Panel>
  );
}

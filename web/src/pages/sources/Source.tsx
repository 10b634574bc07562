import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, client, ifMatch, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useMe, useTo } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Health } from "./Health";
import { SourceForm } from "./SourceForm";
import type { Source } from "./source";

type Sync = Schemas["PipSync"];

/** One data source: how old its data is, what it reads, and how its syncs ended. */
export default function SourcePage() {
  const { t } = useI18n();
  const { id = "" } = useParams();
  const source = api.useQuery("get", "/api/v1/pip/connections/{connection_id}", {
    params: { path: { connection_id: Number(id) } },
  });
  const s = source.data;
  if (!s) {
    return (
      <>
        <PageHeader title={t("sources.one")} />
        {source.error ? (
          <ErrorPanel error={source.error} retry={() => void source.refetch()} />
        ) : (
          <Skeleton label={t("sources.one")} />
        )}
      </>
    );
  }
  return (
    <>
      <PageHeader title={s.name} mark={<Health of={s.health_status} />}>
        <Actions source={s} />
      </PageHeader>
      <div className="gh-stack">
        {s.last_error && (
          <p className="gh-note gh-flat" data-tone={s.health_status === "stale" ? "warn" : "bad"}>
            {s.health_status === "stale"
              ? t("sources.staleAbout", { error: s.last_error })
              : t("sources.failedAbout", { error: s.last_error })}
          </p>
        )}
        <Panel title={t("sources.what")}>
          <Facts source={s} />
        </Panel>
        <Panel title={t("sources.configuration")}>
          <JsonView value={s.configuration} label={t("sources.settingsJson")} />
        </Panel>
        <Syncs source={s} />
      </div>
    </>
  );
}

function Facts({ source: s }: { source: Source }) {
  const { t, number, word } = useI18n();
  const facts: [string, ReactNode][] = [
    [t("sources.readAs"), <code key="r">{`data.pip[${JSON.stringify(s.name)}]`}</code>],
    [t("sources.lastSync"), <Time key="l" at={s.last_sync} />],
    [t("sources.nextSync"), s.next_sync ? <Time key="n" at={s.next_sync} /> : t("sources.every_manual")],
    [t("sources.frequency"), t(`sources.every_${s.sync_frequency}`)],
    [t("sources.enabled"), s.sync_enabled ? t("common.yes") : t("common.no")],
    [t("sources.records"), number(s.records_synced)],
    [t("sources.provider"), word("sources", "provider", s.provider)],
    [t("sources.type"), s.connection_type || t("common.none")],
    [t("sources.signIn"), s.credentials_set ? t("common.yes") : t("sources.way_none")],
    [t("workbench.createdBy"), s.created_by],
    [t("workbench.created"), <Time key="c" at={s.created_at} />],
  ];
  return (
    <dl className="gh-facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Actions({ source }: { source: Source & { etag: string } }) {
  const { t } = useI18n();
  const { can } = useMe();
  const to = useTo();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [removing, setRemoving] = useState(false);
  const [editing, setEditing] = useState(false);
  const path = { connection_id: source.id };
  const sync = api.useMutation("post", "/api/v1/pip/connections/{connection_id}/trigger-sync", {
    onSuccess: () => refresh(queries, "data_sources"),
  });
  const remove = api.useMutation("delete", "/api/v1/pip/connections/{connection_id}", {
    onSuccess: () => {
      refresh(queries, "data_sources", "none");
      navigate(to("/data-sources"));
    },
  });
  if (!can("pip:write")) return null;
  return (
    <>
      <Button loading={sync.isPending} onClick={() => sync.mutate({ params: { path } })}>
        {t("sources.syncNow")}
      </Button>
      <Button variant="default" onClick={() => setEditing(true)}>
        {t("common.edit")}
      </Button>
      <Button variant="default" onClick={() => setRemoving(true)}>
        {t("common.delete")}
      </Button>
      {sync.error ? <ErrorPanel error={sync.error} /> : null}
      {editing && <SourceForm source={source} close={() => setEditing(false)} saved={() => setEditing(false)} />}
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          remove.reset();
        }}
        title={t("sources.deleteTitle")}
        object={source.name}
        about={t("sources.deleteAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => remove.mutate({ params: { path, header: ifMatch(source) } })}
      />
    </>
  );
}

function Syncs({ source: of }: { source: Source }) {
  const { t, number } = useI18n();
  const { source } = useSkipped<Sync>(
    ["get", "/api/v1/pip/connections/{connection_id}/syncs", of.id],
    async (skip, signal) => {
      const params = { path: { connection_id: of.id }, query: { skip, limit: 100 } };
      const page = must(await client.GET("/api/v1/pip/connections/{connection_id}/syncs", { params, signal }));
      return { rows: page.syncs, total: page.total };
    },
  );
  const columns: Column<Sync>[] = [
    { id: "time", header: t("common.time"), cell: (y) => <Time at={y.created_at} /> },
    { id: "status", header: t("webhooks.status"), cell: (y) => <StatusOf value={y.status} /> },
    { id: "reason", header: t("sources.reason"), cell: (y) => t(`sources.reason_${y.reason}`) },
    { id: "records", header: t("sources.records"), numeric: true, cell: (y) => number(y.records_synced) },
    { id: "changed", header: t("sources.changed"), cell: (y) => (y.changed ? t("common.yes") : t("common.no")) },
    { id: "error", header: t("sources.lastError"), cell: (y) => <span title={y.error ?? undefined}>{y.error}</span> },
  ];
  return (
    <Panel title={t("sources.syncs")}>
      <DataTable
        label={t("sources.syncList")}
        columns={columns}
        source={source}
        rowKey={(y) => y.id}
        empty={<Empty title={t("sources.noSyncs")} about="" />}
        maxHeight={520}
      />
    </Panel>
  );
}

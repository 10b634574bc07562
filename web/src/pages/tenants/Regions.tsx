import { Button, Checkbox, Select, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { percentOf, regions, windowOf } from "./regions";

type Move = Schemas["RegionDeployment"];

/** Where the tenant's data is, and its moves to other regions with their progress. */
export default function Regions() {
  const { t, word, number } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const [stopping, setStopping] = useState<Move | null>(null);
  const path = { tenant_id: me.tenant_id };
  const tenant = api.useQuery("get", "/api/v1/tenants/{tenant_id}", { params: { path } });
  const moves = api.useQuery(
    "get",
    "/api/v1/tenants/{tenant_id}/deployments",
    { params: { path } },
    { refetchInterval: (query) => query.state.data?.deployments.some((d) => d.status === "in_progress") && 2_000 },
  );
  const stop = api.useMutation("delete", "/api/v1/tenants/{tenant_id}/deployments/{deployment_id}", {
    onSuccess: () => {
      setStopping(null);
      refresh(queries, "tenant");
    },
  });
  const platform = me.roles.includes("platform_admin");
  const columns: Column<Move>[] = [
    { id: "started", header: t("regions.started"), cell: (d) => <Time at={d.started_at} /> },
    {
      id: "where",
      header: t("regions.where"),
      cell: (d) => (
        <code>
          {d.from_region} → {d.region}
        </code>
      ),
    },
    { id: "status", header: t("domains.status"), cell: (d) => <StatusOf value={d.status} /> },
    {
      id: "progress",
      header: t("regions.progress"),
      cell: (d) => (
        <span className="gh-stack" style={{ gap: 2 }}>
          {d.status === "in_progress" && (
            <progress
              className="gh-progress"
              max={100}
              value={percentOf(d)}
              aria-label={t("regions.progressOf", { region: d.region })}
            />
          )}
          <span>{d.reason || word("regions", "phase", d.phase)}</span>
          {d.status === "in_progress" && d.maintenance_window && d.phase === "waiting" && (
            <span className="gh-dim">
              {t("regions.begins")} <Time at={d.maintenance_window} />
            </span>
          )}
        </span>
      ),
    },
    {
      id: "rows",
      header: t("regions.rows"),
      numeric: true,
      cell: (d) => (d.rows_total ? `${number(d.rows_copied)} / ${number(d.rows_total)}` : "–"),
    },
    {
      id: "pause",
      header: t("regions.pause"),
      numeric: true,
      cell: (d) => (d.status === "completed" ? `${number(d.write_pause_ms)} ms` : "–"),
    },
    {
      id: "actions",
      header: t("keys.actions"),
      hiddenHeader: true,
      cell: (d) =>
        platform &&
        d.status === "in_progress" && (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={t("regions.stopNamed", { region: d.region })}
            onClick={() => setStopping(d)}
          >
            {t("regions.stop")}
          </Button>
        ),
    },
  ];
  const start = platform && <Button onClick={() => setAsking(true)}>{t("regions.move")}</Button>;
  return (
    <>
      <PageHeader
        title={t("regions.title")}
        about={tenant.data ? t("regions.now", { region: tenant.data.region }) : t("regions.about")}
      >
        {start}
      </PageHeader>
      {tenant.error && <ErrorPanel error={tenant.error} retry={() => void tenant.refetch()} />}
      <DataTable
        label={t("regions.moves")}
        columns={columns}
        rowKey={(d) => d.deployment_id}
        source={{ rows: moves.data?.deployments, error: moves.error, retry: () => void moves.refetch() }}
        empty={<Empty title={t("regions.empty")} about={t("regions.emptyAbout")} action={start || undefined} />}
      />
      {asking && tenant.data && <MoveForm tenant={tenant.data} close={() => setAsking(false)} />}
      <ConfirmDialog
        opened={stopping !== null}
        close={() => {
          setStopping(null);
          stop.reset();
        }}
        title={t("regions.stopTitle")}
        object={stopping?.region ?? ""}
        about={t("regions.stopAbout")}
        action={t("regions.stop")}
        busy={stop.isPending}
        error={stop.error}
        confirm={() =>
          stopping && stop.mutate({ params: { path: { ...path, deployment_id: stopping.deployment_id } } })
        }
      />
    </>
  );
}

/** Asks where and when to move, and whether the data moves along. */
function MoveForm({ tenant, close }: { tenant: Schemas["Tenant"]; close: () => void }) {
  const { t } = useI18n();
  const queries = useQueryClient();
  const [region, setRegion] = useState(regions.find((r) => r !== tenant.region) ?? tenant.region);
  const [along, setAlong] = useState(true);
  const deploy = api.useMutation("post", "/api/v1/tenants/{tenant_id}/deploy", {
    onSuccess: () => {
      refresh(queries, "tenant");
      close();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const at = windowOf(String(new FormData(event.currentTarget).get("window")));
    deploy.mutate({
      params: { path: { tenant_id: tenant.id } },
      body: { region, migrate_data: along, maintenance_window: at },
    });
  };
  return (
    <Dialog opened close={close} title={t("regions.moveNamed", { tenant: tenant.name })}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <Select
            label={t("tenants.region")}
            data={regions}
            value={region}
            onChange={(v) => setRegion((v as typeof region) ?? region)}
            allowDeselect={false}
          />
          <TextInput
            type="datetime-local"
            name="window"
            label={t("regions.window")}
            description={t("regions.windowAbout")}
          />
          <Checkbox
            label={t("regions.along")}
            checked={along}
            onChange={(event) => setAlong(event.currentTarget.checked)}
          />
          {!along && (
            <p className="gh-note" data-tone="warn" role="alert" style={{ margin: 0 }}>
              {t("regions.emptyStart")}
            </p>
          )}
          {deploy.error ? <ErrorPanel error={deploy.error} /> : null}
          <Button type="submit" loading={deploy.isPending} color={along ? undefined : "red"}>
            {t("regions.move")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

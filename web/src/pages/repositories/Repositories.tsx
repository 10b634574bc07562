import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Filters } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Connect, Details } from "./Connect";
import { Deployments } from "./Deployments";
import type { Repository } from "./repository";
import "../policies/workbench.css";

type Deployment = Schemas["IdeDeployment"];

/** Policies as code: the repositories whose controls are deployed, and what came of each deployment. */
export default function Repositories() {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const [shown, show] = useFilter("repository");
  const [, showDeployment] = useFilter("deployment");
  const [connecting, setConnecting] = useState(false);
  const [connected, setConnected] = useState<{ repository: Repository; secret: string } | null>(null);
  const write = can("editor:write") && can("policies:write");
  const repositories = api.useQuery("get", "/api/v1/ide-integration/repositories", {
    params: { query: { limit: 1000 } },
  });
  // The newest deployment of each repository is among the newest of all, unless it has long had none.
  const recent = api.useQuery("get", "/api/v1/ide-integration/deployments", { params: { query: { limit: 200 } } });
  const last = new Map<number, Deployment>();
  for (const d of recent.data?.deployments ?? []) {
    if (d.repository_id !== null && !last.has(d.repository_id)) last.set(d.repository_id, d);
  }
  const sync = api.useMutation("post", "/api/v1/ide-integration/repositories/{repository_id}/sync", {
    onSuccess: (made) => {
      refresh(queries, "repositories");
      show(String(made.repository_id));
      showDeployment(made.deployment_id);
    },
  });
  const columns: Column<Repository>[] = [
    {
      id: "name",
      header: t("policies.name"),
      cell: (r) => (
        <button type="button" className="gh-link" onClick={() => show(String(r.id))}>
          {r.name}
        </button>
      ),
    },
    { id: "url", header: t("resources.url"), cell: (r) => <span title={r.url}>{r.url}</span> },
    {
      id: "branch",
      header: t("repositories.branch"),
      cell: (r) => (r.branch ? <code>{r.branch}</code> : <span className="gh-dim">{t("repositories.anyBranch")}</span>),
    },
    {
      id: "enabled",
      header: t("repositories.deliveries"),
      cell: (r) =>
        r.enabled ? (
          <Status tone="good">{t("repositories.taken")}</Status>
        ) : (
          <Status>{t("repositories.notTaken")}</Status>
        ),
    },
    {
      id: "last",
      header: t("repositories.last"),
      cell: (r) => {
        const d = last.get(r.id);
        if (!d) return <span className="gh-dim">{t("common.never")}</span>;
        return (
          <span className="gh-row" style={{ flexWrap: "nowrap" }}>
            <StatusOf value={d.status} />
            <Time at={d.created_at} />
          </span>
        );
      },
    },
  ];
  if (write) {
    columns.push({
      id: "actions",
      header: t("repositories.sync"),
      hiddenHeader: true,
      width: 130,
      cell: (r) => (
        <Button
          size="compact-xs"
          variant="default"
          aria-label={t("repositories.syncNamed", { name: r.name })}
          loading={sync.isPending && sync.variables.params.path.repository_id === r.id}
          onClick={() => sync.mutate({ params: { path: { repository_id: r.id } } })}
        >
          {t("repositories.sync")}
        </Button>
      ),
    });
  }
  const connect = write && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setConnecting(true)}>
      {t("repositories.connect")}
    </Button>
  );
  const chosen = repositories.data?.repositories.find((r) => String(r.id) === shown);
  return (
    <>
      <PageHeader title={t("nav.repositories")} about={t("repositories.about")}>
        {connect}
      </PageHeader>
      {connected && (
        <Panel title={t("repositories.connected", { name: connected.repository.name })} style={{ marginBottom: 16 }}>
          <div className="gh-stack" style={{ gap: 10 }} role="status">
            <p className="gh-note gh-flat" data-tone="warn">
              {t("repositories.once")}
            </p>
            <Copyable label={t("repositories.webhook")} text={connected.repository.webhook_url} />
            <Copyable label={t("repositories.secret")} text={connected.secret} />
            <div>
              <Button
                variant="default"
                onClick={() => {
                  show(String(connected.repository.id));
                  setConnected(null);
                }}
              >
                {t("common.stored")}
              </Button>
            </div>
          </div>
        </Panel>
      )}
      <Filters count={repositories.data ? t("common.count", { count: repositories.data.total }) : undefined}>
        {null}
      </Filters>
      {sync.error ? <ErrorPanel error={sync.error} /> : null}
      <DataTable
        label={t("nav.repositories")}
        columns={columns}
        rowKey={(r) => r.id}
        open={(r) => show(String(r.id))}
        selected={(r) => String(r.id) === shown}
        source={{
          rows: repositories.data?.repositories,
          error: repositories.error,
          retry: () => void repositories.refetch(),
        }}
        empty={
          <Empty title={t("repositories.empty")} about={t("repositories.emptyAbout")} action={connect || undefined} />
        }
        maxHeight={320}
      />
      {chosen && <Details key={chosen.id} repository={chosen} close={() => show(null)} write={write} />}
      <Deployments
        repository={chosen}
        names={new Map(repositories.data?.repositories.map((r) => [r.id, r.name]) ?? [])}
      />
      {connecting && (
        <Connect
          close={() => setConnecting(false)}
          saved={(repository, secret) => {
            setConnecting(false);
            setConnected({ repository, secret });
          }}
        />
      )}
    </>
  );
}

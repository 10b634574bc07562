import "../dashboard/dashboard.css";
import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useParams } from "react-router";
import { ApiError, api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Issued } from "./Issued";

type Asked = "rotate" | "mode" | "delete" | null;

/** One enforcement point: health, what it runs, what it was given, and what can be done with it. */
export default function Bouncer() {
  const { t } = useI18n();
  const id = Number(useParams().id);
  const environment = useEnvironment();
  const params = { path: { bouncer_id: id }, query: { environment } };
  const bouncer = api.useQuery("get", "/api/v1/bouncers/{bouncer_id}", { params });
  const [issued, setIssued] = useState<Schemas["BouncerIssued"] | null>(null);
  if (bouncer.error) {
    const gone = bouncer.error instanceof ApiError && [400, 404].includes(bouncer.error.status);
    return (
      <>
        <PageHeader title={t("bouncers.one")} />
        {gone ? (
          <Empty
            title={t("common.notFound")}
            about={t("common.notFoundAbout")}
            action={<Link to="/bouncers">{t("nav.bouncers")}</Link>}
          />
        ) : (
          <ErrorPanel error={bouncer.error} retry={() => void bouncer.refetch()} />
        )}
      </>
    );
  }
  if (!bouncer.data) {
    return (
      <>
        <PageHeader title={t("bouncers.one")} />
        <Skeleton label={t("bouncers.one")} />
      </>
    );
  }
  const b = bouncer.data;
  return (
    <div className="gh-stack">
      <PageHeader title={b.name} mark={<StatusOf value={b.status} />} about={b.status_detail}>
        <Actions bouncer={b} onIssued={setIssued} />
      </PageHeader>
      {issued && <Issued issued={issued} close={() => setIssued(null)} />}
      <div className="gh-grid">
        <Panel title={t("bouncers.health")} style={{ gridColumn: "span 5" }}>
          <Health bouncer={b} />
        </Panel>
        <Panel title={t("bouncers.given")} style={{ gridColumn: "span 7" }}>
          <Given id={id} />
        </Panel>
        <Panel title={t("bouncers.protects")} style={{ gridColumn: "span 5" }}>
          <Protects ids={b.resource_ids} />
        </Panel>
        <Panel title={t("bouncers.configuration")} style={{ gridColumn: "span 7" }}>
          <JsonView value={b.configuration} label={t("bouncers.configurationJson")} />
        </Panel>
      </div>
    </div>
  );
}

function Health({ bouncer }: { bouncer: Schemas["Bouncer"] }) {
  const { t, number, percent } = useI18n();
  const environment = useEnvironment();
  const health = api.useQuery("get", "/api/v1/bouncers/{bouncer_id}/health", {
    params: { path: { bouncer_id: bouncer.id }, query: { environment } },
  });
  if (health.error) return <ErrorPanel error={health.error} retry={() => void health.refetch()} />;
  if (!health.data) return <Skeleton label={t("bouncers.health")} rows={4} columns={2} />;
  const yesNo = (good: boolean) => (
    <Status tone={good ? "good" : "bad"}>{good ? t("common.yes") : t("common.no")}</Status>
  );
  const h = health.data;
  return (
    <dl className="gh-facts">
      <dt>{t("bouncers.lastSeen")}</dt>
      <dd>
        <Time at={h.last_heartbeat} />
      </dd>
      <dt>{t("bouncers.bridge")}</dt>
      <dd>{yesNo(h["policy-bridge_connected"])}</dd>
      {bouncer.target_app && (
        <>
          <dt>{t("bouncers.reachable", { app: bouncer.target_app })}</dt>
          <dd>{yesNo(h.target_app_reachable)}</dd>
        </>
      )}
      <dt>{t("bouncers.policies")}</dt>
      <dd>{number(h.policies_loaded)}</dd>
      <dt>{t("bouncers.hitRate")}</dt>
      <dd>{percent(h.cache_status.hit_rate)}</dd>
      <dt>{t("bouncers.rate")}</dt>
      <dd>{number(bouncer.requests_per_second)}</dd>
      <dt>{t("bouncers.version")}</dt>
      <dd>{bouncer.version || t("common.none")}</dd>
      <dt>{t("bouncers.listens")}</dt>
      <dd>
        {bouncer.hostname}:{bouncer.port}
      </dd>
    </dl>
  );
}

function Given({ id }: { id: number }) {
  const { t, number } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const sync = api.useQuery("get", "/api/v1/peps/{pep_id}/sync-status", {
    params: { path: { pep_id: id }, query: { environment } },
  });
  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  const names = new Map((policies.data?.policies ?? []).map((p) => [p.id, p.name]));
  const columns: Column<Schemas["BouncerSync"]>[] = [
    {
      id: "policy",
      header: t("bouncers.policy"),
      cell: (p) => {
        const name = names.get(p.policy_id) ?? String(p.policy_id);
        return <Link to={`/policies/${p.policy_id}`}>{name}</Link>;
      },
    },
    { id: "version", header: t("bouncers.policyVersion"), numeric: true, cell: (p) => number(p.version) },
    { id: "status", header: t("bouncers.status"), cell: (p) => <StatusOf value={p.status} /> },
    { id: "at", header: t("bouncers.since"), cell: (p) => <Time at={p.synced_at} /> },
    { id: "error", header: t("bouncers.error"), cell: (p) => <span title={p.error}>{p.error ?? ""}</span> },
  ];
  return (
    <>
      {sync.data && (
        <p className="gh-row" style={{ marginTop: 0 }}>
          <StatusOf value={sync.data.status} />
          {t("bouncers.revision", { revision: sync.data.revision })} <Time at={sync.data.last_sync_time} />
        </p>
      )}
      <DataTable
        label={t("bouncers.policies")}
        columns={columns}
        rowKey={(p) => p.policy_id}
        source={{ rows: sync.data?.policies, error: sync.error, retry: () => void sync.refetch() }}
        empty={<Empty title={t("bouncers.givenNone")} about={t("bouncers.givenNoneAbout")} />}
        maxHeight={340}
      />
    </>
  );
}

function Protects({ ids }: { ids: number[] }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const resources = api.useQuery(
    "get",
    "/api/v1/resources",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("resources:read") && ids.length > 0 },
  );
  if (ids.length === 0)
    return (
      <p className="gh-dim" style={{ margin: 0 }}>
        {t("bouncers.protectsByControl")}
      </p>
    );
  const names = new Map((resources.data?.resources ?? []).map((r) => [r.id, r.name]));
  return (
    <ul className="gh-list">
      {ids.map((id) => (
        <li key={id}>
          <Link to={`/resources/${id}`}>{names.get(id) ?? String(id)}</Link>
        </li>
      ))}
    </ul>
  );
}

function Actions({
  bouncer,
  onIssued,
}: {
  bouncer: Schemas["Bouncer"] & { etag: string };
  onIssued: (issued: Schemas["BouncerIssued"]) => void;
}) {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asked, setAsked] = useState<Asked>(null);
  const params = { path: { bouncer_id: bouncer.id }, query: { environment } };
  const done = () => {
    setAsked(null);
    refresh(queries, "bouncers");
  };
  const rotate = api.useMutation("post", "/api/v1/bouncers/{bouncer_id}/rotate-token", {
    onSuccess: (made) => {
      done();
      onIssued(made);
    },
  });
  const change = api.useMutation("put", "/api/v1/bouncers/{bouncer_id}", { onSuccess: done });
  const remove = api.useMutation("delete", "/api/v1/bouncers/{bouncer_id}", {
    onSuccess: () => {
      done();
      void navigate(`/bouncers?environment=${environment}`);
    },
  });
  if (!can("bouncers:write")) return null;
  const shadowed = bouncer.configuration.enforcement_mode === "shadow";
  const close = () => {
    setAsked(null);
    rotate.reset();
    change.reset();
    remove.reset();
  };
  const { enforcement_mode: _mode, ...rest } = bouncer.configuration;
  const configuration = shadowed ? rest : { ...rest, enforcement_mode: "shadow" };
  const shared = { opened: true, close, object: bouncer.name, environment };
  return (
    <>
      <Button variant="default" onClick={() => setAsked("mode")}>
        {shadowed ? t("bouncers.follow") : t("bouncers.rollBack")}
      </Button>
      <Button variant="default" onClick={() => setAsked("rotate")}>
        {t("bouncers.rotate")}
      </Button>
      <Button variant="default" onClick={() => setAsked("delete")}>
        {t("common.delete")}
      </Button>
      {asked === "mode" && (
        <ConfirmDialog
          {...shared}
          title={shadowed ? t("bouncers.follow") : t("bouncers.rollBack")}
          about={shadowed ? t("bouncers.followAbout") : t("bouncers.rollBackAbout")}
          action={shadowed ? t("bouncers.follow") : t("bouncers.rollBack")}
          busy={change.isPending}
          error={change.error}
          confirm={() => change.mutate({ params: { ...params, header: ifMatch(bouncer) }, body: { configuration } })}
        />
      )}
      {asked === "rotate" && (
        <ConfirmDialog
          {...shared}
          title={t("bouncers.rotate")}
          about={t("bouncers.rotateAbout")}
          action={t("bouncers.rotate")}
          busy={rotate.isPending}
          error={rotate.error}
          confirm={() => rotate.mutate({ params })}
        />
      )}
      {asked === "delete" && (
        <ConfirmDialog
          {...shared}
          title={t("bouncers.deleteTitle")}
          about={t("bouncers.deleteAbout")}
          action={t("common.delete")}
          busy={remove.isPending}
          error={remove.error}
          confirm={() => remove.mutate({ params: { ...params, header: ifMatch(bouncer) } })}
        />
      )}
    </>
  );
}

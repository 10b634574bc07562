import type { ReactNode } from "react";
import { useParams } from "react-router";
import { ApiError, api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Explanation } from "../../ui/Conditions";
import { Copyable } from "../../ui/Copy";
import { Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { JsonView } from "../../ui/JsonView";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Subject } from "./Subject";
import "./decision.css";

export default function Decision() {
  const { t } = useI18n();
  const { id = "" } = useParams();
  const environment = useEnvironment();
  const found = api.useQuery(
    "get",
    "/api/v1/decisions/audit/{decision_id}",
    { params: { path: { decision_id: id }, query: { environment } } },
    { staleTime: Number.POSITIVE_INFINITY },
  );
  const gone = found.error instanceof ApiError && found.error.status === 404;
  const why = api.useQuery(
    "get",
    "/api/v1/decisions/audit/{decision_id}/explanation",
    { params: { path: { decision_id: id } } },
    { staleTime: Number.POSITIVE_INFINITY },
  );
  if (found.error && !gone) {
    return (
      <>
        <PageHeader title={t("decisions.one")} />
        <ErrorPanel error={found.error} retry={() => void found.refetch()} />
      </>
    );
  }
  if (found.isPending && !gone) {
    return (
      <>
        <PageHeader title={t("decisions.one")} />
        <Skeleton label={t("decisions.one")} />
      </>
    );
  }
  const decision = found.data;
  if (!decision) {
    return (
      <>
        <PageHeader title={t("decisions.one")} />
        <Empty
          title={t("common.notFound")}
          about={t("decisions.goneAbout")}
          action={<Link to="/decisions">{t("decisions.title")}</Link>}
        />
      </>
    );
  }
  return (
    <div className="gh-stack">
      <PageHeader
        title={t("decisions.of", {
          user: decision.user.id || t("decisions.anonymous"),
          path: decision.resource.path || decision.resource.type,
        })}
        mark={<StatusOf value={decision.effect ?? decision.decision} />}
        about={decision.reason}
      />
      <RequestMap decision={decision} />
      <div className="gh-grid">
        <Panel title={t("decisions.why")} className="gh-decision-main">
          <Why query={why} />
        </Panel>
        <div className="gh-decision-side gh-stack">
          <Panel title={t("decisions.facts")}>
            <Facts decision={decision} />
          </Panel>
          <Panel title={t("decisions.next")}>
            <Next decision={decision} />
          </Panel>
        </div>
        {decision.input !== undefined && (
          <Panel title={t("decisions.input")} className="gh-decision-main">
            <JsonView value={decision.input} label={t("decisions.input")} />
          </Panel>
        )}
      </div>
    </div>
  );
}

function Why({
  query,
}: {
  query: { data?: Schemas["AuditExplanation"]; error: unknown; refetch: () => unknown; isPending: boolean };
}) {
  const { t } = useI18n();
  if (query.error instanceof ApiError && query.error.status === 403) return <p>{t("decisions.whyForbidden")}</p>;
  if (query.error) return <ErrorPanel error={query.error} retry={() => void query.refetch()} />;
  if (!query.data) return <Skeleton label={t("decisions.why")} rows={3} columns={1} />;
  const { explanations, available, note } = query.data;
  return (
    <div className="gh-stack" style={{ gap: 14 }}>
      {query.data.public && (
        <div>
          <span className="gh-dim">{t("decisions.tell")}</span>
          <Copyable text={query.data.public} label={t("decisions.tell")} />
        </div>
      )}
      {!available && <p className="gh-note">{t("decisions.noExplanation")}</p>}
      {explanations.map((e) => (
        <section key={`${e.policy_id}:${e.policy_version}`} aria-label={e.policy_name}>
          <div className="gh-row" style={{ marginBottom: 6 }}>
            <Link to={`/policies/${e.policy_id}`}>{e.policy_name}</Link>
            <span className="gh-dim">{t("decisions.version", { version: e.policy_version })}</span>
            <StatusOf value={e.effect} />
          </div>
          <Explanation explanation={e} />
        </section>
      ))}
      {note && <p className="gh-dim">{note}</p>}
    </div>
  );
}

function RequestMap({ decision }: { decision: Schemas["AuditDecision"] }) {
  const { t } = useI18n();
  const stations: { name: string; body: ReactNode; note: ReactNode }[] = [
    {
      name: t("decisions.subject"),
      body: (
        <Link to="/decisions" params={{ user_id: decision.user.id }}>
          <Subject decision={decision} />
        </Link>
      ),
      note: decision.ip_address,
    },
    {
      name: t("decisions.bouncer"),
      body: decision.bouncer_id ? (
        <Link to={`/bouncers/${decision.bouncer_id}`}>#{decision.bouncer_id}</Link>
      ) : (
        t("decisions.api")
      ),
      note: decision.mode ? <StatusOf value={decision.mode} /> : null,
    },
    {
      name: t("decisions.resource"),
      body: decision.resource_id ? (
        <Link to={`/resources/${decision.resource_id}`}>{decision.resource.path || decision.resource.type}</Link>
      ) : (
        decision.resource.path || decision.resource.type
      ),
      note: <code>{decision.action}</code>,
    },
    {
      name: t("decisions.control"),
      body: decision.policy_id ? (
        <Link to={`/policies/${decision.policy_id}`}>{decision.policy_name}</Link>
      ) : (
        (decision.policy_name ?? t("decisions.noControl"))
      ),
      note: decision.policy_version ? t("decisions.version", { version: decision.policy_version }) : null,
    },
    {
      name: t("decisions.outcome"),
      body: <StatusOf value={decision.effect ?? decision.decision} />,
      note: decision.reason,
    },
  ];
  return (
    <section aria-label={t("decisions.map")}>
      <ol className="gh-map">
        {stations.map((s) => (
          <li key={s.name} data-outcome={s.name === t("decisions.outcome") ? decision.decision : undefined}>
            <span className="gh-map-name">{s.name}</span>
            <span className="gh-map-body">{s.body}</span>
            <span className="gh-map-note">{s.note}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Facts({ decision }: { decision: Schemas["AuditDecision"] }) {
  const { t, duration, utc, number } = useI18n();
  const facts: [string, ReactNode][] = [
    [t("common.time"), <Time key="t" at={decision.timestamp} />],
    ["UTC", utc(decision.timestamp)],
    [t("decisions.took"), duration(decision.evaluation_time_ms)],
    [t("decisions.cache"), decision.cache_hit ? t("common.yes") : t("common.no")],
    [t("decisions.revision"), decision.revision === undefined ? t("common.none") : number(decision.revision)],
    [t("decisions.id"), <code key="i">{decision.decision_id}</code>],
    [t("common.requestId"), <code key="r">{decision.request_id ?? "–"}</code>],
  ];
  if (decision.caller_decision_id)
    facts.push([t("decisions.callerId"), <code key="c">{decision.caller_decision_id}</code>]);
  if (decision.error) facts.push([t("decisions.error"), decision.error]);
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

function Next({ decision }: { decision: Schemas["AuditDecision"] }) {
  const { t } = useI18n();
  const { can } = useMe();
  return (
    <ul className="gh-list-plain">
      {decision.policy_id && can("simulator:write") ? (
        <li>
          <Link
            to={`/policies/${decision.policy_id}`}
            params={{ decision: decision.decision_id, at: decision.timestamp }}
          >
            {t("decisions.openInWorkbench")}
          </Link>
        </li>
      ) : null}
      {decision.user.id && (
        <li>
          <Link to="/decisions" params={{ user_id: decision.user.id }}>
            {t("decisions.sameUser", { user: decision.user.id })}
          </Link>
        </li>
      )}
      {decision.resource_id ? (
        <li>
          <Link to="/decisions" params={{ resource_id: String(decision.resource_id) }}>
            {t("decisions.sameResource")}
          </Link>
        </li>
      ) : null}
    </ul>
  );
}

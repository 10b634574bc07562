import type { ReactNode } from "react";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { useNames } from "./Policies";
import type { Policy } from "./policy";

/** Where a control is in force, how often it decides, and what did not arrive. */
export function Usage({ policy }: { policy: Policy }) {
  const { t, number, percent, duration } = useI18n();
  const { can } = useMe();
  const { environment } = policy;
  const resources = useNames("resources", environment);
  const bouncers = useNames("bouncers", environment);
  const top = api.useQuery(
    "get",
    "/api/v1/dashboard/top",
    { params: { query: { environment, by: "policy", window: "7d", limit: 100 } } },
    { enabled: can("dashboard:read") },
  );
  const users = api.useQuery(
    "get",
    "/api/v1/policies/{policy_id}/dependents",
    { params: { path: { policy_id: policy.id }, query: { environment } } },
    { enabled: policy.kind === "library" },
  );
  const counts = top.data?.items.find((i) => i.id === String(policy.id));
  const metrics = policy.performance_metrics;
  const resourceName =
    policy.resource_id === null ? "" : (resources.get(policy.resource_id) ?? `#${policy.resource_id}`);
  const facts: [string, ReactNode][] = [
    [
      t("policies.resource"),
      policy.resource_id === null ? (
        t("policies.wholeTenant")
      ) : (
        <Link key="r" to={`/resources/${policy.resource_id}`}>
          {resourceName}
        </Link>
      ),
    ],
    [
      t("policies.bouncer"),
      policy.bouncer_id === null
        ? t("policies.anyBouncer")
        : (bouncers.get(policy.bouncer_id) ?? `#${policy.bouncer_id}`),
    ],
    [t("policies.evaluations"), number(metrics.total_evaluations)],
    [t("workbench.average"), duration(metrics.avg_evaluation_time_ms)],
    [
      t("workbench.cacheRate"),
      percent(metrics.cache_hit_rate > 1 ? metrics.cache_hit_rate / 100 : metrics.cache_hit_rate),
    ],
    [
      t("workbench.week"),
      counts ? t("workbench.weekCounts", { permitted: counts.permitted, denied: counts.denied }) : t("common.none"),
    ],
    [t("workbench.created"), <Time key="c" at={policy.created_at} />],
    [t("workbench.createdBy"), policy.created_by],
    [t("workbench.promoted"), <Time key="p" at={policy.promoted_at} />],
  ];
  return (
    <div className="gh-grid">
      <Panel title={t("workbench.inForce")} className="gh-half-wide">
        <dl className="gh-facts">
          {facts.map(([name, value]) => (
            <div key={name} style={{ display: "contents" }}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
        {can("audit:read") && (
          <p style={{ marginBottom: 0 }}>
            <Link to="/decisions" params={{ policy_id: policy.id }}>
              {t("workbench.itsDecisions")}
            </Link>
          </p>
        )}
      </Panel>
      <Panel title={t("workbench.delivery")} className="gh-half-wide">
        {policy.sync_errors.length === 0 ? (
          <span>{t("workbench.delivered")}</span>
        ) : (
          <ul className="gh-findings">
            {policy.sync_errors.map((e) => (
              <li key={`${e.bouncer_id}:${e.version}`} data-severity="error">
                <strong>{bouncers.get(e.bouncer_id) ?? `#${e.bouncer_id}`}</strong> {e.message}
              </li>
            ))}
          </ul>
        )}
      </Panel>
      {users.data && (
        <Panel title={t("workbench.users")} className="gh-half-wide">
          <ul className="gh-findings">
            {users.data.users.map((u) => (
              <li key={u.id}>
                <Link to={`/policies/${u.id}`}>{u.name}</Link> <StatusOf value={u.status} />
              </li>
            ))}
          </ul>
        </Panel>
      )}
    </div>
  );
}

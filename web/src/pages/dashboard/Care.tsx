import { api, type Environment, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Status } from "../../ui/Status";
import { Link, useMe } from "../../ui/scope";

/** Bouncers that are not well, and controls that did not arrive. */
export function Care({ stats, environment }: { stats: Schemas["DashboardStats"]; environment: Environment }) {
  const { t, word } = useI18n();
  const { can } = useMe();
  const bouncers = api.useQuery(
    "get",
    "/api/v1/bouncers",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("bouncers:read") },
  );
  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  const unwell = (bouncers.data?.bouncers ?? []).filter((b) => b.status !== "connected");
  const failed = (policies.data?.policies ?? []).filter((p) => p.sync_errors.length > 0);
  if (unwell.length === 0 && failed.length === 0 && stats.pendingConnections === 0) {
    return (
      <span className="gh-row">
        <Status tone="good">0</Status>
        {t("dashboard.careNone")}
      </span>
    );
  }
  return (
    <ul className="gh-list">
      {unwell.slice(0, 10).map((b) => {
        const text = t("dashboard.careBouncer", { name: b.name, status: word("common", "state", b.status) });
        return (
          <li key={b.id}>
            {<Link to={`/bouncers/${b.id}`}>{text}</Link>}
            {b.status_detail && <span className="gh-dim">{b.status_detail}</span>}
          </li>
        );
      })}
      {failed.slice(0, 10).map((p) => {
        const text = t("dashboard.careFailedSync", { name: p.name, count: p.sync_errors.length });
        return (
          <li key={p.id}>
            {<Link to={`/policies/${p.id}`}>{text}</Link>}
            <span className="gh-dim">{p.sync_errors[0]?.message}</span>
          </li>
        );
      })}
      {stats.pendingConnections > 0 && <li>{t("dashboard.carePending", { count: stats.pendingConnections })}</li>}
    </ul>
  );
}

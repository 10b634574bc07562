import { api, type Environment } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Link, useMe } from "../../ui/scope";
import type { Window } from "./window";

/** The controls or resources that denied most, as bars; each leads to its decisions. */
export function Top({
  by,
  environment,
  window,
}: {
  by: "policy" | "resource";
  environment: Environment;
  window: Window;
}) {
  const { t, number } = useI18n();
  const { can } = useMe();
  const top = api.useQuery("get", "/api/v1/dashboard/top", {
    params: { query: { environment, window, by, limit: 8 } },
  });
  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: by === "policy" && can("policies:read") },
  );
  const resources = api.useQuery(
    "get",
    "/api/v1/resources",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: by === "resource" && can("resources:read") },
  );
  if (top.error) return <ErrorPanel error={top.error} retry={() => void top.refetch()} />;
  if (!top.data) return <Skeleton label={t("dashboard.byControl")} rows={4} columns={2} />;
  const known: { id: number; name: string }[] =
    (by === "policy" ? policies.data?.policies : resources.data?.resources) ?? [];
  const names = new Map(known.map((k) => [String(k.id), k.name]));
  const items = top.data.items.filter((i) => i.denied > 0);
  if (items.length === 0) return <p className="gh-panel-body gh-dim">{t("dashboard.noDenials")}</p>;
  const most = Math.max(...items.map((i) => i.denied));
  return (
    <ul className="gh-bars">
      {items.map((i) => {
        const name = names.get(i.id) ?? i.id;
        const filter = { [by === "policy" ? "policy_id" : "resource_id"]: i.id, decision: "DENY" };
        return (
          <li key={i.id}>
            <Link to="/decisions" params={filter} title={name}>
              {name}
            </Link>
            <span className="gh-bar" aria-hidden="true">
              <span style={{ width: `${(100 * i.denied) / most}%` }} />
            </span>
            <span className="gh-num">{number(i.denied)}</span>
          </li>
        );
      })}
    </ul>
  );
}

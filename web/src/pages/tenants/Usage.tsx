import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Panel } from "../../ui/PageHeader";
import { TimeChart } from "../../ui/TimeChart";
import "./tenants.css";

type Tenant = Schemas["Tenant"];

/** A limit of the tenant's settings; undefined: there is none. */
export function limitOf(tenant: Tenant, kind: "policies" | "users" | "bouncers"): number | undefined {
  const limit = tenant.settings[`max_${kind}`];
  return typeof limit === "number" ? limit : undefined;
}

/** What a tenant uses of its limits, as bars with their figures. */
export function Limits({ tenant }: { tenant: Tenant }) {
  const { t, number, percent } = useI18n();
  const used = tenant.limits;
  if (!used) return null;
  const rows = [
    { kind: "policies", count: used.policies_used },
    { kind: "users", count: used.users_used },
    { kind: "bouncers", count: used.bouncers_used },
  ] as const;
  return (
    <Panel title={t("tenants.usage")}>
      <ul className="gh-limits">
        {rows.map(({ kind, count }) => {
          const limit = limitOf(tenant, kind);
          const share = limit ? count / limit : 0;
          return (
            <li key={kind}>
              <span>{t(`tenants.used_${kind}`)}</span>
              {limit === undefined ? (
                <span className="gh-limit-none" aria-hidden="true" />
              ) : (
                <meter
                  className="gh-limit"
                  data-level={share >= 1 ? "full" : share >= 0.8 ? "near" : "fine"}
                  min={0}
                  max={Math.max(limit, 1)}
                  value={Math.min(count, limit)}
                  aria-label={t(`tenants.used_${kind}`)}
                />
              )}
              <span className="gh-num">
                {limit === undefined
                  ? t("tenants.noLimit", { used: number(count) })
                  : t("tenants.ofLimit", { used: number(count), limit: number(limit), share: percent(share) })}
              </span>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}

/** Calls of the API over the last thirty days, and which operations they were. */
export function Calls({ id }: { id: string }) {
  const { t, number } = useI18n();
  const metrics = api.useQuery("get", "/api/v1/tenants/{tenant_id}/metrics", {
    params: { path: { tenant_id: id }, query: { granularity: "day" } },
  });
  const top = Object.entries(metrics.data?.metrics.api_calls.by_endpoint ?? {})
    .sort((a, b) => b[1] - a[1])
    .slice(0, 8);
  return (
    <Panel title={t("tenants.calls")}>
      {metrics.error ? (
        <ErrorPanel error={metrics.error} retry={() => void metrics.refetch()} />
      ) : !metrics.data ? (
        <Skeleton label={t("tenants.calls")} rows={4} columns={1} />
      ) : (
        <div className="gh-stack">
          <TimeChart
            times={metrics.data.series.map((p) => Date.parse(p.start) / 1000)}
            lines={[
              { label: t("tenants.calls"), colour: "--gh-info", values: metrics.data.series.map((p) => p.api_calls) },
            ]}
            summary={t("tenants.callsSummary", { count: metrics.data.metrics.api_calls.total })}
            format={number}
            height={160}
          />
          {top.length > 0 && (
            <ul className="gh-limits" aria-label={t("tenants.topCalls")}>
              {top.map(([operation, count]) => (
                <li key={operation}>
                  <code>{operation}</code>
                  <meter
                    className="gh-limit"
                    data-level="fine"
                    min={0}
                    max={Math.max(top[0]?.[1] ?? 1, 1)}
                    value={count}
                    aria-label={operation}
                  />
                  <span className="gh-num">{number(count)}</span>
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
    </Panel>
  );
}

/** What the current period costs so far, by meter. */
export function Bill({ id }: { id: string }) {
  const { t, number, date, word, language } = useI18n();
  const billing = api.useQuery("get", "/api/v1/tenants/{tenant_id}/billing", {
    params: { path: { tenant_id: id } },
  });
  const b = billing.data;
  const money = (amount: number) =>
    new Intl.NumberFormat(language, { style: "currency", currency: b?.billing.currency ?? "USD" }).format(amount);
  return (
    <Panel title={t("tenants.bill")}>
      {billing.error ? (
        <ErrorPanel error={billing.error} retry={() => void billing.refetch()} />
      ) : !b ? (
        <Skeleton label={t("tenants.bill")} rows={4} columns={2} />
      ) : (
        <div className="gh-stack" style={{ gap: 12 }}>
          <dl className="gh-facts">
            <dt>{t("tenants.period")}</dt>
            <dd>{t("tenants.periodOf", { from: date(b.current_period_start), to: date(b.current_period_end) })}</dd>
            <dt>{t("tenants.base")}</dt>
            <dd>{money(b.billing.base_cost)}</dd>
            <dt>{t("tenants.beyond")}</dt>
            <dd>{money(b.billing.usage_cost)}</dd>
            <dt>{t("tenants.total")}</dt>
            <dd>
              <strong>{money(b.billing.total_cost)}</strong>
            </dd>
            <dt>{t("tenants.payment")}</dt>
            <dd>{b.payment_method_set ? t("common.yes") : t("common.no")}</dd>
          </dl>
          {b.billing.lines.length > 0 && (
            <section className="gh-table-box" tabIndex={0} aria-label={t("tenants.meters")}>
              <table className="gh-table">
                <thead>
                  <tr>
                    <th scope="col">{t("tenants.meter")}</th>
                    <th scope="col" className="gh-num">
                      {t("tenants.used")}
                    </th>
                    <th scope="col" className="gh-num">
                      {t("tenants.included")}
                    </th>
                    <th scope="col" className="gh-num">
                      {t("tenants.cost")}
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {b.billing.lines.map((l) => (
                    <tr key={l.meter}>
                      <td>{word("tenants", "used", l.meter)}</td>
                      <td className="gh-num">{number(l.used)}</td>
                      <td className="gh-num">{number(l.included)}</td>
                      <td className="gh-num">{money(l.cost)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          )}
        </div>
      )}
    </Panel>
  );
}

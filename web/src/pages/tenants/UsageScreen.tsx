import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { FilterDate, FilterSelect, Filters } from "../../ui/Filters";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { useClearFilters, useFilter, useMe } from "../../ui/scope";
import { TimeChart } from "../../ui/TimeChart";
import { Limits } from "./Usage";

const granularities = ["hour", "day", "week", "month"] as const;

/** How much the tenant uses: calls over time, by operation, and of each limit. */
export default function UsageScreen() {
  const { t, number, percent } = useI18n();
  const { me } = useMe();
  const [chosen] = useFilter("granularity");
  const [start] = useFilter("start_date");
  const [end] = useFilter("end_date");
  const clear = useClearFilters(["granularity", "start_date", "end_date"]);
  const granularity = granularities.find((g) => g === chosen) ?? "day";
  const path = { tenant_id: me.tenant_id };
  const query = { granularity, start_date: start || undefined, end_date: end || undefined };
  const metrics = api.useQuery(
    "get",
    "/api/v1/tenants/{tenant_id}/metrics",
    { params: { path, query } },
    // The figures of the last choice stay until those of the next one are there.
    { placeholderData: (before) => before },
  );
  const tenant = api.useQuery("get", "/api/v1/tenants/{tenant_id}", { params: { path } });
  const calls = metrics.data?.metrics.api_calls;
  const rows = calls && Object.entries(calls.by_endpoint).sort((a, b) => b[1] - a[1]);
  return (
    <>
      <PageHeader title={t("tenants.usageTitle")} about={t("tenants.usageAbout")} />
      <div className="gh-stack">
        {tenant.data && <Limits tenant={tenant.data} />}
        <Panel title={t("tenants.callsOver")}>
          <Filters count={calls ? t("tenants.callsIn", { count: calls.total }) : undefined}>
            <FilterSelect
              name="granularity"
              label={t("tenants.granularity")}
              options={granularities.map((g) => ({ value: g, label: t(`tenants.per_${g}`) }))}
            />
            <FilterDate name="start_date" label={t("decisions.from")} />
            <FilterDate name="end_date" label={t("decisions.to")} />
          </Filters>
          {metrics.error ? (
            <ErrorPanel error={metrics.error} retry={() => void metrics.refetch()} />
          ) : !metrics.data || !calls ? (
            <Skeleton label={t("tenants.callsOver")} rows={6} columns={1} />
          ) : (
            <TimeChart
              times={metrics.data.series.map((p) => Date.parse(p.start) / 1000)}
              lines={[
                {
                  label: t("tenants.callsOver"),
                  colour: "--gh-info",
                  values: metrics.data.series.map((p) => p.api_calls),
                },
              ]}
              summary={t("tenants.callsIn", { count: calls.total })}
              format={number}
            />
          )}
        </Panel>
        <h2 className="gh-section">{t("tenants.topCalls")}</h2>
        <DataTable
          label={t("tenants.topCalls")}
          rowKey={([operation]) => operation}
          source={{ rows, error: metrics.error, retry: () => void metrics.refetch() }}
          filtered={Boolean(start || end)}
          clear={clear}
          empty={<Empty title={t("tenants.noCalls")} about={t("tenants.noCallsAbout")} />}
          columns={[
            { id: "operation", header: t("tenants.operation"), cell: ([operation]) => <code>{operation}</code> },
            { id: "count", header: t("tenants.count"), numeric: true, cell: ([, count]) => number(count) },
            {
              id: "share",
              header: t("tenants.share"),
              numeric: true,
              cell: ([, count]) => percent(calls && calls.total > 0 ? count / calls.total : 0),
            },
          ]}
        />
      </div>
    </>
  );
}

import { useMemo } from "react";
import { api, type Environment } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Panel } from "../../ui/PageHeader";
import { TimeChart } from "../../ui/TimeChart";
import type { Window } from "./window";

/** Decisions and evaluation times over the window. */
export default function Charts({ environment, window }: { environment: Environment; window: Window }) {
  const { t, number, compact, duration } = useI18n();
  const series = api.useQuery("get", "/api/v1/dashboard/series", { params: { query: { environment, window } } });
  const points = series.data?.points;
  const times = useMemo(() => points?.map((p) => Date.parse(p.start) / 1000) ?? [], [points]);
  const decisions = useMemo(
    () =>
      points && [
        { label: t("dashboard.permitted"), colour: "--gh-good", values: points.map((p) => p.permitted) },
        { label: t("dashboard.masked"), colour: "--gh-warn", values: points.map((p) => p.masked) },
        { label: t("dashboard.denied"), colour: "--gh-bad", values: points.map((p) => p.denied), dashed: true },
      ],
    [points, t],
  );
  const latency = useMemo(
    () =>
      points && [
        { label: t("dashboard.p50"), colour: "--gh-info", values: points.map((p) => p.latency_p50) },
        { label: t("dashboard.p95"), colour: "--gh-warn", values: points.map((p) => p.latency_p95) },
        { label: t("dashboard.p99"), colour: "--gh-bad", values: points.map((p) => p.latency_p99), dashed: true },
      ],
    [points, t],
  );
  if (series.error) return <ErrorPanel error={series.error} retry={() => void series.refetch()} />;
  if (!points || !decisions || !latency) {
    return <Skeleton label={t("dashboard.decisionsOverTime")} rows={7} columns={1} />;
  }
  const sum = (name: "permitted" | "denied" | "masked") => points.reduce((n, p) => n + p[name], 0);
  const worst = (name: "latency_p50" | "latency_p95" | "latency_p99") => Math.max(0, ...points.map((p) => p[name]));
  return (
    <div className="gh-grid">
      <Panel title={t("dashboard.decisionsOverTime")} className="gh-half">
        <TimeChart
          times={times}
          lines={decisions}
          format={compact}
          summary={t("dashboard.decisionsSummary", {
            permitted: number(sum("permitted")),
            masked: number(sum("masked")),
            denied: number(sum("denied")),
          })}
        />
      </Panel>
      <Panel title={t("dashboard.latency")} className="gh-half">
        <TimeChart
          times={times}
          lines={latency}
          format={duration}
          summary={t("dashboard.latencySummary", {
            p50: duration(worst("latency_p50")),
            p95: duration(worst("latency_p95")),
            p99: duration(worst("latency_p99")),
          })}
        />
      </Panel>
    </div>
  );
}

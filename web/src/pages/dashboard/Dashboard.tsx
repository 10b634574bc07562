import { NativeSelect } from "@mantine/core";
import { lazy, Suspense, useState } from "react";
import { api, type Environment, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Link, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Anomalies } from "./Anomalies";
import { Care } from "./Care";
import { Top } from "./Top";
import { type Window, windows } from "./window";
import "./dashboard.css";

// What comes after the figures, and the path that only a new tenant is shown.
const FirstSteps = lazy(() => import("./FirstSteps"));
const Charts = lazy(() => import("./Charts"));

export default function Dashboard() {
  const { t, word } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const [chosen, choose] = useFilter("window");
  const window = (windows as readonly string[]).includes(chosen) ? (chosen as Window) : "24h";
  const stats = api.useQuery("get", "/api/v1/dashboard/stats", { params: { query: { environment } } });

  return (
    <div className="gh-stack">
      <PageHeader
        title={t("dashboard.title")}
        about={t("dashboard.about", { environment: word("common", "state", environment) })}
      >
        <NativeSelect
          aria-label={t("dashboard.window")}
          data={windows.map((w) => ({ value: w, label: t(`dashboard.window_${w}`) }))}
          value={window}
          onChange={(event) => choose(event.currentTarget.value)}
          w={150}
        />
      </PageHeader>
      {stats.error ? <ErrorPanel error={stats.error} retry={() => void stats.refetch()} /> : null}
      {stats.data && can("bouncers:write") && <Path stats={stats.data} environment={environment} />}
      {stats.data ? (
        <Figures stats={stats.data} />
      ) : (
        !stats.error && <Skeleton label={t("dashboard.title")} rows={3} columns={6} />
      )}
      <Suspense fallback={<Skeleton label={t("dashboard.decisionsOverTime")} rows={7} columns={1} />}>
        <Charts environment={environment} window={window} />
      </Suspense>
      <div className="gh-grid">
        <Panel title={t("dashboard.byControl")} className="gh-half" flush>
          <Top by="policy" environment={environment} window={window} />
        </Panel>
        <Panel title={t("dashboard.byResource")} className="gh-half" flush>
          <Top by="resource" environment={environment} window={window} />
        </Panel>
        {can("audit:read") && (
          <Panel title={t("dashboard.anomalies")} className="gh-half">
            <Anomalies environment={environment} />
          </Panel>
        )}
        {stats.data && (
          <Panel title={t("dashboard.care")} className="gh-half">
            <Care stats={stats.data} environment={environment} />
          </Panel>
        )}
      </div>
    </div>
  );
}

/** The path to a protected application, until all its steps are done or somebody hides it. */
function Path({ stats, environment }: { stats: Schemas["DashboardStats"]; environment: Environment }) {
  const { me } = useMe();
  const name = `gatehouse.path.${me.tenant_id}.${environment}`;
  const [hidden, setHidden] = useState("");
  const enforcement = api.useQuery("get", "/api/v1/environments/{environment}/enforcement", {
    params: { path: { environment } },
  });
  const missing =
    stats.operationalPEPs === 0 ||
    stats.activePolicies === 0 ||
    stats.authDecisions24h === 0 ||
    enforcement.data?.mode === "shadow";
  if (!missing || hidden === name || localStorage.getItem(name)) return null;
  const hide = () => {
    localStorage.setItem(name, "hidden");
    setHidden(name);
  };
  return (
    <Suspense>
      <FirstSteps stats={stats} mode={enforcement.data?.mode} environment={environment} hide={hide} />
    </Suspense>
  );
}

function Figures({ stats }: { stats: Schemas["DashboardStats"] }) {
  const { t, number, percent, duration } = useI18n();
  const now = stats.realTimeMetrics;
  const figures: Figure[] = [
    {
      label: t("dashboard.decisions"),
      value: number(stats.authDecisions24h),
      note: t("dashboard.perHour", { count: now.totalRequestsPerHour }),
      to: "/decisions",
    },
    {
      label: t("dashboard.deniedShare"),
      value: percent(stats.deniedPercentage / 100),
      note: t("dashboard.perMinute", { count: now.totalRequestsPerMinute }),
      to: "/decisions",
      params: { decision: "DENY" },
    },
    {
      label: t("dashboard.activeControls"),
      value: number(stats.activePolicies),
      note: t("dashboard.protects", { count: stats.policiesProtectingResources }),
      to: "/policies",
      params: { status: "active" },
    },
    { label: t("dashboard.drafts"), value: number(stats.draftPolicies), to: "/policies", params: { status: "draft" } },
    { label: t("dashboard.resources"), value: number(stats.totalResources), to: "/resources" },
    {
      label: t("dashboard.bouncers"),
      value: number(stats.deployedPEPs),
      note: t("dashboard.bouncersOf", { ok: stats.operationalPEPs, all: stats.deployedPEPs }),
      to: "/bouncers",
    },
    {
      label: t("dashboard.latency"),
      value: duration(now.latencyP95),
      note: t("dashboard.p95"),
    },
    {
      label: t("dashboard.errors"),
      value: number(now.totalErrors),
      note: t("dashboard.errorsAbout", { rate: percent(now.overallErrorRate / 100) }),
    },
  ];
  return (
    <ul className="gh-figures">
      {figures.map((f) => (
        <li key={f.label}>
          <FigureBox figure={f} />
        </li>
      ))}
    </ul>
  );
}

interface Figure {
  label: string;
  value: string;
  note?: string;
  to?: string;
  params?: Record<string, string>;
}

function FigureBox({ figure }: { figure: Figure }) {
  const body = (
    <>
      <span className="gh-figure-label">{figure.label}</span>
      <span className="gh-figure-value">{figure.value}</span>
      <span className="gh-figure-note">{figure.note}</span>
    </>
  );
  if (!figure.to) return <div className="gh-figure">{body}</div>;
  return (
    <Link className="gh-figure" to={figure.to} params={figure.params}>
      {body}
    </Link>
  );
}

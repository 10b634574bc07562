import { api, type Environment } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Status } from "../../ui/Status";
import { Time } from "../../ui/Time";

/** What differed from usual in the last day, each with the evidence in one sentence. */
export function Anomalies({ environment }: { environment: Environment }) {
  const { t, word } = useI18n();
  const found = api.useQuery("get", "/api/v1/dashboard/anomalies", {
    params: { query: { environment, hours: 24, limit: 8 } },
  });
  if (found.error) return <ErrorPanel error={found.error} retry={() => void found.refetch()} />;
  if (!found.data) return <Skeleton label={t("dashboard.anomalies")} rows={2} columns={1} />;
  if (found.data.anomalies.length === 0) {
    return (
      <span className="gh-row">
        <Status tone="good">0</Status>
        {t("dashboard.anomaliesNone")}
      </span>
    );
  }
  return (
    <ul className="gh-list">
      {found.data.anomalies.map((a) => (
        <li key={a.id}>
          <span className="gh-row">
            <Status tone="warn">{word("dashboard", "anomaly", a.kind)}</Status>
            {a.subject && <code>{a.subject}</code>}
            <span className="gh-dim">
              <Time at={a.last_at} />
            </span>
          </span>
          <span className="gh-dim">{a.evidence.summary}</span>
        </li>
      ))}
    </ul>
  );
}

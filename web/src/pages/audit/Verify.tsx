import "../dashboard/dashboard.css";
import { Button } from "@mantine/core";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";

/** Checks the hash chains of the audit, and says what was edited or removed. */
export function Verify({ close }: { close: () => void }) {
  const { t } = useI18n();
  const report = api.useQuery("get", "/api/v1/audit/verify", {}, { staleTime: Number.POSITIVE_INFINITY, gcTime: 0 });
  return (
    <Panel
      title={t("audit.verify")}
      style={{ marginBottom: 16 }}
      actions={
        <Button size="compact-sm" variant="default" onClick={close}>
          {t("common.close")}
        </Button>
      }
    >
      {report.error && <ErrorPanel error={report.error} retry={() => void report.refetch()} />}
      {report.isPending && <Skeleton label={t("audit.verify")} rows={2} columns={3} />}
      {report.data && (
        <div className="gh-stack" style={{ gap: 10 }} role="status">
          <div className="gh-row">
            <Status tone={report.data.valid ? "good" : "bad"}>
              {report.data.valid ? t("audit.intact") : t("audit.broken")}
            </Status>
            <span>{report.data.valid ? t("audit.intactAbout") : t("audit.brokenAbout")}</span>
          </div>
          <ul className="gh-list">
            {report.data.chains.map((chain) => (
              <li key={chain.name}>
                <strong>{chain.name}</strong> {t("audit.checked", { count: chain.checked })} <code>{chain.head}</code>
                {chain.breaks.map((b) => (
                  <div key={`${b.position} ${b.kind}`} className="gh-note" data-tone="bad">
                    {t("audit.break", { position: b.position })} {b.message}
                  </div>
                ))}
              </li>
            ))}
          </ul>
        </div>
      )}
    </Panel>
  );
}

import { Button } from "@mantine/core";
import { ApiError } from "../api/client";
import { useI18n } from "../i18n";
import { Icon } from "./icons";

/** What failed, where, with the request's id for whoever looks into it, and a way to try again. */
export function ErrorPanel({ error, retry }: { error: unknown; retry?: () => void }) {
  const { t } = useI18n();
  const failure = error instanceof ApiError ? error : null;
  const message =
    failure?.code === "network" ? t("common.noAnswer") : error instanceof Error ? error.message : t("common.failed");
  return (
    <div className="gh-error" role="alert">
      <strong>{t("common.failed")}</strong>
      <div>{message}</div>
      {failure && failure.details.length > 0 && (
        <ul>
          {failure.details.slice(0, 20).map((d, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the list never changes
            <li key={i}>
              {d.pointer && <code>{d.pointer}</code>} {d.line ? t("common.line", { line: d.line }) : ""} {d.message}
            </li>
          ))}
        </ul>
      )}
      <div className="gh-row" style={{ marginTop: 8 }}>
        {retry && (
          <Button size="xs" variant="default" onClick={retry} leftSection={<Icon name="refresh" />}>
            {t("common.retry")}
          </Button>
        )}
        {failure?.requestId && (
          <span className="gh-dim">
            {t("common.requestId")} <code>{failure.requestId}</code>
          </span>
        )}
      </div>
    </div>
  );
}

import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Impact } from "../../ui/Impact";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";

/** One replay: how far it is, a way to cancel it, and what it found. */
export function Run({ id, close }: { id: number; close: () => void }) {
  const { t, number } = useI18n();
  const queries = useQueryClient();
  const run = api.useQuery(
    "get",
    "/api/v1/compliance/replays/{replay_id}",
    { params: { path: { replay_id: id } } },
    { refetchInterval: (query) => (query.state.data?.status === "running" ? 1000 : false) },
  );
  const cancel = api.useMutation("delete", "/api/v1/compliance/replays/{replay_id}", {
    onSettled: () => refresh(queries, "replays"),
  });
  const r = run.data;
  const left = r ? Math.max(0, r.progress.total - r.progress.evaluated) : 0;
  return (
    <Panel
      title={t("replays.one", { id })}
      style={{ marginTop: 16 }}
      actions={
        <>
          {r?.status === "running" && (
            <Button
              size="compact-sm"
              variant="default"
              loading={cancel.isPending}
              onClick={() => cancel.mutate({ params: { path: { replay_id: id } } })}
            >
              {t("replays.cancel")}
            </Button>
          )}
          <Button size="compact-sm" variant="default" onClick={close}>
            {t("common.close")}
          </Button>
        </>
      }
    >
      {run.error && <ErrorPanel error={run.error} retry={() => void run.refetch()} />}
      {cancel.error && <ErrorPanel error={cancel.error} />}
      {!r && !run.error && <Skeleton label={t("replays.one", { id })} rows={3} columns={3} />}
      {r && (
        <div className="gh-stack">
          <div className="gh-row" role="status">
            <StatusOf value={r.status} />
            <progress
              className="gh-progress"
              max={100}
              value={r.status === "completed" ? 100 : r.progress.percent}
              aria-label={t("replays.progress")}
            />
            <span>{t("replays.done", { done: number(r.progress.evaluated), left: number(left) })}</span>
          </div>
          {r.error && (
            <p className="gh-note" data-tone="bad" style={{ margin: 0 }}>
              {r.error}
            </p>
          )}
          {r.result && (
            <>
              <p style={{ margin: 0, fontWeight: 600 }}>
                {r.result.evaluated === 0
                  ? t("replays.nothing")
                  : t("workbench.replayFlips", { count: r.result.changed, total: number(r.result.evaluated) })}
              </p>
              <Impact impact={r.result} />
            </>
          )}
        </div>
      )}
    </Panel>
  );
}

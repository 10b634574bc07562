import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { client, must } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { refresh } from "../../ui/live";
import { useEnvironment } from "../../ui/scope";
import { type Progress, step } from "./classification";

// How many resources one request classifies: few enough that the bar moves and a cancel is felt.
const batch = 100;

/** Classifies all resources of the environment, batch after batch, with a bar and a way to stop between two. */
export function Classify({ total, close }: { total: number; close: () => void }) {
  const { t, word, number } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [progress, setProgress] = useState<Progress | null>(null);
  const [state, setState] = useState<"asking" | "running" | "cancelled" | "completed" | "failed">("asking");
  const [error, setError] = useState<unknown>(null);
  const stopped = useRef(false);
  // Who leaves the screen stops it, too: what is classified by then stays.
  useEffect(() => {
    stopped.current = false;
    return () => {
      stopped.current = true;
    };
  }, []);
  const run = async () => {
    stopped.current = false;
    setError(null);
    setState("running");
    let now: Progress | null = null;
    try {
      do {
        // No more than are left: the round would begin again.
        const query = { environment, limit: Math.min(batch, Math.max(1, now?.left ?? total)) };
        now = step(now, total, must(await client.POST("/api/v1/resources/auto-classify-bulk", { params: { query } })));
        setProgress(now);
      } while (now.left > 0 && !stopped.current);
      setState(now.left > 0 ? "cancelled" : "completed");
    } catch (failure) {
      setError(failure);
      setState("failed");
    }
    refresh(queries, "resources");
  };
  const running = state === "running";
  const p = progress;
  return (
    <ConfirmDialog
      opened
      close={() => {
        if (running) stopped.current = true;
        else close();
      }}
      title={t("inventory.classify")}
      object={word("common", "state", environment)}
      environment={environment}
      about={t("inventory.classifyAbout")}
      action={t("inventory.classify")}
      busy={running}
      error={error}
      confirm={() => void run()}
    >
      {running && !p && <progress className="gh-progress" aria-label={t("inventory.progress")} />}
      {p && (
        <div className="gh-stack" style={{ gap: 8 }}>
          <progress
            className="gh-progress"
            max={Math.max(1, p.examined + p.left)}
            value={p.examined + p.left > 0 ? p.examined : 1}
            aria-label={t("inventory.progress")}
          />
          <span>{t("inventory.progressOf", { done: number(p.examined), left: number(p.left) })}</span>
          {!running && (
            <div
              className="gh-note gh-flat"
              data-tone={state === "completed" && p.errors.length === 0 ? "good" : "warn"}
              role="status"
            >
              {state === "cancelled" && `${t("inventory.stopped")} `}
              {t("inventory.classifyDone", {
                examined: p.examined,
                count: p.classified,
                unchanged: p.unchanged,
                skipped: p.skipped,
              })}
              {p.errors.length > 0 && (
                <ul>
                  {p.errors.slice(0, 100).map((line) => (
                    <li key={line} style={{ overflowWrap: "anywhere" }}>
                      {line}
                    </li>
                  ))}
                </ul>
              )}
            </div>
          )}
        </div>
      )}
    </ConfirmDialog>
  );
}

import { Button } from "@mantine/core";
import { Fragment, useEffect, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { JsonView } from "../../ui/JsonView";
import { Status, StatusOf } from "../../ui/Status";
import type { Policy } from "./policy";

/** The stored test cases, what each expects, and what the control says. */
export function Tests({
  policy,
  change,
  busy,
}: {
  policy: Policy;
  change?: (body: Schemas["PolicyChange"]) => void;
  busy: boolean;
}) {
  const { t, duration } = useI18n();
  const { environment } = policy;
  const run = api.useMutation("post", "/api/v1/policies/{policy_id}/test");
  const [open, setOpen] = useState<string | null>(null);
  const [removing, setRemoving] = useState<string | null>(null);
  const { mutate } = run;
  const cases = policy.test_cases;
  // The table shows results, so they are there without a click, and again after each change.
  useEffect(() => {
    if (cases.length === 0) return;
    mutate({ params: { path: { policy_id: policy.id }, query: { environment } }, body: {} });
  }, [mutate, cases, policy.id, environment]);

  if (cases.length === 0) return <Empty title={t("workbench.noTests")} about={t("workbench.noTestsAbout")} />;
  const results = new Map(run.data?.results.map((r) => [r.name, r]) ?? []);
  const summary = run.data?.summary;
  return (
    <div className="gh-stack">
      <div className="gh-row">
        <Button
          variant="default"
          leftSection={<Icon name="play" />}
          loading={run.isPending}
          onClick={() => mutate({ params: { path: { policy_id: policy.id }, query: { environment } }, body: {} })}
        >
          {t("workbench.runAll")}
        </Button>
        <span role="status">{summary && t("workbench.summary", { passed: summary.passed, count: summary.total })}</span>
      </div>
      {run.error ? <ErrorPanel error={run.error} /> : null}
      <section className="gh-table-box" tabIndex={0} aria-label={t("workbench.tab_tests")}>
        <table className="gh-table">
          <thead>
            <tr>
              <th scope="col">{t("workbench.testName")}</th>
              <th scope="col">{t("workbench.result")}</th>
              <th scope="col">{t("workbench.expected")}</th>
              <th scope="col">{t("workbench.actual")}</th>
              <th scope="col">{t("decisions.reason")}</th>
              <th scope="col" className="gh-num">
                {t("decisions.took")}
              </th>
              <td />
            </tr>
          </thead>
          <tbody>
            {cases.map((c) => {
              const result = results.get(c.name);
              const shown = open === c.name;
              return (
                <Fragment key={c.name}>
                  <tr>
                    <td>
                      <button
                        type="button"
                        className="gh-line"
                        style={{ marginLeft: 0, fontSize: 13 }}
                        aria-expanded={shown}
                        onClick={() => setOpen(shown ? null : c.name)}
                      >
                        {c.name}
                      </button>
                    </td>
                    <td>
                      {result ? (
                        <Status tone={result.passed ? "good" : "bad"}>
                          {result.passed ? t("workbench.passed") : t("workbench.failed")}
                        </Status>
                      ) : (
                        "…"
                      )}
                    </td>
                    <td>{c.expected ? t("workbench.granted") : t("workbench.refused")}</td>
                    <td>{result ? <StatusOf value={result.effect} /> : "…"}</td>
                    <td title={result?.error ?? result?.reason}>{result?.error ?? result?.reason}</td>
                    <td className="gh-num">{result ? duration(result.evaluation_time_ms) : ""}</td>
                    <td>
                      {change && !c.input_hidden && (
                        <Button
                          size="compact-xs"
                          variant="subtle"
                          color="red"
                          aria-label={t("workbench.removeTest", { name: c.name })}
                          onClick={() => setRemoving(c.name)}
                        >
                          <Icon name="trash" />
                        </Button>
                      )}
                    </td>
                  </tr>
                  {shown && (
                    <tr>
                      <td colSpan={7} className="gh-expanded">
                        {result && !result.passed && (
                          <div className="gh-note" data-tone="bad">
                            <strong>
                              {t("workbench.differs", {
                                expected: c.expected ? t("workbench.granted") : t("workbench.refused"),
                                actual: result.actual ? t("workbench.granted") : t("workbench.refused"),
                              })}
                            </strong>
                            {result.why && <p className="gh-why">{result.why}</p>}
                          </div>
                        )}
                        {c.input_hidden ? (
                          <p>{t("workbench.inputHidden")}</p>
                        ) : (
                          <JsonView value={c.input} label={t("workbench.input")} />
                        )}
                      </td>
                    </tr>
                  )}
                </Fragment>
              );
            })}
          </tbody>
        </table>
      </section>
      <ConfirmDialog
        opened={removing !== null}
        close={() => setRemoving(null)}
        title={t("workbench.removeTitle")}
        object={removing ?? ""}
        plain
        about={t("workbench.removeAbout", { name: policy.name })}
        action={t("common.delete")}
        busy={busy}
        confirm={() => {
          change?.({ test_cases: cases.filter((c) => c.name !== removing) });
          setRemoving(null);
        }}
      />
    </div>
  );
}

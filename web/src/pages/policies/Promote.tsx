import { Button, Checkbox, Stack, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useNavigate } from "react-router";
import { api, ifMatch } from "../../api/client";
import { Diff } from "../../editor/Diff";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Impact } from "../../ui/Impact";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { address } from "../../ui/scope";
import type { Policy } from "./policy";

/** All that is to know before a control goes to production, on one page, and the button. */
export function Promote({ policy, dirty }: { policy: Policy; dirty: boolean }) {
  const { t } = useI18n();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [notes, setNotes] = useState("");
  const [approver, setApprover] = useState("");
  const [keep, setKeep] = useState(true);
  const [replace, setReplace] = useState(true);
  const [asking, setAsking] = useState(false);
  const production = api.useQuery("get", "/api/v1/policies", {
    params: { query: { environment: "production", name: policy.name, limit: 100 } },
  });
  const test = api.useMutation("post", "/api/v1/policies/{policy_id}/test");
  const { mutate: runTests } = test;
  useEffect(() => {
    if (policy.kind === "library") return;
    runTests({ params: { path: { policy_id: policy.id }, query: { environment: "sandbox" } }, body: {} });
  }, [runTests, policy]);
  const promote = api.useMutation("post", "/api/v1/policies/{policy_id}/promote", {
    onSuccess: (made) => {
      // The control has left this address: what the page still shows of it is not asked for again.
      refresh(queries, "policies", "none");
      void navigate(address(`/policies/${made.policy_id}`, "production"));
    },
  });
  const before = production.data?.policies.find((p) => p.name === policy.name && p.status === "active");
  const failing = test.data?.summary.failed ?? 0;
  return (
    <div className="gh-bench">
      <div className="gh-bench-code gh-stack">
        <Panel title={t("workbench.promoteDiff")}>
          {production.error ? <ErrorPanel error={production.error} /> : null}
          {production.data &&
            (before ? (
              before.rego_code === policy.rego_code ? (
                <p>{t("workbench.promoteSame")}</p>
              ) : (
                <Diff from={before.rego_code} to={policy.rego_code} label={t("workbench.promoteDiff")} />
              )
            ) : (
              <p>{t("workbench.promoteNew")}</p>
            ))}
          {!production.data && !production.error && (
            <Skeleton label={t("workbench.promoteDiff")} rows={3} columns={1} />
          )}
        </Panel>
        <Panel title={t("workbench.replay")}>
          <Replay policy={policy} />
        </Panel>
      </div>
      <div className="gh-bench-side">
        <Panel title={t("workbench.tab_tests")}>
          {test.error ? (
            <ErrorPanel error={test.error} />
          ) : test.data ? (
            <Status tone={failing > 0 ? "bad" : "good"}>
              {t("workbench.summary", { passed: test.data.summary.passed, count: test.data.summary.total })}
            </Status>
          ) : (
            <span className="gh-dim">{t("workbench.noTests")}</span>
          )}
        </Panel>
        <Panel title={t("workbench.tab_promote")}>
          <Stack gap="sm">
            <Textarea
              label={t("workbench.notes")}
              description={t("workbench.notesAbout")}
              value={notes}
              onChange={(e) => setNotes(e.currentTarget.value)}
              autosize
              minRows={2}
            />
            <TextInput
              label={t("workbench.approver")}
              description={t("workbench.approverAbout")}
              value={approver}
              onChange={(e) => setApprover(e.currentTarget.value)}
            />
            <Checkbox
              label={t("workbench.keepCopy")}
              checked={keep}
              onChange={(e) => setKeep(e.currentTarget.checked)}
            />
            <Checkbox
              label={t("workbench.replace")}
              checked={replace}
              onChange={(e) => setReplace(e.currentTarget.checked)}
            />
            {dirty && (
              <p className="gh-note" data-tone="warn">
                {t("workbench.promoteDirty")}
              </p>
            )}
            {promote.error && !asking ? <ErrorPanel error={promote.error} /> : null}
            <Button disabled={dirty || failing > 0} onClick={() => setAsking(true)}>
              {t("workbench.promoteAction")}
            </Button>
          </Stack>
        </Panel>
      </div>
      <ConfirmDialog
        opened={asking}
        close={() => setAsking(false)}
        title={t("workbench.promoteAction")}
        object={policy.name}
        environment="production"
        about={t("workbench.promoteAbout")}
        action={t("workbench.promoteAction")}
        busy={promote.isPending}
        error={promote.error}
        confirm={() =>
          promote.mutate({
            params: {
              path: { policy_id: policy.id },
              query: { environment: "sandbox" },
              header: ifMatch(policy),
            },
            body: {
              deployment_notes: notes || undefined,
              approver: approver || undefined,
              keep_in_sandbox: keep,
              replace,
            },
          })
        }
      />
    </div>
  );
}

/** The recorded decisions of the last day, decided again with this control in force. */
function Replay({ policy }: { policy: Policy }) {
  const { t, number } = useI18n();
  const impact = api.useMutation("post", "/api/v1/compliance/impact-preview");
  const { mutate } = impact;
  const [source, setSource] = useState<"production" | "sandbox">("production");
  useEffect(() => {
    mutate({
      body: {
        environment: "sandbox",
        source_environment: source,
        control_ids: [policy.id],
        window_hours: 24,
        max_decisions: 10_000,
        samples: 10,
      },
    });
  }, [mutate, policy.id, source]);
  if (impact.error) return <ErrorPanel error={impact.error} />;
  const r = impact.data;
  if (!r) return <Skeleton label={t("workbench.replay")} rows={3} columns={2} />;
  return (
    <div className="gh-stack">
      <p className="gh-lead">
        {r.evaluated === 0
          ? t("workbench.replayNone", { environment: t(`common.state_${source}`) })
          : t("workbench.replayFlips", { count: r.changed, total: number(r.evaluated) })}
      </p>
      {r.evaluated === 0 && source === "production" && (
        <Button variant="default" w="fit-content" onClick={() => setSource("sandbox")}>
          {t("workbench.replaySandbox")}
        </Button>
      )}
      <Impact impact={r} />
    </div>
  );
}

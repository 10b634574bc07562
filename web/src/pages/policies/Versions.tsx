import { Button, Select } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { Diff } from "../../editor/Diff";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { DataTable } from "../../ui/DataTable";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import type { Policy } from "./policy";

/** What a control was: each version, the differences between two, and a way back. */
export function Versions({ policy }: { policy: Policy }) {
  const { t, word, number } = useI18n();
  const { can } = useMe();
  const { environment, id } = policy;
  const queries = useQueryClient();
  const [from, setFrom] = useFilter("from");
  const [to, setTo] = useFilter("to");
  const [restoring, setRestoring] = useState<Schemas["PolicyVersion"] | null>(null);
  const history = api.useQuery("get", "/api/v1/policies/{policy_id}/versions", {
    params: { path: { policy_id: id }, query: { environment, limit: 1000 } },
  });
  const restore = api.useMutation("post", "/api/v1/policies/{policy_id}/versions/{version}/restore", {
    onSuccess: () => {
      setRestoring(null);
      refresh(queries, "policies");
    },
  });
  const versions = history.data?.versions;
  const newest = versions?.find((v) => String(v.version) === to) ?? versions?.find((v) => v.version === policy.version);
  const oldest =
    versions?.find((v) => String(v.version) === from) ??
    versions?.find((v) => v.version === (newest?.version ?? 0) - 1);
  const choices =
    versions?.map((v) => ({ value: String(v.version), label: t("decisions.version", { version: v.version }) })) ?? [];
  return (
    <div className="gh-stack">
      <DataTable
        label={t("workbench.tab_versions")}
        maxHeight={320}
        source={{ rows: versions, error: history.error, retry: () => void history.refetch() }}
        rowKey={(v) => v.version}
        selected={(v) => v === newest || v === oldest}
        empty={null}
        columns={[
          { id: "version", header: t("policies.version"), numeric: true, width: 80, cell: (v) => number(v.version) },
          { id: "change", header: t("workbench.change"), cell: (v) => word("workbench", "change", v.change) },
          { id: "by", header: t("workbench.by"), cell: (v) => v.created_by },
          { id: "at", header: t("common.time"), cell: (v) => <Time at={v.created_at} /> },
          { id: "note", header: t("workbench.note"), cell: (v) => v.note },
          {
            id: "actions",
            header: "",
            hiddenHeader: true,
            cell: (v) => (
              <span className="gh-row" style={{ flexWrap: "nowrap" }}>
                <Button
                  size="compact-xs"
                  variant="default"
                  onClick={() => {
                    setFrom(String(v.version - 1));
                    setTo(String(v.version));
                  }}
                  disabled={v.version === 1}
                >
                  {t("workbench.showChange")}
                </Button>
                {can("policies:write") && v.version !== policy.version && (
                  <Button size="compact-xs" variant="default" onClick={() => setRestoring(v)}>
                    {t("workbench.restore")}
                  </Button>
                )}
              </span>
            ),
          },
        ]}
      />
      {versions && versions.length > 1 && newest && oldest && (
        <Panel
          title={t("workbench.differences")}
          actions={
            <>
              <Select
                aria-label={t("decisions.from")}
                data={choices}
                value={String(oldest.version)}
                onChange={setFrom}
                allowDeselect={false}
                w={140}
              />
              <span aria-hidden="true">→</span>
              <Select
                aria-label={t("decisions.to")}
                data={choices}
                value={String(newest.version)}
                onChange={setTo}
                allowDeselect={false}
                w={140}
              />
            </>
          }
        >
          <Difference policy={policy} from={oldest} to={newest} />
        </Panel>
      )}
      <ConfirmDialog
        opened={restoring !== null}
        close={() => setRestoring(null)}
        title={t("workbench.restore")}
        object={policy.name}
        environment={environment}
        about={t("workbench.restoreAbout", { version: restoring?.version ?? 0 })}
        action={t("workbench.restore")}
        busy={restore.isPending}
        error={restore.error}
        confirm={() =>
          restoring &&
          restore.mutate({
            params: {
              path: { policy_id: id, version: restoring.version },
              query: { environment },
              header: ifMatch(policy),
            },
          })
        }
      />
    </div>
  );
}

function Difference({
  policy,
  from,
  to,
}: {
  policy: Policy;
  from: Schemas["PolicyVersion"];
  to: Schemas["PolicyVersion"];
}) {
  const { t } = useI18n();
  const diff = api.useQuery("get", "/api/v1/policies/{policy_id}/versions/diff", {
    params: {
      path: { policy_id: policy.id },
      query: { environment: policy.environment, from: from.version, to: to.version },
    },
  });
  const members = diff.data?.changes.filter((c) => c.member !== "rego_code") ?? [];
  return (
    <div className="gh-stack">
      {from.rego_code === to.rego_code ? (
        <p className="gh-dim">{t("workbench.sameCode")}</p>
      ) : (
        <Diff from={from.rego_code} to={to.rego_code} label={t("workbench.differences")} />
      )}
      {members.map((m) => (
        <section key={m.member} aria-label={m.member}>
          <h3 className="gh-small-title">{m.member}</h3>
          <div className="gh-two">
            <JsonView
              value={m.from ?? null}
              label={`${m.member}: ${t("decisions.version", { version: from.version })}`}
            />
            <JsonView value={m.to ?? null} label={`${m.member}: ${t("decisions.version", { version: to.version })}`} />
          </div>
        </section>
      ))}
    </div>
  );
}

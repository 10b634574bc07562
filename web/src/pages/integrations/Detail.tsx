import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Health } from "./Health";
import { IntegrationForm } from "./IntegrationForm";
import { answers, Runs } from "./Runs";

type Integration = Schemas["Integration"];

/** One integration: its state, a test that shows the system's answer, and what can be done with it. */
export function Detail({ id, close }: { id: number; close: () => void }) {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const params = { path: { integration_id: id } };
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const integration = api.useQuery("get", "/api/v1/integrations/{integration_id}", { params });
  const test = api.useMutation("post", "/api/v1/integrations/{integration_id}/test");
  const update = api.useMutation("put", "/api/v1/integrations/{integration_id}", {
    onSettled: () => refresh(queries, "integrations"),
  });
  const remove = api.useMutation("delete", "/api/v1/integrations/{integration_id}", {
    onSuccess: () => {
      setRemoving(false);
      close();
      refresh(queries, "integrations");
    },
  });
  const i = integration.data;
  if (!i)
    return integration.error ? <ErrorPanel error={integration.error} retry={() => void integration.refetch()} /> : null;
  const failure = test.error ?? update.error;
  return (
    <Panel
      title={i.name}
      style={{ marginTop: 16 }}
      actions={
        can("integrations:write") && (
          <>
            <Button size="compact-sm" loading={test.isPending} onClick={() => test.mutate({ params })}>
              {t("integrations.test")}
            </Button>
            <Button size="compact-sm" variant="default" onClick={() => setEditing(true)}>
              {t("common.edit")}
            </Button>
            <Button
              size="compact-sm"
              variant="default"
              loading={update.isPending}
              onClick={() =>
                update.mutate({ params: { ...params, header: ifMatch(i) }, body: { enabled: !i.enabled } })
              }
            >
              {i.enabled ? t("notifications.disable") : t("notifications.enable")}
            </Button>
            <Button size="compact-sm" variant="default" onClick={() => setRemoving(true)}>
              {t("common.delete")}
            </Button>
          </>
        )
      }
    >
      <div className="gh-stack" style={{ gap: 12 }}>
        <Facts of={i} />
        {failure ? <ErrorPanel error={failure} /> : null}
        {test.data && <Tested result={test.data} />}
        {answers(i.kind) && <Runs of={i} />}
      </div>
      {editing && <IntegrationForm integration={i} close={() => setEditing(false)} saved={() => setEditing(false)} />}
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          remove.reset();
        }}
        title={t("integrations.removeTitle")}
        object={i.name}
        environment={i.environment || undefined}
        about={t("integrations.removeAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => remove.mutate({ params: { ...params, header: ifMatch(i) } })}
      />
    </Panel>
  );
}

function Facts({ of: i }: { of: Integration }) {
  const { t, word } = useI18n();
  const shown = (name: string, value: unknown): ReactNode => {
    if (name === "ca_certificates") return t("notifications.credentialSet");
    return typeof value === "string" ? word("notifications", "value", value) : JSON.stringify(value);
  };
  const facts: [string, ReactNode][] = [
    [t("integrations.kind"), word("integrations", "kind", i.kind)],
    [t("notifications.status"), <Health key="h" of={i} />],
    [t("notifications.endpoint"), i.endpoint],
    [t("common.environment"), i.environment ? <StatusOf key="e" value={i.environment} /> : t("integrations.both")],
    [t("notifications.credential"), i.credential_set ? t("notifications.credentialSet") : t("common.none")],
  ];
  for (const [name, value] of Object.entries(i.settings)) {
    facts.push([word("notifications", "setting", name), shown(name, value)]);
  }
  if (i.pushed) {
    const { revision, digest, pushed_at } = i.pushed;
    facts.push([t("integrations.pushed"), t("integrations.pushedWhat", { revision: String(revision), digest })]);
    facts.push([t("integrations.pushedAt"), <Time key="p" at={pushed_at} />]);
  }
  facts.push([t("notifications.lastSuccess"), <Time key="s" at={i.last_success_at} />]);
  facts.push([t("notifications.lastFailure"), <Time key="f" at={i.last_failure_at} />]);
  if (i.next_attempt_at) facts.push([t("notifications.next"), <Time key="n" at={i.next_attempt_at} />]);
  if (i.last_error) {
    facts.push([
      t("integrations.lastError"),
      <span key="l" lang="en">
        {i.last_error}
      </span>,
    ]);
  }
  return (
    <dl className="gh-facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd style={{ overflowWrap: "anywhere" }}>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** How the system took the test. */
function Tested({ result }: { result: Schemas["IntegrationTestResult"] }) {
  const { t, duration } = useI18n();
  return (
    <div className="gh-note gh-flat" data-tone={result.delivered ? "good" : "warn"} role="status">
      <strong>{result.delivered ? t("integrations.testTaken") : t("integrations.testFailed")}</strong>{" "}
      {t("notifications.testAnswer", {
        code: result.response_code ? String(result.response_code) : t("common.none"),
        time: duration(result.duration_ms),
      })}
      {result.error && (
        <p className="gh-flat" lang="en" style={{ overflowWrap: "anywhere" }}>
          <code>{result.error}</code>
        </p>
      )}
    </div>
  );
}

import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { useMe, useTo } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Deliveries } from "./Deliveries";
import { type Issued, Secret } from "./Secret";
import { WebhookForm } from "./WebhookForm";

type Webhook = Schemas["Webhook"] & { etag: string };

/** One webhook: what it sends where, its secret, and what came of each delivery. */
export default function WebhookPage() {
  const { t } = useI18n();
  const { id = "" } = useParams();
  const [issued, setIssued] = useState<Issued | null>(null);
  const webhook = api.useQuery("get", "/api/v1/webhooks/{webhook_id}", {
    params: { path: { webhook_id: Number(id) } },
  });
  const w = webhook.data;
  if (!w) {
    return (
      <>
        <PageHeader title={t("webhooks.one")} />
        {webhook.error ? (
          <ErrorPanel error={webhook.error} retry={() => void webhook.refetch()} />
        ) : (
          <Skeleton label={t("webhooks.one")} />
        )}
      </>
    );
  }
  return (
    <>
      <PageHeader
        title={w.name}
        mark={
          <>
            <StatusOf value={w.enabled ? "enabled" : "disabled"} />
            {w.environment ? (
              <StatusOf value={w.environment} />
            ) : (
              <Status tone="neutral">{t("common.wholeTenant")}</Status>
            )}
          </>
        }
      >
        <Actions webhook={w} onIssued={setIssued} />
      </PageHeader>
      {issued && <Secret issued={issued} close={() => setIssued(null)} />}
      <div className="gh-stack">
        <Panel title={t("webhooks.what")}>
          <Facts webhook={w} />
        </Panel>
        <Deliveries webhook={w} />
      </div>
    </>
  );
}

function Facts({ webhook: w }: { webhook: Webhook }) {
  const { t, number } = useI18n();
  const facts: [string, ReactNode][] = [
    [t("webhooks.url"), w.url],
    [t("webhooks.events"), <code key="e">{w.events.join(", ")}</code>],
    [t("webhooks.pending"), number(w.pending_deliveries)],
    [t("webhooks.dead"), number(w.dead_deliveries)],
    [t("webhooks.failures"), number(w.consecutive_failures)],
    [t("webhooks.lastSuccess"), <Time key="s" at={w.last_success_at} />],
    [t("webhooks.lastFailure"), <Time key="f" at={w.last_failure_at} />],
    [t("workbench.createdBy"), w.created_by],
    [t("workbench.created"), <Time key="c" at={w.created_at} />],
  ];
  if (w.previous_secret_until) facts.push([t("webhooks.oldSecret"), <Time key="o" at={w.previous_secret_until} />]);
  return (
    <dl className="gh-facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Actions({ webhook, onIssued }: { webhook: Webhook; onIssued: (issued: Issued) => void }) {
  const { t, duration } = useI18n();
  const { can } = useMe();
  const to = useTo();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asked, setAsked] = useState<"" | "rotate" | "delete">("");
  // The form builds on the webhook as it was when it opened.
  const [edited, setEdited] = useState<Webhook | null>(null);
  const path = { webhook_id: webhook.id };
  const done = () => {
    setAsked("");
    setEdited(null);
    refresh(queries, "webhooks");
  };
  const test = api.useMutation("post", "/api/v1/webhooks/{webhook_id}/test", { onSettled: done });
  const enable = api.useMutation("post", "/api/v1/webhooks/{webhook_id}/enable", { onSuccess: done });
  const disable = api.useMutation("post", "/api/v1/webhooks/{webhook_id}/disable", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/webhooks/{webhook_id}", { onSuccess: done });
  const rotate = api.useMutation("post", "/api/v1/webhooks/{webhook_id}/rotate-secret", {
    onSuccess: (made) => {
      done();
      onIssued(made);
    },
  });
  const remove = api.useMutation("delete", "/api/v1/webhooks/{webhook_id}", {
    onSuccess: () => {
      refresh(queries, "webhooks", "none");
      navigate(to("/webhooks"));
    },
  });
  if (!can("webhooks:write")) return null;
  const toggle = webhook.enabled ? disable : enable;
  const close = () => {
    setAsked("");
    rotate.reset();
    remove.reset();
  };
  const failure = test.error ?? enable.error ?? disable.error;
  return (
    <>
      <Button loading={test.isPending} onClick={() => test.mutate({ params: { path }, body: {} })}>
        {t("webhooks.test")}
      </Button>
      <Button variant="default" loading={toggle.isPending} onClick={() => toggle.mutate({ params: { path } })}>
        {webhook.enabled ? t("webhooks.disable") : t("webhooks.enable")}
      </Button>
      <Button variant="default" onClick={() => setEdited(webhook)}>
        {t("common.edit")}
      </Button>
      <Button variant="default" onClick={() => setAsked("rotate")}>
        {t("webhooks.rotate")}
      </Button>
      <Button variant="default" onClick={() => setAsked("delete")}>
        {t("common.delete")}
      </Button>
      {failure ? <ErrorPanel error={failure} /> : null}
      {test.data && (
        <p className="gh-note gh-flat" role="status" data-tone={test.data.delivered ? "good" : "bad"}>
          {test.data.delivered
            ? t("webhooks.testArrived", {
                status: String(test.data.response_status),
                time: duration(test.data.duration_ms),
              })
            : t("webhooks.testFailed", { error: test.data.error || String(test.data.response_status) })}
        </p>
      )}
      {edited && (
        <WebhookForm
          webhook={edited}
          close={() => {
            setEdited(null);
            update.reset();
          }}
          save={(body) => update.mutate({ params: { path, header: ifMatch(edited) }, body })}
          busy={update.isPending}
          error={update.error}
        />
      )}
      <ConfirmDialog
        opened={asked === "rotate"}
        close={close}
        title={t("webhooks.rotateTitle")}
        object={webhook.name}
        environment={webhook.environment || undefined}
        about={t("webhooks.rotateAbout")}
        action={t("webhooks.rotate")}
        busy={rotate.isPending}
        error={rotate.error}
        confirm={() => rotate.mutate({ params: { path }, body: {} })}
      />
      <ConfirmDialog
        opened={asked === "delete"}
        close={close}
        title={t("webhooks.deleteTitle")}
        object={webhook.name}
        environment={webhook.environment || undefined}
        about={t("webhooks.deleteAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => remove.mutate({ params: { path, header: ifMatch(webhook) } })}
      />
    </>
  );
}

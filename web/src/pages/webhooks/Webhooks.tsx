import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { Filters } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { type Issued, Secret } from "./Secret";
import { WebhookForm } from "./WebhookForm";

export type Webhook = Schemas["Webhook"];

/** Where the tenant's events are sent, and whether they arrive. */
export default function Webhooks() {
  const { t, number } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const [adding, setAdding] = useState(false);
  const [issued, setIssued] = useState<Issued | null>(null);
  const { source, total } = useSkipped<Webhook>(["get", "/api/v1/webhooks"], async (skip, signal) => {
    const page = must(await client.GET("/api/v1/webhooks", { params: { query: { skip, limit: 200 } }, signal }));
    return { rows: page.webhooks, total: page.total };
  });
  const create = api.useMutation("post", "/api/v1/webhooks", {
    onSuccess: (made) => {
      setAdding(false);
      setIssued(made);
      refresh(queries, "webhooks");
    },
  });
  const columns: Column<Webhook>[] = [
    {
      id: "name",
      header: t("webhooks.name"),
      cell: (w) => (
        <Link to={`/webhooks/${w.id}`} title={w.name}>
          {w.name}
        </Link>
      ),
    },
    {
      id: "status",
      header: t("webhooks.status"),
      cell: (w) => <StatusOf value={w.enabled ? "enabled" : "disabled"} />,
    },
    { id: "url", header: t("webhooks.url"), cell: (w) => <span title={w.url}>{w.url}</span> },
    {
      id: "environment",
      header: t("common.environment"),
      cell: (w) =>
        w.environment ? <StatusOf value={w.environment} /> : <Status tone="neutral">{t("common.wholeTenant")}</Status>,
    },
    { id: "events", header: t("webhooks.events"), numeric: true, cell: (w) => number(w.events.length) },
    { id: "pending", header: t("webhooks.pending"), numeric: true, cell: (w) => number(w.pending_deliveries) },
    {
      id: "dead",
      header: t("webhooks.dead"),
      numeric: true,
      cell: (w) => (w.dead_deliveries > 0 ? <Status tone="bad">{number(w.dead_deliveries)}</Status> : number(0)),
    },
    { id: "success", header: t("webhooks.lastSuccess"), cell: (w) => <Time at={w.last_success_at} /> },
  ];
  const add = can("webhooks:write") && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("webhooks.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.webhooks")} about={t("webhooks.about")}>
        {add}
      </PageHeader>
      {issued && <Secret issued={issued} close={() => setIssued(null)} />}
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>{null}</Filters>
      <DataTable
        label={t("nav.webhooks")}
        columns={columns}
        source={source}
        rowKey={(w) => w.id}
        empty={<Empty title={t("webhooks.empty")} about={t("webhooks.emptyAbout")} action={add || undefined} />}
      />
      {adding && (
        <WebhookForm
          close={() => {
            setAdding(false);
            create.reset();
          }}
          save={(body) => create.mutate({ body })}
          busy={create.isPending}
          error={create.error}
        />
      )}
    </>
  );
}

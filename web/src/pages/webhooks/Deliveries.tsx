import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, client, must, type Schemas } from "../../api/client";
import { usePaged } from "../../api/paged";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { FilterSelect, Filters } from "../../ui/Filters";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useClearFilters, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Delivery = Schemas["WebhookDelivery"];
const statuses = ["pending", "delivered", "dead"] as const;

/** What was sent to a webhook, newest first, and what came of it. */
export function Deliveries({ webhook }: { webhook: Schemas["Webhook"] }) {
  const { t, number } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const [status] = useFilter("status");
  const [type] = useFilter("event_type");
  const clear = useClearFilters(["status", "event_type"]);
  const [shown, show] = useState<Delivery | null>(null);
  const path = { webhook_id: webhook.id };
  const filters = { status: statuses.find((s) => s === status), event_type: type || undefined };
  const { source, total } = usePaged<Delivery>(
    ["get", "/api/v1/webhooks/{webhook_id}/deliveries", webhook.id, filters],
    async (cursor, signal) => {
      const query = { limit: 100, cursor: cursor as string | undefined, ...filters };
      const page = must(
        await client.GET("/api/v1/webhooks/{webhook_id}/deliveries", { params: { path, query }, signal }),
      );
      return { rows: page.deliveries, total: page.total, next: page.next_cursor };
    },
    // What is on its way arrives without a change of the tenant that the stream would tell of.
    (rows) => rows.some((d) => d.status === "pending"),
  );
  const again = api.useMutation("post", "/api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", {
    onSuccess: () => refresh(queries, "webhooks"),
  });
  const all = api.useMutation("post", "/api/v1/webhooks/{webhook_id}/deliveries/redeliver", {
    onSuccess: () => refresh(queries, "webhooks"),
  });
  const write = can("webhooks:write");
  const columns: Column<Delivery>[] = [
    {
      id: "time",
      header: t("common.time"),
      cell: (d) => (
        <button type="button" className="gh-link" onClick={() => show(d)}>
          <Time at={d.created_at} />
        </button>
      ),
    },
    { id: "status", header: t("webhooks.status"), cell: (d) => <StatusOf value={d.status} /> },
    { id: "type", header: t("webhooks.event"), cell: (d) => <code>{d.event_type}</code> },
    { id: "attempts", header: t("webhooks.attempts"), numeric: true, cell: (d) => number(d.attempts) },
    {
      id: "answer",
      header: t("webhooks.answer"),
      cell: (d) => <span title={d.error}>{d.error || d.response_status || ""}</span>,
    },
    {
      id: "next",
      header: t("webhooks.nextAttempt"),
      cell: (d) => (d.next_attempt_at ? <Time at={d.next_attempt_at} /> : <span className="gh-dim">–</span>),
    },
  ];
  if (write) {
    columns.push({
      id: "again",
      header: t("webhooks.redeliver"),
      hiddenHeader: true,
      cell: (d) =>
        d.status !== "pending" && (
          <Button
            size="compact-xs"
            variant="default"
            disabled={!webhook.enabled}
            loading={again.isPending && again.variables.params.path.delivery_id === d.id}
            aria-label={t("webhooks.redeliverOne", { id: String(d.id) })}
            onClick={() => again.mutate({ params: { path: { ...path, delivery_id: d.id } } })}
          >
            {t("webhooks.redeliver")}
          </Button>
        ),
    });
  }
  const failure = again.error ?? all.error;
  return (
    <Panel
      title={t("webhooks.deliveries")}
      actions={
        write && webhook.enabled && webhook.dead_deliveries > 0 ? (
          <Button
            size="compact-sm"
            variant="default"
            loading={all.isPending}
            onClick={() => all.mutate({ params: { path }, body: { status: "dead" } })}
          >
            {t("webhooks.redeliverAll")}
          </Button>
        ) : undefined
      }
    >
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>
        <FilterSelect
          name="status"
          label={t("webhooks.status")}
          options={statuses.map((s) => ({ value: s, label: t(`common.state_${s}`) }))}
        />
        <FilterSelect
          name="event_type"
          label={t("webhooks.event")}
          options={webhook.events.map((e) => ({ value: e, label: e }))}
          width={230}
        />
      </Filters>
      {failure ? <ErrorPanel error={failure} /> : null}
      {all.data && (
        <p className="gh-note" data-tone="good" role="status">
          {t("webhooks.queued", { count: all.data.queued })}
        </p>
      )}
      <DataTable
        label={t("webhooks.deliveryList")}
        columns={columns}
        source={source}
        rowKey={(d) => d.id}
        open={show}
        filtered={Boolean(filters.status || filters.event_type)}
        clear={clear}
        empty={<Empty title={t("webhooks.noDeliveries")} about={t("webhooks.noDeliveriesAbout")} />}
        maxHeight={520}
      />
      {shown && <Detail delivery={shown} close={() => show(null)} />}
    </Panel>
  );
}

function Detail({ delivery: d, close }: { delivery: Delivery; close: () => void }) {
  const { t, dateTime, duration } = useI18n();
  return (
    <Dialog opened close={close} title={t("webhooks.delivery", { id: String(d.id) })} size="lg">
      <div className="gh-stack" style={{ gap: 12 }}>
        <div className="gh-row">
          <StatusOf value={d.status} />
          <code>{d.event_type}</code>
          <code>{d.event_id}</code>
        </div>
        {d.attempt_log.length > 0 && (
          <section className="gh-table-box" tabIndex={0} aria-label={t("webhooks.attempts")}>
            <table className="gh-table">
              <thead>
                <tr>
                  <th scope="col">{t("common.time")}</th>
                  <th scope="col">{t("webhooks.answer")}</th>
                  <th scope="col" className="gh-num">
                    {t("decisions.took")}
                  </th>
                </tr>
              </thead>
              <tbody>
                {d.attempt_log.map((a) => (
                  <tr key={a.at}>
                    <td>{dateTime(a.at)}</td>
                    <td title={a.error}>{a.error || a.response_status}</td>
                    <td className="gh-num">{duration(a.duration_ms)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        )}
        <JsonView value={d.payload} label={t("webhooks.payload")} />
      </div>
    </Dialog>
  );
}

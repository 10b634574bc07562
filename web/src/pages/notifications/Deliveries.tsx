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
import { FilterDate, FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Delivery = Schemas["NotifyDelivery"];
const statuses = ["pending", "held", "digested", "sent", "failed", "dlq"] as const;

/** What was sent to the channels, newest first, and what came of it. */
export default function Deliveries() {
  const { t, number, word } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [channel] = useFilter("channel_id");
  const [status] = useFilter("status");
  const [alert] = useFilter("alert");
  const [digest] = useFilter("digest_id");
  const [start] = useFilter("start_date");
  const [end] = useFilter("end_date");
  const clear = useClearFilters(["channel_id", "digest_id", "status", "alert", "start_date", "end_date"]);
  const [shown, show] = useState<Delivery | null>(null);
  const filters = {
    environment,
    channel_id: /^[1-9]\d*$/.test(channel) ? Number(channel) : undefined,
    digest_id: /^[1-9]\d*$/.test(digest) ? Number(digest) : undefined,
    status: statuses.find((s) => s === status),
    alert: alert || undefined,
    start_date: start || undefined,
    end_date: end || undefined,
  };
  const channels = api.useQuery("get", "/api/v1/notifications/channels", {
    params: { query: { environment, limit: 200 } },
  });
  const { source, total } = usePaged<Delivery>(
    ["get", "/api/v1/notifications/deliveries", filters],
    async (cursor, signal) => {
      const query = { ...filters, limit: 100, cursor: cursor as string | undefined };
      const page = must(await client.GET("/api/v1/notifications/deliveries", { params: { query }, signal }));
      return { rows: page.deliveries, total: page.total, next: page.next_cursor };
    },
  );
  const retry = api.useMutation("post", "/api/v1/notifications/deliveries/{delivery_id}/retry", {
    onSettled: () => refresh(queries, "notifications"),
  });
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
    { id: "status", header: t("notifications.status"), cell: (d) => <StatusOf value={d.status} /> },
    { id: "channel", header: t("notifications.channel"), cell: (d) => d.channel_name },
    { id: "alert", header: t("notifications.alert"), cell: (d) => <code>{d.alert}</code> },
    {
      id: "severity",
      header: t("notifications.severityOf"),
      cell: (d) => word("notifications", "severity", d.severity),
    },
    { id: "attempts", header: t("notifications.tries"), numeric: true, cell: (d) => number(d.attempts) },
    {
      id: "answer",
      header: t("notifications.answer"),
      cell: (d) => <span title={d.error || d.response}>{d.error || d.response || d.response_code || ""}</span>,
    },
    {
      id: "next",
      header: t("notifications.next"),
      cell: (d) => (d.next_attempt_at ? <Time at={d.next_attempt_at} /> : <span className="gh-dim">–</span>),
    },
  ];
  if (can("notifications:write")) {
    columns.push({
      id: "again",
      header: t("common.retry"),
      hiddenHeader: true,
      cell: (d) =>
        (d.status === "failed" || d.status === "dlq") && (
          <Button
            size="compact-xs"
            variant="default"
            loading={retry.isPending && retry.variables.params.path.delivery_id === d.id}
            aria-label={t("notifications.retryOne", { id: String(d.id) })}
            onClick={() => retry.mutate({ params: { path: { delivery_id: d.id } } })}
          >
            {t("common.retry")}
          </Button>
        ),
    });
  }
  return (
    <>
      <PageHeader title={t("nav.deliveries")} about={t("notifications.deliveriesAbout")} />
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>
        <FilterSelect
          name="channel_id"
          label={t("notifications.channel")}
          options={(channels.data?.channels ?? []).map((c) => ({ value: String(c.id), label: c.name }))}
          width={190}
        />
        <FilterSelect
          name="status"
          label={t("notifications.status")}
          options={statuses.map((s) => ({ value: s, label: t(`common.state_${s}`) }))}
        />
        <FilterText name="alert" label={t("notifications.alert")} width={190} />
        <FilterDate name="start_date" label={t("decisions.from")} />
        <FilterDate name="end_date" label={t("decisions.to")} />
      </Filters>
      {retry.error ? <ErrorPanel error={retry.error} /> : null}
      <DataTable
        label={t("nav.deliveries")}
        columns={columns}
        source={source}
        rowKey={(d) => d.id}
        open={show}
        filtered={Boolean(channel || digest || status || alert || start || end)}
        clear={clear}
        empty={<Empty title={t("notifications.noDeliveries")} about={t("notifications.noDeliveriesAbout")} />}
      />
      {shown && <Detail delivery={shown} close={() => show(null)} />}
    </>
  );
}

function Detail({ delivery: d, close }: { delivery: Delivery; close: () => void }) {
  const { t, dateTime, duration } = useI18n();
  return (
    <Dialog opened close={close} title={t("notifications.delivery", { id: String(d.id) })} size="lg">
      <div className="gh-stack" style={{ gap: 12 }}>
        <div className="gh-row">
          <StatusOf value={d.status} />
          <strong style={{ overflowWrap: "anywhere" }}>{d.payload.title}</strong>
        </div>
        {d.digest_size > 0 && (
          <p className="gh-flat">
            {t("notifications.sumsUp", { count: d.digest_size })}{" "}
            <Link to="/notifications/deliveries" params={{ digest_id: d.id }} onClick={close}>
              {t("notifications.sumsUpShow")}
            </Link>
          </p>
        )}
        {d.digest_id !== null && <p className="gh-flat">{t("notifications.inDigest", { id: String(d.digest_id) })}</p>}
        <div>
          <strong>{t("notifications.attemptLog")}</strong>
          {d.attempt_log.length === 0 ? (
            <p className="gh-flat gh-dim">{t("common.none")}</p>
          ) : (
            <ul className="gh-flat">
              {d.attempt_log.map((a) => (
                <li key={a.at} style={{ overflowWrap: "anywhere" }}>
                  {dateTime(a.at)}: {[a.response_code, a.response, a.error].filter(Boolean).join(" ")} (
                  {duration(a.duration_ms)})
                </li>
              ))}
            </ul>
          )}
        </div>
        <strong>{t("notifications.payload")}</strong>
        <JsonView label={t("notifications.payload")} value={d.payload} />
      </div>
    </Dialog>
  );
}

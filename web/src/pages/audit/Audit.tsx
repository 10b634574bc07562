import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { client, must, type Schemas } from "../../api/client";
import { usePaged } from "../../api/paged";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterDate, FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { JsonView } from "../../ui/JsonView";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useClearFilters, useFilter } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Changes } from "./Changes";
import { Verify } from "./Verify";

type Event = Schemas["AuditEvent"];
const names = ["type", "object", "actor_id", "start_date", "end_date"];
const objects = [
  "policy",
  "resource",
  "bouncer",
  "user",
  "key",
  "tenant",
  "environment",
  "deployment",
  "repository",
  "replay",
  "anomaly",
  "access_request",
];

/** The administrative audit: who changed what, with the values before and after. */
export default function Audit() {
  const { t, word, number } = useI18n();
  const queries = useQueryClient();
  const clear = useClearFilters(names);
  const [type] = useFilter("type");
  const [object] = useFilter("object");
  const [actor] = useFilter("actor_id");
  const [start] = useFilter("start_date");
  const [end] = useFilter("end_date");
  const [shown, setShown] = useState<Event | null>(null);
  const [verifying, setVerifying] = useState(false);
  const filters = {
    type: type || undefined,
    object: object || undefined,
    actor_id: actor || undefined,
    start_date: start || undefined,
    // A day is meant to its end.
    end_date: end.length === 10 ? `${end}T23:59:59.999Z` : end || undefined,
  };
  const { source, total } = usePaged<Event>(["get", "/api/v1/audit/events", filters], async (cursor, signal) => {
    const page = must(
      await client.GET("/api/v1/audit/events", {
        params: { query: { limit: 200, cursor: cursor as string | undefined, ...filters } },
        signal,
      }),
    );
    return { rows: page.events, total: page.filtered, next: page.next_cursor };
  });
  const columns: Column<Event>[] = [
    {
      id: "time",
      header: t("common.time"),
      cell: (e) => (
        <button type="button" className="gh-link" onClick={() => setShown(e)}>
          <Time at={e.timestamp} />
        </button>
      ),
    },
    { id: "type", header: t("audit.event"), cell: (e) => <code>{e.type}</code> },
    { id: "actor", header: t("audit.actor"), cell: (e) => e.actor_name || word("audit", "actor", e.actor_kind) },
    {
      id: "object",
      header: t("audit.object"),
      cell: (e) => (
        <span title={e.object_name}>
          {word("audit", "object", e.object)} {e.object_name || e.object_id}
        </span>
      ),
    },
    {
      id: "environment",
      header: t("common.environment"),
      cell: (e) => (e.environment ? <StatusOf value={e.environment} /> : null),
    },
    { id: "address", header: t("audit.address"), cell: (e) => e.ip_address ?? "" },
  ];
  return (
    <>
      <PageHeader title={t("nav.audit")} about={t("audit.about")}>
        <Button variant="default" onClick={() => setVerifying(true)}>
          {t("audit.verify")}
        </Button>
        <Button
          variant="default"
          onClick={() => void queries.invalidateQueries({ queryKey: ["get", "/api/v1/audit/events"] })}
        >
          {t("audit.refresh")}
        </Button>
      </PageHeader>
      {verifying && <Verify close={() => setVerifying(false)} />}
      <Filters
        count={
          source.rows && total !== undefined
            ? t("common.countOf", { shown: number(source.rows.length), total: number(total) })
            : ""
        }
      >
        <FilterText name="type" label={t("audit.eventExact")} width={200} />
        <FilterSelect
          name="object"
          label={t("audit.object")}
          options={objects.map((value) => ({ value, label: word("audit", "object", value) }))}
        />
        <FilterText name="actor_id" label={t("audit.actorExact")} width={200} />
        <FilterDate name="start_date" label={t("audit.from")} />
        <FilterDate name="end_date" label={t("audit.to")} />
      </Filters>
      <DataTable
        label={t("nav.audit")}
        columns={columns}
        source={source}
        rowKey={(e) => e.id}
        open={setShown}
        filtered={Object.values(filters).some((f) => f !== undefined)}
        clear={clear}
        empty={<Empty title={t("audit.empty")} about={t("audit.emptyAbout")} />}
      />
      {shown && (
        <Dialog opened close={() => setShown(null)} title={shown.type} size="xl">
          <Entry event={shown} />
        </Dialog>
      )}
    </>
  );
}

function Entry({ event }: { event: Event }) {
  const { t, word, utc } = useI18n();
  return (
    <div className="gh-stack">
      <dl className="gh-facts">
        <dt>{t("common.time")}</dt>
        <dd>{utc(event.timestamp)}</dd>
        <dt>{t("audit.actor")}</dt>
        <dd>
          {event.actor_name} ({word("audit", "actor", event.actor_kind)}, {event.actor_id || t("common.none")})
        </dd>
        <dt>{t("audit.object")}</dt>
        <dd>
          {word("audit", "object", event.object)} {event.object_name} ({event.object_id})
        </dd>
        {event.ip_address && (
          <>
            <dt>{t("audit.address")}</dt>
            <dd>{event.ip_address}</dd>
          </>
        )}
        {event.request_id && (
          <>
            <dt>{t("common.requestId")}</dt>
            <dd>
              <code>{event.request_id}</code>
            </dd>
          </>
        )}
      </dl>
      <Changes changes={event.changes} />
      {Object.keys(event.event_context).length > 0 && (
        <JsonView value={event.event_context} label={t("audit.context")} />
      )}
    </div>
  );
}

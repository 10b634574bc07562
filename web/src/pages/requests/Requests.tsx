import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { client, must } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterSelect, Filters } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { NewRequest } from "./NewRequest";
import { type AccessRequest, RequestDialog } from "./RequestDialog";
import { nextEnd } from "./request";

const statuses = ["pending", "approved", "denied", "revoked", "expired", "withdrawn"] as const;

/** Requests for access after denials, and the grants that approved ones are. */
export default function Requests() {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [status] = useFilter("status");
  const [mine] = useFilter("mine");
  const [shown, show] = useFilter("request");
  const clear = useClearFilters(["status", "mine"]);
  const [adding, setAdding] = useState<"request" | "glass">();
  const filters = {
    environment,
    status: statuses.find((s) => s === status),
    mine: mine === "true" || undefined,
  };
  const { source, total } = useSkipped<AccessRequest>(["get", "/access/v1/requests", filters], async (skip, signal) => {
    const query = { ...filters, skip, limit: 200 };
    const page = must(await client.GET("/access/v1/requests", { params: { query }, signal }));
    return { rows: page.requests, total: page.total };
  });
  // A grant and an open request end by the clock, and no change tells of it.
  const end = nextEnd(source.rows ?? [], Date.now());
  useEffect(() => {
    if (end === undefined) return;
    const timer = window.setTimeout(() => refresh(queries, "resources"), end - Date.now() + 500);
    return () => window.clearTimeout(timer);
  }, [end, queries]);
  const columns: Column<AccessRequest>[] = [
    {
      id: "subject",
      header: t("requests.subject"),
      cell: (r) => (
        <button type="button" className="gh-link" title={r.subject_id} onClick={() => show(String(r.id))}>
          <bdi>{r.subject_id}</bdi>
        </button>
      ),
    },
    {
      id: "status",
      header: t("requests.status"),
      cell: (r) => (
        <span className="gh-row">
          <StatusOf value={r.status} />
          {r.break_glass && <Status tone="bad">{t("requests.breakGlass")}</Status>}
        </span>
      ),
    },
    {
      id: "resource",
      header: t("requests.resource"),
      cell: (r) =>
        can("resources:read") ? <Link to={`/resources/${r.resource_id}`}>{r.resource_name}</Link> : r.resource_name,
    },
    { id: "action", header: t("requests.action"), cell: (r) => <code title={r.action}>{r.action}</code> },
    { id: "reason", header: t("requests.reason"), cell: (r) => <span title={r.reason}>{r.reason}</span> },
    { id: "asked", header: t("requests.asked"), cell: (r) => <Time at={r.created_at} /> },
    {
      id: "ends",
      header: t("requests.ends"),
      cell: (r) => {
        const end = r.ended_at ?? r.expires_at ?? (r.status === "pending" ? r.lapses_at : null);
        return end ? <Time at={end} /> : <span className="gh-dim">–</span>;
      },
    },
  ];
  const add = (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding("request")}>
      {t("requests.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.requests")} about={t("requests.about")}>
        {can("resources:write") && (
          <Button variant="default" onClick={() => setAdding("glass")}>
            {t("requests.glassNew")}
          </Button>
        )}
        {add}
      </PageHeader>
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>
        <FilterSelect
          name="status"
          label={t("requests.status")}
          options={statuses.map((s) => ({ value: s, label: t(`common.state_${s}`) }))}
        />
        <FilterSelect
          name="mine"
          label={t("requests.whose")}
          options={[{ value: "true", label: t("requests.mine") }]}
        />
      </Filters>
      <DataTable
        label={t("nav.requests")}
        columns={columns}
        source={source}
        rowKey={(r) => r.id}
        open={(r) => show(String(r.id))}
        filtered={Boolean(filters.status || filters.mine)}
        clear={clear}
        empty={<Empty title={t("requests.empty")} about={t("requests.emptyAbout")} action={add} />}
      />
      {adding && <NewRequest glass={adding === "glass"} close={() => setAdding(undefined)} />}
      {/^[1-9]\d{0,15}$/.test(shown) && <RequestDialog key={shown} id={Number(shown)} close={() => show(null)} />}
    </>
  );
}

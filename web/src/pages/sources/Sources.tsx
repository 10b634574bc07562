import { Button } from "@mantine/core";
import { useState } from "react";
import { useNavigate } from "react-router";
import { client, must } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterSelect, Filters } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { PageHeader } from "../../ui/PageHeader";
import { Link, useClearFilters, useFilter, useMe, useTo } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Health } from "./Health";
import { SourceForm } from "./SourceForm";
import type { Source } from "./source";

const healths = ["healthy", "stale", "unhealthy", "unknown"] as const;

/** The data sources of the tenant, and how old the data of each is. */
export default function Sources() {
  const { t, word, number } = useI18n();
  const { can } = useMe();
  const to = useTo();
  const navigate = useNavigate();
  const [health] = useFilter("health_status");
  const clear = useClearFilters(["health_status"]);
  const [adding, setAdding] = useState(false);
  const filters = { health_status: healths.find((h) => h === health) };
  const { source, total } = useSkipped<Source>(["get", "/api/v1/pip/connections", filters], async (skip, signal) => {
    const query = { skip, limit: 200, ...filters };
    const page = must(await client.GET("/api/v1/pip/connections", { params: { query }, signal }));
    return { rows: page.connections, total: page.total };
  });
  const columns: Column<Source>[] = [
    {
      id: "name",
      header: t("policies.name"),
      cell: (s) => (
        <Link to={`/data-sources/${s.id}`} title={s.name}>
          {s.name}
        </Link>
      ),
    },
    { id: "health", header: t("sources.health"), cell: (s) => <Health of={s.health_status} /> },
    { id: "age", header: t("sources.lastSync"), cell: (s) => <Time at={s.last_sync} /> },
    { id: "records", header: t("sources.records"), numeric: true, cell: (s) => number(s.records_synced) },
    { id: "provider", header: t("sources.provider"), cell: (s) => word("sources", "provider", s.provider) },
    { id: "type", header: t("sources.type"), cell: (s) => s.connection_type },
    {
      id: "frequency",
      header: t("sources.frequency"),
      cell: (s) => (s.sync_enabled ? t(`sources.every_${s.sync_frequency}`) : t("sources.every_manual")),
    },
    {
      id: "error",
      header: t("sources.lastError"),
      cell: (s) => <span title={s.last_error ?? undefined}>{s.last_error}</span>,
    },
  ];
  const add = can("pip:write") && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("sources.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.sources")} about={t("sources.about")}>
        {add}
      </PageHeader>
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>
        <FilterSelect
          name="health_status"
          label={t("sources.health")}
          options={healths.map((h) => ({ value: h, label: t(`sources.health_${h}`) }))}
        />
      </Filters>
      <DataTable
        label={t("nav.sources")}
        columns={columns}
        source={source}
        rowKey={(s) => s.id}
        filtered={Boolean(filters.health_status)}
        clear={clear}
        empty={<Empty title={t("sources.empty")} about={t("sources.emptyAbout")} action={add || undefined} />}
      />
      {adding && (
        <SourceForm close={() => setAdding(false)} saved={(made) => navigate(to(`/data-sources/${made.id}`))} />
      )}
    </>
  );
}

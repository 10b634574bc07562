import { Button } from "@mantine/core";
import { useState } from "react";
import { client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterSelect, Filters } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useClearFilters, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Detail } from "./Detail";
import { Health } from "./Health";
import { IntegrationForm } from "./IntegrationForm";

type Integration = Schemas["Integration"];

const kinds = ["siem_forwarder", "webhook", "workflow", "approval_queue", "break_glass_bridge"] as const;

/** The systems that are called, and how each takes what is sent to it. */
export default function Integrations() {
  const { t, word } = useI18n();
  const { can } = useMe();
  const [shown, show] = useFilter("integration");
  const [kind] = useFilter("kind");
  const clear = useClearFilters(["kind"]);
  const [adding, setAdding] = useState(false);
  const filters = { kind: kinds.find((k) => k === kind) };
  const { source, total } = useSkipped<Integration>(["get", "/api/v1/integrations", filters], async (skip, signal) => {
    const query = { skip, limit: 200, ...filters };
    const page = must(await client.GET("/api/v1/integrations", { params: { query }, signal }));
    return { rows: page.integrations, total: page.total };
  });
  const columns: Column<Integration>[] = [
    {
      id: "name",
      header: t("policies.name"),
      cell: (i) => (
        <button type="button" className="gh-link" onClick={() => show(String(i.id))}>
          {i.name}
        </button>
      ),
    },
    { id: "kind", header: t("integrations.kind"), cell: (i) => word("integrations", "kind", i.kind) },
    { id: "status", header: t("notifications.status"), cell: (i) => <Health of={i} /> },
    {
      id: "environment",
      header: t("common.environment"),
      cell: (i) => (i.environment ? <StatusOf value={i.environment} /> : t("integrations.both")),
    },
    { id: "endpoint", header: t("notifications.endpoint"), cell: (i) => <span title={i.endpoint}>{i.endpoint}</span> },
    { id: "success", header: t("notifications.lastSuccess"), cell: (i) => <Time at={i.last_success_at} /> },
    { id: "next", header: t("notifications.next"), cell: (i) => <Time at={i.next_attempt_at} /> },
  ];
  const add = can("integrations:write") && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("integrations.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.integrations")} about={t("integrations.about")}>
        {add}
      </PageHeader>
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>
        <FilterSelect
          name="kind"
          label={t("integrations.kind")}
          options={kinds.map((k) => ({ value: k, label: t(`integrations.kind_${k}`) }))}
        />
      </Filters>
      <DataTable
        label={t("nav.integrations")}
        columns={columns}
        source={source}
        rowKey={(i) => i.id}
        selected={(i) => String(i.id) === shown}
        open={(i) => show(String(i.id))}
        filtered={Boolean(filters.kind)}
        clear={clear}
        empty={<Empty title={t("integrations.empty")} about={t("integrations.emptyAbout")} action={add || undefined} />}
      />
      {/^[1-9]\d*$/.test(shown) && <Detail key={shown} id={Number(shown)} close={() => show(null)} />}
      {adding && (
        <IntegrationForm
          close={() => setAdding(false)}
          saved={(id) => {
            setAdding(false);
            show(String(id));
          }}
        />
      )}
    </>
  );
}

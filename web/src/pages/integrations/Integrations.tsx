import { client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import type { Column } from "../../ui/DataTable";
import { FilterSelect } from "../../ui/Filters";
import { ListPage } from "../../ui/ListPage";
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
  const [kind] = useFilter("kind");
  const clear = useClearFilters(["kind"]);
  const filters = { kind: kinds.find((k) => k === kind) };
  const { source, total } = useSkipped<Integration>(["get", "/api/v1/integrations", filters], async (skip, signal) => {
    const query = { skip, limit: 200, ...filters };
    const page = must(await client.GET("/api/v1/integrations", { params: { query }, signal }));
    return { rows: page.integrations, total: page.total };
  });
  const columns: Column<Integration>[] = [
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
  return (
    <ListPage
      title={t("nav.integrations")}
      about={t("integrations.about")}
      param="integration"
      columns={columns}
      source={source}
      total={total}
      filters={
        <FilterSelect
          name="kind"
          label={t("integrations.kind")}
          options={kinds.map((k) => ({ value: k, label: t(`integrations.kind_${k}`) }))}
        />
      }
      filtered={Boolean(filters.kind)}
      clear={clear}
      empty={{ title: t("integrations.empty"), about: t("integrations.emptyAbout") }}
      add={can("integrations:write") && t("integrations.new")}
      form={(close, saved) => <IntegrationForm close={close} saved={saved} />}
      detail={(id, close) => <Detail id={id} close={close} />}
    />
  );
}

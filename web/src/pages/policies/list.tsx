import type { ReactNode } from "react";
import { client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import type { Column } from "../../ui/DataTable";
import { FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { Link, useClearFilters, useEnvironment, useFilter } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Policy = Schemas["Policy"];
const statuses = ["active", "draft", "inactive"] as const;

/** The controls or the libraries of the environment, as the filters of the address choose them. */
export function usePolicyList(kind: Policy["kind"]) {
  const environment = useEnvironment();
  const [status] = useFilter("status");
  const [name] = useFilter("name");
  const [deleted] = useFilter("deleted");
  const clear = useClearFilters(["status", "name", "deleted"]);
  const filters = {
    status: statuses.find((s) => s === status),
    name: name || undefined,
    deleted: deleted === "true" || undefined,
  };
  const list = useSkipped<Policy>(["get", "/api/v1/policies", kind, environment, filters], async (skip, signal) => {
    const query = { environment, kind, limit: 500, skip, ...filters };
    const page = must(await client.GET("/api/v1/policies", { params: { query }, signal }));
    return { rows: page.policies, total: page.total };
  });
  return { ...list, deleted: Boolean(filters.deleted), filtered: Object.values(filters).some(Boolean), clear };
}

/** The filters that a list of controls and one of libraries share, with how many entries there are. */
export function PolicyFilters({ total, children }: { total: number | undefined; children?: ReactNode }) {
  const { t } = useI18n();
  return (
    <Filters count={total === undefined ? "" : t("common.count", { count: total })}>
      <FilterText name="name" label={t("policies.findName")} />
      <FilterSelect
        name="status"
        label={t("policies.status")}
        options={statuses.map((s) => ({ value: s, label: t(`common.state_${s}`) }))}
      />
      {children}
    </Filters>
  );
}

/** The columns that a list of controls and one of libraries share. */
export function usePolicyColumns(): Record<"name" | "version" | "changed", Column<Policy>> {
  const { t, number } = useI18n();
  return {
    name: {
      id: "name",
      header: t("policies.name"),
      cell: (p) =>
        p.deleted_at ? (
          p.name
        ) : (
          <Link to={`/policies/${p.id}`} title={p.description}>
            {p.name}
          </Link>
        ),
    },
    version: { id: "version", header: t("policies.version"), numeric: true, cell: (p) => number(p.version) },
    changed: { id: "changed", header: t("policies.changed"), cell: (p) => <Time at={p.updated_at} /> },
  };
}

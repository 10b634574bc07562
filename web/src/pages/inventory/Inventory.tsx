import { Button } from "@mantine/core";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { Link, useEnvironment, useMe } from "../../ui/scope";
import { Classify } from "./Classify";
import "../dashboard/dashboard.css";
import "./inventory.css";

/** What there is to protect: totals, kinds, classifications, tags, and what still needs a person's look. */
export default function Inventory() {
  const { t, number, word } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const [asking, setAsking] = useState(false);
  const inventory = api.useQuery("get", "/api/v1/resources/inventory-summary", {
    params: { query: { environment } },
  });
  const i = inventory.data;
  return (
    <div className="gh-stack">
      <PageHeader title={t("nav.inventory")} about={t("inventory.about")}>
        {can("resources:edit") && i && i.total > 0 && (
          <Button variant="default" onClick={() => setAsking(true)}>
            {t("inventory.classify")}
          </Button>
        )}
      </PageHeader>
      {inventory.error && <ErrorPanel error={inventory.error} retry={() => void inventory.refetch()} />}
      {!i && !inventory.error && <Skeleton label={t("nav.inventory")} />}
      {i && i.total === 0 && <Empty title={t("inventory.empty")} about={t("inventory.emptyAbout")} />}
      {i && i.total > 0 && (
        <>
          <dl className="gh-totals">
            <Total label={t("inventory.total")} value={number(i.total)} />
            <Total label={t("inventory.classified")} value={number(i.classified)} />
            <Total label={t("inventory.protected")} value={number(i.protected)} />
            <Total label={t("inventory.ai")} value={number(i.ai_count)} />
          </dl>
          <div className="gh-grid">
            <Panel title={t("inventory.byKind")} style={{ gridColumn: "span 4" }}>
              <Bars counts={i.by_kind} name={(k) => word("inventory", "kind", k)} />
            </Panel>
            <Panel title={t("inventory.byClassification")} style={{ gridColumn: "span 4" }}>
              <Bars counts={i.by_classification} name={(k) => word("inventory", "class", k)} />
            </Panel>
            <Panel title={t("inventory.byTag")} style={{ gridColumn: "span 4" }}>
              <Bars counts={i.by_compliance_tag} name={(k) => k} />
            </Panel>
          </div>
          <h2 className="gh-section">{t("inventory.attention")}</h2>
          <Attention rows={i.needs_attention} />
        </>
      )}
      {asking && i && <Classify total={i.total} close={() => setAsking(false)} />}
    </div>
  );
}

function Total({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Bars({ counts, name }: { counts: Record<string, number>; name: (key: string) => string }) {
  const { t, number } = useI18n();
  const items = Object.entries(counts)
    .filter(([, n]) => n > 0)
    .toSorted((a, b) => b[1] - a[1]);
  if (items.length === 0) return <p className="gh-dim gh-flat">{t("common.none")}</p>;
  const most = Math.max(...items.map(([, n]) => n));
  return (
    <ul className="gh-bars gh-counts">
      {items.map(([key, n]) => (
        <li key={key}>
          <span title={name(key)}>{name(key) || t("common.none")}</span>
          <span className="gh-bar" aria-hidden="true">
            <span style={{ width: `${(100 * n) / most}%` }} />
          </span>
          <span className="gh-num">{number(n)}</span>
        </li>
      ))}
    </ul>
  );
}

function Attention({ rows }: { rows: Schemas["ResourceAttention"][] }) {
  const { t, word } = useI18n();
  const columns: Column<Schemas["ResourceAttention"]>[] = [
    {
      id: "name",
      header: t("inventory.resource"),
      cell: (r) => <Link to={`/resources/${r.id}`}>{r.name}</Link>,
    },
    { id: "kind", header: t("inventory.kind"), cell: (r) => word("inventory", "kind", r.resource_kind) },
    {
      id: "class",
      header: t("inventory.classification"),
      cell: (r) => word("inventory", "class", r.data_classification),
    },
    {
      id: "reasons",
      header: t("inventory.missing"),
      cell: (r) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          {r.reasons.map((reason) => (
            <Status key={reason} tone="warn">
              {word("inventory", "reason", reason)}
            </Status>
          ))}
        </span>
      ),
    },
  ];
  return (
    <DataTable
      label={t("inventory.attention")}
      columns={columns}
      rowKey={(r) => r.id}
      source={{ rows, error: null, retry: () => undefined }}
      empty={<Empty title={t("inventory.calm")} about={t("inventory.calmAbout")} />}
    />
  );
}

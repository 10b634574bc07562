import { Button, Checkbox } from "@mantine/core";
import { useState } from "react";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Filters } from "../../ui/Filters";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useFilter } from "../../ui/scope";
import { type Coverage, cellOf, coverageOf, type Row } from "./coverage";
import "./coverage.css";

// What the picture has room for; the table behind it has everything.
const most = { rows: 40, controls: 40 };

/** Which control covers which resource, and which resources none does. */
export default function CoverageScreen() {
  const { t, word, number } = useI18n();
  const environment = useEnvironment();
  const [table, setTable] = useState(false);
  const [gaps, setGaps] = useFilter("gaps");
  const query = { environment, limit: 1000 };
  const resources = api.useQuery("get", "/api/v1/resources", { params: { query } });
  const policies = api.useQuery("get", "/api/v1/policies", { params: { query: { ...query, kind: "control" } } });
  const error = resources.error ?? policies.error;
  const coverage =
    resources.data && policies.data ? coverageOf(resources.data.resources, policies.data.policies) : undefined;
  const rows = coverage?.rows.filter((r) => !gaps || !r.protected);
  const columns: Column<Row>[] = [
    {
      id: "name",
      header: t("inventory.resource"),
      cell: (r) => (
        <Link to={`/resources/${r.resource.id}`} title={r.resource.name}>
          {r.resource.name}
        </Link>
      ),
    },
    { id: "kind", header: t("inventory.kind"), cell: (r) => word("inventory", "kind", r.resource.resource_kind ?? "") },
    {
      id: "protected",
      header: t("coverage.protection"),
      cell: (r) =>
        r.protected ? (
          <Status tone="good">{t("coverage.protected")}</Status>
        ) : (
          <Status tone="warn">{t("coverage.gap")}</Status>
        ),
    },
    {
      id: "controls",
      header: t("coverage.controls"),
      cell: (r) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          {r.bound.map((p) => (
            <span key={p.id} className="gh-row" style={{ flexWrap: "nowrap" }}>
              <Link to={`/policies/${p.id}`} title={p.name}>
                {p.name}
              </Link>
              {p.status !== "active" && <StatusOf value={p.status} />}
            </span>
          ))}
        </span>
      ),
    },
  ];
  const list = (
    <DataTable
      label={t("coverage.table")}
      columns={columns}
      rowKey={(r) => r.resource.id}
      source={{
        rows,
        error,
        retry: () => {
          void resources.refetch();
          void policies.refetch();
        },
      }}
      filtered={gaps !== ""}
      clear={() => setGaps(null)}
      empty={<Empty title={t("inventory.empty")} about={t("inventory.emptyAbout")} />}
    />
  );
  return (
    <>
      <PageHeader title={t("nav.coverage")} about={t("coverage.about")} />
      <Filters
        count={
          coverage && resources.data
            ? t("common.countOf", { shown: number(rows?.length ?? 0), total: number(resources.data.total) })
            : undefined
        }
      >
        <Checkbox
          label={t("coverage.gapsOnly")}
          checked={gaps !== ""}
          onChange={(event) => setGaps(event.currentTarget.checked ? "true" : null)}
        />
        <Button size="compact-sm" variant="default" onClick={() => setTable(!table)}>
          {table ? t("common.showChart") : t("common.showTable")}
        </Button>
      </Filters>
      {error && !coverage && <ErrorPanel error={error} retry={() => window.location.reload()} />}
      {coverage && rows && rows.length > 0 && !table ? <Picture coverage={coverage} rows={rows} /> : !error && list}
    </>
  );
}

function Picture({ coverage, rows }: { coverage: Coverage; rows: Row[] }) {
  const { t, number } = useI18n();
  const shown = rows.slice(0, most.rows);
  const controls = coverage.controls.slice(0, most.controls);
  const cut = rows.length > shown.length || coverage.controls.length > controls.length;
  const summary = t("coverage.summary", {
    count: coverage.rows.length,
    gaps: number(coverage.gaps),
    wide: number(coverage.wide),
    controls: number(coverage.controls.length),
  });
  return (
    <Panel title={t("coverage.picture")}>
      <p className="gh-flat">{summary}</p>
      <div className="gh-legend gh-coverage-legend" aria-hidden="true">
        {(["bound", "wide", "draft"] as const).map((cell) => (
          <span key={cell} className="gh-row" style={{ gap: 6 }}>
            <i className="gh-cell" data-cell={cell} /> {t(`coverage.cell_${cell}`)}
          </span>
        ))}
      </div>
      <section className="gh-coverage-box" tabIndex={0} aria-label={t("coverage.matrix")}>
        <div
          className="gh-coverage"
          role="img"
          aria-label={summary}
          style={{ gridTemplateColumns: `minmax(110px, 220px) repeat(${controls.length}, 22px)` }}
        >
          <span />
          {controls.map((c) => (
            <bdi key={c.id} className="gh-coverage-control" title={c.name}>
              {c.name}
            </bdi>
          ))}
          {shown.map((r) => (
            <CoverageRow key={r.resource.id} row={r} controls={controls} />
          ))}
        </div>
      </section>
      {cut && <p className="gh-dim gh-flat">{t("coverage.cut")}</p>}
    </Panel>
  );
}

function CoverageRow({ row, controls }: { row: Row; controls: Coverage["controls"] }) {
  return (
    <>
      <bdi className="gh-coverage-resource" data-gap={!row.protected} title={row.resource.name}>
        {row.resource.name}
      </bdi>
      {controls.map((c) => (
        <i key={c.id} className="gh-cell" data-cell={cellOf(c, row.resource)} />
      ))}
    </>
  );
}

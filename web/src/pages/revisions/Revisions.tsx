import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { Filters } from "../../ui/Filters";
import { PageHeader } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Row = Schemas["BridgeBouncerRevision"];

/** Which revision each bouncer was given and which it enforces, so that one sees when a change has arrived everywhere. */
export default function Revisions() {
  const { t, number } = useI18n();
  const environment = useEnvironment();
  const revisions = api.useQuery("get", "/api/v1/deployments/revisions/{environment}", {
    params: { path: { environment } },
  });
  const columns: Column<Row>[] = [
    {
      id: "bouncer",
      header: t("revisions.bouncer"),
      cell: (r) => <Link to={`/bouncers/${r.bouncer_id}`}>{r.name}</Link>,
    },
    { id: "status", header: t("revisions.status"), cell: (r) => <StatusOf value={r.status} /> },
    { id: "given", header: t("revisions.given"), numeric: true, cell: (r) => number(r.revision) },
    { id: "active", header: t("revisions.active"), numeric: true, cell: (r) => number(r.active_revision) },
    {
      id: "state",
      header: t("revisions.state"),
      cell: (r) =>
        r.errors.length > 0 ? (
          <Status tone="bad">{t("revisions.refused")}</Status>
        ) : (
          <Status tone={r.converged ? "good" : "info"}>
            {r.converged ? t("revisions.converged") : t("revisions.onTheWay")}
          </Status>
        ),
    },
    { id: "published", header: t("revisions.published"), cell: (r) => <Time at={r.published_at} /> },
    { id: "activated", header: t("revisions.activated"), cell: (r) => <Time at={r.activated_at} /> },
    {
      id: "error",
      header: t("revisions.error"),
      cell: (r) => {
        const text = r.errors.map((e) => e.message).join("; ");
        return <span title={text}>{text}</span>;
      },
    },
  ];
  const rows = revisions.data?.bouncers;
  const arrived = rows?.filter((r) => r.converged).length ?? 0;
  return (
    <>
      <PageHeader
        title={t("nav.revisions")}
        about={t("revisions.about")}
        mark={
          rows && rows.length > 0 ? (
            <Status tone={revisions.data?.converged ? "good" : "info"}>
              {revisions.data?.converged ? t("revisions.converged") : t("revisions.onTheWay")}
            </Status>
          ) : undefined
        }
      />
      {rows && rows.length > 0 && (
        <Filters count={t("revisions.arrived", { arrived, count: rows.length })}>
          <progress className="gh-progress" max={rows.length} value={arrived} aria-label={t("nav.revisions")} />
        </Filters>
      )}
      <DataTable
        label={t("nav.revisions")}
        columns={columns}
        rowKey={(r) => r.bouncer_id}
        source={{ rows, error: revisions.error, retry: () => void revisions.refetch() }}
        empty={<Empty title={t("revisions.empty")} about={t("revisions.emptyAbout")} />}
      />
    </>
  );
}

import { Button } from "@mantine/core";
import { api, client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useFilter } from "../../ui/scope";
import { Time } from "../../ui/Time";
import type { Repository } from "./repository";

type Deployment = Schemas["IdeDeployment"];

/** What repositories and editors deployed or had checked, newest first; of one repository where one is chosen. */
export function Deployments({ repository, names }: { repository: Repository | undefined; names: Map<number, string> }) {
  const { t, word } = useI18n();
  const [shown, show] = useFilter("deployment");
  const { source } = useSkipped<Deployment>(
    ["get", "/api/v1/ide-integration/deployments", "paged", repository?.id],
    async (skip, signal) => {
      const page = must(
        await client.GET("/api/v1/ide-integration/deployments", {
          params: { query: { limit: 100, skip, repository_id: repository?.id } },
          signal,
        }),
      );
      return { rows: page.deployments, total: page.total };
    },
  );
  const columns: Column<Deployment>[] = [
    {
      id: "time",
      header: t("common.time"),
      cell: (d) => (
        <button type="button" className="gh-link" onClick={() => show(d.deployment_id)}>
          <Time at={d.created_at} />
        </button>
      ),
    },
    { id: "status", header: t("policies.status"), cell: (d) => <StatusOf value={d.status} /> },
    { id: "event", header: t("repositories.event"), cell: (d) => word("repositories", "event", d.event_type) },
    {
      id: "of",
      header: t("repositories.one"),
      cell: (d) =>
        d.repository_id === null
          ? word("repositories", "source", d.source)
          : (names.get(d.repository_id) ?? `#${d.repository_id}`),
    },
    { id: "branch", header: t("repositories.branch"), cell: (d) => d.branch && <code>{d.branch}</code> },
    {
      id: "commit",
      header: t("repositories.commit"),
      cell: (d) => d.commit_hash && <code title={d.commit_hash}>{d.commit_hash.slice(0, 8)}</code>,
    },
    { id: "by", header: t("simulator.by"), cell: (d) => d.created_by },
    { id: "what", header: t("repositories.outcome"), cell: (d) => d.outcome.message },
  ];
  return (
    <div style={{ marginTop: 24 }}>
      <h2 className="gh-small-title">
        {repository ? t("repositories.deploymentsOf", { name: repository.name }) : t("repositories.deployments")}
      </h2>
      <DataTable
        label={t("repositories.deployments")}
        columns={columns}
        rowKey={(d) => d.deployment_id}
        open={(d) => show(d.deployment_id)}
        selected={(d) => d.deployment_id === shown}
        source={source}
        empty={<Empty title={t("repositories.noDeployments")} about={t("repositories.noDeploymentsAbout")} />}
        maxHeight={360}
      />
      {shown && <Outcome id={shown} close={() => show(null)} />}
    </div>
  );
}

/** One deployment: how far it is, what was done by file, and what is wrong, with file and line. */
function Outcome({ id, close }: { id: string; close: () => void }) {
  const { t, word } = useI18n();
  const deployment = api.useQuery(
    "get",
    "/api/v1/ide-integration/deployments/{deployment_id}",
    { params: { path: { deployment_id: id } } },
    { refetchInterval: (query) => (query.state.data?.status === "in_progress" ? 1000 : false) },
  );
  const d = deployment.data;
  const files = d?.outcome.files ?? [];
  const errors = d?.outcome.errors ?? [];
  return (
    <Panel
      title={t("repositories.deployment")}
      style={{ marginTop: 16 }}
      actions={
        <Button size="compact-sm" variant="default" onClick={close}>
          {t("common.close")}
        </Button>
      }
    >
      {deployment.error ? (
        <ErrorPanel error={deployment.error} retry={() => void deployment.refetch()} />
      ) : !d ? (
        <Skeleton label={t("repositories.deployment")} rows={2} columns={2} />
      ) : (
        <div className="gh-stack" style={{ gap: 12 }}>
          <div className="gh-row" role="status">
            <StatusOf value={d.status} />
            {d.status === "in_progress" ? (
              <>
                <progress className="gh-progress" aria-label={t("replays.progress")} />
                <span>{t("repositories.working")}</span>
              </>
            ) : (
              <span>{d.outcome.message}</span>
            )}
            {d.commit_hash && <code>{d.commit_hash}</code>}
          </div>
          {errors.length > 0 && (
            <ul className="gh-findings" aria-label={t("workbench.findings")}>
              {errors.map((e) => (
                <li key={`${e.pointer}:${e.line}:${e.column}:${e.message}`} data-severity="error">
                  {e.pointer && <code>{e.pointer}</code>}{" "}
                  {e.line ? <strong>{t("common.line", { line: e.line })}</strong> : null} {e.message}
                </li>
              ))}
            </ul>
          )}
          {files.length > 0 && (
            <section className="gh-table-box" tabIndex={0} aria-label={t("repositories.files")}>
              <table className="gh-table">
                <thead>
                  <tr>
                    <th scope="col">{t("repositories.file")}</th>
                    <th scope="col">{t("decisions.control")}</th>
                    <th scope="col">{t("workbench.result")}</th>
                  </tr>
                </thead>
                <tbody>
                  {files.map((f) => (
                    <tr key={f.path}>
                      <td>
                        <code>{f.path}</code>
                      </td>
                      <td>
                        {f.policy_id ? (
                          <Link to={`/policies/${f.policy_id}`} params={{ environment: "sandbox" }}>
                            {f.name}
                          </Link>
                        ) : (
                          f.name
                        )}
                      </td>
                      <td>{word("repositories", "result", f.result)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </section>
          )}
        </div>
      )}
    </Panel>
  );
}

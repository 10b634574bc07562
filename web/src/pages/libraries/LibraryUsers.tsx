import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link } from "../../ui/scope";
import { packageOf } from "./library";

/** Which policies use a library, in either environment, and the line with which others would. */
export function LibraryUsers({ library }: { library: Schemas["Policy"] }) {
  const { t } = useI18n();
  const users = api.useQuery("get", "/api/v1/policies/{policy_id}/dependents", {
    params: { path: { policy_id: library.id } },
  });
  return (
    <Panel title={t("workbench.users")}>
      {users.error ? (
        <ErrorPanel error={users.error} retry={() => void users.refetch()} />
      ) : !users.data ? (
        <Skeleton label={t("workbench.users")} rows={3} columns={2} />
      ) : (
        <div className="gh-stack" style={{ gap: 10 }}>
          {users.data.users.length === 0 ? (
            <span className="gh-dim">{t("libraries.noUsers")}</span>
          ) : (
            <>
              <span>{t("libraries.usersAbout", { count: users.data.total })}</span>
              <ul className="gh-findings" aria-label={t("workbench.users")}>
                {users.data.users.map((u) => (
                  <li key={u.id}>
                    <Link to={`/policies/${u.id}`} params={{ environment: u.environment }}>
                      {u.name}
                    </Link>{" "}
                    <StatusOf value={u.environment} /> <StatusOf value={u.status} />
                  </li>
                ))}
              </ul>
            </>
          )}
          <code>import data.{packageOf(library.rego_code)}</code>
        </div>
      )}
    </Panel>
  );
}

import { useQueryClient } from "@tanstack/react-query";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Link, useMe } from "../../ui/scope";
import { Sessions } from "./Sessions";

/** One's own account: who one is, what one may do, and where one is signed in. */
export default function Settings() {
  const { t, list, word } = useI18n();
  const { me } = useMe();
  return (
    <div className="gh-stack">
      <PageHeader title={t("nav.settings")} about={t("settings.about")} />
      <Panel title={t("settings.profile")}>
        <dl className="gh-facts">
          <dt>{t("users.username")}</dt>
          <dd>{me.username}</dd>
          <dt>{t("users.email")}</dt>
          <dd>{me.email || t("common.none")}</dd>
          <dt>{t("settings.tenant")}</dt>
          <dd>{me.tenant_id}</dd>
          <dt>{t("users.roles")}</dt>
          <dd>{list(me.roles.map((role) => word("users", "role", role))) || t("common.none")}</dd>
          <dt>{t("users.department")}</dt>
          <dd>{me.department || t("common.none")}</dd>
          <dt>{t("settings.permissions")}</dt>
          <dd>
            <code>{me.permissions.toSorted().join(", ") || t("common.none")}</code>
          </dd>
          <dt>{t("security.factor")}</dt>
          <dd>
            <Link to="/settings/security">{t("nav.security")}</Link>
          </dd>
        </dl>
      </Panel>
      <OwnSessions />
    </div>
  );
}

/** Where one is signed in oneself. */
function OwnSessions() {
  const { t } = useI18n();
  const queries = useQueryClient();
  const sessions = api.useQuery("get", "/api/v1/auth/sessions");
  const onSuccess = () => void queries.invalidateQueries({ queryKey: ["get", "/api/v1/auth/sessions"] });
  const end = api.useMutation("delete", "/api/v1/auth/sessions/{session_id}", { onSuccess });
  const endOthers = api.useMutation("delete", "/api/v1/auth/sessions", { onSuccess });
  return (
    <Sessions
      words={{
        title: t("settings.sessions"),
        list: t("settings.sessionList"),
        none: t("settings.noSessions"),
        noneAbout: t("settings.noSessionsAbout"),
        end: t("settings.endTitle"),
        endAbout: t("settings.endAbout"),
        endAll: t("settings.endOthers"),
        endAllAbout: t("settings.endOthersAbout"),
      }}
      source={{ rows: sessions.data?.sessions, error: sessions.error, retry: () => void sessions.refetch() }}
      write
      one={{
        mutation: end,
        run: (s, done) => s && end.mutate({ params: { path: { session_id: s.id } } }, { onSuccess: done }),
      }}
      all={{ mutation: endOthers, run: (_, done) => endOthers.mutate({}, { onSuccess: done }) }}
    />
  );
}

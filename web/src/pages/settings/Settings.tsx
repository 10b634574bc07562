import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Session = Schemas["AuthSessionInfo"];

/** One's own account: who one is, what one may do, and where one is signed in. */
export default function Settings() {
  const { t, list, word } = useI18n();
  const { me } = useMe();
  return (
    <div className="gh-stack">
      <PageHeader title={t("settings.title")} about={t("settings.about")} />
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
        </dl>
      </Panel>
      <Sessions />
    </div>
  );
}

function Sessions() {
  const { t } = useI18n();
  const queries = useQueryClient();
  const [ending, setEnding] = useState<Session | "others" | null>(null);
  const sessions = api.useQuery("get", "/api/v1/auth/sessions");
  const done = () => {
    setEnding(null);
    void queries.invalidateQueries({ queryKey: ["get", "/api/v1/auth/sessions"] });
  };
  const end = api.useMutation("delete", "/api/v1/auth/sessions/{session_id}", { onSuccess: done });
  const endOthers = api.useMutation("delete", "/api/v1/auth/sessions", { onSuccess: done });
  const rows = sessions.data?.sessions;
  const columns: Column<Session>[] = [
    {
      id: "device",
      header: t("settings.device"),
      cell: (s) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }} title={s.user_agent}>
          {s.device || t("settings.unknownDevice")}
          {s.current && <Status tone="good">{t("settings.current")}</Status>}
        </span>
      ),
    },
    {
      id: "kind",
      header: t("settings.kind"),
      cell: (s) => (s.kind === "browser" ? t("settings.browser") : t("settings.token")),
    },
    { id: "address", header: t("settings.address"), cell: (s) => s.ip_address },
    { id: "created", header: t("settings.signedIn"), cell: (s) => <Time at={s.created_at} /> },
    { id: "used", header: t("settings.lastUsed"), cell: (s) => <Time at={s.last_used_at} /> },
    { id: "expires", header: t("settings.expires"), cell: (s) => <Time at={s.expires_at} /> },
    {
      id: "actions",
      header: t("settings.actions"),
      hiddenHeader: true,
      width: 90,
      cell: (s) =>
        s.current ? null : (
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setEnding(s)}
            aria-label={t("settings.endNamed", { name: s.device || s.ip_address })}
          >
            {t("settings.end")}
          </Button>
        ),
    },
  ];
  const one = ending !== null && ending !== "others" ? ending : null;
  const close = () => {
    setEnding(null);
    end.reset();
    endOthers.reset();
  };
  return (
    <Panel
      title={t("settings.sessions")}
      actions={
        rows && rows.length > 1 ? (
          <Button size="compact-sm" variant="default" onClick={() => setEnding("others")}>
            {t("settings.endOthers")}
          </Button>
        ) : undefined
      }
    >
      <DataTable
        label={t("settings.sessionList")}
        columns={columns}
        rowKey={(s) => s.id}
        source={{ rows, error: sessions.error, retry: () => void sessions.refetch() }}
        empty={<Empty title={t("settings.noSessions")} about={t("settings.noSessionsAbout")} />}
      />
      <ConfirmDialog
        opened={one !== null}
        close={close}
        title={t("settings.endTitle")}
        object={one ? one.device || one.ip_address : ""}
        about={t("settings.endAbout")}
        action={t("settings.end")}
        busy={end.isPending}
        error={end.error}
        confirm={() => one && end.mutate({ params: { path: { session_id: one.id } } })}
      />
      <ConfirmDialog
        opened={ending === "others"}
        close={close}
        title={t("settings.endOthers")}
        object={t("settings.sessions")}
        about={t("settings.endOthersAbout")}
        action={t("settings.endOthers")}
        busy={endOthers.isPending}
        error={endOthers.error}
        confirm={() => endOthers.mutate({})}
      />
    </Panel>
  );
}

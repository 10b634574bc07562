import { Button, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useParams } from "react-router";
import { ApiError, api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Sessions } from "../settings/Sessions";
import { EditUser } from "./EditUser";
import { useRoles } from "./roles";

type Identity = Schemas["UserIdentity"];

/** One person: the account, where the person is signed in, and who the person is at identity providers. */
export default function User() {
  const { t, list } = useI18n();
  const { can } = useMe();
  const { id = "" } = useParams();
  const roleName = useRoles().name;
  const [editing, setEditing] = useState(false);
  const user = api.useQuery("get", "/api/v1/users/{user_id}", { params: { path: { user_id: id } } });
  const u = user.data;
  if (!u) {
    const missing = user.error instanceof ApiError && user.error.status === 404;
    return (
      <>
        <PageHeader title={t("nav.users")} />
        {missing ? (
          <Empty title={t("common.notFound")} about={t("common.notFoundAbout")} />
        ) : user.error ? (
          <ErrorPanel error={user.error} retry={() => void user.refetch()} />
        ) : (
          <Skeleton label={t("nav.users")} />
        )}
      </>
    );
  }
  return (
    <div className="gh-stack">
      <PageHeader title={u.username} mark={<StatusOf value={u.status} />}>
        {can("users:write") && (
          <Button variant="default" onClick={() => setEditing(true)}>
            {t("common.edit")}
          </Button>
        )}
      </PageHeader>
      <Panel title={t("users.account")}>
        <dl className="gh-facts">
          <dt>Id</dt>
          <dd>
            <code>{u.id}</code>
          </dd>
          <dt>{t("users.email")}</dt>
          <dd>{u.email || t("common.none")}</dd>
          <dt>{t("users.roles")}</dt>
          <dd>{list(u.roles.map(roleName)) || t("common.none")}</dd>
          <dt>{t("users.department")}</dt>
          <dd>{u.department || t("common.none")}</dd>
          <dt>{t("users.lastSignIn")}</dt>
          <dd>
            <Time at={u.last_login_at} />
          </dd>
        </dl>
      </Panel>
      <SecondFactorOf user={u} />
      <SessionsOf user={u} />
      <Identities user={u} />
      {editing && <EditUser user={u} close={() => setEditing(false)} />}
    </div>
  );
}

/** The person's second factor, and its reset for somebody who has lost it. */
function SecondFactorOf({ user }: { user: Schemas["User"] }) {
  const { t, number } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const params = { path: { user_id: user.id } };
  const factor = api.useQuery("get", "/api/v1/users/{user_id}/second-factor", { params });
  const reset = api.useMutation("delete", "/api/v1/users/{user_id}/second-factor", {
    onSuccess: () => {
      setAsking(false);
      refresh(queries, "users");
    },
  });
  const f = factor.data;
  return (
    <Panel
      title={t("security.factor")}
      actions={
        f?.enrolled && can("users:write") && user.id !== me.id ? (
          <Button size="compact-sm" variant="default" onClick={() => setAsking(true)}>
            {t("security.reset")}
          </Button>
        ) : undefined
      }
    >
      {factor.error ? <ErrorPanel error={factor.error} retry={() => void factor.refetch()} /> : null}
      {f && (
        <dl className="gh-facts">
          <dt>{t("security.state")}</dt>
          <dd>{f.enrolled ? t("security.on") : t("security.off")}</dd>
          {f.enrolled && (
            <>
              <dt>{t("security.codesLeft")}</dt>
              <dd>{number(f.recovery_codes_left)}</dd>
            </>
          )}
        </dl>
      )}
      <ConfirmDialog
        opened={asking}
        close={() => {
          setAsking(false);
          reset.reset();
        }}
        title={t("security.reset")}
        object={user.username}
        about={t("security.resetAbout")}
        action={t("security.reset")}
        busy={reset.isPending}
        error={reset.error}
        confirm={() => reset.mutate({ params })}
      />
    </Panel>
  );
}

/** Where the person is signed in. */
function SessionsOf({ user }: { user: Schemas["User"] }) {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const path = { user_id: user.id };
  const sessions = api.useQuery("get", "/api/v1/users/{user_id}/sessions", { params: { path } });
  const onSuccess = () => refresh(queries, "users");
  const end = api.useMutation("delete", "/api/v1/users/{user_id}/sessions/{session_id}", { onSuccess });
  const endAll = api.useMutation("delete", "/api/v1/users/{user_id}/sessions", { onSuccess });
  return (
    <Sessions
      words={{
        title: t("users.sessions"),
        list: t("users.sessionsOf", { name: user.username }),
        none: t("users.noSessions"),
        noneAbout: t("users.noSessionsAbout"),
        end: t("users.endTitle"),
        endAbout: t("users.endAbout"),
        endAll: t("users.endAll"),
        endAllAbout: t("users.endAllAbout"),
      }}
      source={{ rows: sessions.data?.sessions, error: sessions.error, retry: () => void sessions.refetch() }}
      write={can("users:write")}
      person={user.username}
      one={{
        mutation: end,
        run: (s, done) => s && end.mutate({ params: { path: { ...path, session_id: s.id } } }, { onSuccess: done }),
      }}
      all={{ mutation: endAll, run: (_, done) => endAll.mutate({ params: { path } }, { onSuccess: done }) }}
    />
  );
}

function Identities({ user }: { user: Schemas["User"] }) {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const path = { user_id: user.id };
  const [linking, setLinking] = useState(false);
  const [unlinking, setUnlinking] = useState<Identity | null>(null);
  const identities = api.useQuery("get", "/api/v1/users/{user_id}/identities", { params: { path } });
  const unlink = api.useMutation("delete", "/api/v1/users/{user_id}/identities/{identity_id}", {
    onSuccess: () => {
      setUnlinking(null);
      refresh(queries, "users");
    },
  });
  const write = can("users:write");
  const columns: Column<Identity>[] = [
    { id: "subject", header: t("users.subject"), cell: (i) => <code title={i.subject}>{i.subject}</code> },
    { id: "issuer", header: t("users.issuer"), cell: (i) => <code title={i.issuer}>{i.issuer}</code> },
    { id: "by", header: t("users.linkedBy"), cell: (i) => i.created_by },
    { id: "used", header: t("users.lastUsed"), cell: (i) => <Time at={i.last_used_at} /> },
  ];
  if (write) {
    columns.push({
      id: "actions",
      header: t("users.actions"),
      hiddenHeader: true,
      width: 100,
      cell: (i) => (
        <Button
          size="compact-xs"
          variant="default"
          onClick={() => setUnlinking(i)}
          aria-label={t("users.unlinkNamed", { name: i.subject })}
        >
          {t("users.unlink")}
        </Button>
      ),
    });
  }
  return (
    <Panel
      title={t("users.identities")}
      actions={
        write ? (
          <Button size="compact-sm" variant="default" onClick={() => setLinking(true)}>
            {t("users.link")}
          </Button>
        ) : undefined
      }
    >
      <DataTable
        label={t("users.identitiesOf", { name: user.username })}
        columns={columns}
        rowKey={(i) => i.id}
        source={{
          rows: identities.data?.identities,
          error: identities.error,
          retry: () => void identities.refetch(),
        }}
        empty={<Empty title={t("users.noIdentities")} about={t("users.noIdentitiesAbout")} />}
        maxHeight={420}
      />
      {linking && <LinkIdentity user={user} close={() => setLinking(false)} />}
      <ConfirmDialog
        opened={unlinking !== null}
        close={() => {
          setUnlinking(null);
          unlink.reset();
        }}
        title={t("users.unlinkTitle")}
        object={unlinking ? `${user.username}: ${unlinking.subject}` : ""}
        about={t("users.unlinkAbout")}
        action={t("users.unlink")}
        busy={unlink.isPending}
        error={unlink.error}
        confirm={() => unlinking && unlink.mutate({ params: { path: { ...path, identity_id: unlinking.id } } })}
      />
    </Panel>
  );
}

function LinkIdentity({ user, close }: { user: Schemas["User"]; close: () => void }) {
  const { t } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const provider = api.useQuery(
    "get",
    "/api/v1/tenants/{tenant_id}/sign-on",
    { params: { path: { tenant_id: me.tenant_id } } },
    { retry: false, enabled: can("tenants:read") },
  );
  const link = api.useMutation("post", "/api/v1/users/{user_id}/identities", {
    onSuccess: () => {
      refresh(queries, "users");
      close();
    },
  });
  const { at, rest } = fieldErrors(link.error, ["/issuer", "/subject"]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name)).trim();
    link.mutate({ params: { path: { user_id: user.id } }, body: { issuer: text("issuer"), subject: text("subject") } });
  };
  return (
    <Dialog opened close={close} title={t("users.link")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <p className="gh-flat">{t("users.identitiesAbout")}</p>
          <TextInput
            key={provider.data?.issuer}
            name="issuer"
            label={t("users.issuer")}
            defaultValue={provider.data?.issuer}
            maxLength={512}
            required
            error={at("/issuer")}
          />
          <TextInput
            name="subject"
            label={t("users.subject")}
            description={t("users.subjectAbout")}
            maxLength={255}
            required
            data-autofocus
            error={at("/subject")}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          <Button type="submit" loading={link.isPending}>
            {t("users.link")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

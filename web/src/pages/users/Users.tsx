import { Button, MultiSelect, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Filters, FilterText } from "../../ui/Filters";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { EditUser } from "./EditUser";
import { useRoles } from "./roles";

type User = Schemas["User"];

/** The people of the tenant: who they are, what they may do, and when they were last here. */
export default function Users() {
  const { t, list } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const [search] = useFilter("search");
  const clear = useClearFilters(["search"]);
  const roleName = useRoles().name;
  const users = api.useQuery("get", "/api/v1/users", {
    params: { query: { limit: 1000, ...(search ? { search } : {}) } },
  });
  const [adding, setAdding] = useState(false);
  const [editing, setEditing] = useState<User | null>(null);
  const [removing, setRemoving] = useState<User | null>(null);
  const remove = api.useMutation("delete", "/api/v1/users/{user_id}", {
    onSuccess: () => {
      setRemoving(null);
      refresh(queries, "users");
    },
  });
  const write = can("users:write");
  const columns: Column<User>[] = [
    {
      id: "username",
      header: t("users.username"),
      cell: (u) => <Link to={`/users/${encodeURIComponent(u.id)}`}>{u.username}</Link>,
    },
    { id: "email", header: t("users.email"), cell: (u) => u.email },
    { id: "roles", header: t("users.roles"), cell: (u) => list(u.roles.map(roleName)) || t("common.none") },
    { id: "department", header: t("users.department"), cell: (u) => u.department },
    { id: "status", header: t("users.status"), cell: (u) => <StatusOf value={u.status} /> },
    { id: "seen", header: t("users.lastSignIn"), cell: (u) => <Time at={u.last_login_at} /> },
  ];
  if (write) {
    columns.push({
      id: "actions",
      header: t("users.actions"),
      hiddenHeader: true,
      width: 190,
      cell: (u) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setEditing(u)}
            aria-label={t("users.editNamed", { name: u.username })}
          >
            {t("common.edit")}
          </Button>
          {u.id !== me.id && (
            <Button
              size="compact-xs"
              variant="default"
              onClick={() => setRemoving(u)}
              aria-label={t("users.deleteNamed", { name: u.username })}
            >
              {t("common.delete")}
            </Button>
          )}
        </span>
      ),
    });
  }
  return (
    <>
      <PageHeader title={t("nav.users")} about={t("users.about")}>
        {write && <Button onClick={() => setAdding(true)}>{t("users.add")}</Button>}
      </PageHeader>
      <Filters count={users.data ? t("common.count", { count: users.data.total }) : undefined}>
        <FilterText name="search" label={t("users.search")} />
      </Filters>
      <DataTable
        label={t("nav.users")}
        columns={columns}
        rowKey={(u) => u.id}
        filtered={search !== ""}
        clear={clear}
        source={{ rows: users.data?.users, error: users.error, retry: () => void users.refetch() }}
        empty={<Empty title={t("users.empty")} about={t("users.emptyAbout")} />}
      />
      <AddUser opened={adding} close={() => setAdding(false)} />
      {editing && <EditUser user={editing} close={() => setEditing(null)} />}
      <ConfirmDialog
        opened={removing !== null}
        close={() => {
          setRemoving(null);
          remove.reset();
        }}
        title={t("users.deleteTitle")}
        object={removing?.username ?? ""}
        about={t("users.deleteAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => removing && remove.mutate({ params: { path: { user_id: removing.id } } })}
      />
    </>
  );
}

function AddUser({ opened, close }: { opened: boolean; close: () => void }) {
  const { t } = useI18n();
  const queries = useQueryClient();
  const { options } = useRoles();
  const [roles, setRoles] = useState<string[]>(["viewer"]);
  const create = api.useMutation("post", "/api/v1/users", {
    onSuccess: () => {
      refresh(queries, "users");
      end();
    },
  });
  const end = () => {
    create.reset();
    setRoles(["viewer"]);
    close();
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const department = text("department");
    const password = String(form.get("new-password") ?? "");
    create.mutate({
      body: {
        username: text("new-username"),
        email: text("email"),
        roles,
        ...(department ? { department } : {}),
        ...(password ? { password } : {}),
      },
    });
  };
  return (
    <Dialog opened={opened} close={end} title={t("users.add")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            name="new-username"
            label={t("users.username")}
            autoComplete="off"
            required
            withAsterisk={false}
            data-autofocus
          />
          <TextInput name="email" type="email" label={t("users.email")} required withAsterisk={false} />
          <TextInput name="department" label={t("users.department")} />
          <PasswordInput
            name="new-password"
            label={t("users.password")}
            description={t("users.passwordAbout")}
            autoComplete="new-password"
            minLength={8}
            visibilityToggleButtonProps={{ "aria-label": t("users.showPassword") }}
          />
          <MultiSelect
            label={t("users.roles")}
            description={t("users.rolesAbout")}
            data={options}
            value={roles}
            onChange={setRoles}
          />
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("users.add")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

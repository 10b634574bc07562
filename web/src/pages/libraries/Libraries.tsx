import { Button, Stack, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useMe, useTo } from "../../ui/scope";
import { PolicyFilters, usePolicyColumns, usePolicyList } from "../policies/list";
import { packageOf, shell } from "./library";

type Policy = Schemas["Policy"];

/** The modules that controls import, and which controls do. */
export default function Libraries() {
  const { t } = useI18n();
  const { can } = useMe();
  const { source, total, filtered, clear } = usePolicyList("library");
  const shared = usePolicyColumns();
  const [adding, setAdding] = useState(false);
  const columns: Column<Policy>[] = [
    shared.name,
    { id: "package", header: t("libraries.package"), cell: (p) => <code>{packageOf(p.rego_code)}</code> },
    { id: "status", header: t("policies.status"), cell: (p) => <StatusOf value={p.status} /> },
    { id: "users", header: t("libraries.users"), numeric: true, cell: (p) => <Users id={p.id} /> },
    shared.version,
    shared.changed,
    { id: "about", header: t("libraries.description"), cell: (p) => p.description },
  ];
  const add = can("policies:write") && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("libraries.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.libraries")} about={t("libraries.about")}>
        {add}
      </PageHeader>
      <PolicyFilters total={total} />
      <DataTable
        label={t("nav.libraries")}
        columns={columns}
        source={source}
        rowKey={(p) => p.id}
        filtered={filtered}
        clear={clear}
        empty={<Empty title={t("libraries.empty")} about={t("libraries.emptyAbout")} action={add || undefined} />}
      />
      {adding && <Create close={() => setAdding(false)} />}
    </>
  );
}

/** How many policies use a library. Rows out of view do not ask. */
function Users({ id }: { id: number }) {
  const { number } = useI18n();
  const users = api.useQuery(
    "get",
    "/api/v1/policies/{policy_id}/dependents",
    { params: { path: { policy_id: id } } },
    { staleTime: 60_000 },
  );
  if (!users.data) return <span className="gh-dim">…</span>;
  return (
    <Link to={`/policies/${id}`} params={{ tab: "usage" }} title={users.data.users.map((u) => u.name).join(", ")}>
      {number(users.data.total)}
    </Link>
  );
}

function Create({ close }: { close: () => void }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const to = useTo();
  const create = api.useMutation("post", "/api/v1/policies", {
    onSuccess: (made) => {
      refresh(queries, "libraries");
      void navigate(to(`/policies/${made.id}`));
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    create.mutate({
      body: {
        name: String(form.get("library-name")).trim(),
        description: String(form.get("library-description")).trim(),
        kind: "library",
        environment,
        status: "draft",
        rego_code: shell(String(form.get("library-package")).trim()),
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("libraries.new")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput label={t("policies.name")} name="library-name" required maxLength={200} data-autofocus />
          <TextInput
            label={t("libraries.package")}
            description={t("libraries.packageAbout")}
            name="library-package"
            placeholder="lib.roles"
            pattern="(lib\.)?[a-zA-Z_][a-zA-Z0-9_]*(\.[a-zA-Z_][a-zA-Z0-9_]*)*"
            classNames={{ input: "gh-mono" }}
            required
          />
          <Textarea label={t("libraries.description")} name="library-description" maxLength={1000} />
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("libraries.create")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

import { Button, Checkbox, Select, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, client, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useClearFilters, useFilter } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { regions } from "./regions";
import { Alerts, Facts } from "./Tenant";
import { TenantSettings } from "./TenantSettings";
import { Calls, Limits } from "./Usage";
import "../policies/workbench.css";

type Tenant = Schemas["Tenant"];
const plans = ["standard", "pro", "enterprise"] as const;

/** The tenants of the deployment, for platform administrators. */
export default function Tenants() {
  const { t, word } = useI18n();
  const [name] = useFilter("name");
  const [status] = useFilter("status");
  const [shown, show] = useFilter("tenant");
  const clear = useClearFilters(["name", "status"]);
  const [adding, setAdding] = useState(false);
  const { source, total } = useSkipped<Tenant>(["get", "/api/v1/tenants"], async (skip, signal) => {
    const page = must(await client.GET("/api/v1/tenants", { params: { query: { limit: 1000, skip } }, signal }));
    return { rows: page.tenants, total: page.total };
  });
  const wanted = name.toLowerCase();
  const rows = source.rows?.filter(
    (r) =>
      (!status || r.status === status) &&
      (r.name.toLowerCase().includes(wanted) || r.id.toLowerCase().includes(wanted)),
  );
  const columns: Column<Tenant>[] = [
    {
      id: "name",
      header: t("policies.name"),
      cell: (r) => (
        <button type="button" className="gh-link" onClick={() => show(r.id)}>
          {r.name}
        </button>
      ),
    },
    { id: "id", header: t("tenants.id"), cell: (r) => <code>{r.id}</code> },
    { id: "status", header: t("policies.status"), cell: (r) => <StatusOf value={r.status} /> },
    { id: "plan", header: t("tenants.plan"), cell: (r) => word("tenants", "plan", r.plan_type) },
    { id: "region", header: t("tenants.region"), cell: (r) => <code>{r.region}</code> },
    { id: "domain", header: t("tenants.domain"), cell: (r) => r.custom_domain ?? r.domain },
    { id: "created", header: t("workbench.created"), cell: (r) => <Time at={r.created_at} /> },
  ];
  const add = (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("tenants.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.tenants")} about={t("tenants.about")}>
        {add}
      </PageHeader>
      <Filters count={total === undefined ? "" : t("common.count", { count: rows?.length ?? 0 })}>
        <FilterText name="name" label={t("tenants.find")} />
        <FilterSelect
          name="status"
          label={t("policies.status")}
          options={(["active", "suspended", "deleted"] as const).map((s) => ({
            value: s,
            label: word("common", "state", s),
          }))}
        />
      </Filters>
      <DataTable
        label={t("nav.tenants")}
        columns={columns}
        source={{ ...source, rows }}
        rowKey={(r) => r.id}
        open={(r) => show(r.id)}
        selected={(r) => r.id === shown}
        filtered={Boolean(name || status)}
        clear={clear}
        empty={<Empty title={t("nav.tenants")} about={t("tenants.about")} action={add} />}
        maxHeight={shown ? 300 : undefined}
      />
      {shown && <Details key={shown} id={shown} close={() => show(null)} />}
      {adding && (
        <Create
          close={() => setAdding(false)}
          created={(made) => {
            setAdding(false);
            show(made.id);
          }}
        />
      )}
    </>
  );
}

/** One tenant: what it is and uses, and what a platform administrator may change of it. */
function Details({ id, close }: { id: string; close: () => void }) {
  const { t, word } = useI18n();
  const queries = useQueryClient();
  const tenant = api.useQuery("get", "/api/v1/tenants/{tenant_id}", { params: { path: { tenant_id: id } } });
  const [asking, setAsking] = useState<"suspend" | "activate" | "delete" | null>(null);
  const [purge, setPurge] = useState(false);
  const done = () => {
    setAsking(null);
    refresh(queries, "tenant");
  };
  const update = api.useMutation("put", "/api/v1/tenants/{tenant_id}", { onSuccess: done });
  const remove = api.useMutation("delete", "/api/v1/tenants/{tenant_id}", {
    onSuccess: () => {
      done();
      if (purge) close();
    },
  });
  const path = { tenant_id: id };
  const one = tenant.data;
  const actions = (
    <>
      {one?.status === "active" && (
        <Button size="compact-sm" variant="default" onClick={() => setAsking("suspend")}>
          {t("tenants.suspend")}
        </Button>
      )}
      {one?.status === "suspended" && (
        <Button size="compact-sm" variant="default" onClick={() => setAsking("activate")}>
          {t("tenants.activate")}
        </Button>
      )}
      {one && one.id !== "default" && (
        <Button size="compact-sm" variant="default" onClick={() => setAsking("delete")}>
          {t("common.delete")}
        </Button>
      )}
      <Button size="compact-sm" variant="default" onClick={close}>
        {t("common.close")}
      </Button>
    </>
  );
  const confirm = () => {
    if (asking === "suspend") update.mutate({ params: { path }, body: { status: "suspended" } });
    if (asking === "activate") update.mutate({ params: { path }, body: { status: "active" } });
    if (asking === "delete") remove.mutate({ params: { path, query: { hard_delete: purge || undefined } } });
  };
  const action = asking === "delete" ? t("common.delete") : asking ? t(`tenants.${asking}`) : "";
  return (
    <div className="gh-stack" style={{ marginTop: 16 }}>
      <Panel title={one?.name ?? id} actions={actions}>
        {tenant.error ? (
          <ErrorPanel error={tenant.error} retry={() => void tenant.refetch()} />
        ) : !one ? (
          <Skeleton label={id} rows={3} columns={2} />
        ) : (
          <div className="gh-stack">
            <Facts tenant={one} />
            <Select
              label={t("tenants.plan")}
              data={plans.map((p) => ({ value: p, label: word("tenants", "plan", p) }))}
              value={one.plan_type}
              onChange={(plan) =>
                plan && update.mutate({ params: { path }, body: { plan_type: plan as Tenant["plan_type"] } })
              }
              allowDeselect={false}
              disabled={one.status === "deleted"}
              maw={260}
            />
            {update.error && !asking ? <ErrorPanel error={update.error} /> : null}
          </div>
        )}
      </Panel>
      {one && one.status !== "deleted" && (
        <>
          <Limits tenant={one} />
          <Calls id={id} />
          <TenantSettings tenant={one} />
          <Alerts id={id} />
        </>
      )}
      <ConfirmDialog
        opened={asking !== null}
        close={() => {
          setAsking(null);
          update.reset();
          remove.reset();
        }}
        title={asking ? t(`tenants.${asking}Title`) : ""}
        object={one?.name ?? id}
        about={asking ? t(`tenants.${asking}About`) : ""}
        action={action}
        mustType={asking === "delete"}
        busy={update.isPending || remove.isPending}
        error={update.error ?? remove.error}
        confirm={confirm}
      >
        {asking === "delete" && (
          <Checkbox label={t("tenants.purgeNow")} checked={purge} onChange={(e) => setPurge(e.currentTarget.checked)} />
        )}
      </ConfirmDialog>
    </div>
  );
}

function Create({ close, created }: { close: () => void; created: (made: Tenant) => void }) {
  const { t, word } = useI18n();
  const queries = useQueryClient();
  const [plan, setPlan] = useState<Tenant["plan_type"]>("standard");
  const [region, setRegion] = useState<Tenant["region"]>("us-east-1");
  const create = api.useMutation("post", "/api/v1/tenants", {
    onSuccess: (made) => {
      refresh(queries, "tenant");
      created(made);
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("tenant-name")).trim();
    create.mutate({ body: { name, plan_type: plan, region } });
  };
  return (
    <Dialog opened close={close} title={t("tenants.new")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("policies.name")}
            description={t("tenants.nameAbout")}
            name="tenant-name"
            required
            maxLength={200}
            data-autofocus
          />
          <Select
            label={t("tenants.plan")}
            data={plans.map((p) => ({ value: p, label: word("tenants", "plan", p) }))}
            value={plan}
            onChange={(v) => setPlan((v as Tenant["plan_type"]) ?? "standard")}
            allowDeselect={false}
          />
          <Select
            label={t("tenants.region")}
            data={regions}
            value={region}
            onChange={(v) => setRegion((v as Tenant["region"]) ?? "us-east-1")}
            allowDeselect={false}
          />
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("tenants.new")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

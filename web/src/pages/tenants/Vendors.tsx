import { Button, NumberInput, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, client, ifMatch, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Filters } from "../../ui/Filters";
import { fieldErrors } from "../../ui/fieldErrors";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { ShownOnce } from "../../ui/ShownOnce";
import { useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { changed } from "../settings/pairs";

type Vendor = Schemas["Vendor"];
type Issued = Schemas["VendorIssued"];

// How long the old key goes on when one is replaced.
const grace = 3600;

/** The embedding vendors of the deployment, for platform administrators. */
export default function Vendors() {
  const { t, number } = useI18n();
  const { can } = useMe();
  const [shown, show] = useFilter("vendor");
  const [adding, setAdding] = useState(false);
  const [issued, setIssued] = useState<Issued | null>(null);
  const { source, total } = useSkipped<Vendor>(["get", "/api/v1/vendors"], async (skip, signal) => {
    const page = must(await client.GET("/api/v1/vendors", { params: { query: { limit: 200, skip } }, signal }));
    return { rows: page.vendors, total: page.total };
  });
  const columns: Column<Vendor>[] = [
    {
      id: "name",
      header: t("policies.name"),
      cell: (v) => (
        <button type="button" className="gh-link" onClick={() => show(v.id)}>
          {v.name}
        </button>
      ),
    },
    {
      id: "tenants",
      header: t("vendors.tenants"),
      cell: (v) => t("vendors.tenantsOf", { used: v.tenants_used, limit: v.max_tenants }),
    },
    { id: "requests", header: t("vendors.requests"), numeric: true, cell: (v) => number(v.requests_per_hour) },
    { id: "used", header: t("vendors.keyUsed"), cell: (v) => <Time at={lastUse(v)} /> },
    { id: "created", header: t("workbench.created"), cell: (v) => <Time at={v.created_at} /> },
  ];
  const add = can("tenants:write") && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("vendors.add")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.vendors")} about={t("vendors.about")}>
        {add}
      </PageHeader>
      {issued && (
        <ShownOnce
          title={t("vendors.made", { name: issued.name })}
          note={t("vendors.once")}
          label={t("vendors.key")}
          secret={issued.key}
          close={() => setIssued(null)}
        />
      )}
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>{null}</Filters>
      <DataTable
        label={t("nav.vendors")}
        columns={columns}
        source={source}
        rowKey={(v) => v.id}
        selected={(v) => v.id === shown}
        open={(v) => show(v.id)}
        empty={<Empty title={t("vendors.empty")} about={t("vendors.emptyAbout")} action={add || undefined} />}
      />
      {shown && <Detail key={shown} id={shown} close={() => show(null)} issue={setIssued} />}
      {adding && (
        <VendorForm
          close={() => setAdding(false)}
          registered={(made) => {
            setAdding(false);
            setIssued(made);
            show(made.id);
          }}
        />
      )}
    </>
  );
}

/** When a key of a vendor was last used; null: never. */
function lastUse(v: Vendor): string | null {
  const times = v.keys.flatMap((k) => (k.last_used_at ? [k.last_used_at] : []));
  return times.sort().at(-1) ?? null;
}

/** One vendor: its limits and keys, and what can be done with it. */
function Detail({ id, close, issue }: { id: string; close: () => void; issue: (issued: Issued) => void }) {
  const { t, number } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const path = { vendor_id: id };
  const vendor = api.useQuery("get", "/api/v1/vendors/{vendor_id}", { params: { path } });
  const [editing, setEditing] = useState(false);
  const [asking, setAsking] = useState<"rotate" | "delete" | null>(null);
  const done = () => {
    setAsking(null);
    refresh(queries, "tenant");
  };
  const rotate = api.useMutation("post", "/api/v1/vendors/{vendor_id}/rotate", {
    onSuccess: (made) => {
      done();
      issue(made);
    },
  });
  const remove = api.useMutation("delete", "/api/v1/vendors/{vendor_id}", {
    onSuccess: () => {
      done();
      close();
    },
  });
  const v = vendor.data;
  if (!v) return vendor.error ? <ErrorPanel error={vendor.error} retry={() => void vendor.refetch()} /> : null;
  const what = asking ?? "rotate";
  return (
    <Panel
      title={v.name}
      style={{ marginTop: 16 }}
      actions={
        can("tenants:write") && (
          <>
            <Button size="compact-sm" variant="default" onClick={() => setEditing(true)}>
              {t("common.edit")}
            </Button>
            <Button size="compact-sm" variant="default" onClick={() => setAsking("rotate")}>
              {t("keys.rotate")}
            </Button>
            <Button size="compact-sm" variant="default" onClick={() => setAsking("delete")}>
              {t("vendors.remove")}
            </Button>
          </>
        )
      }
    >
      <dl className="gh-facts">
        <dt>{t("vendors.id")}</dt>
        <dd>
          <code>{v.id}</code>
        </dd>
        <dt>{t("vendors.tenants")}</dt>
        <dd>{t("vendors.tenantsOf", { used: v.tenants_used, limit: v.max_tenants })}</dd>
        <dt>{t("vendors.requests")}</dt>
        <dd>{number(v.requests_per_hour)}</dd>
        <dt>{t("directory.createdBy")}</dt>
        <dd>{v.created_by}</dd>
        <dt>{t("vendors.keys")}</dt>
        <dd>
          <ul className="gh-flat">
            {v.keys.map((k) => (
              <li key={k.id}>
                <code>{k.hint}</code>, {t("keys.lastUsed").toLocaleLowerCase()}: <Time at={k.last_used_at} />
                {k.expires_at && (
                  <>
                    , {t("vendors.until")} <Time at={k.expires_at} />
                  </>
                )}
              </li>
            ))}
          </ul>
        </dd>
      </dl>
      {editing && <VendorForm vendor={v} close={() => setEditing(false)} />}
      <ConfirmDialog
        opened={asking !== null}
        close={() => {
          setAsking(null);
          rotate.reset();
          remove.reset();
        }}
        plain
        title={t(`vendors.${what}Title`)}
        object={v.name}
        about={t(`vendors.${what}About`)}
        action={what === "rotate" ? t("keys.rotate") : t("vendors.remove")}
        mustType={asking === "delete"}
        busy={rotate.isPending || remove.isPending}
        error={rotate.error ?? remove.error}
        confirm={() => {
          if (asking === "rotate") rotate.mutate({ params: { path }, body: { grace_seconds: grace } });
          if (asking === "delete") remove.mutate({ params: { path, header: ifMatch(v) } });
        }}
      />
    </Panel>
  );
}

/** The form of a vendor: a new one, whose key comes once, or one that is to change. */
function VendorForm({
  vendor: current,
  close,
  registered,
}: {
  vendor?: Vendor & { etag: string };
  close: () => void;
  registered?: (made: Issued) => void;
}) {
  const { t } = useI18n();
  const queries = useQueryClient();
  // The form shows the vendor as it was when it opened: a save must not undo what others change meanwhile.
  const [vendor] = useState(current);
  const [name, setName] = useState(vendor?.name ?? "");
  const [tenants, setTenants] = useState<number | string>(vendor?.max_tenants ?? 100);
  const [requests, setRequests] = useState<number | string>(vendor?.requests_per_hour ?? 5000);
  const create = api.useMutation("post", "/api/v1/vendors", {
    onSuccess: (made) => {
      refresh(queries, "tenant");
      registered?.(made);
    },
  });
  const update = api.useMutation("put", "/api/v1/vendors/{vendor_id}", {
    onSuccess: () => {
      refresh(queries, "tenant");
      close();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const wanted = { name: name.trim(), max_tenants: Number(tenants), requests_per_hour: Number(requests) };
    if (!vendor) create.mutate({ body: wanted });
    else {
      const params = { path: { vendor_id: vendor.id }, header: ifMatch(vendor) };
      update.mutate({ params, body: changed(wanted, vendor) });
    }
  };
  const { at, rest } = fieldErrors(create.error ?? update.error, ["/name", "/max_tenants", "/requests_per_hour"]);
  const title = vendor ? t("vendors.change") : t("vendors.add");
  return (
    <Dialog opened close={close} title={title}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            name="vendor-name"
            label={t("policies.name")}
            maxLength={128}
            required
            value={name}
            error={at("/name")}
            onChange={(e) => setName(e.currentTarget.value)}
            data-autofocus
          />
          <NumberInput
            name="max-tenants"
            label={t("vendors.maxTenants")}
            description={vendor && t("vendors.maxTenantsAbout")}
            min={0}
            max={1_000_000}
            allowDecimal={false}
            required
            value={tenants}
            error={at("/max_tenants")}
            onChange={setTenants}
          />
          <NumberInput
            name="requests-per-hour"
            label={t("vendors.requests")}
            description={t("vendors.requestsAbout")}
            min={1}
            max={1_000_000}
            allowDecimal={false}
            required
            value={requests}
            error={at("/requests_per_hour")}
            onChange={setRequests}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          <Button type="submit" loading={create.isPending || update.isPending}>
            {vendor ? t("common.save") : t("vendors.add")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

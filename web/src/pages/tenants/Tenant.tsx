import { Button, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { DataTable, Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { TenantSettings } from "./TenantSettings";
import { Bill, Calls, Limits } from "./Usage";

/** One's own tenant: what it is, what it uses, what it costs, its settings and its alerts. */
export default function Tenant() {
  const { t } = useI18n();
  const { me, can } = useMe();
  const [renaming, setRenaming] = useState(false);
  const tenant = api.useQuery("get", "/api/v1/tenants/{tenant_id}", { params: { path: { tenant_id: me.tenant_id } } });
  if (!tenant.data) {
    return (
      <>
        <PageHeader title={t("nav.tenant")} about={t("tenants.oneAbout")} />
        {tenant.error ? (
          <ErrorPanel error={tenant.error} retry={() => void tenant.refetch()} />
        ) : (
          <Skeleton label={t("nav.tenant")} />
        )}
      </>
    );
  }
  return (
    <>
      <PageHeader title={t("nav.tenant")} about={t("tenants.oneAbout")} mark={<StatusOf value={tenant.data.status} />}>
        {can("tenants:write") && (
          <Button variant="default" onClick={() => setRenaming(true)}>
            {t("tenants.rename")}
          </Button>
        )}
      </PageHeader>
      <div className="gh-grid">
        <Panel title={tenant.data.name} className="gh-half-wide">
          <Facts tenant={tenant.data} />
          <p className="gh-row" style={{ marginBottom: 0 }}>
            <Link to="/api-keys">{t("nav.keys")}</Link>
            {can("users:read") && <Link to="/users">{t("nav.users")}</Link>}
            <Link to="/tenant/domains">{t("domains.title")}</Link>
            <Link to="/tenant/regions">{t("regions.title")}</Link>
            <Link to="/tenant/usage">{t("tenants.usageTitle")}</Link>
            {can("billing:read") && <Link to="/tenant/billing">{t("tenants.billing")}</Link>}
          </p>
        </Panel>
        <div className="gh-half-wide gh-stack">
          <Limits tenant={tenant.data} />
          {can("billing:read") && <Bill id={me.tenant_id} />}
        </div>
      </div>
      <div className="gh-stack" style={{ marginTop: 16 }}>
        <Calls id={me.tenant_id} />
        <TenantSettings tenant={tenant.data} />
        <Alerts id={me.tenant_id} />
      </div>
      {renaming && <Rename tenant={tenant.data} close={() => setRenaming(false)} />}
    </>
  );
}

/** What a tenant is. */
export function Facts({ tenant }: { tenant: Schemas["Tenant"] }) {
  const { t, word } = useI18n();
  const facts: [string, ReactNode][] = [
    [t("tenants.id"), <code key="id">{tenant.id}</code>],
    [t("tenants.plan"), word("tenants", "plan", tenant.plan_type)],
    [t("tenants.region"), <code key="region">{tenant.region}</code>],
    [t("tenants.domain"), tenant.domain || t("common.none")],
    [t("tenants.customDomain"), tenant.custom_domain || t("common.none")],
    [t("workbench.created"), <Time key="c" at={tenant.created_at} />],
  ];
  if (tenant.deleted_at) facts.push([t("tenants.deleted"), <Time key="d" at={tenant.deleted_at} />]);
  if (tenant.expires_at) facts.push([t("tenants.purged"), <Time key="e" at={tenant.expires_at} />]);
  return (
    <dl className="gh-facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What asks for care: limits that are nearly used, bouncers that are not heard of. */
export function Alerts({ id }: { id: string }) {
  const { t, word } = useI18n();
  const alerts = api.useQuery("get", "/api/v1/tenants/{tenant_id}/alerts", { params: { path: { tenant_id: id } } });
  return (
    <Panel title={t("tenants.alerts")} flush={(alerts.data?.length ?? 0) > 0}>
      {alerts.data?.length === 0 ? (
        <span className="gh-dim">{t("tenants.noAlerts")}</span>
      ) : (
        <DataTable
          label={t("tenants.alertList")}
          rowKey={(a) => a.id}
          source={{ rows: alerts.data, error: alerts.error, retry: () => void alerts.refetch() }}
          empty={<Empty title={t("tenants.alerts")} about={t("tenants.noAlerts")} />}
          maxHeight={320}
          columns={[
            { id: "at", header: t("common.time"), cell: (a) => <Time at={a.created_at} /> },
            {
              id: "severity",
              header: t("tenants.severity"),
              cell: (a) => (
                <Status tone={a.severity === "warning" ? "warn" : "bad"}>
                  {word("tenants", "severity", a.severity)}
                </Status>
              ),
            },
            { id: "message", header: t("tenants.message"), cell: (a) => <span title={a.message}>{a.message}</span> },
            {
              id: "resolved",
              header: t("tenants.resolved"),
              cell: (a) =>
                a.resolved_at ? <Time at={a.resolved_at} /> : <Status tone="warn">{t("tenants.open")}</Status>,
            },
          ]}
        />
      )}
    </Panel>
  );
}

function Rename({ tenant, close }: { tenant: Schemas["Tenant"]; close: () => void }) {
  const { t } = useI18n();
  const queries = useQueryClient();
  const update = api.useMutation("put", "/api/v1/tenants/{tenant_id}", {
    onSuccess: () => {
      refresh(queries, "tenant");
      close();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("tenant-name")).trim();
    update.mutate({ params: { path: { tenant_id: tenant.id } }, body: { name } });
  };
  return (
    <Dialog opened close={close} title={t("tenants.rename")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("policies.name")}
            name="tenant-name"
            defaultValue={tenant.name}
            required
            maxLength={200}
            data-autofocus
          />
          {update.error ? <ErrorPanel error={update.error} /> : null}
          <Button type="submit" loading={update.isPending}>
            {t("common.save")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

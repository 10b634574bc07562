import { Button, Stack, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { Copyable } from "../../ui/Copy";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Domain = Schemas["Domain"];

/** The tenant's domains, the DNS records of each, and a check of what they say now. */
export default function Domains() {
  const { t } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const [shown, show] = useFilter("domain");
  const [form, setForm] = useState<{ replaced?: Domain } | null>(null);
  const [removing, setRemoving] = useState<Domain | null>(null);
  const path = { tenant_id: me.tenant_id };
  const domains = api.useQuery("get", "/api/v1/tenants/{tenant_id}/domains", { params: { path } });
  const remove = api.useMutation("delete", "/api/v1/tenants/{tenant_id}/domains/{domain}", {
    onSuccess: () => {
      setRemoving(null);
      show(null);
      refresh(queries, "tenant");
    },
  });
  const write = can("tenants:write");
  const chosen = domains.data?.find((d) => d.domain === shown);
  const columns: Column<Domain>[] = [
    { id: "domain", header: t("domains.domain"), cell: (d) => <span title={d.domain}>{d.domain}</span> },
    { id: "status", header: t("domains.status"), cell: (d) => <StatusOf value={d.status} /> },
    {
      id: "verified",
      header: t("domains.verifiedAt"),
      cell: (d) =>
        d.is_default ? <span className="gh-dim">{t("domains.default")}</span> : <Time at={d.verified_at} />,
    },
    { id: "certificate", header: t("domains.certificate"), cell: (d) => <StatusOf value={d.ssl_status} /> },
    {
      id: "expires",
      header: t("domains.expires"),
      cell: (d) => (d.ssl_expires_at ? <Time at={d.ssl_expires_at} /> : <span className="gh-dim">–</span>),
    },
    {
      id: "actions",
      header: t("keys.actions"),
      hiddenHeader: true,
      cell: (d) =>
        !d.is_default && (
          <span className="gh-row" style={{ flexWrap: "nowrap" }}>
            <Button
              size="compact-xs"
              variant="default"
              aria-label={t("domains.records", { domain: d.domain })}
              onClick={() => show(d.domain)}
            >
              {t("domains.show")}
            </Button>
            {write && (
              <>
                <Button
                  size="compact-xs"
                  variant="default"
                  aria-label={`${t("domains.replace")}: ${d.domain}`}
                  onClick={() => setForm({ replaced: d })}
                >
                  {t("domains.replace")}
                </Button>
                <Button
                  size="compact-xs"
                  variant="default"
                  aria-label={t("domains.removeNamed", { domain: d.domain })}
                  onClick={() => setRemoving(d)}
                >
                  {t("domains.remove")}
                </Button>
              </>
            )}
          </span>
        ),
    },
  ];
  const add = write && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setForm({})}>
      {t("domains.add")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("domains.title")} about={t("domains.about")}>
        {add}
      </PageHeader>
      <DataTable
        label={t("domains.title")}
        columns={columns}
        rowKey={(d) => d.domain}
        selected={(d) => d.domain === shown}
        source={{ rows: domains.data, error: domains.error, retry: () => void domains.refetch() }}
        empty={<Empty title={t("domains.empty")} about={t("domains.emptyAbout")} action={add || undefined} />}
      />
      {chosen && <Records key={chosen.domain} domain={chosen} write={write} />}
      {form && (
        <DomainForm
          replaced={form.replaced}
          close={() => setForm(null)}
          saved={(domain) => {
            setForm(null);
            show(domain);
          }}
        />
      )}
      <ConfirmDialog
        opened={removing !== null}
        close={() => {
          setRemoving(null);
          remove.reset();
        }}
        title={t("domains.removeTitle")}
        object={removing?.domain ?? ""}
        about={t("domains.removeAbout")}
        action={t("domains.remove")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => removing && remove.mutate({ params: { path: { ...path, domain: removing.domain } } })}
      />
    </>
  );
}

/** The records that prove whose the domain is, to copy, and whether they are there. */
function Records({ domain, write }: { domain: Domain; write: boolean }) {
  const { t } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const verify = api.useMutation("post", "/api/v1/tenants/{tenant_id}/domains/{domain}/verify", {
    onSuccess: () => refresh(queries, "tenant"),
  });
  const title = t("domains.records", { domain: domain.domain });
  return (
    <Panel
      title={title}
      style={{ marginTop: 16 }}
      actions={
        write ? (
          <Button
            size="compact-sm"
            loading={verify.isPending}
            onClick={() => verify.mutate({ params: { path: { tenant_id: me.tenant_id, domain: domain.domain } } })}
          >
            {t("domains.check")}
          </Button>
        ) : undefined
      }
    >
      <div className="gh-stack" style={{ gap: 12 }}>
        <p className="gh-flat">{t("domains.recordsAbout")}</p>
        {domain.dns_instructions?.records.map((r) => (
          <div key={r.type} className="gh-stack" style={{ gap: 6 }}>
            <div className="gh-row">
              <strong>{t("domains.recordType")}</strong> <code>{r.type}</code>
            </div>
            <Copyable label={`${r.type}: ${t("domains.recordName")}`} text={r.name} />
            <Copyable label={`${r.type}: ${t("domains.recordValue")}`} text={r.value} />
          </div>
        ))}
        {verify.error ? <ErrorPanel error={verify.error} /> : null}
        {verify.data && (
          <p className="gh-note gh-flat" data-tone="good" role="status">
            {t("domains.found", { domain: domain.domain })}
          </p>
        )}
      </div>
    </Panel>
  );
}

/** The form of a new domain, or of a certificate that takes the place of another. */
function DomainForm({
  replaced,
  close,
  saved,
}: {
  replaced?: Domain;
  close: () => void;
  saved: (domain: string) => void;
}) {
  const { t } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const done = (made: Domain) => {
    refresh(queries, "tenant");
    saved(made.domain);
  };
  const create = api.useMutation("post", "/api/v1/tenants/{tenant_id}/domains", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/tenants/{tenant_id}/domains/{domain}", { onSuccess: done });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const pair = { ssl_certificate: text("certificate"), ssl_private_key: text("private-key") };
    const path = { tenant_id: me.tenant_id };
    if (replaced) update.mutate({ params: { path: { ...path, domain: replaced.domain } }, body: pair });
    else {
      create.mutate({
        params: { path },
        body: { domain: text("domain"), acme: true, ...(pair.ssl_certificate || pair.ssl_private_key ? pair : {}) },
      });
    }
  };
  const error = create.error ?? update.error;
  return (
    <Dialog opened close={close} title={replaced ? t("domains.replace") : t("domains.add")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          {replaced ? (
            <strong style={{ overflowWrap: "anywhere" }}>{replaced.domain}</strong>
          ) : (
            <TextInput
              label={t("domains.domain")}
              name="domain"
              placeholder="access.example.com"
              maxLength={253}
              required
              data-autofocus
            />
          )}
          <Textarea
            label={t("domains.certificate")}
            description={t("domains.certificateAbout")}
            name="certificate"
            classNames={{ input: "gh-mono" }}
            autosize
            minRows={3}
            maxRows={8}
            required={replaced !== undefined}
          />
          <Textarea
            label={t("domains.key")}
            description={t("domains.keyAbout")}
            name="private-key"
            classNames={{ input: "gh-mono" }}
            autoComplete="off"
            autosize
            minRows={3}
            maxRows={8}
            required={replaced !== undefined}
          />
          {error ? <ErrorPanel error={error} /> : null}
          <Button type="submit" loading={create.isPending || update.isPending}>
            {replaced ? t("common.save") : t("domains.add")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

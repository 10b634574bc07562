import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { Filters } from "../../ui/Filters";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { CreateKey } from "./CreateKey";
import { ShowKey } from "./ShowKey";

type Key = Schemas["AuthKey"];

/** The API keys of the tenant: what each may do, where, until when, and when it was last used. */
export default function Keys() {
  const { t } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const path = { tenant_id: me.tenant_id };
  const keys = api.useQuery("get", "/api/v1/tenants/{tenant_id}/api-keys", {
    params: { path, query: { limit: 1000 } },
  });
  const [adding, setAdding] = useState(false);
  const [issued, setIssued] = useState<Key | null>(null);
  const [revoking, setRevoking] = useState<Key | null>(null);
  const [rotating, setRotating] = useState<Key | null>(null);
  const done = () => {
    setRevoking(null);
    setRotating(null);
    refresh(queries, "api_keys");
  };
  const revoke = api.useMutation("delete", "/api/v1/tenants/{tenant_id}/api-keys/{key_id}", { onSuccess: done });
  const rotate = api.useMutation("post", "/api/v1/tenants/{tenant_id}/api-keys/{key_id}/rotate", {
    onSuccess: (made) => {
      done();
      setIssued(made);
    },
  });
  const write = can("tenants:write");
  const columns: Column<Key>[] = [
    { id: "name", header: t("keys.name"), cell: (k) => k.name },
    { id: "hint", header: t("keys.hint"), cell: (k) => <code>{k.hint}</code> },
    {
      id: "environment",
      header: t("common.environment"),
      cell: (k) =>
        k.environment ? <StatusOf value={k.environment} /> : <Status tone="neutral">{t("common.wholeTenant")}</Status>,
    },
    {
      id: "scopes",
      header: t("keys.scopes"),
      cell: (k) => <span title={k.scopes.join(", ")}>{k.scopes.join(", ") || t("common.none")}</span>,
    },
    { id: "used", header: t("keys.lastUsed"), cell: (k) => <Time at={k.last_used_at} /> },
    {
      id: "expires",
      header: t("keys.expires"),
      cell: (k) =>
        k.expires_at && Date.parse(k.expires_at) < Date.now() ? (
          <Status tone="bad">{t("keys.expired")}</Status>
        ) : (
          <Time at={k.expires_at} />
        ),
    },
  ];
  if (write) {
    columns.push({
      id: "actions",
      header: t("keys.actions"),
      hiddenHeader: true,
      width: 200,
      cell: (k) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setRotating(k)}
            aria-label={t("keys.rotateNamed", { name: k.name })}
          >
            {t("keys.rotate")}
          </Button>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setRevoking(k)}
            aria-label={t("keys.revokeNamed", { name: k.name })}
          >
            {t("keys.revoke")}
          </Button>
        </span>
      ),
    });
  }
  return (
    <>
      <PageHeader title={t("nav.keys")} about={t("keys.about")}>
        {write && <Button onClick={() => setAdding(true)}>{t("keys.add")}</Button>}
      </PageHeader>
      {issued && <ShowKey issued={issued} close={() => setIssued(null)} />}
      <Filters count={keys.data ? t("common.count", { count: keys.data.total }) : undefined}>{null}</Filters>
      <DataTable
        label={t("nav.keys")}
        columns={columns}
        rowKey={(k) => k.id}
        source={{ rows: keys.data?.api_keys, error: keys.error, retry: () => void keys.refetch() }}
        empty={
          <Empty
            title={t("keys.empty")}
            about={t("keys.emptyAbout")}
            action={write ? <Button onClick={() => setAdding(true)}>{t("keys.add")}</Button> : undefined}
          />
        }
      />
      {adding && (
        <CreateKey
          close={() => setAdding(false)}
          created={(made) => {
            setAdding(false);
            setIssued(made);
          }}
        />
      )}
      <ConfirmDialog
        opened={revoking !== null}
        close={() => {
          setRevoking(null);
          revoke.reset();
        }}
        title={t("keys.revokeTitle")}
        object={revoking?.name ?? ""}
        environment={revoking?.environment}
        about={t("keys.revokeAbout")}
        action={t("keys.revoke")}
        busy={revoke.isPending}
        error={revoke.error}
        confirm={() => revoking && revoke.mutate({ params: { path: { ...path, key_id: revoking.id } } })}
      />
      <ConfirmDialog
        opened={rotating !== null}
        close={() => {
          setRotating(null);
          rotate.reset();
        }}
        title={t("keys.rotateTitle")}
        object={rotating?.name ?? ""}
        environment={rotating?.environment}
        about={t("keys.rotateAbout")}
        action={t("keys.rotate")}
        busy={rotate.isPending}
        error={rotate.error}
        confirm={() =>
          rotating &&
          rotate.mutate({ params: { path: { ...path, key_id: rotating.id } }, body: { grace_seconds: 3600 } })
        }
      />
    </>
  );
}

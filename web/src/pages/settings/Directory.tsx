import { Button, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { Copyable } from "../../ui/Copy";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { ShownOnce } from "../../ui/ShownOnce";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Grants } from "./Grants";

type Token = Schemas["ScimToken"];

const tokens = "/api/v1/tenants/{tenant_id}/scim/tokens";
// How long the old value of a token that is replaced goes on.
const grace = 3600;

/** The directory that adds and removes people by SCIM: its address, and the tokens with which it does. */
export function Directory() {
  const { t, number } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const path = { tenant_id: me.tenant_id };
  const directory = api.useQuery("get", "/api/v1/tenants/{tenant_id}/scim", { params: { path } });
  const list = api.useQuery("get", tokens, { params: { path, query: { limit: 100 } } });
  const [saved, setSaved] = useState<Schemas["ScimDirectory"]>();
  const [adding, setAdding] = useState(false);
  const [issued, setIssued] = useState<Token | null>(null);
  const [asking, setAsking] = useState<{ token: Token; what: "rotate" | "revoke" } | null>(null);
  const done = () => {
    setAsking(null);
    refresh(queries, "tenant");
  };
  const rotate = api.useMutation("post", `${tokens}/{token_id}/rotate`, {
    onSuccess: (made) => {
      done();
      setIssued(made);
    },
  });
  const revoke = api.useMutation("delete", `${tokens}/{token_id}`, { onSuccess: done });
  // Who hands out a token hands out what it can give: people and their roles.
  const hand = can("tenants:write") && can("users:write");
  const columns: Column<Token>[] = [
    { id: "name", header: t("keys.name"), cell: (token) => token.name },
    { id: "hint", header: t("keys.hint"), cell: (token) => <code>{token.hint}</code> },
    { id: "by", header: t("directory.createdBy"), cell: (token) => token.created_by },
    { id: "created", header: t("workbench.created"), cell: (token) => <Time at={token.rotated_at} /> },
    { id: "used", header: t("keys.lastUsed"), cell: (token) => <Time at={token.last_used_at} /> },
  ];
  if (can("tenants:write")) {
    columns.push({
      id: "actions",
      header: t("keys.actions"),
      hiddenHeader: true,
      width: 200,
      cell: (token) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          {hand && (
            <Button
              size="compact-xs"
              variant="default"
              onClick={() => setAsking({ token, what: "rotate" })}
              aria-label={t("keys.rotateNamed", { name: token.name })}
            >
              {t("keys.rotate")}
            </Button>
          )}
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setAsking({ token, what: "revoke" })}
            aria-label={t("keys.revokeNamed", { name: token.name })}
          >
            {t("keys.revoke")}
          </Button>
        </span>
      ),
    });
  }
  const what = asking?.what ?? "revoke";
  const add = hand && (
    <Button size="compact-sm" variant="default" onClick={() => setAdding(true)}>
      {t("directory.add")}
    </Button>
  );
  return (
    <>
      {issued?.token && (
        <ShownOnce
          title={t("directory.made", { name: issued.name })}
          note={t("directory.once")}
          label={t("directory.token")}
          secret={issued.token}
          close={() => setIssued(null)}
        />
      )}
      <Panel title={t("directory.title")} actions={add}>
        <div className="gh-stack" style={{ gap: 12 }}>
          <p className="gh-flat">{t("directory.about")}</p>
          {directory.error ? (
            <ErrorPanel error={directory.error} retry={() => void directory.refetch()} />
          ) : directory.data ? (
            <>
              <Copyable label={t("directory.address")} text={directory.data.base_url} />
              <p className="gh-flat gh-dim">
                {t("directory.manages", {
                  people: number(directory.data.people),
                  groups: number(directory.data.groups),
                })}
              </p>
              {/* What is being written stays, whatever others change meanwhile. */}
              <Grants key={saved?.version ?? "first"} record={saved ?? directory.data} saved={setSaved} />
            </>
          ) : null}
          <DataTable
            label={t("directory.tokens")}
            columns={columns}
            rowKey={(token) => token.id}
            source={{ rows: list.data?.tokens, error: list.error, retry: () => void list.refetch() }}
            empty={<Empty title={t("directory.empty")} about={t("directory.emptyAbout")} />}
            maxHeight={420}
          />
        </div>
      </Panel>
      {adding && (
        <CreateToken
          close={() => setAdding(false)}
          created={(made) => {
            setAdding(false);
            setIssued(made);
          }}
        />
      )}
      <ConfirmDialog
        opened={asking !== null}
        close={() => {
          setAsking(null);
          rotate.reset();
          revoke.reset();
        }}
        title={t(`directory.${what}Title`)}
        object={asking?.token.name ?? ""}
        about={t(`directory.${what}About`)}
        action={t(`keys.${what}`)}
        busy={rotate.isPending || revoke.isPending}
        error={rotate.error ?? revoke.error}
        confirm={() => {
          if (!asking) return;
          const params = { path: { ...path, token_id: asking.token.id } };
          if (asking.what === "rotate") rotate.mutate({ params, body: { grace_seconds: grace } });
          else revoke.mutate({ params });
        }}
      />
    </>
  );
}

function CreateToken({ close, created }: { close: () => void; created: (made: Token) => void }) {
  const { t } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const create = api.useMutation("post", tokens, {
    onSuccess: (made) => {
      refresh(queries, "tenant");
      created(made);
    },
  });
  const { at, rest } = fieldErrors(create.error, ["/name"]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("token-name")).trim();
    create.mutate({ params: { path: { tenant_id: me.tenant_id } }, body: { name } });
  };
  return (
    <Dialog opened close={close} title={t("directory.add")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            name="token-name"
            label={t("keys.name")}
            description={t("directory.nameAbout")}
            placeholder="Okta"
            maxLength={128}
            required
            error={at("/name")}
            data-autofocus
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("directory.add")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

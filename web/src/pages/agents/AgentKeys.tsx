import { Button, Group } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { ShownOnce } from "../../ui/ShownOnce";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";

type Key = Schemas["AuthDedicatedKey"];

const path = "/api/v1/ai-agents/{agent_id}/keys";
// How long the old key goes on when another takes its place.
const grace = 3600;

/** The keys with which an agent asks for decisions about itself. */
export function AgentKeys({ agent }: { agent: Schemas["Agent"] }) {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const params = { path: { agent_id: agent.id } };
  const list = api.useQuery("get", path, { params });
  const [issued, setIssued] = useState<Key | null>(null);
  const [asking, setAsking] = useState<"rotate" | "revoke" | null>(null);
  const done = () => {
    setAsking(null);
    refresh(queries, "agents");
  };
  const create = api.useMutation("post", path, {
    onSuccess: (made) => {
      done();
      setIssued(made);
    },
  });
  const revoke = api.useMutation("delete", path, { onSuccess: done });
  const issue = () => create.mutate({ params, body: { grace_seconds: grace } });
  const columns: Column<Key>[] = [
    { id: "hint", header: t("keys.hint"), cell: (key) => <code>{key.hint}</code> },
    { id: "created", header: t("workbench.created"), cell: (key) => <Time at={key.created_at} /> },
    { id: "used", header: t("keys.lastUsed"), cell: (key) => <Time at={key.last_used_at} /> },
    { id: "ends", header: t("agents.keyEnds"), cell: (key) => <Time at={key.expires_at} /> },
  ];
  const some = (list.data?.keys.length ?? 0) > 0;
  const what = asking ?? "revoke";
  return (
    <>
      {issued?.key && (
        <ShownOnce
          title={t("agents.keyMade", { name: agent.name })}
          note={t("agents.keyOnce")}
          label={t("agents.keys")}
          secret={issued.key}
          close={() => setIssued(null)}
        />
      )}
      <Panel title={t("agents.keys")}>
        <div className="gh-stack" style={{ gap: 12 }}>
          <DataTable
            label={t("agents.keys")}
            columns={columns}
            rowKey={(key) => key.id}
            source={{ rows: list.data?.keys, error: list.error, retry: () => void list.refetch() }}
            empty={<Empty title={t("agents.keysEmpty")} about={t("agents.keysAbout")} />}
            maxHeight={240}
          />
          {create.error && asking === null ? <ErrorPanel error={create.error} /> : null}
          {can("agents:write") && list.data && (
            <Group>
              {can("decisions:read") && (
                <Button
                  size="compact-sm"
                  variant="default"
                  loading={create.isPending && asking === null}
                  onClick={some ? () => setAsking("rotate") : issue}
                >
                  {some ? t("agents.keyRotate") : t("agents.keyCreate")}
                </Button>
              )}
              {some && (
                <Button size="compact-sm" variant="default" onClick={() => setAsking("revoke")}>
                  {t("agents.keysRevoke")}
                </Button>
              )}
            </Group>
          )}
        </div>
      </Panel>
      <ConfirmDialog
        opened={asking !== null}
        close={() => {
          setAsking(null);
          create.reset();
          revoke.reset();
        }}
        title={t(`agents.${what}Title`)}
        object={agent.name}
        about={t(`agents.${what}About`)}
        action={t(`keys.${what}`)}
        busy={create.isPending || revoke.isPending}
        error={create.error ?? revoke.error}
        confirm={() => (asking === "rotate" ? issue() : revoke.mutate({ params }))}
      />
    </>
  );
}

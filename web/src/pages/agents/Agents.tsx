import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, client, ifMatch, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { AgentForm, types } from "./AgentForm";

export type Agent = Schemas["Agent"];

/** The AI agents of the tenant. As subjects of decisions they are agent:<id>. */
export default function Agents() {
  const { t, word, number } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const [type] = useFilter("agent_type");
  const [provider] = useFilter("provider");
  const [shown, show] = useFilter("agent");
  const clear = useClearFilters(["agent_type", "provider"]);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState(false);
  const filters = { agent_type: types.find((x) => x === type), provider: provider || undefined };
  const { source, total } = useSkipped<Agent>(["get", "/api/v1/ai-agents", filters], async (skip, signal) => {
    const query = { skip, limit: 200, ...filters };
    const page = must(await client.GET("/api/v1/ai-agents", { params: { query }, signal }));
    return { rows: page.agents, total: page.total };
  });
  const done = () => refresh(queries, "agents");
  const remove = api.useMutation("delete", "/api/v1/ai-agents/{agent_id}", {
    onSuccess: () => {
      setRemoving(false);
      show(null);
      done();
    },
  });
  // The whole agent, with what its change has to build on.
  const chosen = api.useQuery(
    "get",
    "/api/v1/ai-agents/{agent_id}",
    { params: { path: { agent_id: Number(shown) } } },
    { enabled: shown !== "" && !remove.isPending },
  );
  const write = can("agents:write");
  const columns: Column<Agent>[] = [
    {
      id: "name",
      header: t("agents.name"),
      cell: (a) => (
        <button type="button" className="gh-link" title={a.name} onClick={() => show(String(a.id))}>
          {a.name}
        </button>
      ),
    },
    { id: "subject", header: t("agents.subject"), cell: (a) => <code>agent:{a.id}</code> },
    { id: "status", header: t("agents.status"), cell: (a) => <StatusOf value={a.status} /> },
    { id: "type", header: t("agents.type"), cell: (a) => word("agents", "type", a.type) },
    { id: "provider", header: t("agents.provider"), cell: (a) => a.provider },
    { id: "model", header: t("agents.model"), cell: (a) => a.model },
    { id: "policies", header: t("agents.controls"), numeric: true, cell: (a) => number(a.policies.length) },
    {
      id: "decisions",
      header: t("agents.decisions"),
      cell: (a) =>
        can("audit:read") && (
          <Link
            to="/decisions"
            params={{ user_id: `agent:${a.id}` }}
            aria-label={t("agents.decisionsOf", { name: a.name })}
          >
            {t("agents.decisions")}
          </Link>
        ),
    },
    {
      id: "seen",
      header: t("agents.lastSeen"),
      cell: (a) => (a.last_seen_at ? <Time at={a.last_seen_at} /> : t("agents.neverSeen")),
    },
    { id: "changed", header: t("policies.changed"), cell: (a) => <Time at={a.updated_at} /> },
  ];
  const add = write && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {t("agents.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.agents")} about={t("agents.about")}>
        {add}
      </PageHeader>
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>
        <FilterSelect
          name="agent_type"
          label={t("agents.type")}
          options={types.map((value) => ({ value, label: t(`agents.type_${value}`) }))}
        />
        <FilterText name="provider" label={t("agents.provider")} />
      </Filters>
      <DataTable
        label={t("nav.agents")}
        columns={columns}
        source={source}
        rowKey={(a) => a.id}
        open={(a) => show(String(a.id))}
        filtered={Boolean(filters.agent_type || filters.provider)}
        clear={clear}
        empty={<Empty title={t("agents.empty")} about={t("agents.emptyAbout")} action={add || undefined} />}
      />
      {adding && <AgentForm close={() => setAdding(false)} />}
      {chosen.data && shown !== "" && !removing && (
        <AgentForm
          key={chosen.data.id}
          agent={chosen.data}
          close={() => show(null)}
          remove={write ? () => setRemoving(true) : undefined}
        />
      )}
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          remove.reset();
        }}
        title={t("agents.deleteTitle")}
        object={chosen.data?.name ?? ""}
        about={t("agents.deleteAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() =>
          chosen.data && remove.mutate({ params: { path: { agent_id: chosen.data.id }, header: ifMatch(chosen.data) } })
        }
      />
    </>
  );
}

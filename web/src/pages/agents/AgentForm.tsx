import { Button, Group, JsonInput, MultiSelect, Select, Stack, TagsInput, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { useMe } from "../../ui/scope";
import { AgentKeys } from "./AgentKeys";
import { AgentUsage } from "./AgentUsage";

export const types = ["llm", "rag", "chatbot"] as const;
const statuses = ["active", "inactive"] as const;

/** The object that a text is in JSON; undefined: it is none. */
export function objectOf(text: string): Record<string, unknown> | undefined {
  if (!text.trim()) return {};
  try {
    const value: unknown = JSON.parse(text);
    const object = typeof value === "object" && value !== null && !Array.isArray(value);
    return object ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** The form of an agent: a new one, or one with what is to change. */
export function AgentForm({
  agent: current,
  close,
  remove,
}: {
  agent?: Schemas["Agent"] & { etag: string };
  close: () => void;
  remove?: () => void;
}) {
  const { t } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  // The form shows the agent as it was when it opened: a save must not undo what others change meanwhile.
  const [agent] = useState(current);
  const [type, setType] = useState<Schemas["Agent"]["type"]>(agent?.type ?? "llm");
  const [status, setStatus] = useState<Schemas["Agent"]["status"]>(agent?.status ?? "active");
  const [policies, setPolicies] = useState((agent?.policies ?? []).map(String));
  const [clients, setClients] = useState(agent?.oauth_client_ids ?? []);
  const [attributes, setAttributes] = useState(JSON.stringify(agent?.attributes ?? {}, null, 2));
  const [configuration, setConfiguration] = useState(JSON.stringify(agent?.configuration ?? {}, null, 2));
  const controls = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { kind: "control", limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  const names = new Map(controls.data?.policies.map((p) => [String(p.id), p.name]));
  const done = () => {
    refresh(queries, "agents");
    close();
  };
  const create = api.useMutation("post", "/api/v1/ai-agents", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/ai-agents/{agent_id}", { onSuccess: done });
  const given = { attributes: objectOf(attributes), configuration: objectOf(configuration) };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name)).trim();
    const body = {
      name: text("agent-name"),
      type,
      provider: text("agent-provider"),
      model: text("agent-model"),
      status,
      policies: policies.map(Number),
      oauth_client_ids: clients,
      ...given,
    };
    if (agent) update.mutate({ params: { path: { agent_id: agent.id }, header: ifMatch(agent) }, body });
    else create.mutate({ body });
  };
  const write = can("agents:write");
  const error = create.error ?? update.error;
  return (
    <Dialog opened close={close} title={agent ? t("agents.one") : t("agents.new")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("agents.name")}
            name="agent-name"
            defaultValue={agent?.name}
            required
            maxLength={200}
            data-autofocus
          />
          <div className="gh-two">
            <Select
              label={t("agents.type")}
              data={types.map((value) => ({ value, label: t(`agents.type_${value}`) }))}
              value={type}
              onChange={(value) => setType(types.find((x) => x === value) ?? "llm")}
              allowDeselect={false}
            />
            <Select
              label={t("agents.status")}
              description={t("agents.statusAbout")}
              data={statuses.map((value) => ({ value, label: t(`common.state_${value}`) }))}
              value={status}
              onChange={(value) => setStatus(statuses.find((x) => x === value) ?? "active")}
              allowDeselect={false}
            />
            <TextInput
              label={t("agents.provider")}
              name="agent-provider"
              defaultValue={agent?.provider}
              maxLength={200}
            />
            <TextInput label={t("agents.model")} name="agent-model" defaultValue={agent?.model} maxLength={200} />
          </div>
          <MultiSelect
            label={t("agents.controls")}
            description={t("agents.controlsAbout")}
            data={[...new Set([...names.keys(), ...policies])].map((id) => ({
              value: id,
              label: names.get(id) ?? `#${id}`,
            }))}
            value={policies}
            onChange={setPolicies}
            searchable
            limit={100}
          />
          <TagsInput
            label={t("agents.clients")}
            description={t("agents.clientsAbout")}
            value={clients}
            onChange={setClients}
            maxTags={10}
          />
          <JsonInput
            label={t("agents.attributes")}
            description={t("agents.attributesAbout")}
            value={attributes}
            onChange={setAttributes}
            error={given.attributes ? undefined : t("agents.noObject")}
            classNames={{ input: "gh-mono" }}
            autosize
            maxRows={10}
          />
          <JsonInput
            label={t("agents.configuration")}
            description={t("agents.configurationAbout")}
            value={configuration}
            onChange={setConfiguration}
            error={given.configuration ? undefined : t("agents.noObject")}
            classNames={{ input: "gh-mono" }}
            autosize
            maxRows={10}
          />
          {error ? <ErrorPanel error={error} /> : null}
          {write && (
            <Group justify="space-between">
              <Button
                type="submit"
                loading={create.isPending || update.isPending}
                disabled={!given.attributes || !given.configuration}
              >
                {agent ? t("common.save") : t("agents.create")}
              </Button>
              {remove && (
                <Button variant="default" onClick={remove}>
                  {t("common.delete")}
                </Button>
              )}
            </Group>
          )}
        </Stack>
      </form>
      {agent && <AgentUsage agent={agent} />}
      {agent && <AgentKeys agent={agent} />}
    </Dialog>
  );
}

import { Button, Select, Stack, Switch, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { CredentialFields } from "../notifications/CredentialFields";
import { chosenSet, keep, settingsOf } from "../notifications/channel";
import { SettingFields } from "../notifications/SettingFields";
import { changed } from "../settings/pairs";

type Integration = Schemas["Integration"] & { etag: string };
type Kind = Schemas["IntegrationKind"];

const endpoints: Partial<Record<Kind["kind"], "integrations.endpointSIEM" | "integrations.endpointEngine">> = {
  siem_forwarder: "integrations.endpointSIEM",
  policy_engine: "integrations.endpointEngine",
};

const environments = ["", "sandbox", "production"] as const;

/** The form of an integration: a new one, or what is to change of one. Its fields are those that the API lists for the kind. */
export function IntegrationForm(props: { integration?: Integration; close: () => void; saved: (id: number) => void }) {
  const { t } = useI18n();
  const kinds = api.useQuery("get", "/api/v1/integrations/kinds");
  return (
    <Dialog
      opened
      close={props.close}
      title={props.integration ? t("integrations.edit", { name: props.integration.name }) : t("integrations.new")}
      size="lg"
    >
      {kinds.data ? (
        <Fields {...props} kinds={kinds.data.kinds} />
      ) : kinds.error ? (
        <ErrorPanel error={kinds.error} retry={() => void kinds.refetch()} />
      ) : (
        <Skeleton label={t("integrations.new")} rows={6} columns={1} />
      )}
    </Dialog>
  );
}

function Fields({
  integration: current,
  kinds,
  saved,
}: {
  integration?: Integration;
  kinds: Kind[];
  saved: (id: number) => void;
}) {
  const { t, word } = useI18n();
  const queries = useQueryClient();
  // The form builds on the integration as it was when it opened: a save must not undo what others change meanwhile.
  const [integration] = useState(current);
  const [kindName, setKind] = useState<Kind["kind"]>(integration?.kind ?? "siem_forwarder");
  const [name, setName] = useState(integration?.name ?? "");
  const [endpoint, setEndpoint] = useState(integration?.endpoint ?? "");
  const [environment, setEnvironment] = useState<(typeof environments)[number]>("");
  const [enabled, setEnabled] = useState(integration?.enabled ?? true);
  const [settings, setSettings] = useState<Record<string, unknown>>(integration?.settings ?? {});
  const [credential, setCredential] = useState<string | null>(integration?.credential_set ? keep : null);
  const [secrets, setSecrets] = useState<Record<string, string>>({});
  const kind = kinds.find((k) => k.kind === kindName);
  const sets = kind?.credentials ?? [];
  const chosen = chosenSet(sets, credential);
  const done = (after: Schemas["Integration"]) => {
    refresh(queries, "integrations");
    saved(after.id);
  };
  const create = api.useMutation("post", "/api/v1/integrations", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/integrations/{integration_id}", { onSuccess: done });
  const { at, rest } = fieldErrors(create.error ?? update.error, [
    "/name",
    "/endpoint",
    ...(kind?.settings ?? []).map((s) => `/settings/${s.name}`),
    "/credential",
  ]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!kind) return;
    const wanted = { name: name.trim(), endpoint: endpoint.trim(), enabled, settings: settingsOf(kind, settings) };
    const given = chosen && Object.fromEntries(chosen.map((member) => [member, secrets[member] ?? ""]));
    if (integration) {
      const body: Schemas["IntegrationChange"] = changed(wanted, integration);
      if (given) body.credential = given;
      return update.mutate({
        params: { path: { integration_id: integration.id }, header: ifMatch(integration) },
        body,
      });
    }
    const credentials = given && Object.keys(given).length > 0 ? { credential: given } : {};
    create.mutate({ body: { ...wanted, kind: kindName, environment, ...credentials } });
  };
  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        {!integration && (
          <Select
            label={t("integrations.kind")}
            description={word("integrations", "about", kindName)}
            data={kinds.map((k) => ({ value: k.kind, label: word("integrations", "kind", k.kind) }))}
            value={kindName}
            onChange={(value) => {
              setKind(kinds.find((k) => k.kind === value)?.kind ?? kindName);
              setCredential(null);
            }}
            allowDeselect={false}
          />
        )}
        <TextInput
          name="integration-name"
          label={t("policies.name")}
          maxLength={200}
          required
          value={name}
          error={at("/name")}
          onChange={(e) => setName(e.currentTarget.value)}
          data-autofocus
        />
        <TextInput
          name="endpoint"
          label={t("notifications.endpoint")}
          description={t(endpoints[kindName] ?? "integrations.endpointAbout")}
          placeholder={kindName === "policy_engine" ? "oci://" : "https://"}
          maxLength={2000}
          required
          value={endpoint}
          error={at("/endpoint")}
          onChange={(e) => setEndpoint(e.currentTarget.value)}
        />
        {!integration && (
          <Select
            label={t("common.environment")}
            description={t("integrations.environmentAbout")}
            data={environments.map((value) => ({
              value,
              label: value ? word("common", "state", value) : t("integrations.both"),
            }))}
            value={environment}
            onChange={(value) => setEnvironment(environments.find((e) => e === value) ?? "")}
            allowDeselect={false}
          />
        )}
        <SettingFields kind={kind} members={chosen ?? []} values={settings} change={setSettings} at={at} />
        <CredentialFields
          sets={sets}
          stored={integration?.credential_set ?? false}
          credential={credential}
          choose={setCredential}
          secrets={secrets}
          change={setSecrets}
          at={at}
        />
        <Switch
          label={t("integrations.enabled")}
          description={t("integrations.enabledAbout")}
          checked={enabled}
          onChange={(e) => setEnabled(e.currentTarget.checked)}
        />
        {rest ? <ErrorPanel error={rest} /> : null}
        <Button type="submit" loading={create.isPending || update.isPending}>
          {integration ? t("common.save") : t("integrations.create")}
        </Button>
      </Stack>
    </form>
  );
}

import { Button, NumberInput, Select, Stack, Switch, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { useEnvironment } from "../../ui/scope";
import { changed } from "../settings/pairs";
import { CredentialFields } from "./CredentialFields";
import { chosenSet, type Description, keep, settingsOf } from "./channel";
import { QuietFields } from "./QuietFields";
import type { Hours } from "./quiet";
import { SettingFields } from "./SettingFields";

type Channel = Schemas["NotifyChannel"] & { etag: string };

export const severities = ["info", "warning", "error", "critical"] as const;

/** The form of a channel: a new one, or one with what is to change. Its fields are those that the API lists for the type. */
export function ChannelForm(props: { channel?: Channel; close: () => void; saved: (id: number) => void }) {
  const { t } = useI18n();
  const types = api.useQuery("get", "/api/v1/notifications/channel-types");
  return (
    <Dialog
      opened
      close={props.close}
      title={props.channel ? t("notifications.edit", { name: props.channel.name }) : t("notifications.new")}
      size="lg"
    >
      {types.data ? (
        <Fields {...props} types={types.data.types} />
      ) : types.error ? (
        <ErrorPanel error={types.error} retry={() => void types.refetch()} />
      ) : (
        <Skeleton label={t("notifications.new")} rows={6} columns={1} />
      )}
    </Dialog>
  );
}

function Fields({
  channel: current,
  types,
  saved,
}: {
  channel?: Channel;
  types: Description[];
  saved: (id: number) => void;
}) {
  const { t, word } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  // The form shows the channel as it was when it opened: a save must not undo what others change meanwhile.
  const [channel] = useState(current);
  const [type, setType] = useState<Description["type"]>(channel?.type ?? "email");
  const [name, setName_] = useState(channel?.name ?? "");
  const [endpoint, setEndpoint] = useState(channel?.endpoint ?? "");
  const [severity, setSeverity] = useState(channel?.severity_threshold ?? "info");
  const [attempts, setAttempts] = useState<number | string>(channel?.max_attempts ?? 5);
  const [enabled, setEnabled] = useState(channel?.enabled ?? true);
  const [settings, setSettings] = useState<Record<string, unknown>>(channel?.settings ?? {});
  const [credential, setCredential] = useState<string | null>(channel?.credential_set ? keep : null);
  const [quiet, setQuiet] = useState<Hours | null>(channel?.quiet_hours ?? null);
  const [digest, setDigest] = useState<number | string>((channel?.digest_window_seconds ?? 0) / 60);
  const [secrets, setSecrets] = useState<Record<string, string>>({});
  const of = types.find((d) => d.type === type);
  const sets = of?.credentials ?? [];
  const chosen = chosenSet(sets, credential);
  const done = (after: Schemas["NotifyChannel"]) => {
    refresh(queries, "notifications");
    saved(after.id);
  };
  const create = api.useMutation("post", "/api/v1/notifications/channels", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/notifications/channels/{channel_id}", { onSuccess: done });
  const error = create.error ?? update.error;
  const { at, rest } = fieldErrors(error, [
    "/name",
    "/endpoint",
    "/max_attempts",
    "/quiet_hours",
    "/digest_window_seconds",
    ...(of?.settings ?? []).map((s) => `/settings/${s.name}`),
    "/credential",
  ]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!of) return;
    const wanted = {
      name: name.trim(),
      endpoint: endpoint.trim(),
      severity_threshold: severity,
      max_attempts: Number(attempts),
      enabled,
      settings: settingsOf(of, settings),
      quiet_hours: quiet,
      digest_window_seconds: of.digests ? Math.round(Number(digest) * 60) : 0,
    };
    const given = chosen && Object.fromEntries(chosen.map((member) => [member, secrets[member] ?? ""]));
    if (channel) {
      const body: Schemas["NotifyChange"] = changed(wanted, channel);
      if (given) body.credential = given;
      update.mutate({ params: { path: { channel_id: channel.id }, header: ifMatch(channel) }, body });
    } else {
      const { endpoint: address, quiet_hours: hours, ...others } = wanted;
      create.mutate({
        body: {
          ...others,
          type,
          environment,
          ...(address ? { endpoint: address } : {}),
          ...(hours ? { quiet_hours: hours } : {}),
          ...(given && Object.keys(given).length > 0 ? { credential: given } : {}),
        },
      });
    }
  };
  const label = (prefix: string, key: string) => word("notifications", prefix, key);
  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        {!channel && (
          <Select
            label={t("notifications.type")}
            data={types.map((d) => ({ value: d.type, label: label("type", d.type) }))}
            value={type}
            onChange={(value) => {
              setType(types.find((d) => d.type === value)?.type ?? "email");
              setCredential(null);
            }}
            allowDeselect={false}
          />
        )}
        <TextInput
          name="channel-name"
          label={t("policies.name")}
          maxLength={200}
          required
          value={name}
          error={at("/name")}
          onChange={(e) => setName_(e.currentTarget.value)}
          data-autofocus
        />
        <TextInput
          name="endpoint"
          label={t("notifications.endpoint")}
          description={t("notifications.endpointAbout")}
          placeholder={type === "email" ? "smtp://mail.example.com:587" : "https://"}
          maxLength={2000}
          required={of?.endpoint === "required"}
          value={endpoint}
          error={at("/endpoint")}
          onChange={(e) => setEndpoint(e.currentTarget.value)}
        />
        <SettingFields kind={of} members={chosen ?? []} values={settings} change={setSettings} at={at} />
        <CredentialFields
          sets={sets}
          stored={channel?.credential_set ?? false}
          credential={credential}
          choose={setCredential}
          secrets={secrets}
          change={setSecrets}
          at={at}
        />
        <Select
          label={t("notifications.severity")}
          description={t("notifications.severityAbout")}
          data={severities.map((value) => ({ value, label: t(`notifications.severity_${value}`) }))}
          value={severity}
          onChange={(value) => setSeverity(severities.find((s) => s === value) ?? "info")}
          allowDeselect={false}
        />
        <NumberInput
          label={t("notifications.attempts")}
          description={t("notifications.attemptsAbout")}
          min={1}
          max={10}
          allowDecimal={false}
          required
          value={attempts}
          error={at("/max_attempts")}
          onChange={setAttempts}
        />
        <QuietFields value={quiet} change={setQuiet} digests={of?.digests ?? true} at={at} />
        {of?.digests && (
          <NumberInput
            name="digest"
            label={t("notifications.digest")}
            description={t("notifications.digestAbout")}
            min={0}
            max={1440}
            required
            value={digest}
            error={at("/digest_window_seconds")}
            onChange={setDigest}
          />
        )}
        <Switch
          label={t("notifications.enabled")}
          checked={enabled}
          onChange={(e) => setEnabled(e.currentTarget.checked)}
        />
        {rest ? <ErrorPanel error={rest} /> : null}
        <Button type="submit" loading={create.isPending || update.isPending}>
          {channel ? t("common.save") : t("notifications.create")}
        </Button>
      </Stack>
    </form>
  );
}

import { Button, Group, JsonInput, PasswordInput, Select, Stack, Switch, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import {
  type Config,
  credentialsOf,
  fieldsOf,
  frequencies,
  linesOf,
  moreOf,
  objectOf,
  providers,
  type Source,
  samples,
  type Way,
  ways,
} from "./source";
import { Tried } from "./Tried";

/** The form of a data source: a new one, or what is to change of one. A test shows what controls would see. */
export function SourceForm({
  source: current,
  close,
  saved,
}: {
  source?: Source & { etag: string };
  close: () => void;
  saved: (source: Source) => void;
}) {
  const { t } = useI18n();
  const queries = useQueryClient();
  // The form builds on the source as it was when it opened.
  const [source] = useState(current);
  const [provider, setProvider] = useState<Source["provider"]>(source?.provider ?? "http_json");
  const [name, setName] = useState(source?.name ?? "");
  const [type, setType] = useState(source?.connection_type ?? "");
  const [url, setUrl] = useState(source?.configuration.url ?? "");
  const [records, setRecords] = useState(source?.configuration.records ?? "");
  const [key, setKey] = useState(source?.configuration.key ?? "");
  const [lines, setLines] = useState(linesOf(source?.configuration.fields));
  const [more, setMore] = useState(moreOf(source?.configuration));
  const [way, setWay] = useState<Way>(source?.credentials_set ? "keep" : "none");
  const [secrets, setSecrets] = useState<Record<string, string>>({});
  const [frequency, setFrequency] = useState<Source["sync_frequency"]>(source?.sync_frequency ?? "hourly");
  const [enabled, setEnabled] = useState(source?.sync_enabled ?? true);

  // What a provider needs stands in the form, to be changed. What was typed stays.
  const choose = (next: Source["provider"]) => {
    if (!more.trim() || more === samples[provider].more) setMore(samples[next].more);
    if (Object.keys(secrets).length === 0) setWay(samples[next].account ? "password" : "none");
    setProvider(next);
    test.reset();
  };
  const done = (after: Source) => {
    refresh(queries, "data_sources");
    saved(after);
  };
  const create = api.useMutation("post", "/api/v1/pip/connections", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/pip/connections/{connection_id}", { onSuccess: done });
  const test = api.useMutation("post", "/api/v1/pip/connections/test");

  const fields = fieldsOf(lines);
  const others = objectOf(more);
  const valid = fields !== null && others !== null;
  const configuration = {
    ...others,
    url: url.trim(),
    ...(samples[provider].records && records.trim() ? { records: records.trim() } : {}),
    ...(key.trim() ? { key: key.trim() } : {}),
    ...(fields && Object.keys(fields).length > 0 ? { fields } : {}),
  } as Config;
  const wanted = {
    name: name.trim(),
    connection_type: type.trim(),
    configuration,
    sync_enabled: enabled,
    sync_frequency: frequency,
  };
  const given = credentialsOf(way, secrets, provider);
  const draft = { ...wanted, provider, ...(given ? { credentials: given } : {}) };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    test.reset();
    if (!source) return create.mutate({ body: draft });
    const credentials = way === "keep" ? {} : { credentials: given ?? null };
    update.mutate({
      params: { path: { connection_id: source.id }, header: ifMatch(source) },
      body: { ...wanted, ...credentials },
    });
  };
  const tried = () => {
    create.reset();
    update.reset();
    test.mutate({ body: { ...draft, ...(source && way === "keep" ? { connection_id: source.id } : {}) } });
  };
  const error = create.error ?? update.error ?? test.error;
  const { at, rest } = fieldErrors(error, [
    "/name",
    "/connection_type",
    "/configuration/url",
    "/configuration/records",
    "/configuration/key",
    "/configuration/fields",
    "/credentials",
  ]);
  const secret = (member: string, label: string, shown = false, optional = false) => {
    const common = {
      key: member,
      name: `secret-${member}`,
      label,
      required: !optional,
      description: optional ? t("sources.sessionTokenAbout") : undefined,
      autoComplete: "off",
      value: secrets[member] ?? "",
      onChange: (e: { currentTarget: { value: string } }) =>
        setSecrets({ ...secrets, [member]: e.currentTarget.value }),
    };
    const { key: id, ...props } = common;
    return shown ? (
      <TextInput key={id} {...props} maxLength={500} />
    ) : (
      <PasswordInput
        key={id}
        {...props}
        maxLength={8000}
        visibilityToggleButtonProps={{ "aria-label": t("notifications.show", { name: label }) }}
      />
    );
  };
  return (
    <Dialog opened close={close} title={source ? t("sources.edit", { name: source.name }) : t("sources.new")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          {!source && (
            <Select
              label={t("sources.provider")}
              data={providers.map((value) => ({ value, label: t(`sources.provider_${value}`) }))}
              value={provider}
              onChange={(value) => choose(providers.find((p) => p === value) ?? "http_json")}
              allowDeselect={false}
            />
          )}
          <TextInput
            name="source-name"
            label={t("policies.name")}
            description={t("sources.nameAbout")}
            maxLength={100}
            required
            value={name}
            error={at("/name")}
            onChange={(e) => setName(e.currentTarget.value)}
            data-autofocus
          />
          <TextInput
            name="source-type"
            label={t("sources.type")}
            maxLength={100}
            value={type}
            error={at("/connection_type")}
            onChange={(e) => setType(e.currentTarget.value)}
          />
          <TextInput
            name="source-url"
            label={t("sources.url")}
            placeholder={samples[provider].url}
            maxLength={2000}
            required
            value={url}
            error={at("/configuration/url")}
            onChange={(e) => setUrl(e.currentTarget.value)}
          />
          {samples[provider].records && (
            <TextInput
              name="source-records"
              label={t("sources.recordsAt")}
              description={t("sources.recordsAbout")}
              placeholder="$.items"
              maxLength={500}
              value={records}
              error={at("/configuration/records")}
              onChange={(e) => setRecords(e.currentTarget.value)}
            />
          )}
          <TextInput
            name="source-key"
            label={t("sources.key")}
            description={t("sources.keyAbout")}
            placeholder="id"
            maxLength={500}
            value={key}
            error={at("/configuration/key")}
            onChange={(e) => setKey(e.currentTarget.value)}
          />
          <Textarea
            name="source-fields"
            label={t("sources.fieldLines")}
            description={t("sources.fieldLinesAbout")}
            placeholder="grade = $.job.grade"
            value={lines}
            error={fields ? at("/configuration/fields") : t("sources.noLines")}
            onChange={(e) => setLines(e.currentTarget.value)}
            classNames={{ input: "gh-mono" }}
            autosize
            minRows={2}
            maxRows={10}
          />
          <JsonInput
            name="source-more"
            label={t("sources.more")}
            description={t("sources.moreAbout")}
            value={more}
            error={others ? undefined : t("agents.noObject")}
            onChange={setMore}
            classNames={{ input: "gh-mono" }}
            autosize
            maxRows={10}
          />
          <Select
            label={t("sources.signIn")}
            description={t("sources.signInAbout")}
            data={[...(source?.credentials_set ? (["keep"] as const) : []), ...ways].map((value) => ({
              value,
              label: t(`sources.way_${value}`),
            }))}
            value={way}
            error={at("/credentials")}
            onChange={(value) => setWay(ways.find((w) => w === value) ?? "keep")}
            allowDeselect={false}
          />
          {way === "token" && secret("token", t("sources.way_token"))}
          {way === "password" && [
            secret("username", t("sources.username"), true),
            secret("password", t("login.password")),
            provider === "s3" && secret("session_token", t("sources.sessionToken"), false, true),
          ]}
          {way === "oauth" && [
            secret("client_id", t("sources.clientId"), true),
            secret("client_secret", t("sources.clientSecret")),
          ]}
          {way === "header" && [secret("header", t("sources.header"), true), secret("value", t("sources.headerValue"))]}
          <Select
            label={t("sources.frequency")}
            data={frequencies.map((value) => ({ value, label: t(`sources.every_${value}`) }))}
            value={frequency}
            onChange={(value) => setFrequency(frequencies.find((f) => f === value) ?? "hourly")}
            allowDeselect={false}
          />
          <Switch
            label={t("sources.enabled")}
            checked={enabled}
            onChange={(e) => setEnabled(e.currentTarget.checked)}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          {test.data && <Tried result={test.data} />}
          <Group justify="space-between">
            <Button
              variant="default"
              loading={test.isPending}
              disabled={!valid || !name.trim() || !url.trim()}
              onClick={tried}
            >
              {t("sources.test")}
            </Button>
            <Button type="submit" loading={create.isPending || update.isPending} disabled={!valid}>
              {source ? t("common.save") : t("sources.create")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

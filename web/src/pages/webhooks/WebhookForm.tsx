import { Button, Checkbox, PasswordInput, Select, Stack, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";

type Draft = Schemas["WebhookDraft"];

/** The form of a webhook: a new one, or what is to change of one. */
export function WebhookForm({
  webhook,
  close,
  save,
  busy,
  error,
}: {
  webhook?: Schemas["Webhook"];
  close: () => void;
  save: (body: Draft) => void;
  busy: boolean;
  error: unknown;
}) {
  const { t } = useI18n();
  const types = api.useQuery("get", "/api/v1/webhooks/event-types", {}, { staleTime: Number.POSITIVE_INFINITY });
  const [events, setEvents] = useState<string[]>(webhook?.events ?? []);
  const [environment, setEnvironment] = useState<Draft["environment"]>(webhook?.environment ?? "");
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const secret = String(form.get("webhook-secret"));
    save({
      name: String(form.get("webhook-name")).trim(),
      url: String(form.get("webhook-url")).trim(),
      events,
      environment,
      ...(secret ? { secret } : {}),
    });
  };
  return (
    <Dialog opened close={close} title={webhook ? t("webhooks.edit") : t("webhooks.new")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("webhooks.name")}
            name="webhook-name"
            defaultValue={webhook?.name}
            required
            maxLength={200}
            data-autofocus
          />
          <TextInput
            label={t("webhooks.url")}
            description={t("webhooks.urlAbout")}
            name="webhook-url"
            type="url"
            placeholder="https://hooks.example.com/gatehouse"
            defaultValue={webhook?.url}
            required
          />
          <Select
            label={t("common.environment")}
            data={[
              { value: "", label: t("webhooks.both") },
              { value: "sandbox", label: t("common.state_sandbox") },
              { value: "production", label: t("common.state_production") },
            ]}
            value={environment}
            onChange={(value) => setEnvironment((value ?? "") as Draft["environment"])}
            allowDeselect={false}
          />
          <fieldset className="gh-choices">
            <legend>{t("webhooks.events")}</legend>
            {types.error ? (
              <ErrorPanel error={types.error} retry={() => void types.refetch()} />
            ) : !types.data ? (
              <Skeleton label={t("webhooks.events")} rows={4} columns={1} />
            ) : (
              types.data.event_types.map((e) => (
                <Checkbox
                  key={e.type}
                  size="xs"
                  label={<code>{e.type}</code>}
                  description={e.description}
                  checked={events.includes(e.type)}
                  onChange={(change) =>
                    setEvents(
                      change.currentTarget.checked ? [...events, e.type] : events.filter((other) => other !== e.type),
                    )
                  }
                />
              ))
            )}
          </fieldset>
          <PasswordInput
            label={t("webhooks.secret")}
            description={webhook ? t("webhooks.secretKept") : t("webhooks.secretAbout")}
            name="webhook-secret"
            autoComplete="off"
            visibilityToggleButtonProps={{ "aria-label": t("users.showPassword") }}
          />
          {error ? <ErrorPanel error={error} /> : null}
          <Button type="submit" loading={busy} disabled={events.length === 0}>
            {webhook ? t("common.save") : t("webhooks.create")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

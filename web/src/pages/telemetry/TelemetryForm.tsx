import { Button, NumberInput, PasswordInput, Select, Stack, Switch, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";

const frequencies = ["twice_monthly", "weekly", "monthly", "daily"] as const;

/** The form of the connection to the license server, and of what it is told. */
export function TelemetryForm({
  config: current,
  close,
}: {
  config?: Schemas["TelemetryConfig"] & { etag: string };
  close: () => void;
}) {
  const { t } = useI18n();
  const queries = useQueryClient();
  // The form shows the configuration as it was when it opened: a save must not undo what others change meanwhile.
  const [config] = useState(current);
  const [url, setUrl] = useState(config?.business_admin_url ?? "");
  const [key, setKey] = useState("");
  const [enabled, setEnabled] = useState(config?.enabled ?? false);
  const [frequency, setFrequency] = useState(config?.frequency ?? "twice_monthly");
  const [encryption, setEncryption] = useState(config?.encryption_enabled ?? false);
  const [anonymous, setAnonymous] = useState(config?.anonymization_enabled ?? true);
  const [retention, setRetention] = useState<number | string>(config?.local_retention_days ?? 90);
  const save = api.useMutation("put", "/api/v1/telemetry/config", {
    onSuccess: () => {
      refresh(queries, "telemetry");
      close();
    },
  });
  const { at, rest } = fieldErrors(save.error, [
    "/business_admin_url",
    "/api_key",
    "/enabled",
    "/frequency",
    "/encryption_enabled",
    "/local_retention_days",
  ]);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    save.mutate({
      // The first configuration has no version to build on.
      params: { header: config ? ifMatch(config) : ({} as ReturnType<typeof ifMatch>) },
      body: {
        business_admin_url: url.trim(),
        enabled,
        frequency,
        encryption_enabled: encryption,
        anonymization_enabled: anonymous,
        local_retention_days: Number(retention),
        ...(key ? { api_key: key } : {}),
      },
    });
  };
  return (
    <Dialog opened close={close} title={config ? t("telemetry.change") : t("telemetry.connect")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            name="license-url"
            label={t("telemetry.url")}
            description={t("telemetry.urlAbout")}
            placeholder="https://license.example.com"
            maxLength={2000}
            value={url}
            error={at("/business_admin_url")}
            onChange={(e) => setUrl(e.currentTarget.value)}
            data-autofocus
          />
          <PasswordInput
            name="license-key"
            label={t("telemetry.key")}
            description={config?.api_key_configured ? t("telemetry.keyKeep") : t("telemetry.keyAbout")}
            autoComplete="new-password"
            maxLength={500}
            value={key}
            error={at("/api_key")}
            visibilityToggleButtonProps={{ "aria-label": t("telemetry.keyShow") }}
            onChange={(e) => setKey(e.currentTarget.value)}
          />
          <Switch
            label={t("telemetry.enabled")}
            description={t("telemetry.enabledAbout")}
            checked={enabled}
            error={at("/enabled")}
            onChange={(e) => setEnabled(e.currentTarget.checked)}
          />
          <Select
            label={t("telemetry.frequency")}
            data={frequencies.map((value) => ({ value, label: t(`telemetry.every_${value}`) }))}
            value={frequency}
            error={at("/frequency")}
            onChange={(value) => setFrequency(frequencies.find((f) => f === value) ?? "twice_monthly")}
            allowDeselect={false}
          />
          <Switch
            label={t("telemetry.encrypted")}
            description={t("telemetry.encryptedAbout")}
            checked={encryption}
            error={at("/encryption_enabled")}
            onChange={(e) => setEncryption(e.currentTarget.checked)}
          />
          <Switch
            label={t("telemetry.anonymous")}
            description={t("telemetry.anonymousAbout")}
            checked={anonymous}
            onChange={(e) => setAnonymous(e.currentTarget.checked)}
          />
          <NumberInput
            label={t("telemetry.retention")}
            description={t("telemetry.retentionAbout")}
            min={1}
            max={3650}
            allowDecimal={false}
            required
            value={retention}
            error={at("/local_retention_days")}
            onChange={setRetention}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          <Button type="submit" loading={save.isPending}>
            {t("common.save")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

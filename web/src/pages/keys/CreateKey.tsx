import "./keys.css";
import { Button, Checkbox, Select, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Environment, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { useMe } from "../../ui/scope";

const least = ["decisions:read"];

/** The form of a new key: a name, where it works, until when, and its scopes as a checklist of what one holds oneself. */
export function CreateKey({ close, created }: { close: () => void; created: (made: Schemas["AuthKey"]) => void }) {
  const { t, word } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const [environment, setEnvironment] = useState<Environment | "">("");
  const [days, setDays] = useState("90");
  const [scopes, setScopes] = useState(() => least.filter((s) => me.permissions.includes(s)));
  const create = api.useMutation("post", "/api/v1/tenants/{tenant_id}/api-keys", {
    onSuccess: (made) => {
      refresh(queries, "api_keys");
      created(made);
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("name")).trim();
    create.mutate({
      params: { path: { tenant_id: me.tenant_id } },
      body: {
        name,
        scopes,
        ...(environment ? { environment } : {}),
        ...(days ? { expires_at: new Date(Date.now() + Number(days) * 86_400_000).toISOString() } : {}),
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("keys.add")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput name="name" label={t("keys.name")} required withAsterisk={false} maxLength={100} data-autofocus />
          <Select
            label={t("common.environment")}
            description={t("keys.environmentAbout")}
            data={[
              { value: "", label: t("common.wholeTenant") },
              { value: "sandbox", label: word("common", "state", "sandbox") },
              { value: "production", label: word("common", "state", "production") },
            ]}
            value={environment}
            onChange={(value) => setEnvironment((value ?? "") as Environment | "")}
            allowDeselect={false}
          />
          <Select
            label={t("keys.expires")}
            data={[
              ...["30", "90", "365"].map((value) => ({ value, label: t("keys.days", { count: Number(value) }) })),
              { value: "", label: t("common.never") },
            ]}
            value={days}
            onChange={(value) => setDays(value ?? "")}
            allowDeselect={false}
          />
          <Checkbox.Group
            label={t("keys.scopes")}
            description={t("keys.scopesAbout")}
            value={scopes}
            onChange={setScopes}
          >
            <div className="gh-scopes">
              {me.permissions.toSorted().map((scope) => (
                <Checkbox key={scope} value={scope} label={scope} size="xs" />
              ))}
            </div>
          </Checkbox.Group>
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending} disabled={scopes.length === 0}>
            {t("keys.add")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

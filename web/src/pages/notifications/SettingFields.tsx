import { Select, TagsInput, Textarea, TextInput } from "@mantine/core";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { useMe } from "../../ui/scope";
import { type Description, listOf, needed } from "./channel";

/** The choice of a bouncer. */
function BouncerField({
  value,
  set,
  ...common
}: {
  label: string;
  required: boolean;
  error?: string;
  value: unknown;
  set: (value: string | null) => void;
}) {
  const { word } = useI18n();
  const bouncers = api.useQuery("get", "/api/v1/bouncers", { params: { query: { limit: 1000 } } });
  return (
    <Select
      {...common}
      data={(bouncers.data?.bouncers ?? []).map((b) => ({
        value: String(b.id),
        label: `${b.name} (${word("common", "state", b.environment)})`,
      }))}
      value={typeof value === "string" ? value : null}
      onChange={set}
      searchable
    />
  );
}

/** The fields of the settings that the API lists for a kind of channel or integration. */
export function SettingFields({
  kind,
  members,
  values,
  change,
  at,
}: {
  kind?: Pick<Description, "settings">;
  /** The members of the chosen credential, which some settings go with. */
  members: string[];
  values: Record<string, unknown>;
  change: (values: Record<string, unknown>) => void;
  at: (pointer: string) => string | undefined;
}) {
  const { t, word } = useI18n();
  const { can } = useMe();
  const label = (prefix: string, key: string) => word("notifications", prefix, key);
  return kind?.settings.map((setting) => {
    const common = {
      label: label("setting", setting.name),
      required: needed(setting, members),
      error: at(`/settings/${setting.name}`),
    };
    const value = values[setting.name];
    const set = (next: unknown) => change({ ...values, [setting.name]: next });
    if (setting.name === "ca_certificates") {
      return (
        <Textarea
          key={setting.name}
          {...common}
          name={`setting-${setting.name}`}
          description={t("notifications.pemAbout")}
          placeholder="-----BEGIN CERTIFICATE-----"
          maxLength={16_000}
          value={listOf(value).join("\n")}
          onChange={(e) => set(e.currentTarget.value)}
          classNames={{ input: "gh-mono" }}
          autosize
          minRows={2}
          maxRows={10}
        />
      );
    }
    if (setting.name === "bouncer_id" && can("bouncers:read"))
      return <BouncerField key={setting.name} {...common} value={value} set={set} />;
    if (setting.kind === "list") {
      return (
        <TagsInput
          key={setting.name}
          {...common}
          required={false}
          withAsterisk={common.required}
          description={t("notifications.listAbout")}
          value={listOf(value)}
          onChange={set}
        />
      );
    }
    if (setting.kind === "choice") {
      return (
        <Select
          key={setting.name}
          {...common}
          data={(setting.values ?? []).map((name) => ({ value: name, label: label("value", name) }))}
          value={typeof value === "string" ? value : null}
          placeholder={setting.values?.[0] ? label("value", setting.values[0]) : undefined}
          onChange={set}
          clearable
          clearButtonProps={{ "aria-label": t("resources.clear", { field: common.label }) }}
        />
      );
    }
    return (
      <TextInput
        key={setting.name}
        {...common}
        name={`setting-${setting.name}`}
        maxLength={2000}
        value={typeof value === "string" ? value : ""}
        onChange={(e) => set(e.currentTarget.value)}
      />
    );
  });
}

import { Button, NumberInput, Select, Switch } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { type Key, useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { useMe } from "../../ui/scope";
import { Unsaved } from "../../ui/Unsaved";
import { merged } from "./settings";
import "./tenants.css";

type Settings = Record<string, unknown>;
// The members of the API, by the words of theirs that this screen has.
const members: Record<string, string> = {
  assist: "flags.resources.assist_classification",
  impact_threshold: "impact_gate_threshold_percent",
  impact_window_hours: "impact_gate_window_hours",
  access_request: "access_request_hours",
};
const limits = ["max_policies", "max_users", "max_bouncers"] as const;

/** Brings the setting that the address names into view. */
function reveal(row: HTMLElement | null): void {
  row?.scrollIntoView({ block: "center" });
}

/** The limits and switches of a tenant, each with what it does. Limits are a platform administrator's to change. */
export function TenantSettings({ tenant }: { tenant: Schemas["Tenant"] }) {
  const { t, number } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const [changed, setChanged] = useState<Settings>({});
  const update = api.useMutation("put", "/api/v1/tenants/{tenant_id}", {
    onSuccess: () => {
      setChanged({});
      refresh(queries, "tenant");
    },
  });
  const write = can("tenants:write");
  const platform = me.roles.includes("platform_admin");
  const settings = merged(tenant.settings, changed);
  const now = (name: string) => settings[members[name] ?? name];
  const set = (name: string, value: unknown) => setChanged({ ...changed, [members[name] ?? name]: value ?? null });
  const dirty = Object.entries(changed).some(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(tenant.settings[name] ?? null),
  );

  const toggle = (name: "four_eyes" | "assist" | "require_second_factor") => (
    <Switch
      aria-label={t(`nav.setting_${name}`)}
      checked={now(name) === true}
      disabled={!write}
      onChange={(e) => set(name, e.currentTarget.checked)}
    />
  );
  const figure = (name: string, label: string, most: number | undefined, enabled: boolean) => (
    <NumberInput
      aria-label={label}
      value={typeof now(name) === "number" ? (now(name) as number) : ""}
      onChange={(v) => set(name, v === "" ? null : Number(v))}
      min={0}
      max={most}
      allowDecimal={name === "impact_threshold"}
      disabled={!enabled}
      placeholder={t("tenants.notSet")}
    />
  );
  const choice = (name: string, label: string, options: { value: string; label: string }[]) => {
    const value = now(name);
    const text = value === undefined || value === null ? null : typeof value === "object" ? "custom" : String(value);
    const known = text === null || options.some((o) => o.value === text);
    return (
      <Select
        aria-label={label}
        data={known ? options : [...options, { value: text, label: text === "custom" ? t("tenants.custom") : text }]}
        value={text}
        onChange={(v) => set(name, v === null ? null : Number.isFinite(Number(v)) ? Number(v) : v)}
        placeholder={t("tenants.notSet")}
        disabled={!write}
        clearable
        clearButtonProps={{ "aria-label": t("resources.clear", { field: label }) }}
      />
    );
  };
  const row = (name: string, control: ReactNode) => (
    <div className="gh-setting" key={name} id={name} ref={name === window.location.hash.slice(1) ? reveal : undefined}>
      <div>
        <strong>{t(`nav.setting_${name}` as Key)}</strong>
        <p>{t(`tenants.about_${name}` as Key)}</p>
      </div>
      {control}
    </div>
  );
  const label = (name: string) => t(`nav.setting_${name}` as Key);
  return (
    <Panel
      title={t("tenants.settings")}
      actions={
        write ? (
          <Button
            size="compact-sm"
            disabled={!dirty}
            loading={update.isPending}
            onClick={() => update.mutate({ params: { path: { tenant_id: tenant.id } }, body: { settings: changed } })}
          >
            {t("common.save")}
          </Button>
        ) : undefined
      }
    >
      <Unsaved when={dirty && !update.isPending} object={tenant.name} />
      {update.error ? <ErrorPanel error={update.error} /> : null}
      {row("four_eyes", toggle("four_eyes"))}
      {row("require_second_factor", toggle("require_second_factor"))}
      {row("assist", toggle("assist"))}
      {row(
        "impact_gate",
        choice(
          "impact_gate",
          label("impact_gate"),
          (["off", "warn", "block"] as const).map((value) => ({ value, label: t(`tenants.gate_${value}`) })),
        ),
      )}
      {row("impact_threshold", figure("impact_threshold", label("impact_threshold"), 100, write))}
      {row("impact_window_hours", figure("impact_window_hours", label("impact_window_hours"), 8760, write))}
      {row("access_request", figure("access_request", label("access_request"), 2160, write))}
      {row(
        "anomalies",
        choice("anomalies", label("anomalies"), [
          { value: "off", label: t("tenants.off") },
          ...[2, 3, 5, 10, 20].map((n) => ({ value: String(n), label: t("tenants.times", { n: number(n) }) })),
        ]),
      )}
      {row(
        "replay",
        choice("replay", label("replay"), [
          { value: "off", label: t("tenants.off") },
          ...[1, 24, 72, 168, 720].map((n) => ({ value: String(n), label: t("tenants.hours", { count: n }) })),
        ]),
      )}
      {limits.map((name) => row(name, figure(name, label(name), undefined, write && platform)))}
    </Panel>
  );
}

import { Button, MultiSelect, NumberInput, Select, Stack, Switch, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { useEnvironment } from "../../ui/scope";
import { changed } from "../settings/pairs";
import { severities } from "./ChannelForm";
import { Foretold } from "./Foretold";
import { useNames } from "./names";
import { again, metrics, operators, type Rule, sentence, triggerOf, unit } from "./rule";

// The members that have a field, which their errors stand at.
const fields = [
  "/name",
  "/description",
  "/trigger/threshold",
  "/trigger/filter",
  "/frequency/evaluation_window_seconds",
  "/frequency/cooldown_seconds",
  "/frequency/max_fires_per_day",
  "/channel_ids",
];
const operatorKey = { ">": "operator_gt", ">=": "operator_ge", "==": "operator_eq" } as const;

/** The form of an alert rule: a new one, or one that is to change. What it says stands above it as a sentence. */
export function RuleForm({
  rule: current,
  close,
  saved,
}: {
  rule?: Rule & { etag: string };
  close: () => void;
  saved: (id: number) => void;
}) {
  const i18n = useI18n();
  const { t, word } = i18n;
  const environment = useEnvironment();
  const queries = useQueryClient();
  const names = useNames();
  // The form shows the rule as it was when it opened: a save must not undo what others change meanwhile.
  const [rule] = useState(current);
  const filter = rule?.trigger.filter ?? {};
  const [draft, setDraft] = useState({
    name: rule?.name ?? "",
    description: rule?.description ?? "",
    metric: rule?.trigger.metric ?? ("denial_rate" as const),
    operator: rule?.trigger.operator ?? (">" as const),
    threshold: (rule?.trigger.threshold ?? 20) as number | string,
    resource: filter.resource_id ?? "",
    control: filter.control_id ?? null,
    bouncer: filter.bouncer_id ?? null,
    subject: filter.subject_id ?? "",
    event: filter.event_type ?? "",
    source: filter.connection_id ?? null,
    window: ((rule?.frequency.evaluation_window_seconds ?? 300) / 60) as number | string,
    cooldown: ((rule?.frequency.cooldown_seconds ?? 3600) / 60) as number | string,
    fires: (rule?.frequency.max_fires_per_day ?? 10) as number | string,
    severity: rule?.severity ?? ("warning" as const),
    channels: (rule?.channel_ids ?? []).map(String),
    enabled: rule?.enabled ?? true,
  });
  const set = (change: Partial<typeof draft>) => setDraft((before) => ({ ...before, ...change }));
  const complete = [draft.threshold, draft.window, draft.cooldown, draft.fires].every((v) => v !== "");
  const wanted = {
    name: draft.name.trim(),
    description: draft.description.trim(),
    severity: draft.severity,
    enabled: draft.enabled,
    trigger: triggerOf({ ...draft, threshold: Number(draft.threshold) }),
    frequency: {
      evaluation_window_seconds: Math.round(Number(draft.window) * 60),
      cooldown_seconds: Math.round(Number(draft.cooldown) * 60),
      max_fires_per_day: Number(draft.fires),
    },
    channel_ids: draft.channels.map(Number),
  };
  const done = (after: Schemas["AlertRule"]) => {
    refresh(queries, "notifications");
    saved(after.id);
  };
  const create = api.useMutation("post", "/api/v1/notifications/alert-rules", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/notifications/alert-rules/{rule_id}", { onSuccess: done });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (rule) {
      const params = { path: { rule_id: rule.id }, header: ifMatch(rule) };
      update.mutate({ params, body: changed(wanted, rule) });
    } else {
      create.mutate({ body: { ...wanted, environment } });
    }
  };
  const { at, rest } = fieldErrors(create.error ?? update.error, fields);
  const ofAudit = draft.metric === "audit_event_count";
  const option = ({ id, name }: { id: number; name: string }) => ({ value: String(id), label: name });
  const of = unit(draft.metric);
  const title = rule ? t("alerts.edit", { name: rule.name }) : t("alerts.new");
  return (
    <Dialog opened close={close} title={title} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <p className="gh-note gh-flat" aria-live="polite" data-rule-sentence="">
            {complete && (
              <>
                {sentence(wanted, names, i18n)} {again(wanted.frequency, i18n)}
              </>
            )}
          </p>
          <TextInput
            name="rule-name"
            label={t("policies.name")}
            maxLength={200}
            required
            value={draft.name}
            error={at("/name")}
            onChange={(e) => set({ name: e.currentTarget.value })}
            data-autofocus
          />
          <Select
            label={t("alerts.metric")}
            data={metrics.map((value) => ({ value, label: word("alerts", "metric", value) }))}
            value={draft.metric}
            onChange={(value) => set({ metric: metrics.find((m) => m === value) ?? "denial_rate" })}
            allowDeselect={false}
          />
          <Select
            label={t("alerts.operator")}
            data={operators.map((value) => ({ value, label: t(`alerts.${operatorKey[value]}`) }))}
            value={draft.operator}
            onChange={(value) => set({ operator: operators.find((o) => o === value) ?? ">" })}
            allowDeselect={false}
          />
          <NumberInput
            name="threshold"
            label={of ? t("alerts.thresholdIn", { unit: of }) : t("alerts.threshold")}
            min={0}
            max={of === "%" ? 100 : 1e12}
            required
            value={draft.threshold}
            error={at("/trigger/threshold")}
            onChange={(threshold) => set({ threshold })}
          />
          <NumberInput
            name="window"
            label={t("alerts.window")}
            description={t("alerts.windowAbout")}
            min={1}
            max={1440}
            required
            value={draft.window}
            error={at("/frequency/evaluation_window_seconds")}
            onChange={(window) => set({ window })}
          />
          <fieldset className="gh-pairs" style={{ justifyItems: "stretch" }}>
            <legend>{t("alerts.filter")}</legend>
            <span className="gh-dim">{t("alerts.filterAbout")}</span>
            {ofAudit ? (
              <TextInput
                name="event-type"
                label={t("alerts.eventType")}
                description={t("alerts.eventTypeAbout")}
                maxLength={100}
                value={draft.event}
                onChange={(e) => set({ event: e.currentTarget.value })}
              />
            ) : draft.metric === "data_source_age" ? (
              <Pick
                label={t("alerts.source")}
                options={names.sources.map(option)}
                value={draft.source}
                change={(source) => set({ source })}
              />
            ) : (
              <>
                <TextInput
                  name="resource"
                  label={t("alerts.resource")}
                  description={t("alerts.resourceAbout")}
                  maxLength={500}
                  value={draft.resource}
                  onChange={(e) => set({ resource: e.currentTarget.value })}
                />
                <Pick
                  label={t("alerts.control")}
                  options={names.controls.map(option)}
                  value={draft.control}
                  change={(control) => set({ control })}
                />
                <Pick
                  label={t("alerts.bouncer")}
                  options={names.bouncers.map(option)}
                  value={draft.bouncer}
                  change={(bouncer) => set({ bouncer })}
                />
                <TextInput
                  name="subject"
                  label={t("alerts.subject")}
                  description={t("alerts.subjectAbout")}
                  maxLength={500}
                  value={draft.subject}
                  onChange={(e) => set({ subject: e.currentTarget.value })}
                />
              </>
            )}
            {at("/trigger/filter") && (
              <p className="gh-flat gh-field-error" role="alert">
                {at("/trigger/filter")}
              </p>
            )}
          </fieldset>
          <Foretold draft={complete ? { ...wanted, name: wanted.name || "preview", environment } : undefined} />
          <Select
            label={t("notifications.severityOf")}
            data={severities.map((value) => ({ value, label: t(`notifications.severity_${value}`) }))}
            value={draft.severity}
            onChange={(value) => set({ severity: severities.find((s) => s === value) ?? "warning" })}
            allowDeselect={false}
          />
          <MultiSelect
            label={t("alerts.channels")}
            description={t("alerts.channelsAbout")}
            data={[
              ...names.channels.map(option),
              // A channel that was deleted can be taken out.
              ...draft.channels
                .filter((id) => !names.channels.some((c) => String(c.id) === id))
                .map((id) => ({ value: id, label: id })),
            ]}
            value={draft.channels}
            error={at("/channel_ids")}
            onChange={(channels) => set({ channels })}
          />
          <NumberInput
            name="cooldown"
            label={t("alerts.cooldown")}
            description={t("alerts.cooldownAbout")}
            min={0}
            max={10_080}
            required
            value={draft.cooldown}
            error={at("/frequency/cooldown_seconds")}
            onChange={(cooldown) => set({ cooldown })}
          />
          <NumberInput
            name="fires"
            label={t("alerts.fires")}
            min={1}
            max={1000}
            allowDecimal={false}
            required
            value={draft.fires}
            error={at("/frequency/max_fires_per_day")}
            onChange={(fires) => set({ fires })}
          />
          <Textarea
            name="description"
            label={t("alerts.description")}
            description={t("alerts.descriptionAbout")}
            maxLength={2000}
            autosize
            minRows={2}
            value={draft.description}
            error={at("/description")}
            onChange={(e) => set({ description: e.currentTarget.value })}
          />
          <Switch
            label={t("alerts.switchOn")}
            checked={draft.enabled}
            onChange={(e) => set({ enabled: e.currentTarget.checked })}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          <Button type="submit" loading={create.isPending || update.isPending}>
            {rule ? t("common.save") : t("alerts.create")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

/** A choice of one object, or of none. What is chosen stays, also where it is not among the options. */
function Pick({
  label,
  options,
  value,
  change,
}: {
  label: string;
  options: { value: string; label: string }[];
  value: number | null;
  change: (value: number | null) => void;
}) {
  const { t } = useI18n();
  const chosen = value === null ? null : String(value);
  const missing = chosen !== null && !options.some((o) => o.value === chosen);
  return (
    <Select
      label={label}
      data={missing ? [...options, { value: chosen, label: chosen }] : options}
      value={chosen}
      onChange={(next) => change(next === null ? null : Number(next))}
      searchable
      limit={100}
      clearable
      clearButtonProps={{ "aria-label": t("resources.clear", { field: label }) }}
    />
  );
}

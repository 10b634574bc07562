import type { Schemas } from "../../api/client";
import type { I18n } from "../../i18n";

export type Trigger = Schemas["AlertTrigger"];
export type Rule = Schemas["AlertRule"];
type Filter = Schemas["AlertFilter"];

export const metrics: Trigger["metric"][] = [
  "denial_rate",
  "error_rate",
  "mask_rate",
  "decision_count",
  "denial_count",
  "error_count",
  "latency_avg",
  "latency_p50",
  "latency_p95",
  "latency_p99",
  "audit_event_count",
  "data_source_age",
];
export const operators: Trigger["operator"][] = [">", ">=", "=="];

/** The names of what a rule refers to by id; an id that has none stands for itself. */
export interface Names {
  channel: (id: number) => string;
  control: (id: number) => string;
  bouncer: (id: number) => string;
  source: (id: number) => string;
}

/** What the values of a metric are counted in. */
export function unit(metric: string): "" | "%" | "ms" | "s" {
  if (metric.endsWith("_rate")) return "%";
  if (metric === "data_source_age") return "s";
  return metric.startsWith("latency_") ? "ms" : "";
}

/** A value of a metric with its unit. */
export function measured(value: number, metric: string, { number }: I18n): string {
  const of = unit(metric);
  return of ? `${number(value)}\u00a0${of}` : number(value);
}

/** A length of time in the largest unit that it is a whole number of. */
export function span(seconds: number, { t }: I18n): string {
  if (seconds > 0 && seconds % 86_400 === 0) return t("alerts.days", { count: seconds / 86_400 });
  if (seconds > 0 && seconds % 3600 === 0) return t("alerts.hours", { count: seconds / 3600 });
  if (seconds % 60 === 0) return t("alerts.minutes", { count: seconds / 60 });
  return t("alerts.seconds", { count: seconds });
}

/** The rule as a sentence: when it fires, and who is told. */
export function sentence(
  rule: Pick<Rule, "trigger" | "frequency" | "severity" | "channel_ids">,
  names: Names,
  i18n: I18n,
) {
  const { t, word, list } = i18n;
  const { metric, operator, threshold, filter = {} } = rule.trigger;
  const what = [
    word("alerts", "metric", metric),
    filter.event_type && t("alerts.ofType", { name: filter.event_type }),
    filter.resource_id && t("alerts.onResource", { name: filter.resource_id }),
    filter.control_id && t("alerts.byControl", { name: names.control(filter.control_id) }),
    filter.bouncer_id && t("alerts.atBouncer", { name: names.bouncer(filter.bouncer_id) }),
    filter.subject_id && t("alerts.ofSubject", { name: filter.subject_id }),
    filter.connection_id && t("alerts.ofSource", { name: names.source(filter.connection_id) }),
  ];
  const value = measured(threshold, metric, i18n);
  return t("alerts.sentence", {
    what: what.filter(Boolean).join(" "),
    condition: t(operator === ">" ? "alerts.isMore" : operator === ">=" ? "alerts.isAtLeast" : "alerts.isExactly", {
      value,
    }),
    window: span(rule.frequency.evaluation_window_seconds ?? 300, i18n),
    who: rule.channel_ids.length === 0 ? t("alerts.allChannels") : list(rule.channel_ids.map(names.channel)),
    severity: word("notifications", "severity", rule.severity),
  });
}

/** How often the rule fires while its condition holds. */
export function again(frequency: Rule["frequency"], i18n: I18n): string {
  const count = frequency.max_fires_per_day ?? 10;
  const cooldown = frequency.cooldown_seconds ?? 3600;
  if (cooldown === 0) return i18n.t("alerts.againAlways", { count });
  return i18n.t("alerts.again", { count, cooldown: span(cooldown, i18n) });
}

/** How often the rule would have fired, and over how long. */
export function foretold(p: Schemas["AlertPreview"], i18n: I18n): string {
  const hours = Math.max(1, Math.round((Date.parse(p.until) - Date.parse(p.since)) / 3_600_000));
  const over = span(hours >= 24 ? Math.round(hours / 24) * 86_400 : hours * 3600, i18n);
  if (p.would_have_fired === 0) return i18n.t("alerts.wouldNot", { span: over });
  return i18n.t("alerts.would", { count: p.would_have_fired, span: over });
}

/** What a form says of a condition; empty fields restrict nothing. The members are in the order of the API's answers. */
export function triggerOf(form: {
  metric: Trigger["metric"];
  operator: Trigger["operator"];
  threshold: number;
  resource: string;
  control: number | null;
  bouncer: number | null;
  subject: string;
  event: string;
  source: number | null;
}): Trigger {
  const filter: Filter = {};
  if (form.metric === "audit_event_count") {
    if (form.event.trim()) filter.event_type = form.event.trim();
  } else if (form.metric === "data_source_age") {
    if (form.source) filter.connection_id = form.source;
  } else {
    if (form.resource.trim()) filter.resource_id = form.resource.trim();
    if (form.control) filter.control_id = form.control;
    if (form.bouncer) filter.bouncer_id = form.bouncer;
    if (form.subject.trim()) filter.subject_id = form.subject.trim();
  }
  const { metric, operator, threshold } = form;
  return Object.keys(filter).length > 0 ? { metric, filter, operator, threshold } : { metric, operator, threshold };
}

import { expect, test } from "vitest";
import { translator } from "../../i18n";
import { en, es, fr } from "../../test/words";
import { again, foretold, metrics, type Rule, sentence, span, triggerOf } from "./rule";

const languages = { en: translator("en", en), es: translator("es", es), fr: translator("fr", fr) };
const names = {
  channel: (id: number) => `channel ${id}`,
  control: (id: number) => `control ${id}`,
  bouncer: String,
  source: String,
};
const rule: Pick<Rule, "trigger" | "frequency" | "severity" | "channel_ids"> = {
  trigger: { metric: "denial_rate", operator: ">", threshold: 20, filter: { resource_id: "payments" } },
  frequency: { evaluation_window_seconds: 300, cooldown_seconds: 3600, max_fires_per_day: 10 },
  severity: "error",
  channel_ids: [],
};

test("a rule reads as a sentence in each language", () => {
  expect(sentence(rule, names, languages.en)).toBe(
    "When the share of denials on resource payments is more than 20\u00a0% within 5 minutes, tell all channels (Serious).",
  );
  expect(sentence(rule, names, languages.es)).toBe(
    "Cuando el porcentaje de denegaciones en el recurso payments supere 20\u00a0% en 5 minutos, avisar a todos los canales (Grave).",
  );
  expect(sentence(rule, names, languages.fr)).toBe(
    "Quand la part des refus sur la ressource payments dépasse 20\u00a0% en 5 minutes, prévenir tous les canaux (Sérieuse).",
  );
});

test("every metric has words, and every part of a filter is named", () => {
  const filter = { control_id: 1, bouncer_id: 2, subject_id: "ada" };
  for (const i18n of Object.values(languages)) {
    for (const metric of metrics) {
      const text = sentence(
        { ...rule, trigger: { ...rule.trigger, metric, filter }, channel_ids: [3, 4] },
        names,
        i18n,
      );
      expect(text).not.toMatch(/[{}_]/);
      for (const part of ["control 1", "2", "ada", "channel 3", "channel 4"]) expect(text).toContain(part);
    }
  }
});

test("lengths of time are in the largest unit", () => {
  expect([60, 90, 300, 3600, 5400, 86_400].map((s) => span(s, languages.en))).toEqual([
    "1 minute",
    "90 seconds",
    "5 minutes",
    "1 hour",
    "90 minutes",
    "1 day",
  ]);
  expect(again({ cooldown_seconds: 0, max_fires_per_day: 1 }, languages.en)).toContain("each evaluation");
  expect(again({}, languages.en)).toBe("While that lasts, again after 1 hour, at most 10 times a day.");
});

test("a preview says how often, and over how long", () => {
  const preview = {
    since: "2026-11-16T12:00:00Z",
    until: "2026-11-23T12:00:00Z",
    would_have_fired: 3,
    would_have_resolved: 3,
    evaluations: 10_080,
    evaluations_held: 9,
    highest_value: 40,
    firings: [],
  };
  expect(foretold(preview, languages.en)).toBe("It would have fired 3 times in the last 7 days.");
  expect(foretold({ ...preview, would_have_fired: 0 }, languages.en)).toBe(
    "It would not have fired in the last 7 days.",
  );
  expect(foretold({ ...preview, since: "2026-11-23T11:40:00Z" }, languages.en)).toContain("1 hour");
});

test("only what the metric can be filtered by is sent", () => {
  const form = {
    operator: ">",
    threshold: 1,
    resource: " 42 ",
    control: 7,
    bouncer: null,
    subject: "",
    event: "X",
    source: 5,
  } as const;
  expect(triggerOf({ ...form, metric: "denial_count" })).toEqual({
    metric: "denial_count",
    filter: { resource_id: "42", control_id: 7 },
    operator: ">",
    threshold: 1,
  });
  expect(triggerOf({ ...form, metric: "audit_event_count" }).filter).toEqual({ event_type: "X" });
  expect(triggerOf({ ...form, metric: "data_source_age" }).filter).toEqual({ connection_id: 5 });
  expect(triggerOf({ ...form, metric: "denial_count", resource: "", control: null })).not.toHaveProperty("filter");
});

import { MultiSelect, Select, Switch, TextInput } from "@mantine/core";
import { useState } from "react";
import { useI18n } from "../../i18n";
import { dayName, type Hours, weekdays } from "./quiet";

const passing = ["warning", "error", "critical"] as const;

/** The fields of a channel's quiet hours; null: it has none. */
export function QuietFields({
  value,
  change,
  digests,
  at,
}: {
  value: Hours | null;
  change: (value: Hours | null) => void;
  /** Whether what is held becomes one digest. */
  digests: boolean;
  at: (pointer: string) => string | undefined;
}) {
  const { t, language } = useI18n();
  // What was filled in comes back when the hours are switched off and on.
  const [last, setLast] = useState<Hours>(
    value ?? { from: "22:00", to: "07:00", time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone },
  );
  const set = (next: Partial<Hours>) => {
    const hours = { ...last, ...next };
    setLast(hours);
    change(hours);
  };
  const zone = last.time_zone ?? "UTC";
  const zones = new Set([zone, "UTC", ...Intl.supportedValuesOf("timeZone")]);
  return (
    <fieldset className="gh-pairs" style={{ justifyItems: "stretch" }}>
      <legend>{t("notifications.quiet")}</legend>
      <Switch
        label={t("notifications.quietOn")}
        description={digests ? t("notifications.quietOnAbout") : t("notifications.quietOnEach")}
        checked={value !== null}
        onChange={(e) => change(e.currentTarget.checked ? last : null)}
      />
      {value !== null && (
        <>
          <TextInput
            type="time"
            name="quiet-from"
            label={t("notifications.quietFrom")}
            required
            value={last.from}
            error={at("/quiet_hours/from")}
            onChange={(e) => set({ from: e.currentTarget.value })}
          />
          <TextInput
            type="time"
            name="quiet-to"
            label={t("notifications.quietTo")}
            required
            value={last.to}
            error={at("/quiet_hours/to")}
            onChange={(e) => set({ to: e.currentTarget.value })}
          />
          <Select
            label={t("notifications.quietZone")}
            data={[...zones]}
            value={zone}
            error={at("/quiet_hours/time_zone")}
            onChange={(next) => set({ time_zone: next ?? "UTC" })}
            searchable
            limit={50}
            allowDeselect={false}
          />
          <MultiSelect
            label={t("notifications.quietDays")}
            description={t("notifications.quietDaysAbout")}
            data={weekdays.map((day) => ({ value: day, label: dayName(day, language) }))}
            value={last.days ?? []}
            error={at("/quiet_hours/days")}
            onChange={(days) => set({ days: weekdays.filter((day) => days.includes(day)) })}
          />
          <Select
            label={t("notifications.quietExcept")}
            data={passing.map((severity) => ({ value: severity, label: t(`notifications.severity_${severity}`) }))}
            value={last.except_severity ?? "critical"}
            onChange={(next) => set({ except_severity: passing.find((s) => s === next) ?? "critical" })}
            allowDeselect={false}
          />
        </>
      )}
    </fieldset>
  );
}

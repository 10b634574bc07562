import type { Schemas } from "../../api/client";
import type { I18n } from "../../i18n";

export type Hours = NonNullable<Schemas["NotifyQuietHours"]>;

export const weekdays = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] as const;

/** The name of a day of the week. */
export function dayName(day: (typeof weekdays)[number], language: string): string {
  // The first of January 2024 was a Monday.
  const date = new Date(Date.UTC(2024, 0, 1 + weekdays.indexOf(day)));
  return new Intl.DateTimeFormat(language, { weekday: "long", timeZone: "UTC" }).format(date);
}

/** Quiet hours in words. */
export function inWords(hours: Hours, { t, word, list, language }: I18n): string {
  const days = weekdays.filter((day) => hours.days?.includes(day));
  return t("notifications.quietSays", {
    from: hours.from,
    to: hours.to,
    zone: hours.time_zone ?? "UTC",
    days: days.length === 0 ? t("notifications.quietEvery") : list(days.map((day) => dayName(day, language))),
    severity: word("notifications", "severity", hours.except_severity ?? "critical"),
  });
}

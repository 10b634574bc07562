import { expect, test } from "vitest";
import { translator } from "../../i18n";
import { en, es } from "../../test/words";
import { dayName, inWords, weekdays } from "./quiet";

test("quiet hours read as words", () => {
  const hours = { from: "22:00", to: "07:00", time_zone: "Europe/Dublin", except_severity: "error" as const };
  expect(inWords(hours, translator("en", en))).toBe(
    "22:00 to 07:00 (Europe/Dublin), every day. Sent even so: Serious and above.",
  );
  expect(inWords({ ...hours, days: ["sunday", "monday"] }, translator("es", es))).toContain("lunes y domingo");
});

test("the days of the week follow each other", () => {
  expect(weekdays.map((day) => dayName(day, "en").toLowerCase())).toEqual([...weekdays]);
});

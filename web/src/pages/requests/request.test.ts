import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { isOwn, nextEnd, secondsOf, spanOf } from "./request";

const now = Date.parse("2026-11-24T12:00:00Z");
const grant = (status: string, expires_at: string | null) => ({ status, expires_at }) as Schemas["AccessRequest"];

test("the next end is that of a grant that still lasts", () => {
  expect(nextEnd([], now)).toBeUndefined();
  expect(nextEnd([grant("pending", null), grant("revoked", "2026-11-24T12:01:00Z")], now)).toBeUndefined();
  expect(nextEnd([grant("approved", "2026-11-24T11:59:00Z")], now)).toBeUndefined();
  // A timer cannot wait for weeks.
  expect(nextEnd([grant("approved", "2026-12-24T12:00:00Z")], now)).toBeUndefined();
  expect(nextEnd([grant("approved", "2026-11-24T13:00:00Z"), grant("approved", "2026-11-24T12:05:00Z")], now)).toBe(
    Date.parse("2026-11-24T12:05:00Z"),
  );
});

test("an open request ends when it lapses", () => {
  const open = { status: "pending", expires_at: null, lapses_at: "2026-11-24T12:10:00Z" } as Schemas["AccessRequest"];
  expect(nextEnd([open], now)).toBe(Date.parse("2026-11-24T12:10:00Z"));
  expect(nextEnd([{ ...open, status: "withdrawn" }], now)).toBeUndefined();
});

test("a length of time is whole seconds, or none", () => {
  expect(secondsOf({ amount: "", unit: "hours" })).toBeUndefined();
  expect(secondsOf({ amount: 1.5, unit: "hours" })).toBe(5400);
  expect(secondsOf({ amount: "2", unit: "days" })).toBe(172_800);
  expect(secondsOf({ amount: 0, unit: "minutes" })).toBe(0);
  for (const seconds of [60, 90, 3600, 5400, 86_400, 129_600]) expect(secondsOf(spanOf(seconds))).toBe(seconds);
  expect(spanOf(7200)).toEqual({ amount: 2, unit: "hours" });
});

test("a request is one's own by id, user name and address", () => {
  const me = { id: "u-7", username: "ada", email: "ada@example.com" };
  for (const subject of ["u-7", "ADA", "ada@example.com"]) {
    expect(isOwn(subject, me)).toBe(true);
  }
  expect(isOwn("bob", me)).toBe(false);
});

import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { isOwn, nextEnd } from "./request";

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

test("a request is one's own by id, user name and address", () => {
  const me = { id: "u-7", username: "ada", email: "ada@example.com" };
  for (const subject of ["u-7", "ADA", "ada@example.com"]) {
    expect(isOwn(subject, me)).toBe(true);
  }
  expect(isOwn("bob", me)).toBe(false);
});

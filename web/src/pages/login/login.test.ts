import { describe, expect, it } from "vitest";
import { safeNext } from "./Login";

describe("safeNext", () => {
  it.each([
    ["/policies/3?environment=production", "/policies/3?environment=production"],
    [null, "/"],
    ["", "/"],
    ["https://evil.example", "/"],
    ["//evil.example", "/"],
    ["/\\evil.example", "/"],
    ["/\t/evil.example", "/"],
    ["/\n\\evil.example/x", "/"],
    ["/\\\t/evil.example", "/"],
    ["javascript:alert(1)", "/"],
    ["/.//evil.example", "/"],
    ["/x/..//evil.example", "/"],
    ["/x//y", "/x//y"],
    ["/login", "/"],
    ["/login?next=%2Flogin", "/"],
  ])("of %s goes to %s", (next, to) => expect(safeNext(next)).toBe(to));
});

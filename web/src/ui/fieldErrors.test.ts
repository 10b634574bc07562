import { expect, test } from "vitest";
import { ApiError } from "../api/client";
import { fieldErrors } from "./fieldErrors";

const refusal = (...pointers: string[]) =>
  new ApiError(
    422,
    { error: "validation_failed", details: pointers.map((pointer) => ({ pointer, message: `of ${pointer}` })) },
    "",
  );

test("what is wrong stands at its field, and is not said twice", () => {
  const { at, rest } = fieldErrors(refusal("/issuer", "/role_map/staff/0"), ["/issuer", "/role_map"]);
  expect(at("/issuer")).toBe("of /issuer");
  expect(at("/role_map")).toBe("of /role_map/staff/0");
  expect(at("/role")).toBeUndefined();
  expect(rest).toBeNull();
});

test("what is of no field is left for the panel", () => {
  const other = refusal("/issuer", "/unknown");
  expect(fieldErrors(other, ["/issuer"]).rest).toBe(other);
  const bare = new ApiError(403, { error: "permission_denied" }, "");
  expect(fieldErrors(bare, ["/issuer"]).rest).toBe(bare);
  expect(fieldErrors(null, ["/issuer"]).rest).toBeNull();
  expect(fieldErrors(new Error("x"), ["/issuer"]).rest).toBeInstanceOf(Error);
});

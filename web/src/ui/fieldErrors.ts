import { ApiError } from "../api/client";

/**
 * What the API found wrong, by field: at("/issuer") is what it says of that member, or of what is in it. `rest` is the
 * error where it says something that is of none of the fields, for the panel below them.
 */
export function fieldErrors(
  error: unknown,
  fields: string[],
): { at: (pointer: string) => string | undefined; rest: unknown } {
  const details = error instanceof ApiError ? error.details : [];
  const of = (pointer: string, field: string) => pointer === field || pointer.startsWith(`${field}/`);
  const at = (field: string) =>
    details
      .filter((d) => d.pointer && of(d.pointer, field))
      .map((d) => d.message)
      .join(" ") || undefined;
  const placed = details.length > 0 && details.every((d) => fields.some((f) => d.pointer && of(d.pointer, f)));
  return { at, rest: error && !placed ? error : null };
}

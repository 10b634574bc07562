import { createHmac, timingSafeEqual } from "node:crypto";

export function genuine(secret, body, header) {
  const expected = Buffer.from("sha256=" + createHmac("sha256", secret).update(body).digest("hex"));
  const came = Buffer.from(header);
  return came.length === expected.length && timingSafeEqual(came, expected);
}

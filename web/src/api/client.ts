import createClient, { type Middleware } from "openapi-fetch";
import createHooks from "openapi-react-query";
import type { components, paths } from "./schema";

/** Schemas of the API, such as Schemas["Policy"]. */
export type Schemas = components["schemas"];
export type Environment = "sandbox" | "production";

/** What the API refused, or what kept the request from reaching it. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly details: Schemas["FaultDetail"][];
  /** Seconds to wait before trying again, of a 429. */
  readonly retryAfter: number;
  /** What a sign-in with a second factor is completed with; empty: nothing is asked for. */
  readonly challenge: string;

  constructor(status: number, body: unknown, requestId: string) {
    const fields = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
    const message = [fields.message, fields.detail, fields.error_description].find((m) => typeof m === "string");
    super(typeof message === "string" ? message : `HTTP ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = typeof fields.error === "string" ? fields.error : "";
    this.requestId = typeof fields.request_id === "string" ? fields.request_id : requestId;
    this.challenge = typeof fields.challenge === "string" ? fields.challenge : "";
    this.retryAfter = typeof fields.retry_after === "number" ? fields.retry_after : 0;
    const details = fields.details ?? fields.errors;
    this.details = Array.isArray(details) ? (details as Schemas["FaultDetail"][]) : [];
  }
}

// What goes with each request. The tenant is set by platform administrators who
// look at another tenant than their own; the language is the person's choice.
const sent = { language: "en", tenant: "" };
let onSignedOut: () => void = () => {};
let onMustEnrol: () => void = () => {};

export const session = {
  setLanguage: (language: string) => {
    sent.language = language;
  },
  setTenant: (tenant: string) => {
    sent.tenant = tenant;
  },
  tenant: () => sent.tenant,
  /** Calls back when a request was refused because nobody is signed in. */
  whenSignedOut: (call: () => void) => {
    onSignedOut = call;
  },
  /** Calls back when a request was refused because a second factor must be enrolled first. */
  whenMustEnrol: (call: () => void) => {
    onMustEnrol = call;
  },
};

let lastInput = Date.now();
for (const event of ["pointerdown", "keydown", "wheel"]) {
  window.addEventListener(event, () => (lastInput = Date.now()), { capture: true, passive: true });
}

/** The answer with its ETag in the body, where a query keeps it beside what it is the version of. */
async function tagged(response: Response): Promise<Response | undefined> {
  const etag = response.headers.get("ETag");
  if (!etag || !response.headers.get("Content-Type")?.startsWith("application/json")) return undefined;
  const body: unknown = await response.clone().json();
  if (typeof body !== "object" || body === null || Array.isArray(body)) return undefined;
  return Response.json({ ...body, etag }, { status: response.status, headers: response.headers });
}

/**
 * The header of a change that builds on what is shown: who changed it meanwhile is not undone (412). An object that
 * came in a list has its version alone.
 */
export function ifMatch(shown: { etag: string } | { version: number }): { "If-Match": string } {
  return { "If-Match": "etag" in shown ? shown.etag : `"${shown.version}"` };
}

const middleware: Middleware = {
  onRequest({ request }) {
    request.headers.set("Accept-Language", sent.language);
    if (sent.tenant) request.headers.set("X-Tenant-ID", sent.tenant);
    // What nobody at the screen asked for does not lengthen the session.
    if (Date.now() - lastInput > 60_000) request.headers.set("X-Background", "1");
    return request;
  },
  async onResponse({ request, response }) {
    if (response.ok) return tagged(response);
    const body = await response
      .clone()
      .json()
      .catch(() => undefined);
    const signingIn = /\/auth\/(me|sessions|sessions\/redeem|sessions\/second-factor)$/.test(
      new URL(request.url).pathname,
    );
    if (response.status === 401 && !signingIn) onSignedOut();
    const refusal = new ApiError(response.status, body, response.headers.get("X-Request-ID") ?? "");
    if (refusal.code === "second_factor_enrolment_required") onMustEnrol();
    throw refusal;
  },
  onError({ error }) {
    if (error instanceof ApiError || (error instanceof DOMException && error.name === "AbortError")) return undefined;
    return new ApiError(0, { error: "network" }, "");
  },
};

/** The typed client. Failures throw ApiError, so `data` is there after an await. */
export const client = createClient<paths>({ baseUrl: window.location.origin, credentials: "same-origin" });
client.use(middleware);

/** Hooks: api.useQuery("get", "/api/v1/policies", …), api.useMutation(…). */
export const api = createHooks(client);

/** The body of an answer of the client. Refusals have thrown before. */
export function must<T>(answer: { data?: T }): T {
  return answer.data as T;
}

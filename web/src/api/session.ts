import { client, type Schemas } from "./client";

/** Signs in. The server answers with a cookie that no script can read. */
export async function signIn(username: string, password: string): Promise<void> {
  await client.POST("/api/v1/auth/sessions", { body: { username, password } });
}

/** Completes a sign-in whose password was right, with a code of the authenticator app or a recovery code. */
export async function answerChallenge(challenge: string, code: string): Promise<void> {
  await client.POST("/api/v1/auth/sessions/second-factor", { body: { challenge, code } });
}

/** Signs in with the link that the server prints at its first start. It works once. */
export async function signInByLink(link: string): Promise<void> {
  await client.POST("/api/v1/auth/sessions/redeem", { body: { link } });
}

/** What is given with the address of the sign-in form to end the session there. */
export const signingOut = "sign out";

/**
 * Ends the session, and answers where to go on: at the identity provider, or nowhere. Nothing may be asked for any
 * more: the sign-in form calls it, once the screens are gone.
 */
export async function signOut(): Promise<string> {
  const answer = await client.POST("/api/v1/auth/logout").catch(() => undefined);
  return answer?.data?.end_session_url ?? "";
}

/** How people of a tenant can sign in; of the tenant of the host name for none. */
export async function signOnOffer(tenant: string): Promise<Schemas["SignonOffer"] | null> {
  const headers = tenant ? { "X-Tenant-ID": tenant } : {};
  const answer = await client.GET("/api/v1/auth/sso", { headers }).catch(() => undefined);
  return answer?.data ?? null;
}

/** The address that leads to the tenant's identity provider, and after the sign-in to a path of this console. */
export function signOnAddress(tenant: string, next: string): string {
  const query = new URLSearchParams({ return_to: next });
  if (tenant) query.set("tenant_id", tenant);
  return `/api/v1/auth/sso/login?${query}`;
}

/** The token of a sign-in link in an address's fragment, #link=…; empty: there is none. */
export function linkOf(hash: string): string {
  return new URLSearchParams(hash.replace(/^#/, "")).get("link") ?? "";
}

import { client } from "./client";

/** Signs in. The server answers with a cookie that no script can read. */
export async function signIn(username: string, password: string): Promise<void> {
  await client.POST("/api/v1/auth/sessions", { body: { username, password } });
}

/** Signs in with the link that the server prints at its first start. It works once. */
export async function signInByLink(link: string): Promise<void> {
  await client.POST("/api/v1/auth/sessions/redeem", { body: { link } });
}

/** What is given with the address of the sign-in form to end the session there. */
export const signingOut = "sign out";

/** Ends the session. Nothing may be asked for any more: the sign-in form calls it, once the screens are gone. */
export async function signOut(): Promise<void> {
  await client.POST("/api/v1/auth/logout").catch(() => undefined);
}

/** The token of a sign-in link in an address's fragment, #link=…; empty: there is none. */
export function linkOf(hash: string): string {
  return new URLSearchParams(hash.replace(/^#/, "")).get("link") ?? "";
}

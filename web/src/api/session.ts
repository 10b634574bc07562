import { client, must, session } from "./client";

/** Signs in. The tenant is named where it is not the one of the address. */
export async function signIn(username: string, password: string): Promise<void> {
  const grant = must(await client.POST("/api/v1/auth/login", { body: { username, password } }));
  session.setToken(grant.access_token);
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await client.POST("/api/v1/auth/logout").catch(() => undefined);
  session.setToken("");
}

import { setNonce } from "get-nonce";

// The server writes a nonce of each request into this element.
export const nonce = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce ?? "";

export function installNonce(): void {
  if (nonce) setNonce(nonce);
}

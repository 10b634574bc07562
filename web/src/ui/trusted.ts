// The default policy of Trusted Types. Mantine writes style sheets through
// innerHTML; they hold no "<". Everything that could be markup is refused.
interface PolicyFactory {
  createPolicy(name: string, rules: { createHTML(text: string): string }): unknown;
}

export function refuseMarkup(text: string): string {
  if (text.includes("<")) throw new TypeError("markup from a string is refused");
  return text;
}

export function installTrustedTypes(): void {
  const factory = (window as unknown as { trustedTypes?: PolicyFactory }).trustedTypes;
  factory?.createPolicy("default", { createHTML: refuseMarkup });
}

// What a shell takes as one word as it stands.
const plain = /^[\w.:/@%+,=-]+$/;

/** A value as one word of a shell command, whatever it holds. */
function word(value: string): string {
  return plain.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;
}

/** The command that starts a bouncer of exactly this deployment. */
export function bouncerCommand(origin: string, token: string, target: string, port: number): string {
  return [
    `GATEHOUSE_URL=${word(origin)} \\`,
    `GATEHOUSE_BOUNCER_TOKEN=${word(token)} \\`,
    `GATEHOUSE_BOUNCER_UPSTREAM=${word(`http://${target}`)} \\`,
    `GATEHOUSE_BOUNCER_LISTEN=0.0.0.0:${port} \\`,
    "gatehouse bouncer",
  ].join("\n");
}

import { useI18n } from "../i18n";

export type Tone = "good" | "bad" | "warn" | "info" | "neutral";

const marks: Record<Tone, string> = { good: "✓", bad: "✕", warn: "!", info: "●", neutral: "○" };

/** A short word of state with a colour and a mark, so that colour never says it alone. */
export function Status({ tone = "neutral", children }: { tone?: Tone; children: string }) {
  return (
    <span className="gh-status" data-tone={tone} data-mark={marks[tone]}>
      {children}
    </span>
  );
}

const tones: Record<string, Tone> = {
  PERMIT: "good",
  ALLOW: "good",
  DENY: "bad",
  MASK: "warn",
  NO_MATCH: "neutral",
  SHADOW_WOULD_DENY: "bad",
  SHADOW_WOULD_MASK: "warn",
  active: "good",
  enabled: "good",
  draft: "info",
  inactive: "neutral",
  connected: "good",
  degraded: "warn",
  disconnected: "bad",
  running: "info",
  completed: "good",
  failed: "bad",
  succeeded: "good",
  cancelled: "neutral",
  disabled: "neutral",
  suspended: "warn",
  deleted: "neutral",
  in_progress: "info",
  pending: "info",
  synced: "good",
  delivered: "good",
  sent: "good",
  success: "good",
  held: "info",
  digested: "good",
  dlq: "bad",
  dead: "bad",
  verified: "good",
  approved: "good",
  denied: "bad",
  revoked: "neutral",
  expired: "bad",
  withdrawn: "neutral",
  superseded: "neutral",
  enforce: "good",
  shadow: "info",
  production: "warn",
  sandbox: "info",
};

/** A value of the API that names a state, such as DENY, active or degraded, in the person's language. */
export function StatusOf({ value }: { value: string }) {
  const { word } = useI18n();
  return <Status tone={tones[value] ?? "neutral"}>{word("common", "state", value)}</Status>;
}

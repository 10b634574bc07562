import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";

/** Shows who asked, or that the caller is anonymous. */
export function Subject({ decision }: { decision: Schemas["AuditDecision"] }) {
  const { t } = useI18n();
  if (!decision.user.id && !decision.user.email) return <span className="gh-dim">{t("decisions.anonymous")}</span>;
  return <span title={decision.user.email}>{decision.user.id || decision.user.email}</span>;
}

import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ShownOnce } from "../../ui/ShownOnce";

export type Issued = Schemas["WebhookIssued"];

/** The secret that signs what is sent. It is shown once. */
export function Secret({ issued, close }: { issued: Issued; close: () => void }) {
  const { t } = useI18n();
  if (!issued.secret) return null;
  return (
    <ShownOnce
      title={t("webhooks.secretOf", { name: issued.name })}
      note={t("webhooks.secretOnce")}
      label={t("webhooks.secret")}
      secret={issued.secret}
      close={close}
    >
      <p className="gh-dim gh-flat">{t("webhooks.recipe")}</p>
    </ShownOnce>
  );
}

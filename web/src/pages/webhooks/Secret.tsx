import { Button } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { Panel } from "../../ui/PageHeader";

export type Issued = Schemas["WebhookIssued"];

/** The secret that signs what is sent. It is shown once. */
export function Secret({ issued, close }: { issued: Issued; close: () => void }) {
  const { t } = useI18n();
  if (!issued.secret) return null;
  return (
    <Panel title={t("webhooks.secretOf", { name: issued.name })} style={{ marginBottom: 16 }}>
      <div className="gh-stack" style={{ gap: 10 }} role="status">
        <p className="gh-note gh-flat" data-tone="warn">
          {t("webhooks.secretOnce")}
        </p>
        <Copyable label={t("webhooks.secret")} text={issued.secret} />
        <p className="gh-dim gh-flat">{t("webhooks.recipe")}</p>
        <div>
          <Button variant="default" onClick={close}>
            {t("keys.stored")}
          </Button>
        </div>
      </div>
    </Panel>
  );
}

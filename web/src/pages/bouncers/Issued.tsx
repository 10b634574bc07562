import { Button } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { Panel } from "../../ui/PageHeader";
import { bouncerCommand } from "./command";

/** A bouncer's token, shown this once, in the command that starts it, and as a stock OPA's configuration. */
export function Issued({ issued, close }: { issued: Schemas["BouncerIssued"]; close: () => void }) {
  const { t } = useI18n();
  return (
    <Panel title={t("bouncers.issued", { name: issued.name })} style={{ marginBottom: 16 }}>
      <div className="gh-stack" style={{ gap: 10 }} role="status">
        <p className="gh-note" data-tone="warn" style={{ margin: 0 }}>
          {t("bouncers.once")}
        </p>
        <Copyable
          label={t("bouncers.command")}
          text={bouncerCommand(
            window.location.origin,
            issued.token,
            issued.target_app || "127.0.0.1:3000",
            issued.port,
          )}
        />
        <details>
          <summary>{t("bouncers.opa")}</summary>
          <Copyable label={t("bouncers.opa")} text={issued.opa_config} />
        </details>
        <div>
          <Button variant="default" onClick={close}>
            {t("bouncers.stored")}
          </Button>
        </div>
      </div>
    </Panel>
  );
}

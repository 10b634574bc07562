import { Button } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { Panel } from "../../ui/PageHeader";

/** A new key, which is shown this once, with a request that uses it. */
export function ShowKey({ issued, close }: { issued: Schemas["AuthKey"]; close: () => void }) {
  const { t } = useI18n();
  const key = issued.key ?? "";
  return (
    <Panel title={t("keys.made", { name: issued.name })} style={{ marginBottom: 16 }}>
      <div className="gh-stack" style={{ gap: 10 }} role="status">
        <p className="gh-note" data-tone="warn" style={{ margin: 0 }}>
          {t("keys.once")}
        </p>
        <Copyable label={t("keys.key")} text={key} />
        <Copyable
          label={t("keys.tryIt")}
          text={`curl -s ${window.location.origin}/api/v1/auth/me -H 'X-API-Key: ${key}'`}
        />
        <div>
          <Button variant="default" onClick={close}>
            {t("keys.stored")}
          </Button>
        </div>
      </div>
    </Panel>
  );
}

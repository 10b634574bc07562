import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { ShownOnce } from "../../ui/ShownOnce";

/** A new key, which is shown this once, with a request that uses it. */
export function ShowKey({ issued, close }: { issued: Schemas["AuthKey"]; close: () => void }) {
  const { t } = useI18n();
  const key = issued.key ?? "";
  return (
    <ShownOnce
      title={t("keys.made", { name: issued.name })}
      note={t("keys.once")}
      label={t("keys.key")}
      secret={key}
      close={close}
    >
      <Copyable
        label={t("keys.tryIt")}
        text={`curl -s ${window.location.origin}/api/v1/auth/me -H 'X-API-Key: ${key}'`}
      />
    </ShownOnce>
  );
}

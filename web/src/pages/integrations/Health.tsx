import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Status, StatusOf } from "../../ui/Status";

/** Whether an integration takes what is sent to it. */
export function Health({ of: i }: { of: Schemas["Integration"] }) {
  const { t } = useI18n();
  if (!i.enabled) return <StatusOf value="disabled" />;
  if (i.consecutive_failures === 0) return <StatusOf value="enabled" />;
  return <Status tone="bad">{t("integrations.failing", { count: i.consecutive_failures })}</Status>;
}

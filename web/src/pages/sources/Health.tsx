import { useI18n } from "../../i18n";
import { Status, type Tone } from "../../ui/Status";
import type { Source } from "./source";

const tones: Record<Source["health_status"], Tone> = {
  healthy: "good",
  stale: "warn",
  unhealthy: "bad",
  unknown: "neutral",
};

/** Whether the data of a source is current, old or missing. */
export function Health({ of }: { of: Source["health_status"] }) {
  const { t } = useI18n();
  return <Status tone={tones[of]}>{t(`sources.health_${of}`)}</Status>;
}

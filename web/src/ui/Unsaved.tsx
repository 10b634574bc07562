import { useEffect } from "react";
import { useBlocker } from "react-router";
import { useI18n } from "../i18n";
import { ConfirmDialog } from "./ConfirmDialog";

/** Asks before a screen is left, or the tab is closed, while something on it is not stored. One a screen. */
export function Unsaved({ when, object }: { when: boolean; object: string }) {
  const { t } = useI18n();
  const blocker = useBlocker(
    ({ currentLocation, nextLocation }) => when && currentLocation.pathname !== nextLocation.pathname,
  );
  useEffect(() => {
    if (!when) return;
    const stay = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", stay);
    return () => window.removeEventListener("beforeunload", stay);
  }, [when]);
  return (
    <ConfirmDialog
      opened={blocker.state === "blocked"}
      close={() => blocker.reset?.()}
      title={t("common.leave")}
      object={object}
      plain
      about={t("common.leaveAbout")}
      action={t("common.leaveAction")}
      busy={false}
      confirm={() => blocker.proceed?.()}
    />
  );
}

import { Button } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import type { ConfirmProps } from "../../ui/Dialog";
import { Panel } from "../../ui/PageHeader";

export interface EntryPanelProps {
  name: string;
  environment?: ConfirmProps["environment"];
  /** Whether the person may change the entry. */
  write: boolean;
  /** Buttons before the usual ones. */
  first?: ReactNode;
  toggle: { enabled: boolean; busy: boolean; run: () => void };
  form: (close: () => void) => ReactNode;
  removal: { title: string; about: string; busy: boolean; error: unknown; reset: () => void; run: () => void };
  children: ReactNode;
}

/** One entry below its list, with what can be done with it: edit, turn on and off, delete. */
export function EntryPanel({ name, environment, write, first, toggle, form, removal, children }: EntryPanelProps) {
  const { t } = useI18n();
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  return (
    <Panel
      title={name}
      style={{ marginTop: 16 }}
      actions={
        write && (
          <>
            {first}
            <Button size="compact-sm" variant="default" onClick={() => setEditing(true)}>
              {t("common.edit")}
            </Button>
            <Button size="compact-sm" variant="default" loading={toggle.busy} onClick={toggle.run}>
              {toggle.enabled ? t("notifications.disable") : t("notifications.enable")}
            </Button>
            <Button size="compact-sm" variant="default" onClick={() => setRemoving(true)}>
              {t("common.delete")}
            </Button>
          </>
        )
      }
    >
      {children}
      {editing && form(() => setEditing(false))}
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          removal.reset();
        }}
        title={removal.title}
        object={name}
        environment={environment}
        about={removal.about}
        action={t("common.delete")}
        busy={removal.busy}
        error={removal.error}
        confirm={removal.run}
      />
    </Panel>
  );
}

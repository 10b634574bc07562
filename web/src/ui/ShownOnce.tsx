import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { useI18n } from "../i18n";
import { Copyable } from "./Copy";
import { Panel } from "./PageHeader";

/** A secret that no later answer contains, with what it goes into. It stays until the person says that it is stored. */
export function ShownOnce({
  title,
  note,
  label,
  secret,
  children,
  close,
}: {
  title: string;
  note: string;
  label: string;
  secret: string;
  children?: ReactNode;
  close: () => void;
}) {
  const { t } = useI18n();
  return (
    <Panel title={title} style={{ marginBottom: 16 }}>
      <div className="gh-stack" style={{ gap: 10 }} role="status">
        <p className="gh-note gh-flat" data-tone="warn">
          {note}
        </p>
        <Copyable label={label} text={secret} />
        {children}
        <div>
          <Button variant="default" onClick={close}>
            {t("common.stored")}
          </Button>
        </div>
      </div>
    </Panel>
  );
}

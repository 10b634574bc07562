import { ActionIcon, CopyButton, Tooltip } from "@mantine/core";
import { useI18n } from "../i18n";
import { Icon } from "./icons";

/** A command or a value with a button that copies it. */
export function Copyable({ text, label }: { text: string; label: string }) {
  const { t } = useI18n();
  return (
    <div className="gh-command">
      <pre tabIndex={0} role="region" aria-label={label}>
        {text}
      </pre>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? t("common.copied") : t("common.copy")}>
            <ActionIcon variant="default" size="lg" onClick={copy} aria-label={`${t("common.copy")}: ${label}`}>
              <Icon name={copied ? "check" : "copy"} />
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
    </div>
  );
}

import { Button, Group, Modal, Stack, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import type { Environment } from "../api/client";
import { useI18n } from "../i18n";
import { ErrorPanel } from "./ErrorPanel";
import { Status, StatusOf } from "./Status";

export interface ConfirmProps {
  opened: boolean;
  close: () => void;
  title: string;
  object: string;
  environment?: Environment;
  about: string;
  action: string;
  /** It touches nothing that is stored yet, or one member of an object: no environment is named. */
  plain?: boolean;
  /** The object's name is typed first. */
  mustType?: boolean;
  busy: boolean;
  error?: unknown;
  confirm: () => void;
  children?: ReactNode;
}

export interface DialogProps {
  opened: boolean;
  close: () => void;
  title: string;
  size?: string | number;
  children: ReactNode;
}

/** What ConfirmDialog shows. */
export function Confirm({
  opened,
  close,
  title,
  object,
  environment,
  about,
  action,
  plain = false,
  mustType = environment === "production",
  busy,
  error,
  confirm,
  children,
}: ConfirmProps) {
  const { t } = useI18n();
  const [typed, setTyped] = useState("");
  const end = () => {
    setTyped("");
    close();
  };
  return (
    <Dialog opened={opened} close={end} title={title}>
      <Stack gap="sm">
        <div className="gh-row">
          <strong style={{ overflowWrap: "anywhere" }}>{object}</strong>
          {environment && <StatusOf value={environment} />}
          {!environment && !plain && <Status tone="neutral">{t("common.wholeTenant")}</Status>}
        </div>
        <div>{about}</div>
        {children}
        {mustType && (
          <TextInput
            label={t("common.typeName", { name: object })}
            value={typed}
            onChange={(e) => setTyped(e.currentTarget.value)}
            autoComplete="off"
          />
        )}
        {error ? <ErrorPanel error={error} /> : null}
        <Group justify="flex-end">
          <Button variant="default" onClick={end}>
            {t("common.cancel")}
          </Button>
          <Button color="red" autoContrast loading={busy} disabled={mustType && typed !== object} onClick={confirm}>
            {action}
          </Button>
        </Group>
      </Stack>
    </Dialog>
  );
}

/** A dialog with a title. Mantine's own writes a second page header, which screen readers list as a landmark. */
export function Dialog({ opened, close, title, size = "md", children }: DialogProps) {
  const { t } = useI18n();
  return (
    <Modal.Root opened={opened} onClose={close} size={size} centered>
      <Modal.Overlay backgroundOpacity={0.45} />
      <Modal.Content>
        <Modal.Header component="div">
          <Modal.Title fw={650}>{title}</Modal.Title>
          <Modal.CloseButton aria-label={t("common.close")} />
        </Modal.Header>
        <Modal.Body>{children}</Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}

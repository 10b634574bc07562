import { Button, Group, Stack, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { useEnvironment } from "../../ui/scope";

/** The form with which people ask for access for themselves. */
export function NewRequest({ close }: { close: () => void }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const file = api.useMutation("post", "/access/v1/requests", {
    onSuccess: () => {
      refresh(queries, "resources");
      close();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name)).trim();
    file.mutate({
      params: { query: { environment } },
      body: {
        resource: { id: text("request-resource") },
        action: { name: text("request-action") },
        reason: text("request-reason"),
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("requests.new")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("requests.resource")}
            description={t("requests.resourceAbout")}
            name="request-resource"
            required
            maxLength={256}
            data-autofocus
          />
          <TextInput label={t("requests.action")} name="request-action" required maxLength={128} />
          <Textarea
            label={t("requests.reason")}
            description={t("requests.reasonAbout")}
            name="request-reason"
            required
            maxLength={500}
            autosize
            maxRows={6}
          />
          {file.error ? <ErrorPanel error={file.error} /> : null}
          <Group justify="flex-end">
            <Button type="submit" loading={file.isPending}>
              {t("requests.send")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

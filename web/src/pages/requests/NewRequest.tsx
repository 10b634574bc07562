import { Button, Group, Stack, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { useEnvironment } from "../../ui/scope";
import { Lasting } from "./Lasting";
import { type Span, secondsOf } from "./request";

/**
 * The form with which people ask for access for themselves, and with `glass` the form with which approvers open a
 * grant for somebody else in an emergency.
 */
export function NewRequest({ glass = false, close }: { glass?: boolean; close: () => void }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [span, setSpan] = useState<Span>({ amount: glass ? 1 : "", unit: "hours" });
  const done = {
    onSuccess: () => {
      refresh(queries, "resources");
      close();
    },
  };
  const file = api.useMutation("post", "/access/v1/requests", done);
  const open = api.useMutation("post", "/access/v1/requests/break-glass", done);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const seconds = secondsOf(span);
    const subject = text("request-subject");
    const request = {
      params: { query: { environment } },
      body: {
        resource: { id: text("request-resource") },
        action: { name: text("request-action") },
        reason: text("request-reason"),
        ...(subject ? { subject: { id: subject } } : {}),
        ...(seconds === undefined ? {} : { duration_seconds: seconds }),
      },
    };
    (glass ? open : file).mutate(request);
  };
  const error = glass ? open.error : file.error;
  const { at, rest } = fieldErrors(error, ["/subject/id", "/duration_seconds"]);
  return (
    <Dialog opened close={close} title={t(glass ? "requests.glassNew" : "requests.new")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          {glass && <p className="gh-flat gh-dim">{t("requests.glassAbout")}</p>}
          {glass && (
            <TextInput
              label={t("requests.subject")}
              description={t("requests.subjectAbout")}
              name="request-subject"
              required
              maxLength={256}
              error={at("/subject/id")}
              data-autofocus
            />
          )}
          <TextInput
            label={t("requests.resource")}
            description={t(glass ? "requests.glassResource" : "requests.resourceAbout")}
            name="request-resource"
            required
            maxLength={256}
            data-autofocus={glass ? undefined : true}
          />
          <TextInput label={t("requests.action")} name="request-action" required maxLength={128} />
          <Textarea
            label={t("requests.reason")}
            description={t(glass ? "requests.glassReason" : "requests.reasonAbout")}
            name="request-reason"
            required
            maxLength={500}
            autosize
            maxRows={6}
          />
          <Lasting
            span={span}
            change={setSpan}
            label={t(glass ? "requests.duration" : "requests.wanted")}
            about={t(glass ? "requests.glassDuration" : "requests.wantedAbout")}
            error={at("/duration_seconds")}
            required={glass}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          <Group justify="flex-end">
            <Button
              type="submit"
              loading={file.isPending || open.isPending}
              {...(glass ? { color: "red", autoContrast: true } : {})}
            >
              {t(glass ? "requests.glassOpen" : "requests.send")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

import { Button, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { Time } from "../../ui/Time";
import { Enrol, notConfirmed, RecoveryCodes } from "./Enrol";

const path = "/api/v1/auth/second-factor";

/** One's own second factor. */
export default function Security() {
  const { t, number } = useI18n();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<"" | "renew" | "disable">("");
  const [codes, setCodes] = useState<string[] | null>(null);
  const factor = api.useQuery("get", path);
  const reload = () => void queries.invalidateQueries({ queryKey: ["get", path] });
  const f = factor.data;
  return (
    <div className="gh-stack">
      <PageHeader title={t("nav.security")} about={t("security.about")} />
      {codes && <RecoveryCodes codes={codes} close={() => setCodes(null)} />}
      <Panel title={t("security.factor")}>
        {factor.error ? <ErrorPanel error={factor.error} retry={() => void factor.refetch()} /> : null}
        {!f && !factor.error ? <Skeleton label={t("security.factor")} /> : null}
        {f && !f.enrolled && (
          <>
            <p className="gh-flat">{t("security.none")}</p>
            <Enrol password done={reload} />
          </>
        )}
        {f?.enrolled && (
          <>
            <dl className="gh-facts">
              <dt>{t("security.state")}</dt>
              <dd>
                <Status tone="good">{t("security.on")}</Status>
              </dd>
              <dt>{t("security.since")}</dt>
              <dd>
                <Time at={f.enrolled_at} />
              </dd>
              <dt>{t("security.codesLeft")}</dt>
              <dd>{number(f.recovery_codes_left)}</dd>
            </dl>
            <p className="gh-row">
              <Button variant="default" onClick={() => setAsking("renew")}>
                {t("security.renew")}
              </Button>
              <Button variant="default" onClick={() => setAsking("disable")}>
                {t("security.disable")}
              </Button>
            </p>
          </>
        )}
      </Panel>
      {asking && (
        <Confirmed
          what={asking}
          close={() => setAsking("")}
          done={(fresh) => {
            setAsking("");
            setCodes(fresh);
            reload();
          }}
        />
      )}
    </div>
  );
}

/** Asks for the password and a code before something ends. */
function Confirmed({
  what,
  close,
  done,
}: {
  what: "renew" | "disable";
  close: () => void;
  done: (codes: string[] | null) => void;
}) {
  const { t } = useI18n();
  const renew = api.useMutation("post", "/api/v1/auth/second-factor/recovery-codes", {
    onSuccess: (answer) => done(answer.recovery_codes),
  });
  const disable = api.useMutation("post", "/api/v1/auth/second-factor/disable", { onSuccess: () => done(null) });
  const mutation = what === "renew" ? renew : disable;
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    mutation.mutate({ body: { password: String(form.get("password")), code: String(form.get("code")) } });
  };
  const wrong = notConfirmed(mutation.error);
  return (
    <Dialog opened close={close} title={t(`security.${what}`)}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <p className="gh-flat">{t(`security.${what}About`)}</p>
          <PasswordInput
            name="password"
            label={t("security.password")}
            autoComplete="current-password"
            required
            data-autofocus
            visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
          />
          <TextInput
            name="code"
            label={t("login.code")}
            description={t("login.codeAbout")}
            autoComplete="one-time-code"
            maxLength={64}
            required
            error={wrong ? t("security.confirmationWrong") : undefined}
          />
          {mutation.error && !wrong ? <ErrorPanel error={mutation.error} /> : null}
          <Button type="submit" loading={mutation.isPending}>
            {t(`security.${what}`)}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

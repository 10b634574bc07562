import { Button, PasswordInput, Stack, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { ApiError, api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Copyable } from "../../ui/Copy";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { ShownOnce } from "../../ui/ShownOnce";

/** Whether the server says that the password or the code is wrong. */
export const notConfirmed = (error: unknown) => error instanceof ApiError && error.code === "confirmation_failed";

/** The recovery codes, which no later answer contains. */
export function RecoveryCodes({ codes, close }: { codes: string[]; close: () => void }) {
  const { t } = useI18n();
  return (
    <ShownOnce
      title={t("security.codes")}
      note={t("security.codesNote")}
      label={t("security.codesText")}
      secret={codes.join("\n")}
      close={close}
    />
  );
}

/** Enrols a second factor: the password, the QR code, a first code, and the recovery codes. */
export function Enrol({ password: asked, done }: { password: boolean; done: () => void }) {
  const { t } = useI18n();
  const [codes, setCodes] = useState<string[] | null>(null);
  const begin = api.useMutation("post", "/api/v1/auth/second-factor");
  const confirm = api.useMutation("post", "/api/v1/auth/second-factor/confirm", {
    onSuccess: (answer) => setCodes(answer.recovery_codes),
  });
  const submitBegin = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const password = asked ? String(new FormData(event.currentTarget).get("password")) : "";
    begin.mutate({ body: password ? { password } : {} });
  };
  const submitCode = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    confirm.mutate({ body: { code: String(new FormData(event.currentTarget).get("code")) } });
  };
  if (codes) return <RecoveryCodes codes={codes} close={done} />;
  if (!begin.data) {
    const wrong = notConfirmed(begin.error);
    return (
      <form onSubmit={submitBegin}>
        <Stack gap="sm" maw={420}>
          {asked && (
            <PasswordInput
              name="password"
              label={t("security.password")}
              autoComplete="current-password"
              required
              withAsterisk={false}
              visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
              error={wrong ? t("security.passwordWrong") : undefined}
            />
          )}
          {begin.error && !wrong ? <ErrorPanel error={begin.error} /> : null}
          <div>
            <Button type="submit" loading={begin.isPending}>
              {t("security.enrol")}
            </Button>
          </div>
        </Stack>
      </form>
    );
  }
  const wrong = notConfirmed(confirm.error);
  return (
    <form onSubmit={submitCode}>
      <Stack gap="sm" maw={420}>
        <p className="gh-flat">{t("security.scan")}</p>
        <img
          src={`data:image/svg+xml,${encodeURIComponent(begin.data.qr_svg)}`}
          width={220}
          height={220}
          alt={t("security.qr")}
        />
        <p className="gh-flat">{t("security.typeSecret")}</p>
        <Copyable label={t("security.secret")} text={begin.data.secret} />
        <TextInput
          name="code"
          label={t("security.firstCode")}
          autoComplete="one-time-code"
          inputMode="numeric"
          maxLength={64}
          required
          withAsterisk={false}
          error={wrong ? t("security.codeWrong") : undefined}
        />
        {confirm.error && !wrong ? <ErrorPanel error={confirm.error} /> : null}
        <div>
          <Button type="submit" loading={confirm.isPending}>
            {t("security.confirm")}
          </Button>
        </div>
      </Stack>
    </form>
  );
}

import { Button, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useCallback, useEffect, useRef, useState } from "react";
import { useLocation, useNavigate, useSearchParams, within } from "react-router";
import { ApiError, type Schemas } from "../../api/client";
import {
  answerChallenge,
  linkOf,
  signIn,
  signInByLink,
  signingOut,
  signOnAddress,
  signOnOffer,
  signOut,
} from "../../api/session";
import { type Language, languages, useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";

/** Where to go after the sign-in: a path of this console, or the dashboard. An address of elsewhere is not followed. */
export function safeNext(next: string | null): string {
  const to = next?.startsWith("/") ? within(next) : null;
  return to && to.pathname !== "/login" ? to.pathname + to.search + to.hash : "/";
}

export default function Login() {
  const { t, word, language, setLanguage } = useI18n();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [params] = useSearchParams();
  const { state } = useLocation();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [byLink, setByLink] = useState(false);
  // The password was right, and a code is asked for.
  const [challenge, setChallenge] = useState("");
  useEffect(() => {
    document.title = `${t("login.title")} · gatehouse`;
  }, [t]);

  // The screens are gone, and with them the stream and the queries that would be refused without a session.
  const leaving = state === signingOut;
  useEffect(() => {
    queries.clear();
    if (!leaving) return;
    void signOut().then((elsewhere) => {
      if (elsewhere) window.location.assign(elsewhere);
      else void navigate("/login", { replace: true });
    });
  }, [leaving, navigate, queries]);

  const tenant = params.get("tenant_id") ?? "";
  // Why a sign-in at the identity provider failed: the code of the server's error.
  const failed = params.get("error") ?? "";
  const [offer, setOffer] = useState<Schemas["SignonOffer"] | null>(null);
  useEffect(() => {
    if (leaving) return;
    let current = true;
    void signOnOffer(tenant).then((o) => current && setOffer(o));
    return () => {
      current = false;
    };
  }, [leaving, tenant]);

  const enter = useCallback(
    async (sign: () => Promise<void>) => {
      setBusy(true);
      setError(null);
      try {
        await sign();
        queries.clear();
        await navigate(safeNext(params.get("next")), { replace: true });
      } catch (failure) {
        const refusal = failure instanceof ApiError ? failure : null;
        if (refusal?.challenge) return setChallenge(refusal.challenge);
        if (refusal?.code === "invalid_challenge") setChallenge("");
        setError(failure);
      } finally {
        setBusy(false);
      }
    },
    [navigate, params, queries],
  );
  // The link works once: it leaves the address bar first, and is sent once though effects run twice in development.
  const link = useRef(linkOf(window.location.hash));
  useEffect(() => {
    const token = link.current;
    if (!token) return;
    link.current = "";
    window.history.replaceState(window.history.state, "", window.location.pathname + window.location.search);
    setByLink(true);
    void enter(() => signInByLink(token));
  }, [enter]);

  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setByLink(false);
    await enter(() => signIn(String(form.get("username")), String(form.get("password"))));
  };
  const submitCode = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const code = String(new FormData(event.currentTarget).get("code"));
    await enter(() => answerChallenge(challenge, code));
  };
  const expired = error instanceof ApiError && error.code === "invalid_challenge";
  const wrongCode = error instanceof ApiError && error.code === "second_factor_invalid";
  const unauthenticated = error instanceof ApiError && error.status === 401;
  const refused = unauthenticated && !byLink && !expired && !wrongCode;
  const linkRefused = unauthenticated && byLink && !expired && !wrongCode;
  return (
    <div className="gh-login">
      <main>
        <span className="gh-brand">
          <img src="/favicon.svg" width="28" height="28" alt="" />
          <strong>gatehouse</strong>
        </span>
        <h1>{t("login.title")}</h1>
        <p className="gh-dim" style={{ marginTop: 0 }}>
          {params.has("next") ? t("login.ended") : t("login.about")}
        </p>
        {failed && !error && (
          <p className="gh-note" data-tone="warn" role="alert">
            {word("login", "error", failed) === failed ? t("login.error_other") : word("login", "error", failed)}
          </p>
        )}
        {offer?.available && !challenge && (
          <Button
            component="a"
            href={signOnAddress(tenant, safeNext(params.get("next")))}
            variant={offer.password_login ? "default" : "filled"}
            fullWidth
            style={{ marginBottom: 20 }}
          >
            {t("login.provider", { name: offer.name })}
          </Button>
        )}
        {linkRefused && (
          <p className="gh-note" data-tone="warn" role="alert" style={{ margin: 0 }}>
            {t("login.linkFailed")}
          </p>
        )}
        {expired && (
          <p className="gh-note" data-tone="warn" role="alert">
            {t("login.challengeExpired")}
          </p>
        )}
        {error && !refused && !linkRefused && !expired && !wrongCode ? <ErrorPanel error={error} /> : null}
        {challenge && (
          <form onSubmit={(event) => void submitCode(event)}>
            <Stack gap="sm">
              <TextInput
                name="code"
                label={t("login.code")}
                description={t("login.codeAbout")}
                autoComplete="one-time-code"
                autoCapitalize="none"
                spellCheck={false}
                maxLength={64}
                required
                autoFocus
                withAsterisk={false}
                error={wrongCode ? t("login.codeWrong") : undefined}
              />
              <Button type="submit" loading={busy || leaving} fullWidth>
                {t("login.action")}
              </Button>
              <Button
                variant="subtle"
                onClick={() => {
                  setChallenge("");
                  setError(null);
                }}
              >
                {t("login.otherAccount")}
              </Button>
            </Stack>
          </form>
        )}
        {offer?.password_login !== false && !challenge && (
          <form onSubmit={(event) => void submit(event)}>
            <Stack gap="sm">
              <TextInput
                name="username"
                label={t("login.username")}
                autoComplete="username"
                required
                autoFocus
                withAsterisk={false}
              />
              <PasswordInput
                name="password"
                label={t("login.password")}
                autoComplete="current-password"
                required
                withAsterisk={false}
                visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
                error={refused ? t("login.refused") : undefined}
              />
              <Button type="submit" loading={busy || leaving} fullWidth>
                {t("login.action")}
              </Button>
            </Stack>
          </form>
        )}
        <p className="gh-row" style={{ marginTop: 20, justifyContent: "center" }}>
          {(Object.keys(languages) as Language[]).map((l) => (
            <Button
              key={l}
              lang={l}
              size="compact-xs"
              variant={l === language ? "light" : "subtle"}
              aria-pressed={l === language}
              onClick={() => setLanguage(l)}
            >
              {languages[l]}
            </Button>
          ))}
        </p>
      </main>
    </div>
  );
}

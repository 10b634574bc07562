import { Button } from "@mantine/core";
import { useEffect } from "react";
import { useNavigate } from "react-router";
import { signingOut } from "../../api/session";
import { useI18n } from "../../i18n";
import { Enrol } from "./Enrol";

/** What somebody sees who must enrol a second factor before anything else. */
export default function MustEnrol({ done }: { done: () => void }) {
  const { t } = useI18n();
  const navigate = useNavigate();
  useEffect(() => {
    document.title = `${t("security.must")} · gatehouse`;
  }, [t]);
  return (
    <div className="gh-login">
      <main>
        <h1>{t("security.must")}</h1>
        <p className="gh-dim">{t("security.mustAbout")}</p>
        <Enrol password={false} done={done} />
        <Button variant="subtle" mt="md" onClick={() => void navigate("/login", { state: signingOut })}>
          {t("shell.signOut")}
        </Button>
      </main>
    </div>
  );
}

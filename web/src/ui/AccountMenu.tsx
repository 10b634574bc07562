import { Button, Menu, useMantineColorScheme } from "@mantine/core";
import { useNavigate } from "react-router";
import { signingOut } from "../api/session";
import { type Language, languages, useI18n } from "../i18n";
import { Icon } from "./icons";
import { useMe, useTo } from "./scope";

/** The menu of the account: language, colours, keys, sign-out. It opens at once, for it is loaded when asked for. */
export default function AccountMenu({ keys }: { keys: () => void }) {
  const { t, language, setLanguage } = useI18n();
  const { me } = useMe();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const navigate = useNavigate();
  const to = useTo();
  return (
    <Menu position="bottom-end" width={240} withinPortal defaultOpened>
      <Menu.Target>
        <Button
          variant="default"
          px={10}
          leftSection={<Icon name="user" />}
          aria-label={`${t("shell.account")}: ${me.username || me.email}`}
        >
          <span className="gh-only-wide">{me.username || me.email}</span>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{me.email || me.username}</Menu.Label>
        <Menu.Label>{t("shell.language")}</Menu.Label>
        {(Object.keys(languages) as Language[]).map((l) => (
          <Menu.Item
            key={l}
            lang={l}
            role="menuitemradio"
            aria-checked={l === language}
            rightSection={l === language ? <Icon name="check" /> : null}
            onClick={() => setLanguage(l)}
          >
            {languages[l]}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Label>{t("shell.scheme")}</Menu.Label>
        {(["light", "dark", "auto"] as const).map((s) => (
          <Menu.Item
            key={s}
            role="menuitemradio"
            aria-checked={s === colorScheme}
            rightSection={s === colorScheme ? <Icon name="check" /> : null}
            onClick={() => setColorScheme(s)}
          >
            {t(`shell.scheme_${s}`)}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Item leftSection={<Icon name="keyboard" />} rightSection={<kbd className="gh-kbd">?</kbd>} onClick={keys}>
          {t("shell.keys")}
        </Menu.Item>
        <Menu.Item component="a" href={`/devdocs?lang=${language}`} leftSection={<Icon name="book" />}>
          {t("shell.devdocs")}
        </Menu.Item>
        <Menu.Item onClick={() => navigate(to("/settings/security"))}>{t("nav.security")}</Menu.Item>
        <Menu.Item onClick={() => navigate("/login", { state: signingOut })}>{t("shell.signOut")}</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

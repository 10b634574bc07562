import { ActionIcon, Button } from "@mantine/core";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { NavLink, Outlet, Link as RouterLink, useLocation, useNavigate } from "react-router";
import type { Environment } from "../api/client";
import { useI18n } from "../i18n";
import { visible } from "../screens";
import { Icon } from "./icons";
import { useKeys } from "./keys";
import { useLive } from "./live";
import { address, Link, useEnvironment, useMe, useSwitchAddress } from "./scope";

const AccountMenu = lazy(() => import("./AccountMenu"));
const Palette = lazy(() => import("./Palette"));
const KeysDialog = lazy(() => import("./KeysDialog"));

const groups = ["overview", "controls", "estate", "people", "settings"] as const;

/** Whether a path is below another. */
const within = (path: string, above: string) => path.startsWith(above === "/" ? above : `${above}/`);

/** The frame of every screen: header, navigation, and what is asked for by keys. */
export function Shell() {
  const { t } = useI18n();
  const { me } = useMe();
  const environment = useEnvironment();
  const [open, setOpen] = useState(false);
  const [dialog, setDialog] = useState<"" | "palette" | "keys">("");
  const navigate = useNavigate();
  const { pathname } = useLocation();
  const main = useRef<HTMLElement>(null);
  const shown = visible(me.permissions, me.roles);
  useLive();
  useKeys({
    palette: () => setDialog("palette"),
    help: () => setDialog("keys"),
    go: (letter) => {
      const screen = shown.find((s) => s.nav?.key === letter);
      if (screen) void navigate(address(screen.path, environment));
    },
  });
  const before = useRef(pathname);
  useEffect(() => {
    if (before.current === pathname) return;
    before.current = pathname;
    setOpen(false);
    window.scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [pathname]);

  return (
    <>
      <a className="gh-skip" href="#main">
        {t("shell.skip")}
      </a>
      <div className="gh-frame">
        <header className="gh-top" data-environment={environment}>
          <ActionIcon
            className="gh-only-narrow"
            variant="default"
            aria-label={t("shell.menu")}
            aria-expanded={open}
            aria-controls="nav"
            onClick={() => setOpen(!open)}
          >
            <Icon name="menu" />
          </ActionIcon>
          <Link to="/" className="gh-brand" title={t("shell.home")}>
            <img src="/favicon.svg" width="24" height="24" alt="" />
            <span>gatehouse</span>
          </Link>
          <span className="gh-tenant" title={me.tenant_id}>
            {me.tenant_id}
          </span>
          <EnvironmentSwitch />
          <span className="gh-grow" />
          <button type="button" className="gh-find" onClick={() => setDialog("palette")}>
            <Icon name="search" />
            <span>{t("shell.search")}</span>
            <kbd aria-hidden="true">Ctrl K</kbd>
          </button>
          <Account keys={() => setDialog("keys")} />
        </header>
        <nav id="nav" className="gh-nav" data-open={open} aria-label={t("shell.nav")}>
          {groups.map((group) => {
            const items = shown.filter((s) => s.nav?.group === group);
            if (items.length === 0) return null;
            return (
              <div key={group}>
                <h2>{t(`shell.group_${group}`)}</h2>
                <ul>
                  {items.map((s) => (
                    <li key={s.path}>
                      <NavLink
                        to={address(s.path, environment)}
                        end={shown.some((o) => o !== s && within(o.path, s.path))}
                      >
                        {s.nav && <Icon name={s.nav.icon} />}
                        {s.nav && t(s.nav.title)}
                      </NavLink>
                    </li>
                  ))}
                </ul>
              </div>
            );
          })}
        </nav>
        <main id="main" className="gh-main" ref={main} tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      <Suspense>
        {dialog === "palette" && <Palette close={() => setDialog("")} />}
        {dialog === "keys" && <KeysDialog close={() => setDialog("")} />}
      </Suspense>
    </>
  );
}

function EnvironmentSwitch() {
  const { t } = useI18n();
  const { me } = useMe();
  const current = useEnvironment();
  const other = useSwitchAddress();
  const environments: Environment[] = me.environment ? [me.environment] : ["sandbox", "production"];
  return (
    <nav className="gh-segment" aria-label={t("shell.environment")}>
      {environments.map((e) => (
        <RouterLink key={e} to={other(e)} aria-current={e === current ? "true" : undefined} data-environment={e}>
          {t(`common.state_${e}`)}
        </RouterLink>
      ))}
    </nav>
  );
}

/** The account's button. Its menu, which positions itself by a good deal of script, comes with the first use. */
function Account({ keys }: { keys: () => void }) {
  const { t } = useI18n();
  const { me } = useMe();
  const [wanted, setWanted] = useState(false);
  const button = (
    <Button
      variant="default"
      px={10}
      leftSection={<Icon name="user" />}
      aria-label={`${t("shell.account")}: ${me.username || me.email}`}
      aria-haspopup="menu"
      aria-expanded={false}
      onClick={() => setWanted(true)}
    >
      <span className="gh-only-wide">{me.username || me.email}</span>
    </Button>
  );
  if (!wanted) return button;
  return (
    <Suspense fallback={button}>
      <AccountMenu keys={keys} />
    </Suspense>
  );
}

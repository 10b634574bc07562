import { lazy, Suspense, useEffect } from "react";
import { type RouteObject, useLocation, useNavigate, useRouteError } from "react-router";
import { ApiError, api, session } from "./api/client";
import { loadRest, useI18n } from "./i18n";
import { type Screen, screens } from "./screens";
import { Skeleton } from "./ui/DataTable";
import { Empty } from "./ui/Empty";
import { ErrorPanel } from "./ui/ErrorPanel";
import { PageHeader } from "./ui/PageHeader";
import { Shell } from "./ui/Shell";
import { Link, MeContext, useMe } from "./ui/scope";

const MustEnrol = lazy(async () => (await Promise.all([import("./pages/settings/MustEnrol"), loadRest()]))[0]);

/** Asks who is signed in before any screen is shown; nobody goes to the sign-in form, and comes back after it. */
function Gate() {
  const me = api.useQuery("get", "/api/v1/auth/me", {}, { staleTime: 60_000 });
  const navigate = useNavigate();
  const { pathname, search } = useLocation();
  const signedOut = me.error instanceof ApiError && me.error.status === 401;
  useEffect(() => {
    const leave = () => {
      const next = pathname + search;
      navigate(next === "/" ? "/login" : `/login?next=${encodeURIComponent(next)}`, { replace: true });
    };
    if (signedOut) leave();
    session.whenSignedOut(leave);
    return () => session.whenSignedOut(() => {});
  }, [signedOut, navigate, pathname, search]);
  const { refetch } = me;
  useEffect(() => {
    session.whenMustEnrol(() => void refetch());
    return () => session.whenMustEnrol(() => {});
  }, [refetch]);
  if (me.error && !signedOut) return <ErrorPanel error={me.error} retry={() => void me.refetch()} />;
  if (!me.data) return null;
  if (me.data.must_enrol_second_factor)
    return (
      <Suspense>
        <MustEnrol done={() => void refetch()} />
      </Suspense>
    );
  return (
    <MeContext.Provider value={me.data}>
      <Shell />
    </MeContext.Provider>
  );
}

function Waiting() {
  const { t } = useI18n();
  return <Skeleton label={t("common.page")} />;
}

function NotFound() {
  const { t } = useI18n();
  return (
    <>
      <PageHeader title={t("common.notFound")} />
      <Empty
        title={t("common.notFound")}
        about={t("common.notFoundAbout")}
        action={<Link to="/">{t("shell.home")}</Link>}
      />
    </>
  );
}

function Failed() {
  const { t } = useI18n();
  const error = useRouteError();
  return (
    <>
      <PageHeader title={t("common.failed")} />
      <ErrorPanel error={error} retry={() => window.location.reload()} />
    </>
  );
}

/** A screen behind its permission. The API refuses all the same; this says it in the console's words. */
function guarded(screen: Screen, Page: React.ComponentType) {
  return function Guarded() {
    const { me, can } = useMe();
    const { t } = useI18n();
    const elsewhere = screen.nav?.platform && !me.roles.includes("platform_admin");
    if (!elsewhere && (!screen.permission || can(screen.permission))) return <Page />;
    const permission = elsewhere ? "platform_admin" : (screen.permission ?? "");
    return (
      <>
        <PageHeader title={t("common.notAllowed")} />
        <Empty title={t("common.notAllowed")} about={t("common.notAllowedAbout", { permission })} />
      </>
    );
  };
}

export const routes: RouteObject[] = [
  {
    path: "/login",
    HydrateFallback: () => null,
    lazy: async () => ({ Component: (await import("./pages/login/Login")).default }),
  },
  {
    path: "/",
    Component: Gate,
    HydrateFallback: () => null,
    children: [
      {
        ErrorBoundary: Failed,
        HydrateFallback: Waiting,
        children: [
          ...screens.map(
            (screen): RouteObject => ({
              path: screen.path,
              HydrateFallback: Waiting,
              lazy: async () => {
                const [page] = await Promise.all([screen.load(), screen.core || loadRest()]);
                return { Component: guarded(screen, page.default) };
              },
            }),
          ),
          { path: "*", Component: NotFound },
        ],
      },
    ],
  },
];

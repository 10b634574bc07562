import { createContext, useContext } from "react";
import { type LinkProps, Link as RouterLink, useLocation, useSearchParams } from "react-router";
import type { Environment, Schemas } from "../api/client";

/** The person that is signed in. */
export type Me = Schemas["Me"];

export const MeContext = createContext<Me | null>(null);

/** Who is signed in, and what they may do: can("policies:write"). */
export function useMe() {
  const me = useContext(MeContext);
  if (!me) throw new Error("useMe is called outside the frame");
  return { me, can: (permission: string) => me.permissions.includes(permission) };
}

/** The environment of the address, ?environment=. Sandbox where it names none; a credential of one environment has only its own. */
export function useEnvironment(): Environment {
  const [params] = useSearchParams();
  const me = useContext(MeContext);
  if (me?.environment) return me.environment;
  return params.get("environment") === "production" ? "production" : "sandbox";
}

/** The address of a screen in this environment, with more parameters: to("/decisions", { decision: "DENY" }). */
export function useTo() {
  const environment = useEnvironment();
  return (path: string, params: Record<string, string | number | undefined> = {}) => address(path, environment, params);
}

export function address(
  path: string,
  environment: Environment,
  params: Record<string, string | number | undefined> = {},
): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params))
    if (value !== undefined && value !== "") query.set(name, String(value));
  if (!query.has("environment")) query.set("environment", environment);
  return `${path}?${query}`;
}

/** A link within the console, which keeps the environment. */
export function Link({
  to,
  params,
  ...rest
}: Omit<LinkProps, "to"> & { to: string; params?: Record<string, string | number | undefined> }) {
  const make = useTo();
  return <RouterLink to={make(to, params)} {...rest} />;
}

/** A filter that lives in the address: [value, set]. An empty value leaves the address. */
export function useFilter(name: string): [string, (value: string | null) => void] {
  const [params, setParams] = useSearchParams();
  const set = (value: string | null) =>
    setParams(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(name, value);
        else next.delete(name);
        return next;
      },
      { replace: true },
    );
  return [params.get(name) ?? "", set];
}

/** Clears the filters that are named, in one step. */
export function useClearFilters(names: string[]) {
  const [, setParams] = useSearchParams();
  return () =>
    setParams(
      (before) => {
        const next = new URLSearchParams(before);
        for (const name of names) next.delete(name);
        return next;
      },
      { replace: true },
    );
}

// Parameters that name objects, which are of one environment.
const ids = [
  "policy",
  "policy_id",
  "resource_id",
  "run",
  "scenario",
  "first",
  "second",
  "channel",
  "channel_id",
  "rule",
  "digest_id",
  "request",
];

/** The same screen in the other environment, without what names objects there: ids differ. */
export function useSwitchAddress() {
  const { pathname, search } = useLocation();
  return (environment: Environment) => {
    const [, area = "", id] = pathname.split("/");
    if (id !== undefined) return `/${area}?environment=${environment}`;
    const params = new URLSearchParams(search);
    for (const name of ids) params.delete(name);
    params.set("environment", environment);
    return `${pathname}?${params}`;
  };
}

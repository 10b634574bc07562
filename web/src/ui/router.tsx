import {
  type AnchorHTMLAttributes,
  Component,
  type ComponentType,
  createContext,
  type MouseEvent,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";

// What the console needs of a router, under the names that react-router made common: imports of "react-router" lead
// here (vite.config.ts, tsconfig.json). The package itself is a quarter of the script of a first load.

export interface Location {
  pathname: string;
  search: string;
  hash: string;
  /** Differs with each entry of the history. */
  key: string;
  /** What navigate was given with the address. It stays in this tab, so that no link can set it. */
  state?: unknown;
}

export interface RouteObject {
  /** Absolute, with :parameters; "*" takes what nothing else does. Absent: the children's paths count. */
  path?: string;
  Component?: ComponentType;
  /** Loads the component. The screen before stays until it is there. */
  lazy?: () => Promise<{ Component: ComponentType }>;
  /** Shown while the first screen of a visit loads. */
  HydrateFallback?: ComponentType;
  /** Shown in the place of what failed below. */
  ErrorBoundary?: ComponentType;
  children?: RouteObject[];
}

type Params = Record<string, string | undefined>;
interface Match {
  /** From the outermost route to the one that takes the path. */
  routes: RouteObject[];
  params: Params;
}

/** Finds the route of a path: one that is written out goes before one with parameters, and "*" comes last. */
export function match(routes: RouteObject[], pathname: string): Match | undefined {
  let best: (Match & { score: number }) | undefined;
  const walk = (list: RouteObject[], above: RouteObject[]) => {
    for (const route of list) {
      const chain = [...above, route];
      if (route.children) walk(route.children, chain);
      else {
        const fit = fits(route.path ?? "*", pathname);
        if (fit && (!best || fit.score > best.score)) best = { routes: chain, ...fit };
      }
    }
  };
  walk(routes, []);
  return best;
}

function fits(pattern: string, pathname: string): { params: Params; score: number } | undefined {
  if (pattern === "*") return { params: {}, score: -1 };
  const wanted = pattern.split("/").filter(Boolean);
  const given = pathname.split("/").filter(Boolean);
  if (wanted.length !== given.length) return undefined;
  const params: Params = {};
  let score = 0;
  for (const [i, part] of wanted.entries()) {
    const text = given[i] ?? "";
    if (part.startsWith(":")) {
      try {
        params[part.slice(1)] = decodeURIComponent(text);
      } catch {
        return undefined; // a lone % is no parameter
      }
    } else if (part === text) score++;
    else return undefined;
  }
  return { params, score };
}

type Block = (args: { currentLocation: Location; nextLocation: Location }) => boolean;
export interface NavigateOptions {
  replace?: boolean;
  state?: unknown;
}
export type NavigateFunction = (to: string | number, options?: NavigateOptions) => void;

/** An address of this console as the browser reads it; null for one of elsewhere, and for what is no address of a page. */
export function within(to: string): URL | null {
  const url = URL.parse(to, window.location.href);
  // A path that begins with two slashes is a host, once somebody reads it as a relative address.
  const ours = url?.origin === window.location.origin && url.protocol === window.location.protocol;
  return ours && !url.pathname.startsWith("//") ? url : null;
}

// How long the history has to be still before an entry that may not be left is shown again.
const still = 50;

/** The address of the tab, and who has a say in leaving it. */
export class Router {
  readonly routes: RouteObject[];
  location: Location = here();
  /** Asks before a screen is left. */
  blocks?: Block;
  onBlocked?: (next: Location, proceed: () => void) => void;
  private index: number;
  /** The entry that the browser is being sent back to, because its screen may not be left. */
  private held: number | undefined;
  private restoring = 0;
  private readonly listeners = new Set<() => void>();

  constructor(routes: RouteObject[]) {
    this.routes = routes;
    const at = position();
    if (at === undefined) mark(0);
    this.index = at ?? 0;
    window.addEventListener("popstate", this.popped);
  }

  subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
  current = () => this.location;

  navigate: NavigateFunction = (to, options = {}) => {
    if (typeof to === "number") {
      window.history.go(to);
      return;
    }
    const url = within(to);
    if (!url) return;
    const replace = options.replace || url.href === window.location.href;
    this.leave(locationOf(url), () => {
      if (!replace) this.index++;
      window.history[replace ? "replaceState" : "pushState"]({ gh: this.index, state: options.state }, "", url);
      this.changed();
    });
  };

  private popped = () => {
    // A fragment in the address, such as that of the skip link, made an entry without us.
    if (position() === undefined) mark(this.index + 1);
    const at = position() ?? 0;
    window.clearTimeout(this.restoring);
    if (this.held !== undefined) {
      if (at === this.held) this.held = undefined;
      else this.restore();
      return;
    }
    const delta = at - this.index;
    const next = here();
    if (delta === 0 || !this.asks(next)) {
      this.index = at;
      this.changed();
      return;
    }
    // The browser is there already: it goes back to where it was, until somebody says yes.
    this.held = this.index;
    window.history.go(-delta);
    this.onBlocked?.(next, () => window.history.go(delta));
  };

  /** Goes back to the entry that is held, once whoever presses Back several times is through. */
  private restore() {
    this.restoring = window.setTimeout(() => {
      const delta = (this.held ?? 0) - (position() ?? 0);
      if (delta) window.history.go(delta);
    }, still);
  }

  private asks(next: Location) {
    return !!this.onBlocked && !!this.blocks?.({ currentLocation: this.location, nextLocation: next });
  }

  private leave(next: Location, go: () => void) {
    if (this.asks(next)) this.onBlocked?.(next, go);
    else go();
  }

  private changed() {
    this.location = here();
    for (const listener of this.listeners) listener();
  }
}

let keys = 0;
function locationOf(url: { pathname: string; search: string; hash: string }, state?: unknown): Location {
  return { pathname: url.pathname, search: url.search, hash: url.hash, key: String(keys++), state };
}
function here(): Location {
  return locationOf(window.location, window.history.state?.state);
}
/** Which entry of the history the tab is at; undefined where this router did not make it. */
function position(): number | undefined {
  const at: unknown = window.history.state?.gh;
  return typeof at === "number" ? at : undefined;
}
function mark(index: number): void {
  window.history.replaceState({ ...window.history.state, gh: index }, "");
}

export function createBrowserRouter(routes: RouteObject[]): Router {
  return new Router(routes);
}

interface Shown {
  location: Location;
  match: Match;
}
const RouterContext = createContext<Router | null>(null);
const ShownContext = createContext<Shown | null>(null);
const OutletContext = createContext<ReactNode>(null);
const ErrorContext = createContext<unknown>(null);

function useRouter(): Router {
  const router = useContext(RouterContext);
  if (!router) throw new Error("this needs a RouterProvider");
  return router;
}
function useShown(): Shown {
  const shown = useContext(ShownContext);
  if (!shown) throw new Error("this needs a RouterProvider");
  return shown;
}

const loaded = new WeakMap<RouteObject, ComponentType>();

/** Loads what a match needs; a promise where something is not there yet. */
function load(found: Match): Promise<void> | undefined {
  const missing = found.routes.filter((r) => r.lazy && !loaded.has(r));
  if (missing.length === 0) return undefined;
  return Promise.all(
    missing.map(async (r) => {
      const got = await r.lazy?.();
      if (got) loaded.set(r, got.Component);
    }),
  ).then(() => undefined);
}

/** Shows the screen of the tab's address. */
export function RouterProvider({ router }: { router: Router }) {
  const location = useSyncExternalStore(router.subscribe, router.current);
  const [shown, setShown] = useState<Shown | null>(null);
  const [failure, setFailure] = useState<{ at: Location; error: unknown } | null>(null);
  const found = useMemo(() => match(router.routes, location.pathname), [router, location.pathname]);
  const ready = found && !load(found) ? { location, match: found } : null;
  useEffect(() => {
    if (!found) return;
    let gone = false;
    const show = () => !gone && setShown({ location, match: found });
    const waiting = load(found);
    if (waiting) waiting.then(show, (error: unknown) => !gone && setFailure({ at: location, error }));
    else show();
    return () => {
      gone = true;
    };
  }, [found, location]);
  if (!found) return null;
  // What is loaded is shown at once; else what was shown before stays.
  const view = ready ?? shown ?? { location, match: found };
  const failed = failure && failure.at === location ? failure : null;
  const at = failed ? { location, match: found } : view;
  let content: ReactNode = null;
  for (const [i, route] of [...at.match.routes.entries()].reverse()) {
    const last = i === at.match.routes.length - 1;
    const Page = route.Component ?? loaded.get(route);
    let inner = content;
    if (last && failed) inner = <Throw error={failed.error} />;
    else if (Page) inner = <Page key={last ? at.location.pathname : undefined} />;
    else if (last && route.HydrateFallback) inner = <route.HydrateFallback />;
    if (route.ErrorBoundary) {
      inner = (
        <Boundary key={at.location.pathname} show={route.ErrorBoundary}>
          {inner}
        </Boundary>
      );
    }
    content = <OutletContext.Provider value={content}>{inner}</OutletContext.Provider>;
  }
  return (
    <RouterContext.Provider value={router}>
      <ShownContext.Provider value={at}>{content}</ShownContext.Provider>
    </RouterContext.Provider>
  );
}

function Throw({ error }: { error: unknown }): ReactNode {
  throw error;
}

class Boundary extends Component<{ show: ComponentType; children: ReactNode }, { error: unknown; failed: boolean }> {
  override state = { error: null as unknown, failed: false };
  static getDerivedStateFromError(error: unknown) {
    return { error, failed: true };
  }
  override render() {
    if (!this.state.failed) return this.props.children;
    const Show = this.props.show;
    return (
      <ErrorContext.Provider value={this.state.error}>
        <Show />
      </ErrorContext.Provider>
    );
  }
}

/** What the nearest ErrorBoundary caught. */
export function useRouteError(): unknown {
  return useContext(ErrorContext);
}

/** The screen within a frame. */
export function Outlet() {
  return useContext(OutletContext);
}

export function useLocation(): Location {
  return useShown().location;
}

export function useParams<T extends string = string>(): Partial<Record<T, string>> {
  return useShown().match.params as Partial<Record<T, string>>;
}

export function useNavigate(): NavigateFunction {
  return useRouter().navigate;
}

type Next = URLSearchParams | Record<string, string> | ((before: URLSearchParams) => URLSearchParams);

/** The parameters of the address, and what sets them. */
export function useSearchParams(): [URLSearchParams, (next: Next, options?: NavigateOptions) => void] {
  const router = useRouter();
  const { search } = useLocation();
  const params = useMemo(() => new URLSearchParams(search), [search]);
  const set = useCallback(
    (next: Next, options?: NavigateOptions) => {
      // Two changes in one step build on each other: the tab's address counts, not the one that is shown.
      const before = new URLSearchParams(router.location.search);
      const after = typeof next === "function" ? next(before) : new URLSearchParams(next);
      const text = after.toString();
      router.navigate(router.location.pathname + (text ? `?${text}` : "") + router.location.hash, options);
    },
    [router],
  );
  return [params, set];
}

export type Blocker =
  | { state: "unblocked"; location?: undefined; proceed?: undefined; reset?: undefined }
  | { state: "blocked"; location: Location; proceed: () => void; reset: () => void };

/** Holds up leaving a screen while `block` says so; the answer is proceed or reset. One screen at a time uses it. */
export function useBlocker(block: Block): Blocker {
  const router = useRouter();
  const ask = useRef(block);
  ask.current = block;
  const [blocked, setBlocked] = useState<{ location: Location; go: () => void } | null>(null);
  useEffect(() => {
    let passed = false;
    router.blocks = (args) => !passed && ask.current(args);
    router.onBlocked = (location, go) =>
      setBlocked({
        location,
        go: () => {
          passed = true;
          go();
        },
      });
    return () => {
      router.blocks = undefined;
      router.onBlocked = undefined;
    };
  }, [router]);
  if (!blocked) return { state: "unblocked" };
  return {
    state: "blocked",
    location: blocked.location,
    proceed: () => {
      setBlocked(null);
      blocked.go();
    },
    reset: () => setBlocked(null),
  };
}

export interface LinkProps extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> {
  to: string;
  replace?: boolean;
  ref?: React.Ref<HTMLAnchorElement>;
}

/** A link within the console; an address of elsewhere leads nowhere. What opens a tab or a window is left to the browser. */
export function Link({ to, replace, onClick, ...rest }: LinkProps) {
  const navigate = useNavigate();
  const click = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    if (event.defaultPrevented || event.button !== 0 || (rest.target && rest.target !== "_self")) return;
    if (event.metaKey || event.altKey || event.ctrlKey || event.shiftKey || rest.download !== undefined) return;
    event.preventDefault();
    navigate(to, { replace });
  };
  return <a href={within(to) ? to : undefined} onClick={click} {...rest} />;
}

/** A link that says when it leads to the screen that is shown, or with no `end` to one above it. */
export function NavLink({ end, className, ...rest }: LinkProps & { end?: boolean }) {
  const { pathname } = useLocation();
  const path = within(rest.to)?.pathname ?? rest.to;
  const active = pathname === path || (!end && pathname.startsWith(path.endsWith("/") ? path : `${path}/`));
  return (
    <Link
      {...rest}
      className={[className, active && "active"].filter(Boolean).join(" ") || undefined}
      aria-current={active ? "page" : undefined}
    />
  );
}

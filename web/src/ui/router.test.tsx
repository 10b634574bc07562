import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  createBrowserRouter,
  Link,
  match,
  NavLink,
  Outlet,
  type RouteObject,
  RouterProvider,
  useBlocker,
  useNavigate,
  useParams,
  useRouteError,
  useSearchParams,
  within,
} from "./router";

const blank = () => null;
const table: RouteObject[] = [
  { path: "/login", Component: blank },
  {
    path: "/",
    children: [
      { path: "/", Component: blank },
      { path: "/policies", Component: blank },
      { path: "/policies/:id", Component: blank },
      { path: "/policies/new", Component: blank },
      { path: "*", Component: blank },
    ],
  },
];

test.each([
  ["/", "/", {}],
  ["/policies/", "/policies", {}],
  ["/policies/12", "/policies/:id", { id: "12" }],
  ["/policies/new", "/policies/new", {}],
  ["/policies/a%2Fb", "/policies/:id", { id: "a/b" }],
  ["/policies/%", "*", {}],
  ["/policies/1/2", "*", {}],
  ["/elsewhere", "*", {}],
  ["/login", "/login", {}],
])("%s is taken by %s", (path, taken, params) => {
  const found = match(table, path);
  expect(found?.routes.at(-1)?.path).toBe(taken);
  expect(found?.params).toEqual(params);
});

const origin = window.location.origin;
test.each([
  ["/policies?x=1#y", `${origin}/policies?x=1#y`],
  ["?tab=code", `${origin}/?tab=code`],
  [`${origin}/users`, `${origin}/users`],
  ["/x//y", `${origin}/x//y`],
  ["//evil.example", undefined],
  ["/\\evil.example", undefined],
  ["/\t/evil.example", undefined],
  ["/.//evil.example", undefined],
  ["/x/..//evil.example", undefined],
  ["https://evil.example/", undefined],
  [`${origin}.evil.example/`, undefined],
  [`https://${window.location.host}@evil.example/`, undefined],
  ["javascript:alert(1)", undefined],
  [" javascript:alert(1)", undefined],
  ["java\nscript:alert(1)", undefined],
  ["data:text/html,x", undefined],
  [`blob:${origin}/x`, undefined],
  ["http://", undefined],
])("%j within the console is %s", (to, href) => {
  expect(within(to)?.href).toBe(href);
  render(<RouterProvider router={createBrowserRouter([{ path: "*", Component: () => <Link to={to}>there</Link> }])} />);
  expect(screen.getByText("there").getAttribute("href")).toBe(href ? to : null);
  fireEvent.click(screen.getByText("there"));
  expect(window.location.href).toBe(href ?? `${origin}/`);
});

let dirty = false;

function Frame() {
  return (
    <>
      <nav>
        <NavLink to="/" end>
          home
        </NavLink>
        <NavLink to="/item/1?x=1">one</NavLink>
        <Link to="/item/2">two</Link>
        <Link to="/fails">fails</Link>
        <Link to="/slow">slow</Link>
      </nav>
      <Outlet />
    </>
  );
}
function Home() {
  const [params, set] = useSearchParams();
  const navigate = useNavigate();
  return (
    <>
      <p>home {params.toString()}</p>
      <button
        type="button"
        onClick={() => {
          set((before) => new URLSearchParams([...before, ["a", "1"]]), { replace: true });
          set((before) => new URLSearchParams([...before, ["b", "2"]]), { replace: true });
        }}
      >
        filter
      </button>
      <button type="button" onClick={() => navigate("https://elsewhere.example/")}>
        away
      </button>
    </>
  );
}
function Item() {
  const { id } = useParams();
  const blocker = useBlocker(
    ({ currentLocation, nextLocation }) => dirty && currentLocation.pathname !== nextLocation.pathname,
  );
  return (
    <>
      <p>item {id}</p>
      {blocker.state === "blocked" && (
        <>
          <p>leave for {blocker.location.pathname}?</p>
          <button type="button" onClick={blocker.proceed}>
            leave
          </button>
          <button type="button" onClick={blocker.reset}>
            stay
          </button>
        </>
      )}
    </>
  );
}
function Fails(): never {
  throw new Error("broken");
}
function Failed() {
  return <p>failed: {String(useRouteError())}</p>;
}

let arrive: (value: { Component: () => React.ReactNode }) => void;
let miss: (reason: Error) => void;

function show() {
  const routes: RouteObject[] = [
    {
      path: "/",
      Component: Frame,
      children: [
        {
          ErrorBoundary: Failed,
          children: [
            { path: "/", Component: Home },
            { path: "/item/:id", Component: Item },
            { path: "/fails", Component: Fails },
            {
              path: "/slow",
              lazy: () =>
                new Promise((resolve, reject) => {
                  arrive = resolve;
                  miss = reject;
                }),
            },
            { path: "*", Component: () => <p>nothing here</p> },
          ],
        },
      ],
    },
  ];
  render(<RouterProvider router={createBrowserRouter(routes)} />);
}

beforeEach(() => {
  dirty = false;
  window.history.replaceState(null, "", "/");
});
afterEach(cleanup);

test("links lead to screens, and say which one is shown", () => {
  show();
  expect(screen.getByText("home", { selector: "a" }).getAttribute("aria-current")).toBe("page");
  fireEvent.click(screen.getByText("one"));
  expect(screen.getByText("item 1")).toBeDefined();
  expect(window.location.search).toBe("?x=1");
  expect(screen.getByText("one").getAttribute("aria-current")).toBe("page");
  expect(screen.getByText("home", { selector: "a" }).getAttribute("aria-current")).toBeNull();
});

test("what opens a tab or a window is the browser's", () => {
  show();
  const prevented = (init: MouseEventInit) => {
    const event = new MouseEvent("click", { bubbles: true, cancelable: true, ...init });
    window.addEventListener("click", (e) => e.preventDefault(), { once: true });
    let ours = false;
    screen.getByText("two").addEventListener("click", () => queueMicrotask(() => {}), { once: true });
    act(() => {
      screen.getByText("two").dispatchEvent(event);
      ours = window.location.pathname === "/item/2";
    });
    return ours;
  };
  for (const init of [{ ctrlKey: true }, { metaKey: true }, { shiftKey: true }, { button: 1 }])
    expect(prevented(init)).toBe(false);
  expect(prevented({})).toBe(true);
});

test("two changes of the parameters in one step are both kept, and other origins are refused", () => {
  show();
  fireEvent.click(screen.getByText("filter"));
  expect(screen.getByText("home a=1&b=2")).toBeDefined();
  fireEvent.click(screen.getByText("away"));
  expect(window.location.pathname).toBe("/");
});

test("a screen with unsaved work is left once somebody says so", () => {
  show();
  fireEvent.click(screen.getByText("one"));
  dirty = true;
  fireEvent.click(screen.getByText("two"));
  expect(screen.getByText("leave for /item/2?")).toBeDefined();
  expect(screen.getByText("item 1")).toBeDefined();
  fireEvent.click(screen.getByText("stay"));
  expect(screen.queryByText("leave for /item/2?")).toBeNull();
  fireEvent.click(screen.getByText("two"));
  fireEvent.click(screen.getByText("leave"));
  expect(screen.getByText("item 2")).toBeDefined();
});

test("a failure is shown in the frame, and left by a link", () => {
  show();
  fireEvent.click(screen.getByText("fails", { selector: "a" }));
  expect(screen.getByText("failed: Error: broken")).toBeDefined();
  fireEvent.click(screen.getByText("one"));
  expect(screen.getByText("item 1")).toBeDefined();
});

test("the screen before stays while the next one loads", async () => {
  show();
  fireEvent.click(screen.getByText("slow"));
  expect(screen.getByText(/^home/, { selector: "p" })).toBeDefined();
  await act(async () => arrive({ Component: () => <p>at last</p> }));
  await waitFor(() => expect(screen.getByText("at last")).toBeDefined());
  expect(screen.queryByText(/^home/, { selector: "p" })).toBeNull();
});

test("a screen that cannot be loaded says so", async () => {
  show();
  fireEvent.click(screen.getByText("slow"));
  await act(async () => miss(new Error("gone")));
  await waitFor(() => expect(screen.getByText("failed: Error: gone")).toBeDefined());
});

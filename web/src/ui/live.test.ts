import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { follow } from "./live";

class FakeSource extends EventTarget {
  static readonly CLOSED = 2;
  static all: FakeSource[] = [];
  readyState = 0;
  onopen: () => void = () => {};
  onerror: () => void = () => {};
  constructor(readonly url: string) {
    super();
    FakeSource.all.push(this);
  }
  close() {
    this.readyState = FakeSource.CLOSED;
  }
  says(topic: string) {
    this.dispatchEvent(new MessageEvent("change", { data: JSON.stringify({ topic, revision: 1 }) }));
  }
}

let hidden = false;
let queries: QueryClient;
let asked: string[];
let end: () => void;

function latest(): FakeSource {
  const source = FakeSource.all.at(-1);
  if (!source) throw new Error("no stream was opened");
  return source;
}

function show(visible: boolean) {
  hidden = !visible;
  document.dispatchEvent(new Event("visibilitychange"));
}

beforeEach(async () => {
  vi.useFakeTimers();
  FakeSource.all = [];
  hidden = false;
  asked = [];
  vi.stubGlobal("EventSource", FakeSource);
  vi.spyOn(document, "hidden", "get").mockImplementation(() => hidden);
  queries = new QueryClient();
  vi.spyOn(queries, "invalidateQueries").mockImplementation(async (filters) => {
    const of = (path: string) => filters?.predicate?.({ queryKey: ["get", path] } as never);
    const shown = ["/api/v1/policies", "/api/v1/users", "/api/v1/dashboard/stats", "/api/v1/telemetry/license-status"];
    asked.push(shown.filter(of).join(" "));
  });
  end = follow(queries, "/stream");
});

afterEach(() => {
  end();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const polled = "/api/v1/policies /api/v1/users /api/v1/dashboard/stats";
const all = `${polled} /api/v1/telemetry/license-status`;

test("a burst of changes asks once for what shows their topics", () => {
  latest().onopen();
  for (let i = 0; i < 5; i++) latest().says("users");
  expect(asked).toEqual([]);
  vi.advanceTimersByTime(300);
  expect(asked).toEqual(["/api/v1/users"]);
  latest().dispatchEvent(new MessageEvent("reload", { data: "{}" }));
  expect(asked).toEqual(["/api/v1/users", all]);
});

test("while the stream is open, only what ages is asked for by the clock", () => {
  latest().onopen();
  vi.advanceTimersByTime(29_000);
  expect(asked).toEqual([]);
  vi.advanceTimersByTime(2_000);
  expect(asked).toEqual(["/api/v1/dashboard/stats"]);
});

test("without a stream it polls, opens one again, and reads what it missed", () => {
  latest().onopen();
  latest().readyState = FakeSource.CLOSED;
  latest().onerror();
  vi.advanceTimersByTime(11_000);
  expect(asked, "the clock does not ask the license server").toEqual([polled, polled]);
  expect(FakeSource.all.length).toBe(1);
  vi.advanceTimersByTime(20_000);
  expect(FakeSource.all.length).toBe(2);
  asked = [];
  latest().onopen();
  expect(asked).toEqual([all]);
});

test("a stream that reconnects by itself is left to it", () => {
  latest().onopen();
  latest().readyState = 0;
  latest().onerror();
  vi.advanceTimersByTime(6_000);
  expect(asked).toEqual([polled]);
  latest().onopen();
  vi.advanceTimersByTime(10_000);
  expect(asked).toEqual([polled]);
  expect(FakeSource.all.length).toBe(1);
});

test("a hidden page has no stream", () => {
  latest().onopen();
  show(false);
  expect(latest().readyState).toBe(FakeSource.CLOSED);
  vi.advanceTimersByTime(60_000);
  expect(asked).toEqual([]);
  show(true);
  expect(FakeSource.all.length).toBe(2);
  latest().onopen();
  expect(asked).toEqual([all]);
});

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { session } from "../api/client";
import { useEnvironment } from "./scope";

// Which paths of the API show which topic. A change refetches the queries whose path begins with one of them.
const shownBy: Record<string, string[]> = {
  decisions: ["/api/v1/decisions", "/api/v1/dashboard", "/api/v1/bouncers"],
  anomalies: ["/api/v1/dashboard"],
  policies: ["/api/v1/policies", "/api/v1/dashboard/stats"],
  libraries: ["/api/v1/policies"],
  resources: ["/api/v1/resources", "/api/v1/dashboard/stats", "/access/v1/requests"],
  bouncers: ["/api/v1/bouncers", "/api/v1/dashboard/stats", "/api/v1/peps"],
  revisions: ["/api/v1/deployments/revisions"],
  replays: ["/api/v1/compliance/replays"],
  deployments: ["/api/v1/ide-integration/deployments", "/api/v1/policies-as-code"],
  repositories: ["/api/v1/ide-integration/repositories", "/api/v1/ide-integration/deployments"],
  scenarios: ["/api/v1/pis/scenarios"],
  users: ["/api/v1/users"],
  api_keys: ["/api/v1/tenants"],
  webhooks: ["/api/v1/webhooks"],
  agents: ["/api/v1/ai-agents"],
  data_sources: ["/api/v1/pip"],
  notifications: ["/api/v1/notifications"],
  integrations: ["/api/v1/integrations"],
  telemetry: ["/api/v1/telemetry"],
  tenant: ["/api/v1/tenants", "/api/v1/environments", "/api/v1/vendors"],
};

/** Refetches what shows a topic; with "none", only once it is shown again. Queries are keyed ["get", path, …]. */
export function refresh(queries: QueryClient, topic: string, refetchType: "active" | "none" = "active"): void {
  const paths = shownBy[topic] ?? [];
  void queries.invalidateQueries({
    refetchType,
    predicate: ({ queryKey }) =>
      typeof queryKey[1] === "string" && paths.some((p) => (queryKey[1] as string).startsWith(p)),
  });
}

// Without a stream, everything is asked for again every few seconds.
const pollEvery = 5_000;
// What is never asked for so: each answer is a call of the license server.
const dear = ["telemetry"];
// What grows old by itself, such as figures of the last hour and the age of a heartbeat, is asked for even so.
const ageEvery = 30_000;
const aging = ["/api/v1/dashboard", "/api/v1/bouncers", "/api/v1/peps"];
// How long to wait before a stream that was refused is opened anew.
const retryAfter = 30_000;
// Changes come in bursts: what came within this time is asked for once.
const gather = 200;

/**
 * Keeps what is shown up to date with the stream of changes, while somebody can see the page. A hidden page has no
 * stream, for browsers allow few connections to one host. Returns what ends it.
 */
export function follow(queries: QueryClient, url: string): () => void {
  let source: EventSource | null = null;
  let connected = false;
  let missed = false;
  let retry = 0;
  let flush = 0;
  const topics = new Set<string>();
  const again = (paths: string[]) =>
    void queries.invalidateQueries({
      type: "active",
      predicate: ({ queryKey }) =>
        typeof queryKey[1] === "string" && paths.some((p) => (queryKey[1] as string).startsWith(p)),
    });
  const everything = (but: string[] = []) =>
    again(Object.keys(shownBy).flatMap((topic) => (but.includes(topic) ? [] : (shownBy[topic] ?? []))));
  const close = () => {
    source?.close();
    source = null;
    connected = false;
    missed = true;
    window.clearTimeout(retry);
  };
  const open = () => {
    window.clearTimeout(retry);
    if (source || document.hidden || typeof EventSource === "undefined") return;
    const stream = new EventSource(url);
    source = stream;
    stream.onopen = () => {
      connected = true;
      if (missed) everything();
      missed = false;
    };
    stream.onerror = () => {
      connected = false;
      if (stream.readyState !== EventSource.CLOSED) return; // it reconnects by itself, and goes on where it was
      close();
      retry = window.setTimeout(open, retryAfter);
    };
    stream.addEventListener("reload", () => everything());
    stream.addEventListener("change", (message) => {
      topics.add((JSON.parse(message.data) as { topic: string }).topic);
      if (flush) return;
      flush = window.setTimeout(() => {
        flush = 0;
        for (const topic of topics) refresh(queries, topic);
        topics.clear();
      }, gather);
    });
  };
  const look = () => (document.hidden ? close() : open());
  const poll = window.setInterval(() => {
    if (!connected && !document.hidden && queries.isFetching() === 0) everything(dear);
  }, pollEvery);
  const age = window.setInterval(() => {
    if (connected && queries.isFetching() === 0) again(aging);
  }, ageEvery);
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    document.removeEventListener("visibilitychange", look);
    window.clearInterval(poll);
    window.clearInterval(age);
    window.clearTimeout(flush);
    close();
  };
}

/** Keeps what the screen shows up to date; see follow. */
export function useLive(): void {
  const queries = useQueryClient();
  const environment = useEnvironment();
  const tenant = session.tenant();
  useEffect(() => {
    const asked = new URLSearchParams();
    if (environment) asked.set("environment", environment);
    if (tenant) asked.set("tenant_id", tenant);
    return follow(queries, `/api/v1/events/stream?${asked}`);
  }, [queries, environment, tenant]);
}

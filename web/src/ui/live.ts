import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

/** What a message of the stream says: objects of a topic changed. */
interface Change {
  topic: string;
  id?: string;
}

// Which paths of the API show which topic. A change refetches the queries whose path begins with one of them.
const shownBy: Record<string, string[]> = {
  decisions: ["/api/v1/decisions", "/api/v1/dashboard", "/api/v1/bouncers"],
  anomalies: ["/api/v1/dashboard"],
  policies: ["/api/v1/policies", "/api/v1/dashboard/stats"],
  libraries: ["/api/v1/policies"],
  resources: ["/api/v1/resources", "/api/v1/dashboard/stats"],
  bouncers: ["/api/v1/bouncers", "/api/v1/dashboard/stats", "/api/v1/peps"],
  revisions: ["/api/v1/deployments/revisions"],
  replays: ["/api/v1/compliance/replays"],
  deployments: ["/api/v1/ide-integration/deployments", "/api/v1/policies-as-code"],
  repositories: ["/api/v1/ide-integration/repositories"],
  users: ["/api/v1/users"],
  api_keys: ["/api/v1/tenants"],
  tenant: ["/api/v1/tenants", "/api/v1/environments"],
};

/** Refetches what shows a topic. Queries are keyed ["get", path, …]. */
export function refresh(queries: QueryClient, topic: string): void {
  const paths = shownBy[topic] ?? [];
  void queries.invalidateQueries({
    predicate: ({ queryKey }) =>
      typeof queryKey[1] === "string" && paths.some((p) => (queryKey[1] as string).startsWith(p)),
  });
}

export type LiveState = "connecting" | "live" | "off";

/** One stream of changes for the tab: what the screen shows is fetched again when it changed. */
export function useLive(): LiveState {
  const queries = useQueryClient();
  const [state, setState] = useState<LiveState>("connecting");
  useEffect(() => {
    const stream = new EventSource("/api/v1/events/stream");
    stream.addEventListener("open", () => setState("live"));
    stream.addEventListener("error", () => setState(stream.readyState === EventSource.CLOSED ? "off" : "connecting"));
    stream.addEventListener("reload", () => void queries.invalidateQueries());
    stream.addEventListener("change", (event) => {
      const change = JSON.parse((event as MessageEvent<string>).data) as Change;
      refresh(queries, change.topic);
    });
    // Where there is no stream, such as behind a proxy that buffers, the screen asks now and then.
    const poll = window.setInterval(() => {
      if (stream.readyState === EventSource.CLOSED && !document.hidden)
        void queries.invalidateQueries({ type: "active" });
    }, 15_000);
    return () => {
      stream.close();
      window.clearInterval(poll);
    };
  }, [queries]);
  return state;
}

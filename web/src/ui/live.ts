import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

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
  repositories: ["/api/v1/ide-integration/repositories", "/api/v1/ide-integration/deployments"],
  scenarios: ["/api/v1/pis/scenarios"],
  users: ["/api/v1/users"],
  api_keys: ["/api/v1/tenants"],
  tenant: ["/api/v1/tenants", "/api/v1/environments"],
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

const every = 5_000;

/** Keeps what the screen shows up to date: it is asked for again every few seconds while somebody can see it. */
export function useLive(): void {
  const queries = useQueryClient();
  useEffect(() => {
    const live = [...new Set(Object.values(shownBy).flat())];
    const poll = window.setInterval(() => {
      if (document.hidden || queries.isFetching() > 0) return;
      void queries.invalidateQueries({
        type: "active",
        predicate: ({ queryKey }) =>
          typeof queryKey[1] === "string" && live.some((p) => (queryKey[1] as string).startsWith(p)),
      });
    }, every);
    return () => window.clearInterval(poll);
  }, [queries]);
}

import { api } from "../../api/client";
import { useEnvironment, useMe } from "../../ui/scope";
import type { Names } from "./rule";

interface Named {
  id: number;
  name: string;
}

const nameIn = (rows: Named[]) => (id: number) => rows.find((r) => r.id === id)?.name ?? String(id);

/** What rules of the environment refer to: channels, controls, bouncers and data sources, and their names. */
export function useNames(): Names & { channels: Named[]; controls: Named[]; bouncers: Named[]; sources: Named[] } {
  const { can } = useMe();
  const environment = useEnvironment();
  const channels = api.useQuery("get", "/api/v1/notifications/channels", {
    params: { query: { environment, limit: 200 } },
  });
  const controls = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, kind: "control", limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  const bouncers = api.useQuery(
    "get",
    "/api/v1/bouncers",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("bouncers:read") },
  );
  const sources = api.useQuery(
    "get",
    "/api/v1/pip/connections",
    { params: { query: { limit: 200 } } },
    { enabled: can("pip:read") },
  );
  const all = {
    channels: channels.data?.channels ?? [],
    controls: controls.data?.policies ?? [],
    bouncers: bouncers.data?.bouncers ?? [],
    sources: sources.data?.connections ?? [],
  };
  return {
    ...all,
    channel: nameIn(all.channels),
    control: nameIn(all.controls),
    bouncer: nameIn(all.bouncers),
    source: nameIn(all.sources),
  };
}

import { useQuery } from "@tanstack/react-query";
import { client, type Environment, type Schemas } from "../../api/client";

/** A run as the server keeps it. */
export type Kept = {
  simulation_id: number;
  checksum: string;
  /** Whether the record still has its checksum. */
  checksum_valid: boolean;
  record: Omit<Schemas["SimulatorResult"], "simulation_id" | "checksum">;
};

/** The key of a run's record in the cache. */
export const keyOf = (id: number, environment: Environment) => ["simulation", id, environment] as const;

/** A run that was kept, by its id. It does not change. */
export function useRun(id: number | undefined, environment: Environment) {
  return useQuery({
    queryKey: keyOf(id ?? 0, environment),
    enabled: id !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: async () => {
      const answer = await client.POST("/api/v1/pis/export/{simulation_id}", {
        params: { path: { simulation_id: id ?? 0 }, query: { environment, format: "json" } },
        parseAs: "json",
      });
      return answer.data as unknown as Kept;
    },
  });
}

export const formats = ["json", "csv", "pdf"] as const;

/** Saves a run as a file of the reader. */
export async function download(id: number, environment: Environment, format: (typeof formats)[number]): Promise<void> {
  const { data, response } = await client.POST("/api/v1/pis/export/{simulation_id}", {
    params: { path: { simulation_id: id }, query: { environment, format } },
    parseAs: "blob",
  });
  const named = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data as unknown as Blob);
  link.download = named?.[1] ?? `simulation-${id}.${format}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

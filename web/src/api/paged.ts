import { type QueryKey, useInfiniteQuery } from "@tanstack/react-query";
import type { Source } from "../ui/DataTable";

interface Page<R> {
  rows: R[];
  total: number;
  /** What fetches the page after this one; absent: it was the last. */
  next?: string | number;
}

// How often rows that are on their way to another state are asked for.
const watchEvery = 3_000;

/**
 * The rows of a list that comes in pages, for a DataTable, which asks for more near its end. While `moving` says so
 * of what is shown, it is asked for again.
 */
export function usePaged<R>(
  key: QueryKey,
  fetchPage: (cursor: string | number | undefined, signal: AbortSignal) => Promise<Page<R>>,
  moving?: (rows: R[]) => boolean,
): { source: Source<R>; total: number | undefined } {
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => fetchPage(pageParam, signal),
    initialPageParam: undefined as string | number | undefined,
    getNextPageParam: (last) => last.next,
    refetchInterval: ({ state }) => (moving?.(state.data?.pages.flatMap((p) => p.rows) ?? []) ? watchEvery : false),
  });
  return {
    source: {
      rows: query.data?.pages.flatMap((p) => p.rows),
      error: query.data ? null : query.error,
      retry: () => void query.refetch(),
      more: query.hasNextPage ? () => void query.fetchNextPage() : undefined,
      fetching: query.isFetchingNextPage,
    },
    total: query.data?.pages.at(-1)?.total,
  };
}

/** The same for a list with skip and limit. */
export function useSkipped<R>(
  key: QueryKey,
  fetchPage: (skip: number, signal: AbortSignal) => Promise<{ rows: R[]; total: number }>,
) {
  return usePaged<R>(key, async (cursor, signal) => {
    const skip = Number(cursor ?? 0);
    const { rows, total } = await fetchPage(skip, signal);
    const after = skip + rows.length;
    return { rows, total, next: rows.length > 0 && after < total ? after : undefined };
  });
}

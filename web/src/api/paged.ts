import { type QueryKey, useInfiniteQuery } from "@tanstack/react-query";
import type { Source } from "../ui/DataTable";

interface Page<R> {
  rows: R[];
  total: number;
  /** What fetches the page after this one; absent: it was the last. */
  next?: string | number;
}

/** The rows of a list that comes in pages, for a DataTable, which asks for more near its end. */
export function usePaged<R>(
  key: QueryKey,
  fetchPage: (cursor: string | number | undefined, signal: AbortSignal) => Promise<Page<R>>,
): { source: Source<R>; total: number | undefined } {
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => fetchPage(pageParam, signal),
    initialPageParam: undefined as string | number | undefined,
    getNextPageParam: (last) => last.next,
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

/** What comes after a page of a list with skip and limit. */
export function nextSkip(skip: number, got: number, total: number): number | undefined {
  return got > 0 && skip + got < total ? skip + got : undefined;
}

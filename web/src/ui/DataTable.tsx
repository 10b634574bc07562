import { Button } from "@mantine/core";
import { type ReactNode, type UIEvent, useState } from "react";
import { useI18n } from "../i18n";
import { ErrorPanel } from "./ErrorPanel";

export interface Column<R> {
  id: string;
  header: string;
  cell: (row: R) => ReactNode;
  /** Numbers stand at the right. */
  numeric?: boolean;
  width?: number;
  /** The heading is read to screen readers only, such as that of a column of buttons. */
  hiddenHeader?: boolean;
}

/** What a table shows of: the state of a query, and its rows when they are there. */
export interface Source<R> {
  rows: R[] | undefined;
  error: unknown;
  retry: () => void;
  /** Whether more rows can be fetched, and how. */
  more?: () => void;
  fetching?: boolean;
}

const rowHeight = 33;
const spare = 12;
const virtualFrom = 120;

/**
 * A table with four designed states: loading, empty, filtered to nothing, failed. Above 120 rows only those in view
 * are in the document. The first column is the row's heading.
 */
export function DataTable<R>({
  label,
  columns,
  source,
  rowKey,
  empty,
  filtered = false,
  clear,
  selected,
  open,
  maxHeight,
}: {
  label: string;
  columns: Column<R>[];
  source: Source<R>;
  rowKey: (row: R) => string | number;
  empty: ReactNode;
  filtered?: boolean;
  clear?: () => void;
  selected?: (row: R) => boolean;
  /** A click anywhere on a row opens it; the link in the row does the same by keyboard. */
  open?: (row: R) => void;
  maxHeight?: number;
}) {
  const { t } = useI18n();
  const [view, setView] = useState({ top: 0, height: 700 });
  const { rows, error } = source;
  if (error) return <ErrorPanel error={error} retry={source.retry} />;
  if (!rows) return <Skeleton label={label} columns={columns.length} />;
  if (rows.length === 0 && filtered) {
    return (
      <div className="gh-state">
        <p className="gh-state-title">{t("common.nothingMatches")}</p>
        <p className="gh-dim">{t("common.nothingMatchesAbout")}</p>
        {clear && (
          <Button variant="default" onClick={clear}>
            {t("common.clearFilters")}
          </Button>
        )}
      </div>
    );
  }
  if (rows.length === 0) return empty;

  const virtual = rows.length > virtualFrom;
  const first = virtual ? Math.max(0, Math.floor(view.top / rowHeight) - spare) : 0;
  const last = virtual ? Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + spare) : rows.length;
  const onScroll = (event: UIEvent<HTMLDivElement>) => {
    const box = event.currentTarget;
    const top = Math.floor(box.scrollTop / rowHeight) * rowHeight;
    if (top !== view.top || box.clientHeight !== view.height) setView({ top, height: box.clientHeight });
    if (source.more && !source.fetching && box.scrollHeight - box.scrollTop - box.clientHeight < 600) source.more();
  };
  return (
    // A region that scrolls must be reachable by keyboard.
    <section
      className="gh-table-box"
      aria-label={label}
      tabIndex={0}
      onScroll={onScroll}
      style={virtual ? { maxHeight: maxHeight ?? "calc(100dvh - 270px)" } : maxHeight ? { maxHeight } : undefined}
    >
      <table className="gh-table" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map((c) =>
              c.hiddenHeader ? (
                <td key={c.id} />
              ) : (
                <th key={c.id} scope="col" className={c.numeric ? "gh-num" : undefined} style={{ width: c.width }}>
                  {c.header}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          <Spacer height={first * rowHeight} columns={columns.length} />
          {rows.slice(first, last).map((row, i) => (
            <tr
              key={rowKey(row)}
              aria-rowindex={first + i + 2}
              data-selected={selected?.(row)}
              style={open ? { cursor: "pointer" } : undefined}
              onClick={(event) => {
                const inside = (event.target as HTMLElement).closest("a, button, input, label");
                if (!inside && !window.getSelection()?.toString()) open?.(row);
              }}
            >
              {columns.map((c) => (
                <td key={c.id} className={c.numeric ? "gh-num" : undefined}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          <Spacer height={(rows.length - last) * rowHeight} columns={columns.length} />
        </tbody>
      </table>
      {source.more && (
        <div style={{ padding: 8, textAlign: "center" }}>
          <Button size="xs" variant="default" loading={source.fetching} onClick={source.more}>
            {t("common.showMore")}
          </Button>
        </div>
      )}
    </section>
  );
}

function Spacer({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr className="gh-spacer" aria-hidden="true">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}

export function Skeleton({ label, columns = 4, rows = 8 }: { label: string; columns?: number; rows?: number }) {
  const { t } = useI18n();
  return (
    <div className="gh-panel" role="status" aria-busy="true">
      <span className="gh-sr">{t("common.loading", { what: label })}</span>
      {Array.from({ length: rows }, (_, r) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the list never changes
        <div key={r} className="gh-skeleton" aria-hidden="true">
          {Array.from({ length: columns }, (_, c) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the list never changes
            <span key={c} style={{ maxWidth: `${30 + ((r * 7 + c * 23) % 60)}%` }} />
          ))}
        </div>
      ))}
    </div>
  );
}

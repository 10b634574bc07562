import { Button, useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useI18n } from "../i18n";

export interface Line {
  label: string;
  /** A CSS variable, such as --gh-good. */
  colour: string;
  values: number[];
  dashed?: boolean;
}

/** Lines over time. The summary is what a screen reader hears; the table behind it has each value. */
export function TimeChart({
  times,
  lines,
  summary,
  format,
  height = 220,
}: {
  /** Unix seconds, rising. */
  times: number[];
  lines: Line[];
  summary: string;
  format: (value: number) => string;
  height?: number;
}) {
  const { t, dateTime, language } = useI18n();
  const scheme = useComputedColorScheme("light");
  const box = useRef<HTMLDivElement>(null);
  const [table, setTable] = useState(false);
  const latest = useRef(format);
  latest.current = format;

  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours are read again when the scheme changes
  useEffect(() => {
    const host = box.current;
    if (!host || table) return;
    const css = getComputedStyle(document.documentElement);
    const colour = (name: string) => css.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--mantine-color-dimmed"),
      grid: { stroke: colour("--gh-border"), width: 1 },
      ticks: { show: false },
      font: "12px 'Inter Variable', sans-serif",
    };
    const short = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" });
    const day = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
    const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
    const plot = new uPlot(
      {
        width: host.clientWidth,
        height,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
          {
            ...axis,
            size: 30,
            space: 90,
            values: (_, at) => at.map((s) => (span > 172_800 ? day : short).format(s * 1000)),
          },
          { ...axis, size: 64, values: (_, at) => at.map((v) => latest.current(v)) },
        ],
        series: [
          {},
          ...lines.map((l) => ({
            stroke: colour(l.colour),
            width: 2,
            dash: l.dashed ? [6, 4] : undefined,
            points: { show: times.length < 2 },
          })),
        ],
      },
      [times, ...lines.map((l) => l.values)],
      host,
    );
    const resize = new ResizeObserver(() => plot.setSize({ width: host.clientWidth, height }));
    resize.observe(host);
    return () => {
      resize.disconnect();
      plot.destroy();
    };
  }, [times, lines, table, height, scheme, language]);

  return (
    <div>
      <div className="gh-row" style={{ marginBottom: 8 }}>
        <div className="gh-legend" aria-hidden="true">
          {lines.map((l) => (
            <span
              key={l.label}
              style={{ "--colour": `var(${l.colour})`, "--line": l.dashed ? "dashed" : "solid" } as React.CSSProperties}
            >
              {l.label}
            </span>
          ))}
        </div>
        <Button size="compact-xs" variant="subtle" ml="auto" onClick={() => setTable(!table)}>
          {table ? t("common.showChart") : t("common.showTable")}
        </Button>
      </div>
      {table ? (
        // A region that scrolls must be reachable by keyboard.
        <section className="gh-table-box" style={{ maxHeight: height + 40 }} tabIndex={0} aria-label={summary}>
          <table className="gh-table">
            <thead>
              <tr>
                <th scope="col">{t("common.time")}</th>
                {lines.map((l) => (
                  <th key={l.label} scope="col" className="gh-num">
                    {l.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {times.map((at, i) => (
                <tr key={at}>
                  <td>{dateTime(at * 1000)}</td>
                  {lines.map((l) => (
                    <td key={l.label} className="gh-num">
                      {format(l.values[i] ?? 0)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      ) : (
        <div ref={box} className="gh-chart" role="img" aria-label={summary} style={{ minHeight: height }} />
      )}
    </div>
  );
}

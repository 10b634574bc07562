import { Button } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
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
  const [table, setTable] = useState(false);

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
        <Plot times={times} lines={lines} summary={summary} format={format} height={height} language={language} />
      )}
    </div>
  );
}

const left = 64;
const bottom = 26;
const top = 8;

/** The drawing: a few polylines in SVG. A chart library would be an eighth of the script of a first load. */
function Plot({
  times,
  lines,
  summary,
  format,
  height,
  language,
}: {
  times: number[];
  lines: Line[];
  summary: string;
  format: (value: number) => string;
  height: number;
  language: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    const host = box.current;
    if (!host) return;
    const resize = new ResizeObserver(() => setWidth(host.clientWidth));
    resize.observe(host);
    setWidth(host.clientWidth);
    return () => resize.disconnect();
  }, []);
  const first = times[0] ?? 0;
  const span = (times.at(-1) ?? first) - first;
  const most = useMemo(() => Math.max(0, ...lines.flatMap((l) => l.values)), [lines]);
  const steps = marks(most);
  const ceiling = Math.max(steps.at(-1) ?? 1, most) || 1;
  const inner = Math.max(0, width - left - 8);
  const x = (time: number) => left + (span === 0 ? inner / 2 : ((time - first) / span) * inner);
  const y = (value: number) => top + (1 - value / ceiling) * (height - top - bottom);
  const written = useMemo(
    () =>
      new Intl.DateTimeFormat(
        language,
        span > 172_800 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" },
      ),
    [language, span],
  );
  const labels = span === 0 ? times.slice(0, 1) : spread(first, span, Math.max(2, Math.floor(inner / 110)));
  const nearest = (clientX: number, target: Element) => {
    const time = first + ((clientX - target.getBoundingClientRect().left - left) / (inner || 1)) * span;
    let best = 0;
    for (let i = 1; i < times.length; i++) {
      if (Math.abs((times[i] ?? 0) - time) < Math.abs((times[best] ?? 0) - time)) best = i;
    }
    return times.length > 0 ? best : null;
  };
  const shown = at !== null && at < times.length ? at : null;
  return (
    <div ref={box} className="gh-chart" role="img" aria-label={summary} style={{ minHeight: height }}>
      {width > 0 && (
        <svg
          width={width}
          height={height}
          aria-hidden="true"
          onPointerMove={(e) => setAt(nearest(e.clientX, e.currentTarget))}
          onPointerLeave={() => setAt(null)}
        >
          {steps.map((v) => (
            <g key={v}>
              <line className="gh-chart-grid" x1={left} x2={width - 8} y1={y(v)} y2={y(v)} />
              <text className="gh-chart-text" x={left - 8} y={y(v) + 4} textAnchor="end">
                {format(v)}
              </text>
            </g>
          ))}
          {labels.map((time, i) => (
            <text
              key={time}
              className="gh-chart-text"
              x={x(time)}
              y={height - 8}
              textAnchor={
                labels.length === 1 ? "middle" : i === 0 ? "start" : i === labels.length - 1 ? "end" : "middle"
              }
            >
              {written.format(time * 1000)}
            </text>
          ))}
          {lines.map((l) => (
            <g key={l.label} stroke={`var(${l.colour})`} fill={`var(${l.colour})`}>
              <polyline
                className="gh-chart-line"
                strokeDasharray={l.dashed ? "6 4" : undefined}
                points={times.map((time, i) => `${x(time).toFixed(1)},${y(l.values[i] ?? 0).toFixed(1)}`).join(" ")}
              />
              {times.length === 1 && <circle r={3} cx={x(first)} cy={y(l.values[0] ?? 0)} />}
              {shown !== null && <circle r={3} cx={x(times[shown] ?? 0)} cy={y(l.values[shown] ?? 0)} />}
            </g>
          ))}
          {shown !== null && (
            <>
              <line
                className="gh-chart-grid"
                x1={x(times[shown] ?? 0)}
                x2={x(times[shown] ?? 0)}
                y1={top}
                y2={height - bottom}
              />
              <text className="gh-chart-text" x={width - 8} y={top + 4} textAnchor="end">
                {[
                  written.format((times[shown] ?? 0) * 1000),
                  ...lines.map((l) => `${l.label} ${format(l.values[shown] ?? 0)}`),
                ].join(" · ")}
              </text>
            </>
          )}
        </svg>
      )}
    </div>
  );
}

/** Round values from 0 to the greatest or just over it, five at most. */
export function marks(most: number): number[] {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((m) => m * power >= rough * (1 - 1e-9)) ?? 10) * power;
  const count = Math.ceil(most / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => i * step);
}

/** So many times, evenly from the first over the span. */
function spread(first: number, span: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => first + (span * i) / (count - 1));
}

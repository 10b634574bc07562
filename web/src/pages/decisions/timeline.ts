/** One decision on a timeline. */
export interface Point {
  /** Unix milliseconds. */
  at: number;
  lane: string;
  denied: boolean;
}

export interface Mark {
  /** Where it stands, in percent of the time shown. */
  left: number;
  denied: boolean;
  count: number;
}

export interface Lane {
  /** Empty: what the lanes above have no room for. */
  name: string;
  marks: Mark[];
}

const lanesMax = 10;
// Marks closer than this many percent are one: the picture has no more room.
const grain = 0.5;

/** Decisions in lanes, the busiest first, over the time from the first to the last of them. */
export function lanesOf(points: Point[]): Lane[] {
  if (points.length === 0) return [];
  const times = points.map((p) => p.at);
  const first = times.reduce((a, b) => Math.min(a, b));
  const span = times.reduce((a, b) => Math.max(a, b)) - first;
  const counts = new Map<string, number>();
  for (const p of points) counts.set(p.lane, (counts.get(p.lane) ?? 0) + 1);
  const named = [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const shown = named.slice(0, lanesMax);
  const lanes = new Map<string, Map<string, Mark>>(shown.map((name) => [name, new Map()]));
  if (named.length > shown.length) lanes.set("", new Map());
  for (const p of points) {
    const marks = lanes.get(p.lane) ?? lanes.get("");
    const left = span === 0 ? 50 : Math.round(((p.at - first) / span) * (100 / grain)) * grain;
    const key = `${left} ${p.denied}`;
    const mark = marks?.get(key);
    if (mark) mark.count++;
    else marks?.set(key, { left, denied: p.denied, count: 1 });
  }
  return [...lanes].map(([name, marks]) => ({ name, marks: [...marks.values()] }));
}

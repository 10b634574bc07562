/** A row of a form: a name and what belongs to it. The key stays while the name is typed. */
export interface Pair<V> {
  key: number;
  name: string;
  value: V;
}

/** The rows of an object, by name. */
export function pairsOf<V>(record: Record<string, V> = {}): Pair<V>[] {
  return Object.entries(record)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value], i) => ({ key: i + 1, name, value }));
}

/** The object of rows. Rows without a name are left out; of two with one name the later counts. */
export function recordOf<V>(pairs: Pair<V>[]): Record<string, V> {
  return Object.fromEntries(pairs.filter((p) => p.name.trim() !== "").map((p) => [p.name.trim(), p.value]));
}

/** The members of an object that differ from those of another. */
export function changed<T extends object>(wanted: T, before: { [K in keyof T]?: unknown }): Partial<T> {
  const differs = ([name, value]: [string, unknown]) =>
    JSON.stringify(sorted(value)) !== JSON.stringify(sorted(before[name as keyof T]));
  return Object.fromEntries(Object.entries(wanted).filter(differs)) as Partial<T>;
}

function sorted(value: unknown): unknown {
  const object = typeof value === "object" && value !== null && !Array.isArray(value);
  return object ? Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)) : value;
}

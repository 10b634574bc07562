import type { Schemas } from "../../api/client";

export type Input = Record<string, unknown>;
type Attribute = Schemas["RegoAttribute"];

const plain = (value: unknown): value is Input => typeof value === "object" && value !== null && !Array.isArray(value);

/** The value at a path such as user.role; undefined where there is none. */
export function valueAt(input: Input, path: string): unknown {
  let at: unknown = input;
  for (const part of path.split(".")) {
    if (!plain(at) || !Object.hasOwn(at, part)) return undefined;
    at = at[part];
  }
  return at;
}

/** The input with another value at a path. Undefined removes it, and the objects that this leaves empty. */
export function withValue(input: Input, path: string, value: unknown): Input {
  const [first = "", ...rest] = path.split(".");
  const next = { ...input };
  if (rest.length === 0) {
    if (value === undefined) delete next[first];
    else next[first] = value;
    return next;
  }
  const inner = withValue(plain(next[first]) ? (next[first] as Input) : {}, rest.join("."), value);
  if (value === undefined && Object.keys(inner).length === 0) delete next[first];
  else next[first] = inner;
  return next;
}

/** The input that a scenario stands for: user.role is the role of user. */
export function inputOfScenario(attributes: Input): Input {
  let input: Input = {};
  for (const [path, value] of Object.entries(attributes)) {
    const before = valueAt(input, path);
    input = withValue(input, path, plain(before) && plain(value) ? { ...before, ...value } : value);
  }
  return input;
}

/** What a control takes by itself where nothing is said: the start of a new input. */
export function startOf(attributes: Attribute[]): Input {
  let input: Input = {};
  for (const a of attributes) if (a.default_value !== null) input = withValue(input, a.key, a.default_value);
  return input;
}

/** The texts of a list as the values that its control compares: numbers where it compares numbers. */
export function listOf(texts: string[], values: unknown[]): unknown[] {
  const numbers = values.length > 0 && values.every((v) => typeof v === "number");
  return texts.map((text) => (numbers && text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text));
}

/** The attributes by their first part: user, action, resource, … */
export function groupsOf(attributes: Attribute[]): [string, Attribute[]][] {
  const groups = new Map<string, Attribute[]>();
  for (const a of attributes) {
    const name = a.key.split(".")[0] ?? "";
    groups.set(name, [...(groups.get(name) ?? []), a]);
  }
  return [...groups];
}

/** The leaves of an input by their path. Lists are leaves. */
export function leavesOf(input: unknown, path = ""): [string, unknown][] {
  if (plain(input) && Object.keys(input).length > 0) {
    return Object.entries(input).flatMap(([name, value]) => leavesOf(value, path ? `${path}.${name}` : name));
  }
  return path ? [[path, input]] : [];
}

/** The paths at which two inputs differ, with both values. */
export function differences(a: unknown, b: unknown): { path: string; a: unknown; b: unknown }[] {
  const left = new Map(leavesOf(a));
  const right = new Map(leavesOf(b));
  return [...new Set([...left.keys(), ...right.keys()])]
    .sort()
    .filter((path) => JSON.stringify(left.get(path)) !== JSON.stringify(right.get(path)))
    .map((path) => ({ path, a: left.get(path), b: right.get(path) }));
}

/** A condition of the builder: attribute, operator, value. */
export interface Row {
  /** Names the row while it is edited. */
  key: number;
  attribute: string;
  operator: Operator;
  value: string;
}

export const operators = [
  "is",
  "isNot",
  "has",
  "startsWith",
  "endsWith",
  "contains",
  "greater",
  "less",
  "exists",
] as const;
export type Operator = (typeof operators)[number];

/** Attributes that every request has, as people start with them. */
export const attributes = [
  "user.roles",
  "user.id",
  "user.department",
  "user.groups",
  "action.method",
  "action.name",
  "resource.path",
  "resource.type",
  "resource.data_classification",
  "context.ip_address",
];

const plain = /^[a-z_][a-z0-9_]*$/i;

/** The reference of an attribute: input.user.id; members that are no plain names are quoted. */
export function reference(attribute: string): string {
  const parts = attribute.split(".").filter((p) => p !== "");
  return `input${parts.map((p) => (plain.test(p) ? `.${p}` : `[${JSON.stringify(p)}]`)).join("")}`;
}

/** A value as it is typed: a number, true, false and null as such, all else as text. */
export function literal(value: string): string {
  const text = value.trim();
  if (/^-?(0|[1-9]\d*)(\.\d+)?$/.test(text) || text === "true" || text === "false" || text === "null") return text;
  return JSON.stringify(text);
}

/** One condition in Rego. */
export function condition(row: Pick<Row, "attribute" | "operator" | "value">): string {
  const ref = reference(row.attribute);
  const value = literal(row.value);
  switch (row.operator) {
    case "is":
      return `${ref} == ${value}`;
    case "isNot":
      return `${ref} != ${value}`;
    case "has":
      return `${value} in ${ref}`;
    case "startsWith":
      return `startswith(${ref}, ${JSON.stringify(row.value.trim())})`;
    case "endsWith":
      return `endswith(${ref}, ${JSON.stringify(row.value.trim())})`;
    case "contains":
      return `contains(${ref}, ${JSON.stringify(row.value.trim())})`;
    case "greater":
      return `${ref} > ${value}`;
    case "less":
      return `${ref} < ${value}`;
    case "exists":
      return `_ = ${ref}`;
  }
}

/** The name of a package made of a control's name. */
export function packageName(name: string): string {
  const slug = name
    .normalize("NFD")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "");
  return /^[a-z]/.test(slug) ? slug : `control_${slug || "new"}`;
}

/** A control that grants access where all conditions hold, and refuses with the reason otherwise. */
export function controlOf(name: string, rows: Row[], reason: string): string {
  const used = rows.filter((r) => r.attribute && (r.operator === "exists" || r.value.trim() !== ""));
  const body =
    used.length > 0 ? `allow if {\n${used.map((r) => `\t${condition(r)}`).join("\n")}\n}` : "# Add conditions.";
  const says = reason.trim() ? `\nreason := ${JSON.stringify(reason.trim())} if not allow\n` : "";
  return `package ${packageName(name)}\n\ndefault allow := false\n\n${body}\n${says}`;
}

/** Where the value of a template's parameter stands in its code: "name := value" at the beginning of a line. */
function spanOf(code: string, name: string): [number, number] | null {
  const start = new RegExp(`^(?:default )?${name.replace(/\W/g, "\\$&")} := `, "m").exec(code);
  if (!start) return null;
  const from = start.index + start[0].length;
  let depth = 0;
  let quoted = false;
  for (let at = from; at < code.length; at++) {
    const char = code[at];
    if (quoted) {
      if (char === "\\") at++;
      else if (char === '"') quoted = false;
      continue;
    }
    if (char === '"') quoted = true;
    else if (char === "{" || char === "[" || char === "(") depth++;
    else if (char === "}" || char === "]" || char === ")") depth--;
    else if (char === "\n" && depth === 0) return [from, at];
  }
  return [from, code.length];
}

/** Whether the code holds a parameter's value itself. Else it reads it from the resource at each decision. */
export function hasParameter(code: string, name: string): boolean {
  return spanOf(code, name) !== null;
}

/** The code with another value of one parameter. JSON is Rego. */
export function setParameter(code: string, name: string, value: unknown): string {
  const span = spanOf(code, name);
  if (!span) return code;
  return code.slice(0, span[0]) + JSON.stringify(value) + code.slice(span[1]);
}

/** The package that a module says it is, such as lib.roles; empty where it says none. */
export function packageOf(code: string): string {
  return /^\s*package\s+([\w.]+)/m.exec(code)?.[1] ?? "";
}

/** A library to begin with. Its package is below lib, which is where controls import from. */
export function shell(name: string): string {
  const path = name === "lib" || name.startsWith("lib.") ? name : `lib.${name}`;
  return [
    `package ${path}`,
    "",
    "import rego.v1",
    "",
    `# A control says: import data.${path}`,
    "has_role(user, role) if role in user.roles",
    "",
  ].join("\n");
}

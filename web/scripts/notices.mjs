// Writes THIRD_PARTY_NOTICES.md: the packages that the built console is made of, with their licences.
import { readdir, readFile, writeFile } from "node:fs/promises";

const root = new URL("../", import.meta.url);
const lock = JSON.parse(await readFile(new URL("package-lock.json", root), "utf8"));
const packages = Object.entries(lock.packages)
  .filter(([path, p]) => path && !p.dev && !p.devOptional && !p.optional)
  .map(([path, p]) => ({ path, name: path.split("node_modules/").pop(), version: p.version, licence: p.license }))
  .sort((a, b) => (a.name < b.name ? -1 : 1));

const parts = [
  "# Third-party notices of the console\n",
  "`npm run notices` writes this file from the lock file. These packages are part of the built console.\n",
];
for (const p of packages) {
  const folder = new URL(`${p.path}/`, root);
  const file = (await readdir(folder)).find((f) => /^(licen[cs]e|copying)/i.test(f));
  const text = file ? (await readFile(new URL(file, folder), "utf8")).trim().replaceAll("\r\n", "\n") : "";
  parts.push(`## ${p.name} ${p.version}\n\n${p.licence ?? "see below"}\n`);
  if (text) parts.push(`\`\`\`text\n${text}\n\`\`\`\n`);
}
await writeFile(new URL("THIRD_PARTY_NOTICES.md", root), parts.join("\n"));

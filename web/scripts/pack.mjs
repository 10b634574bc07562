// Packs Vite's build for the Go package internal/webui: text files are stored
// compressed, and manifest.json holds the hash of the sources and of each file
// before compression.
import { createHash } from "node:crypto";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = join(root, "../internal/webui/dist");
const text = /\.(js|css|svg|json|txt)$/;
const skipped = new Set(["node_modules", "dist", "coverage"]);

async function walk(dir) {
  const found = [];
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    if (skipped.has(entry.name)) continue;
    const path = join(dir, entry.name);
    if (entry.isDirectory()) found.push(...(await walk(path)));
    else found.push(path);
  }
  return found;
}

const slashes = (path) => path.split("\\").join("/");
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
// Code units decide the order, as in Go: no locale.
const byName = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

// "<path>\n<sha256 of the text with LF ends>\n" of each file, sorted by path. A Go test computes the same.
async function sourceHash() {
  const lines = [];
  for (const path of await walk(root)) {
    const bytes = Buffer.from((await readFile(path, "latin1")).replaceAll("\r\n", "\n"), "latin1");
    lines.push([slashes(relative(root, path)), sha256(bytes)]);
  }
  lines.sort((a, b) => byName(a[0], b[0]));
  return sha256(lines.map(([name, hash]) => `${name}\n${hash}\n`).join(""));
}

const files = {};
for (const path of await walk(dist)) {
  const name = slashes(relative(dist, path));
  if (name === "manifest.json") continue;
  const bytes = await readFile(path);
  files[name] = sha256(bytes);
  if (text.test(name)) {
    await writeFile(`${path}.gz`, gzipSync(bytes, { level: 9 }));
    await rm(path);
  }
}
const sorted = Object.fromEntries(Object.entries(files).sort((a, b) => byName(a[0], b[0])));
const manifest = { source: await sourceHash(), files: sorted };
await writeFile(join(dist, "manifest.json"), `${JSON.stringify(manifest, null, 1)}\n`);

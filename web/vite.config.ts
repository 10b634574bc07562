import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.GATEHOUSE_URL ?? "http://127.0.0.1:8080";
// Our own router has the names of the common one, which is a quarter of the script of a first load.
export const alias = { "react-router": new URL("src/ui/router.tsx", import.meta.url).pathname };
const proxy = { "/api": { target: server, ws: true } };

export default defineConfig({
  plugins: [react()],
  resolve: { alias },
  // The server puts a nonce of each request in the place of this word.
  html: { cspNonce: "__CSP_NONCE__" },
  server: { proxy },
  preview: { proxy },
  build: {
    outDir: "../internal/webui/dist",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "react", test: /node_modules\/(react|react-dom|scheduler)\// },
            // What every editor needs; search, completion and differences come when they are asked for.
            {
              name: "codemirror",
              test: /node_modules\/(@codemirror\/(view|state|language|commands|lint)|@lezer|style-mod|crelt|w3c-keyname|@marijn)\//,
            },
          ],
        },
      },
    },
  },
});

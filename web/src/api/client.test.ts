import { afterEach, expect, test, vi } from "vitest";
import { client, ifMatch } from "./client";

const asked: Request[] = [];
function answer(body: unknown, headers: Record<string, string> = {}) {
  asked.length = 0;
  vi.stubGlobal("fetch", async (request: Request) => {
    asked.push(request);
    return new Response(JSON.stringify(body), { headers: { "Content-Type": "application/json", ...headers } });
  });
}
afterEach(() => void vi.unstubAllGlobals());

// openapi-fetch takes the fetch of each call, so that a stub is enough.
const get = (path: "/api/v1/webhooks/{webhook_id}") =>
  client.GET(path, { params: { path: { webhook_id: 1 } }, fetch: (r) => fetch(r) });

test("an object keeps the ETag of its answer, which its change sends back", async () => {
  answer({ id: "1", name: "hook" }, { ETag: '"7"' });
  const { data } = await get("/api/v1/webhooks/{webhook_id}");
  expect(data).toEqual({ id: "1", name: "hook", etag: '"7"' });
  answer({ id: "1", name: "new" }, { ETag: '"8"' });
  await client.PUT("/api/v1/webhooks/{webhook_id}", {
    params: { path: { webhook_id: 1 }, header: ifMatch(data as { etag: string }) },
    body: { name: "new" },
    fetch: (r) => fetch(r),
  });
  expect(asked[0]?.headers.get("If-Match")).toBe('"7"');
});

test.each([
  ["a list", [1, 2], { ETag: '"7"' }],
  ["an object without an ETag", { id: 1 }, {}],
])("%s stays as it is", async (_, body, headers) => {
  answer(body, headers);
  expect((await get("/api/v1/webhooks/{webhook_id}")).data).toEqual(body);
});

test("an object of a list is changed by its version", () => {
  expect(ifMatch({ version: 3 })).toEqual({ "If-Match": '"3"' });
});

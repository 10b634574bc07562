import { expect, test } from "vitest";
import { type Description, listOf, needed, setName, settingsOf } from "./channel";

const type: Description = {
  type: "email",
  endpoint: "required",
  digests: true,
  settings: [
    { name: "from", kind: "text", required: true },
    { name: "to", kind: "list", required: true },
    { name: "token_url", kind: "text", required: false, credential: "client_id" },
  ],
  credentials: [[], ["username", "password"]],
};

test("only settings of the type that are filled in are sent", () => {
  expect(settingsOf(type, { from: " a@example.com ", to: [], token_url: "", channel: "of another type" })).toEqual({
    from: "a@example.com",
  });
  expect(settingsOf(type, { to: ["b@example.com"] })).toEqual({ to: ["b@example.com"] });
});

test("one text is a list of one", () => {
  expect(listOf("a")).toEqual(["a"]);
  expect(listOf(["a", "b"])).toEqual(["a", "b"]);
  expect(listOf(undefined)).toEqual([]);
  expect(listOf("")).toEqual([]);
});

test("a setting may be needed with some credentials alone", () => {
  const [from, , token] = type.settings;
  expect(from && needed(from, [])).toBe(true);
  expect(token && needed(token, ["username", "password"])).toBe(false);
  expect(token && needed(token, ["username", "client_id", "client_secret"])).toBe(true);
  expect(setName(["username", "password"])).toBe("username+password");
  expect(setName([])).toBe("");
});

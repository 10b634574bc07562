import { expect, test } from "vitest";
import { linkOf } from "./session";

test.each([
  ["#link=gh_link_abc", "gh_link_abc"],
  ["#link=a%2Bb", "a+b"],
  ["#other=1", ""],
  ["", ""],
])("the sign-in link in %j", (hash, want) => {
  expect(linkOf(hash)).toBe(want);
});

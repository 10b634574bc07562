import { expect, test } from "vitest";
import { bouncerCommand } from "./command";

test("the command has a setting a line", () => {
  expect(bouncerCommand("https://g.example", "gh_bnc_x", "127.0.0.1:3000", 8081).split("\n")).toEqual([
    "GATEHOUSE_URL=https://g.example \\",
    "GATEHOUSE_BOUNCER_TOKEN=gh_bnc_x \\",
    "GATEHOUSE_BOUNCER_UPSTREAM=http://127.0.0.1:3000 \\",
    "GATEHOUSE_BOUNCER_LISTEN=0.0.0.0:8081 \\",
    "gatehouse bouncer",
  ]);
});

test.each([
  ["a; rm -rf /", "'http://a; rm -rf /'"],
  ["$(id)", "'http://$(id)'"],
  ["it's", "'http://it'\\''s'"],
  ["a\nid", "'http://a\nid'"],
  ["\u202ea", "'http://\u202ea'"],
])("the application %j is one word to a shell", (target, want) => {
  expect(bouncerCommand("https://g.example", "t", target, 1)).toContain(`GATEHOUSE_BOUNCER_UPSTREAM=${want} \\`);
});

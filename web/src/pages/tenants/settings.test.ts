import { describe, expect, it } from "vitest";
import { merged } from "./settings";

describe("settings with changes", () => {
  const settings = { four_eyes: true, max_policies: 10, replay: { hours: 1 } };
  it.each([
    ["nothing changes", {}, settings],
    ["null takes a member away", { four_eyes: null }, { max_policies: 10, replay: { hours: 1 } }],
    ["null of what is not there changes nothing", { unknown: null }, settings],
    [
      "false and zero are values",
      { four_eyes: false, max_policies: 0 },
      { ...settings, four_eyes: false, max_policies: 0 },
    ],
    ["an object takes the place of another", { replay: { days: 2 } }, { ...settings, replay: { days: 2 } }],
    ["a member is added", { "flags.x": 1 }, { ...settings, "flags.x": 1 }],
  ])("%s", (_, changes, want) => expect(merged(settings, changes)).toEqual(want));

  it("leaves what it was given as it was", () => {
    merged(settings, { four_eyes: null, max_policies: 1 });
    expect(settings).toEqual({ four_eyes: true, max_policies: 10, replay: { hours: 1 } });
  });
});

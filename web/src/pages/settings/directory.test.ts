import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { changeOf, twice } from "./directory";
import { pairsOf } from "./pairs";

const record: Schemas["ScimDirectory"] = {
  base_url: "https://gate.example.com/scim/v2",
  default_roles: ["viewer"],
  groups: 1,
  match_subject: false,
  people: 2,
  role_map: { Security: ["auditor"], Buyers: ["buyer"] },
  updated_at: null,
  version: 3,
};

const grants = { groups: pairsOf(record.role_map), default_roles: ["viewer"], match_subject: false };

test("a form that changes nothing sends nothing", () => {
  expect(changeOf(grants, record)).toEqual({});
});

test("a form sends what it changes, and the map of roles as a whole", () => {
  const groups = [
    ...grants.groups,
    { key: 9, name: " Operations ", value: ["operator"] },
    { key: 10, name: "", value: [] },
  ];
  expect(changeOf({ ...grants, groups, match_subject: true }, record)).toEqual({
    role_map: { Security: ["auditor"], Buyers: ["buyer"], Operations: ["operator"] },
    match_subject: true,
  });
  expect(changeOf({ ...grants, groups: [], default_roles: [] }, record)).toEqual({ role_map: {}, default_roles: [] });
});

test("a group stands in one row", () => {
  expect(twice(grants.groups)).toBeUndefined();
  expect(twice([...grants.groups, { key: 9, name: " SECURITY", value: [] }])).toBe("SECURITY");
  expect(
    twice([
      { key: 1, name: "", value: [] },
      { key: 2, name: " ", value: [] },
    ]),
  ).toBeUndefined();
});

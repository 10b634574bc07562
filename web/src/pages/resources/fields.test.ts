import { describe, expect, it } from "vitest";
import { changes, groupsOf, needsTag } from "./fields";

describe("needsTag", () => {
  it.each([
    ["restricted", [], true],
    ["confidential", undefined, true],
    ["confidential", ["GDPR"], false],
    ["internal", [], false],
    [undefined, [], false],
  ] as const)("of %s with %j is %s", (data_classification, tags, wanted) => {
    expect(needsTag({ data_classification, compliance_tags: tags ? [...tags] : undefined })).toBe(wanted);
  });
});

describe("groupsOf", () => {
  const fields = (kind: string | null) => groupsOf(kind).flatMap((g) => g.fields);
  it("asks each kind only what fits it", () => {
    expect(fields("mcp_server")).toContain("mcp_protocol_version");
    expect(fields("mcp_server")).not.toContain("agent_capabilities");
    expect(fields("agent")).toContain("agent_capabilities");
    expect(fields("dataset")).not.toContain("ai_provider");
  });
});

describe("changes", () => {
  it("sends what differs, and null for what was cleared", () => {
    expect(
      changes(
        { owner_team: "a", sla_tier: "gold", compliance_tags: ["GDPR"] },
        { owner_team: "a", sla_tier: undefined, compliance_tags: ["GDPR", "SOX"] },
      ),
    ).toEqual({ sla_tier: null, compliance_tags: ["GDPR", "SOX"] });
  });
});

import type { Schemas } from "../../api/client";

/** A resource as the API returns it. */
export type Resource = Schemas["Resource"];

/** What is known of a resource beyond its address. */
export type Enrichment = Schemas["ResourceEnrichmentChange"];
export type Field = keyof Enrichment;

export const kinds = ["api", "llm_endpoint", "mcp_server", "agent", "rag_index", "dataset", "tool"] as const;
export const classifications = ["public", "internal", "confidential", "restricted"] as const;

/** Fields that say one of few things. */
export const choices: Partial<Record<Field, readonly string[]>> = {
  resource_kind: kinds,
  data_classification: classifications,
  audit_level: ["none", "basic", "detailed", "comprehensive"],
  sla_tier: ["gold", "silver", "bronze"],
  ai_provider: ["openai", "anthropic", "google", "azure", "aws", "self_hosted"],
};

/** Fields that hold a list, with what is usual in them. */
export const lists: Partial<Record<Field, { options: readonly string[]; free: boolean }>> = {
  compliance_tags: { options: ["GDPR", "HIPAA", "PCI-DSS", "SOX"], free: true },
  pii_categories: {
    options: ["names", "emails", "ssn", "card_numbers", "health_records", "addresses"],
    free: false,
  },
  agent_capabilities: { options: ["tool_use", "code_exec", "file_io", "web_browse", "memory"], free: false },
  egress_destinations: { options: [], free: true },
};

const models: readonly string[] = ["llm_endpoint", "agent", "rag_index"];

/** The fields of the form by group; those that mean nothing for a kind are left out. */
export function groupsOf(
  kind: string | null | undefined,
): { group: "what" | "data" | "care" | "ai"; fields: Field[] }[] {
  const ai: Field[] = [];
  if (!kind || models.includes(kind)) ai.push("ai_provider", "ai_model_family");
  if (kind === "mcp_server") ai.push("mcp_protocol_version");
  if (kind === "agent") ai.push("agent_capabilities");
  const groups: { group: "what" | "data" | "care" | "ai"; fields: Field[] }[] = [
    { group: "what", fields: ["resource_kind", "business_context", "owner_team", "owner_email"] },
    {
      group: "data",
      fields: ["data_classification", "compliance_tags", "pii_categories", "data_residency", "egress_destinations"],
    },
    { group: "care", fields: ["audit_level", "sla_tier"] },
  ];
  if (ai.length > 0) groups.push({ group: "ai", fields: ai });
  return groups;
}

/** What keeps an enrichment from being stored: confidential and restricted data need a compliance tag. */
export function needsTag(values: Enrichment): boolean {
  const secret = values.data_classification === "confidential" || values.data_classification === "restricted";
  return secret && (values.compliance_tags?.length ?? 0) === 0;
}

/** The fields that differ, as the API takes them: null clears one. */
export function changes(before: Enrichment, after: Enrichment): Enrichment {
  const changed: Record<string, unknown> = {};
  for (const field of Object.keys(after) as Field[]) {
    if (JSON.stringify(before[field] ?? null) !== JSON.stringify(after[field] ?? null))
      changed[field] = after[field] ?? null;
  }
  return changed as Enrichment;
}

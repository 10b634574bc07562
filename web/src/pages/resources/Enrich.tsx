import { Button, Drawer, MultiSelect, Select, Stack, TagsInput, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { StatusOf } from "../../ui/Status";
import { changes, choices, type Enrichment, type Field, groupsOf, lists, needsTag, type Resource } from "./fields";

type Proposal = Schemas["ClassifyProposal"];

// Where a proposal has what for which field.
function proposed(p: Proposal): Enrichment {
  const all: Record<string, unknown> = {
    resource_kind: p.resource_kind,
    ai_provider: p.ai_provider,
    ai_model_family: p.ai_model_family,
    mcp_protocol_version: p.mcp_protocol_version,
    agent_capabilities: p.agent_capabilities,
    pii_categories: p.pii_categories,
    egress_destinations: p.egress_destinations,
    compliance_tags: p.suggested_compliance_tags,
    data_classification: p.suggested_data_classification,
  };
  const filled = Object.entries(all).filter(([, v]) => v !== null && !(Array.isArray(v) && v.length === 0));
  return Object.fromEntries(filled) as Enrichment;
}

function current(resource: Resource): Enrichment {
  const values: Record<string, unknown> = {};
  for (const { fields } of [...groupsOf(null), ...groupsOf("agent"), ...groupsOf("mcp_server")]) {
    for (const field of fields) values[field] = resource[field] ?? undefined;
  }
  return values as Enrichment;
}

/** The form of what is known of a resource. "Propose" fills in what the classifier finds, with its reasons. */
export function Enrich({
  resource,
  close,
  saved,
}: {
  resource: Resource;
  close: () => void;
  saved: (enriched: Schemas["ResourceEnriched"]) => void;
}) {
  const { t, percent } = useI18n();
  const queries = useQueryClient();
  // The form builds on the resource as it was when it opened: a save must not undo what others change meanwhile.
  const [opened] = useState(resource);
  const [before] = useState(() => current(opened));
  const [values, setValues] = useState<Enrichment>(before);
  const [tried, setTried] = useState(false);
  const params = { path: { resource_id: resource.id }, query: { environment: resource.environment } };
  const propose = api.useMutation("post", "/api/v1/resources/{resource_id}/auto-classify", {
    onSuccess: (proposal) => setValues((v) => ({ ...v, ...proposed(proposal) })),
  });
  const save = api.useMutation("put", "/api/v1/resources/{resource_id}/enrich", {
    onSuccess: (enriched) => {
      refresh(queries, "resources");
      saved(enriched);
    },
  });
  const set = (field: Field, value: unknown) => setValues((v) => ({ ...v, [field]: value ?? undefined }));
  const tagMissing = needsTag(values);
  const changed = changes(before, values);
  const submit = () => {
    setTried(true);
    if (tagMissing) return;
    save.mutate({ params: { ...params, header: ifMatch(opened) }, body: changed });
  };
  const proposal = propose.data;
  return (
    <Drawer.Root opened onClose={close} position="right" size={520}>
      <Drawer.Overlay backgroundOpacity={0.45} />
      <Drawer.Content>
        <Drawer.Header component="div">
          <Drawer.Title fw={650}>{t("resources.enrichTitle", { name: resource.name })}</Drawer.Title>
          <Drawer.CloseButton aria-label={t("common.close")} />
        </Drawer.Header>
        <Drawer.Body>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              submit();
            }}
          >
            <Stack gap="md">
              <div className="gh-row">
                <StatusOf value={resource.environment} />
                <Button variant="default" loading={propose.isPending} onClick={() => propose.mutate({ params })}>
                  {t("resources.propose")}
                </Button>
              </div>
              {propose.error ? <ErrorPanel error={propose.error} /> : null}
              {proposal && (
                <div className="gh-note" role="status">
                  <strong>{t("resources.confidence", { confidence: percent(proposal.confidence) })}</strong>
                  <ul style={{ margin: "4px 0 0", paddingLeft: 18 }}>
                    {proposal.rationale.map((r) => (
                      <li key={r}>{r}</li>
                    ))}
                  </ul>
                </div>
              )}
              {groupsOf(values.resource_kind).map(({ group, fields }) => (
                <fieldset key={group} className="gh-fieldset">
                  <legend>{t(`resources.group_${group}`)}</legend>
                  <Stack gap="sm">
                    {fields.map((field) => (
                      <FieldInput
                        key={field}
                        field={field}
                        value={values[field]}
                        set={set}
                        error={field === "compliance_tags" && tagMissing ? t("resources.needsTag") : undefined}
                      />
                    ))}
                  </Stack>
                </fieldset>
              ))}
              {save.error ? <ErrorPanel error={save.error} /> : null}
              {tried && tagMissing && (
                <div className="gh-error" role="alert">
                  {t("resources.needsTag")}
                </div>
              )}
              <Button type="submit" loading={save.isPending} disabled={Object.keys(changed).length === 0}>
                {t("common.save")}
              </Button>
            </Stack>
          </form>
        </Drawer.Body>
      </Drawer.Content>
    </Drawer.Root>
  );
}

function FieldInput({
  field,
  value,
  set,
  error,
}: {
  field: Field;
  value: unknown;
  set: (field: Field, value: unknown) => void;
  error?: string;
}) {
  const { t, word } = useI18n();
  const label = t(`resources.field_${field}`);
  const prefix = field === "resource_kind" ? "kind" : field === "data_classification" ? "class" : "value";
  const options = choices[field];
  const list = lists[field];
  if (options) {
    return (
      <Select
        label={label}
        data={options.map((o) => ({ value: o, label: word("resources", prefix, o) }))}
        value={(value as string | undefined) ?? null}
        onChange={(v) => set(field, v)}
        clearable
        clearButtonProps={{ "aria-label": t("resources.clear", { field: label }) }}
        error={error}
      />
    );
  }
  if (list?.free) {
    return (
      <TagsInput
        label={label}
        data={[...list.options]}
        value={(value as string[] | undefined) ?? []}
        onChange={(v) => set(field, v)}
        error={error}
      />
    );
  }
  if (list) {
    return (
      <MultiSelect
        label={label}
        data={list.options.map((o) => ({ value: o, label: word("resources", "value", o) }))}
        value={(value as string[] | undefined) ?? []}
        onChange={(v) => set(field, v)}
        error={error}
      />
    );
  }
  return (
    <TextInput
      label={label}
      type={field === "owner_email" ? "email" : "text"}
      value={(value as string | undefined) ?? ""}
      onChange={(e) => set(field, e.currentTarget.value || undefined)}
      error={error}
    />
  );
}

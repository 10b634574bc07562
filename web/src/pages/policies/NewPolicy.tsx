import { ActionIcon, Autocomplete, Button, Checkbox, Select, Stack, Textarea, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas } from "../../api/client";
import { Editor, type EditorHandle } from "../../editor/Editor";
import { useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { useEnvironment, useFilter, useMe, useTo } from "../../ui/scope";
import { Unsaved } from "../../ui/Unsaved";
import { complete, hover, useDiagnostics } from "./assist";
import { attributes, controlOf, hasParameter, type Operator, operators, type Row, setParameter } from "./builder";
import "./workbench.css";

/** Makes a control: of a template that fits the resource, of conditions as rows, or by hand. */
export default function NewPolicy() {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const navigate = useNavigate();
  const to = useTo();
  const queries = useQueryClient();
  const [template, setTemplate] = useFilter("template");
  const [resourceId, setResourceId] = useFilter("resource_id");
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [withTests, setWithTests] = useState(true);
  const [code, setCode] = useState("");
  const [byHand, setByHand] = useState(false);
  const [rows, setRows] = useState<Row[]>([{ key: 1, attribute: "user.roles", operator: "has", value: "" }]);
  const [reason, setReason] = useState("");
  const editor = useRef<EditorHandle>(null);
  const { issues, valid } = useDiagnostics(code);

  const resources = api.useQuery(
    "get",
    "/api/v1/resources",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("resources:read") },
  );
  const filled = api.useQuery(
    "get",
    "/api/v1/templates/{template_id}",
    {
      params: {
        path: { template_id: template },
        query: { environment, resource_id: Number(resourceId) || undefined },
      },
    },
    { enabled: template !== "", staleTime: Number.POSITIVE_INFINITY, retry: false },
  );
  // A template that there is fills the editor; one that there is not leaves a shell to write in.
  const source = template ? filled.data?.rego_code : undefined;
  useEffect(() => {
    if (source === undefined) return;
    setCode(source);
    setByHand(false);
  }, [source]);
  useEffect(() => {
    if (filled.data) setName((before) => before || filled.data.title);
  }, [filled.data]);
  const built = useMemo(() => controlOf(name, rows, reason), [name, rows, reason]);
  const building = (!template || filled.isError) && !byHand;
  useEffect(() => {
    if (building) setCode(built);
  }, [building, built]);

  const create = api.useMutation("post", "/api/v1/policies", {
    onSuccess: (made) => {
      refresh(queries, "policies");
      void navigate(to(`/policies/${made.id}`));
    },
  });
  const submit = (status: "draft" | "active") =>
    create.mutate({
      body: {
        name: name.trim(),
        description: description.trim() || undefined,
        environment,
        rego_code: code,
        resource_id: Number(resourceId) || null,
        status,
        test_cases: withTests && filled.data ? filled.data.test_cases : [],
      },
    });
  const typed = (next: string) => {
    if (next === code) return;
    setCode(next);
    setByHand(true);
  };
  const unsaved = Boolean(name.trim() || description.trim() || byHand) && !create.isPending && !create.isSuccess;
  return (
    <>
      <Unsaved when={unsaved} object={name.trim() || t("builder.title")} />
      <PageHeader title={t("builder.title")} about={t("builder.about")}>
        <Button variant="default" loading={create.isPending} disabled={!name.trim()} onClick={() => submit("draft")}>
          {t("builder.saveDraft")}
        </Button>
        <Button loading={create.isPending} disabled={!name.trim() || valid !== true} onClick={() => submit("active")}>
          {t("builder.saveActive")}
        </Button>
      </PageHeader>
      {create.error ? <ErrorPanel error={create.error} /> : null}
      <div className="gh-bench">
        <div className="gh-bench-side">
          <Panel title={t("builder.what")}>
            <Stack gap="sm">
              <TextInput
                label={t("policies.name")}
                value={name}
                onChange={(e) => setName(e.currentTarget.value)}
                required
                maxLength={200}
              />
              <Textarea
                label={t("builder.description")}
                value={description}
                onChange={(e) => setDescription(e.currentTarget.value)}
                autosize
              />
              <Select
                label={t("policies.resource")}
                placeholder={t("policies.wholeTenant")}
                data={resources.data?.resources.map((r) => ({ value: String(r.id), label: r.name })) ?? []}
                value={resourceId || null}
                onChange={setResourceId}
                clearable
                clearButtonProps={{ "aria-label": t("common.clearFilters") }}
                searchable
              />
              {resourceId && <Enrichment id={Number(resourceId)} choose={setTemplate} />}
              <Templates value={template} choose={setTemplate} />
            </Stack>
          </Panel>
          {template && filled.error ? (
            <div className="gh-note" data-tone="warn">
              {t("builder.unknownTemplate", { template })}
            </div>
          ) : null}
          {byHand ? (
            <div className="gh-note" data-tone="warn">
              {t("builder.byHand")}{" "}
              <Button
                size="compact-xs"
                variant="default"
                onClick={() => {
                  setByHand(false);
                  if (source !== undefined) setCode(source);
                }}
              >
                {t("builder.backToBuilder")}
              </Button>
            </div>
          ) : building ? (
            <Panel title={t("builder.conditions")}>
              <Conditions rows={rows} setRows={setRows} reason={reason} setReason={setReason} />
            </Panel>
          ) : (
            filled.data && (
              <Panel title={t("builder.parameters")}>
                <Parameters
                  template={filled.data}
                  code={code}
                  change={(parameter, value) => setCode(setParameter(code, parameter, value))}
                />
                {filled.data.test_cases.length > 0 && (
                  <Checkbox
                    mt="sm"
                    label={t("builder.takeTests", { count: filled.data.test_cases.length })}
                    checked={withTests}
                    onChange={(e) => setWithTests(e.currentTarget.checked)}
                  />
                )}
              </Panel>
            )
          )}
        </div>
        <div className="gh-bench-code">
          <Panel
            title={t("workbench.control")}
            flush
            actions={
              <span role="status">
                {valid === undefined ? (
                  <span className="gh-dim">{t("workbench.checking")}</span>
                ) : valid ? (
                  <Status tone="good">{t("builder.compiles")}</Status>
                ) : (
                  <Status tone="bad">{t("workbench.found", { count: issues.length })}</Status>
                )}
              </span>
            }
          >
            <Editor
              ref={editor}
              language="rego"
              label={t("workbench.control")}
              description={t("workbench.leaveEditor")}
              value={code}
              onChange={typed}
              issues={issues}
              complete={can("editor:read") ? complete : undefined}
              hover={can("editor:read") ? hover : undefined}
              minHeight={420}
              maxHeight="calc(100dvh - 260px)"
            />
            <ul className="gh-findings" aria-label={t("workbench.findings")}>
              {issues.slice(0, 20).map((i) => (
                <li key={`${i.line}:${i.column}:${i.message}`} data-severity={i.severity}>
                  <button type="button" onClick={() => editor.current?.goTo(i.line)}>
                    <strong>{t("common.line", { line: i.line })}</strong> {i.message}
                  </button>
                </li>
              ))}
            </ul>
          </Panel>
        </div>
      </div>
    </>
  );
}

function Templates({ value, choose }: { value: string; choose: (id: string | null) => void }) {
  const { t } = useI18n();
  const templates = api.useQuery("get", "/api/v1/templates", {}, { staleTime: Number.POSITIVE_INFINITY });
  const chosen = templates.data?.templates.find((x) => x.id === value);
  return (
    <Select
      label={t("builder.template")}
      placeholder={t("builder.noTemplate")}
      description={chosen?.description}
      data={templates.data?.templates.map((x) => ({ value: x.id, label: x.title })) ?? []}
      value={chosen ? value : null}
      onChange={choose}
      clearable
      clearButtonProps={{ "aria-label": t("builder.noTemplate") }}
      searchable
    />
  );
}

/** What is known of the resource, and the templates that it calls for, each with the facts that did. */
function Enrichment({ id, choose }: { id: number; choose: (template: string) => void }) {
  const { t, word } = useI18n();
  const environment = useEnvironment();
  const suggested = api.useQuery("get", "/api/v1/resources/{resource_id}/suggested-controls", {
    params: { path: { resource_id: id }, query: { environment } },
  });
  if (suggested.error) return <ErrorPanel error={suggested.error} />;
  const known = Object.entries(suggested.data?.enrichment_summary ?? {}).filter(([, v]) => v !== null);
  return (
    <div className="gh-note">
      {known.length === 0 ? (
        t("builder.notEnriched")
      ) : (
        <span className="gh-row">
          {known.map(([field, v]) => (
            <span key={field}>
              {word("resources", "field", field)}: <strong>{Array.isArray(v) ? v.join(", ") : String(v)}</strong>
            </span>
          ))}
        </span>
      )}
      {suggested.data?.suggestions.map((s) => (
        <div key={s.template_id} className="gh-row" style={{ marginTop: 6 }}>
          <Button size="compact-xs" variant="default" onClick={() => choose(s.template_id)}>
            {s.template_id}
          </Button>
          <span className="gh-dim">{s.triggered_by.join(", ")}</span>
        </div>
      ))}
    </div>
  );
}

function Parameters({
  template,
  code,
  change,
}: {
  template: Schemas["TemplateFilled"];
  code: string;
  change: (name: string, value: unknown) => void;
}) {
  return (
    <Stack gap="sm">
      {template.parameters.map((p) => (
        <Parameter
          key={`${template.id}:${p.name}`}
          parameter={p}
          fixed={!hasParameter(code, p.name)}
          change={(v) => change(p.name, v)}
        />
      ))}
    </Stack>
  );
}

function Parameter({
  parameter,
  fixed,
  change,
}: {
  parameter: Schemas["TemplateParameter"];
  fixed: boolean;
  change: (value: unknown) => void;
}) {
  const { t, word } = useI18n();
  const [text, setText] = useState(() =>
    parameter.type === "string" ? String(parameter.value ?? "") : JSON.stringify(parameter.value ?? parameter.default),
  );
  const [error, setError] = useState("");
  if (parameter.type === "boolean") {
    return (
      <Checkbox
        label={parameter.name}
        description={parameter.description}
        defaultChecked={parameter.value === true}
        disabled={fixed}
        onChange={(e) => change(e.currentTarget.checked)}
      />
    );
  }
  const enter = (next: string) => {
    setText(next);
    if (parameter.type === "string") return change(next);
    try {
      const value: unknown = JSON.parse(next);
      const kind = Array.isArray(value) ? "array" : typeof value;
      if (kind !== parameter.type) throw new Error();
      setError("");
      change(value);
    } catch {
      setError(t("builder.badValue", { type: parameter.type }));
    }
    return undefined;
  };
  return (
    <TextInput
      label={parameter.name}
      description={
        fixed && parameter.from
          ? t("builder.fromResource", { field: word("resources", "field", parameter.from) })
          : parameter.description
      }
      value={text}
      disabled={fixed}
      error={error}
      onChange={(e) => enter(e.currentTarget.value)}
    />
  );
}

function Conditions({
  rows,
  setRows,
  reason,
  setReason,
}: {
  rows: Row[];
  setRows: (rows: Row[]) => void;
  reason: string;
  setReason: (reason: string) => void;
}) {
  const { t } = useI18n();
  const change = (key: number, part: Partial<Row>) => setRows(rows.map((r) => (r.key === key ? { ...r, ...part } : r)));
  return (
    <Stack gap="sm">
      <p style={{ margin: 0 }}>{t("builder.allHold")}</p>
      {rows.map((row) => (
        <div key={row.key} className="gh-condition-row">
          <Autocomplete
            aria-label={t("builder.attribute")}
            data={attributes}
            value={row.attribute}
            onChange={(attribute) => change(row.key, { attribute })}
          />
          <Select
            aria-label={t("builder.operator")}
            data={operators.map((o) => ({ value: o, label: t(`builder.op_${o}`) }))}
            value={row.operator}
            onChange={(o) => change(row.key, { operator: (o ?? "is") as Operator })}
            allowDeselect={false}
          />
          <TextInput
            aria-label={t("builder.value")}
            placeholder={t("builder.value")}
            value={row.value}
            disabled={row.operator === "exists"}
            onChange={(e) => change(row.key, { value: e.currentTarget.value })}
          />
          <ActionIcon
            variant="default"
            size="lg"
            aria-label={t("builder.removeRow")}
            disabled={rows.length === 1}
            onClick={() => setRows(rows.filter((r) => r.key !== row.key))}
          >
            <Icon name="trash" />
          </ActionIcon>
        </div>
      ))}
      <Button
        variant="default"
        w="fit-content"
        leftSection={<Icon name="plus" />}
        onClick={() =>
          setRows([
            ...rows,
            { key: Math.max(...rows.map((r) => r.key)) + 1, attribute: "action.method", operator: "is", value: "" },
          ])
        }
      >
        {t("builder.addRow")}
      </Button>
      <TextInput
        label={t("builder.reason")}
        description={t("builder.reasonAbout")}
        value={reason}
        onChange={(e) => setReason(e.currentTarget.value)}
      />
    </Stack>
  );
}

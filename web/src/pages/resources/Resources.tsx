import { Button, Select, Stack, TagsInput, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useNavigate } from "react-router";
import { api, client, must } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { FilterSelect, Filters, FilterText } from "../../ui/Filters";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { Link, useClearFilters, useEnvironment, useFilter, useMe, useTo } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { classifications, kinds, type Resource } from "./fields";

export default function Resources() {
  const { t, word, number } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const [type] = useFilter("type");
  const [kind] = useFilter("kind");
  const [classification] = useFilter("classification");
  const [name] = useFilter("name");
  const clear = useClearFilters(["type", "kind", "classification", "name"]);
  const [creating, setCreating] = useState(false);
  const { source, total } = useSkipped<Resource>(
    ["get", "/api/v1/resources", environment, type],
    async (skip, signal) => {
      const page = must(
        await client.GET("/api/v1/resources", {
          params: { query: { environment, limit: 1000, skip, type: type || undefined } },
          signal,
        }),
      );
      return { rows: page.resources, total: page.total };
    },
  );
  const wanted = name.toLowerCase();
  const rows = source.rows?.filter(
    (r) =>
      (!kind || r.resource_kind === kind) &&
      (!classification || r.data_classification === classification) &&
      (!wanted || [r.name, r.path, r.original_host].some((text) => text.toLowerCase().includes(wanted))),
  );
  const types = [...new Set(source.rows?.map((r) => r.type) ?? [])].sort();
  if (type && !types.includes(type)) types.push(type);
  const columns: Column<Resource>[] = [
    {
      id: "name",
      header: t("policies.name"),
      cell: (r) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          <Link to={`/resources/${r.id}`} title={r.description}>
            {r.name}
          </Link>
          {r.auto_discovered && <Status tone="info">{t("resources.discovered")}</Status>}
        </span>
      ),
    },
    { id: "type", header: t("resources.type"), cell: (r) => r.type },
    {
      id: "kind",
      header: t("resources.field_resource_kind"),
      cell: (r) => (r.resource_kind ? word("resources", "kind", r.resource_kind) : <Missing />),
    },
    { id: "path", header: t("resources.path"), cell: (r) => <code title={r.original_host}>{r.path}</code> },
    {
      id: "classification",
      header: t("resources.field_data_classification"),
      cell: (r) => (r.data_classification ? word("resources", "class", r.data_classification) : <Missing />),
    },
    {
      id: "tags",
      header: t("resources.field_compliance_tags"),
      cell: (r) => (r.compliance_tags.length > 0 ? r.compliance_tags.join(", ") : <Missing />),
    },
    { id: "owner", header: t("resources.field_owner_team"), cell: (r) => r.owner_team ?? <Missing /> },
    { id: "controls", header: t("resources.controls"), numeric: true, cell: (r) => number(r.policies.length) },
    { id: "changed", header: t("policies.changed"), cell: (r) => <Time at={r.updated_at} /> },
  ];
  const add = can("resources:write") && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setCreating(true)}>
      {t("resources.new")}
    </Button>
  );
  return (
    <>
      <PageHeader title={t("nav.resources")} about={t("resources.about")}>
        {add}
      </PageHeader>
      <Filters
        count={
          rows && total !== undefined ? t("common.countOf", { shown: number(rows.length), total: number(total) }) : ""
        }
      >
        <FilterText name="name" label={t("resources.find")} />
        <FilterSelect name="type" label={t("resources.type")} options={types.map((x) => ({ value: x, label: x }))} />
        <FilterSelect
          name="kind"
          label={t("resources.field_resource_kind")}
          options={kinds.map((k) => ({ value: k, label: t(`resources.kind_${k}`) }))}
        />
        <FilterSelect
          name="classification"
          label={t("resources.field_data_classification")}
          options={classifications.map((c) => ({ value: c, label: t(`resources.class_${c}`) }))}
        />
      </Filters>
      <DataTable
        label={t("nav.resources")}
        columns={columns}
        source={{ ...source, rows }}
        rowKey={(r) => r.id}
        filtered={Boolean(type || kind || classification || name)}
        clear={clear}
        empty={<Empty title={t("resources.empty")} about={t("resources.emptyAbout")} action={add || undefined} />}
      />
      {creating && <NewResource close={() => setCreating(false)} />}
    </>
  );
}

function Missing() {
  const { t } = useI18n();
  return <span className="gh-dim">{t("resources.unknown")}</span>;
}

function NewResource({ close }: { close: () => void }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const navigate = useNavigate();
  const to = useTo();
  const queries = useQueryClient();
  const [methods, setMethods] = useState<string[]>([]);
  const [matching, setMatching] = useState<"folded" | "exact">("folded");
  const create = api.useMutation("post", "/api/v1/resources", {
    onSuccess: (made) => {
      refresh(queries, "resources");
      void navigate(to(`/resources/${made.id}`));
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    create.mutate({
      body: {
        name: text("name"),
        type: text("type"),
        path: text("path"),
        description: text("description") || undefined,
        url: text("url") || undefined,
        methods: methods.length > 0 ? methods : undefined,
        path_matching: matching,
        environment,
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("resources.new")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput name="name" label={t("policies.name")} required withAsterisk={false} />
          <TextInput name="type" label={t("resources.type")} defaultValue="api" required withAsterisk={false} />
          <TextInput
            name="path"
            label={t("resources.path")}
            description={t("resources.pathAbout")}
            placeholder="/employees/**"
            required
            withAsterisk={false}
          />
          <TagsInput
            label={t("resources.methods")}
            data={["GET", "POST", "PUT", "PATCH", "DELETE"]}
            value={methods}
            onChange={setMethods}
          />
          <Select
            label={t("resources.matching")}
            data={[
              { value: "folded", label: t("resources.matching_folded") },
              { value: "exact", label: t("resources.matching_exact") },
            ]}
            value={matching}
            onChange={(m) => setMatching(m === "exact" ? "exact" : "folded")}
            allowDeselect={false}
          />
          <TextInput name="url" label={t("resources.url")} />
          <TextInput name="description" label={t("builder.description")} />
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("resources.new")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

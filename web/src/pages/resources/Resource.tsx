import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { JsonView } from "../../ui/JsonView";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useMe, useTo } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Enrich } from "./Enrich";
import { choices, type Field, groupsOf, type Resource } from "./fields";
import "./resources.css";

export default function ResourceScreen() {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const { id = "" } = useParams();
  const [enriching, setEnriching] = useState(false);
  const [impacts, setImpacts] = useState<Schemas["ResourceImpact"][] | null>(null);
  const found = api.useQuery("get", "/api/v1/resources/{resource_id}", {
    params: { path: { resource_id: Number(id) }, query: { environment } },
  });
  if (!found.data) {
    return (
      <>
        <PageHeader title={t("resources.one")} />
        {found.error ? (
          <ErrorPanel error={found.error} retry={() => void found.refetch()} />
        ) : (
          <Skeleton label={t("resources.one")} />
        )}
      </>
    );
  }
  const resource = found.data;
  return (
    <div className="gh-stack">
      <PageHeader
        title={resource.name}
        about={resource.description}
        mark={
          <>
            <StatusOf value={resource.environment} />
            {resource.auto_discovered && <Status tone="info">{t("resources.discovered")}</Status>}
          </>
        }
      >
        {can("policies:write") && (
          <Link to="/policies/new" params={{ resource_id: resource.id }}>
            <Button component="span" variant="default">
              {t("policies.new")}
            </Button>
          </Link>
        )}
        {can("resources:edit") && <Button onClick={() => setEnriching(true)}>{t("resources.enrich")}</Button>}
        {can("resources:write") && <DeleteButton resource={resource} />}
      </PageHeader>
      {impacts && <Impacts impacts={impacts} />}
      <div className="gh-grid">
        <div className="gh-resource-main gh-stack">
          <Panel title={t("resources.known")}>
            <Known resource={resource} />
          </Panel>
          <Panel title={t("resources.itsControls")}>
            <Controls resource={resource} />
          </Panel>
          {can("audit:read") && (
            <Panel title={t("resources.history")}>
              <History resource={resource} />
            </Panel>
          )}
        </div>
        <div className="gh-resource-side gh-stack">
          <Panel title={t("resources.address")}>
            <Address resource={resource} />
          </Panel>
          <Panel title={t("resources.suggested")}>
            <Suggestions resource={resource} />
          </Panel>
        </div>
      </div>
      {enriching && (
        <Enrich
          resource={resource}
          close={() => setEnriching(false)}
          saved={(enriched) => {
            setImpacts(enriched.impacts);
            setEnriching(false);
          }}
        />
      )}
    </div>
  );
}

function List({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className="gh-facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Address({ resource }: { resource: Resource }) {
  const { t } = useI18n();
  const facts: [string, ReactNode][] = [
    [t("resources.type"), resource.type],
    [t("resources.path"), <code key="p">{resource.path}</code>],
    [t("resources.methods"), resource.methods.join(", ") || t("resources.allMethods")],
    [t("resources.matching"), t(`resources.matching_${resource.path_matching}`)],
    [t("resources.host"), resource.original_host || "–"],
    [t("resources.url"), resource.url || "–"],
    [t("workbench.created"), <Time key="c" at={resource.created_at} />],
    [t("policies.changed"), <Time key="u" at={resource.updated_at} />],
  ];
  return (
    <div className="gh-stack" style={{ gap: 10 }}>
      <List facts={facts} />
      {Object.keys(resource.attributes).length > 0 && (
        <JsonView value={resource.attributes} label={t("resources.attributes")} />
      )}
    </div>
  );
}

/** A field's value in words. */
export function useFieldValue() {
  const { t, word } = useI18n();
  return (field: Field, value: unknown): string => {
    if (value === null || value === undefined || value === "" || (Array.isArray(value) && value.length === 0)) {
      return t("resources.unknown");
    }
    if (Array.isArray(value)) return value.map((v) => word("resources", "value", String(v))).join(", ");
    if (field === "resource_kind") return word("resources", "kind", String(value));
    if (field === "data_classification") return word("resources", "class", String(value));
    return choices[field] ? word("resources", "value", String(value)) : String(value);
  };
}

function Known({ resource }: { resource: Resource }) {
  const { t, percent, word } = useI18n();
  const show = useFieldValue();
  return (
    <div className="gh-known">
      {groupsOf(resource.resource_kind).map(({ group, fields }) => (
        <section key={group} aria-label={t(`resources.group_${group}`)}>
          <h3 className="gh-small-title">{t(`resources.group_${group}`)}</h3>
          <List facts={fields.map((f) => [t(`resources.field_${f}`), show(f, resource[f])])} />
        </section>
      ))}
      {resource.last_classified_at && (
        <p className="gh-dim">
          {t("resources.classified", {
            source: word("resources", "source", resource.classification_source ?? "manual"),
            confidence: percent(resource.classification_confidence ?? 1),
          })}{" "}
          <Time at={resource.last_classified_at} />
        </p>
      )}
    </div>
  );
}

function Controls({ resource }: { resource: Resource }) {
  const { t } = useI18n();
  const { can } = useMe();
  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment: resource.environment, kind: "control", limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  if (policies.error) return <ErrorPanel error={policies.error} retry={() => void policies.refetch()} />;
  const bound = policies.data?.policies.filter((p) => p.resource_id === resource.id) ?? [];
  const wide = policies.data?.policies.filter((p) => p.resource_id === null) ?? [];
  return (
    <div className="gh-stack" style={{ gap: 10 }}>
      {policies.data && bound.length === 0 && <p className="gh-dim">{t("resources.noControls")}</p>}
      <ul className="gh-plain">
        {[...bound, ...wide].map((p) => (
          <li key={p.id} className="gh-row">
            {<Link to={`/policies/${p.id}`}>{p.name}</Link>}
            <StatusOf value={p.status} />
            {p.resource_id === null && <span className="gh-dim">{t("policies.wholeTenant")}</span>}
          </li>
        ))}
      </ul>
      {can("audit:read") && (
        <Link to="/decisions" params={{ resource_id: resource.id }}>
          {t("decisions.sameResource")}
        </Link>
      )}
    </div>
  );
}

function Suggestions({ resource }: { resource: Resource }) {
  const { t } = useI18n();
  const { can } = useMe();
  const params = { path: { resource_id: resource.id }, query: { environment: resource.environment } };
  const suggested = api.useQuery("get", "/api/v1/resources/{resource_id}/suggested-controls", { params });
  const hints = api.useQuery("get", "/api/v1/resources/{resource_id}/smart-suggestions", { params });
  const templates = api.useQuery(
    "get",
    "/api/v1/templates",
    {},
    { enabled: can("policies:read"), staleTime: Number.POSITIVE_INFINITY },
  );
  if (suggested.error) return <ErrorPanel error={suggested.error} retry={() => void suggested.refetch()} />;
  if (!suggested.data) return <Skeleton label={t("resources.suggested")} rows={2} columns={1} />;
  const title = (id: string) => templates.data?.templates.find((x) => x.id === id)?.title ?? id;
  if (suggested.data.suggestions.length === 0) return <p className="gh-dim">{t("resources.noSuggestions")}</p>;
  return (
    <ul className="gh-plain">
      {suggested.data.suggestions.map((s) => (
        <li key={s.template_id}>
          {can("policies:write") ? (
            <Link to="/policies/new" params={{ template: s.template_id, resource_id: resource.id }}>
              {title(s.template_id)}
            </Link>
          ) : (
            <strong>{title(s.template_id)}</strong>
          )}
          <div className="gh-dim">{t("resources.because", { facts: s.triggered_by.join(", ") })}</div>
        </li>
      ))}
      {hints.data?.suggestions
        .filter((h) => !suggested.data.template_ids.includes(h.template_id))
        .slice(0, 5)
        .map((h) => (
          <li key={`${h.template_id}:${h.attribute}`} className="gh-dim">
            {title(h.template_id)}: {h.hint}
          </li>
        ))}
    </ul>
  );
}

function History({ resource }: { resource: Resource }) {
  const { t } = useI18n();
  const events = api.useQuery("get", "/api/v1/audit/events", {
    params: {
      query: { environment: resource.environment, object: "resource", object_id: String(resource.id), limit: 20 },
    },
  });
  if (events.error) return <ErrorPanel error={events.error} retry={() => void events.refetch()} />;
  if (!events.data) return <Skeleton label={t("resources.history")} rows={2} columns={2} />;
  if (events.data.events.length === 0) return <p className="gh-dim">{t("resources.noHistory")}</p>;
  return (
    <ol className="gh-timeline">
      {events.data.events.map((e) => (
        <li key={e.id}>
          <span className="gh-row">
            <code>{e.type}</code>
            <span>{e.actor_name}</span>
            <span className="gh-dim">
              <Time at={e.timestamp} />
            </span>
          </span>
          {e.changes && Object.keys(e.changes).length > 0 && (
            <code className="gh-changes">{JSON.stringify(e.changes)}</code>
          )}
        </li>
      ))}
    </ol>
  );
}

/** What an enrichment meant for each bound control and each suggested template. */
function Impacts({ impacts }: { impacts: Schemas["ResourceImpact"][] }) {
  const { t, word } = useI18n();
  return (
    <div className="gh-note" data-tone="good" role="status">
      <strong>{t("resources.saved")}</strong>
      <ul style={{ margin: "6px 0 0", paddingLeft: 18 }}>
        {impacts.map((i) => (
          <li key={`${i.effect}:${i.policy_id ?? i.template_id}`}>
            {word("resources", "effect", i.effect)}: {i.detail}
          </li>
        ))}
      </ul>
    </div>
  );
}

function DeleteButton({ resource }: { resource: Resource }) {
  const { t } = useI18n();
  const [asking, setAsking] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const to = useTo();
  const remove = api.useMutation("delete", "/api/v1/resources/{resource_id}", {
    onSuccess: () => {
      refresh(queries, "resources");
      void navigate(to("/resources"));
    },
  });
  return (
    <>
      <Button variant="default" onClick={() => setAsking(true)}>
        {t("common.delete")}
      </Button>
      <ConfirmDialog
        opened={asking}
        close={() => setAsking(false)}
        title={t("resources.delete")}
        object={resource.name}
        environment={resource.environment}
        about={t("resources.deleteAbout", { count: resource.policies.length })}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() =>
          remove.mutate({
            params: {
              path: { resource_id: resource.id },
              query: { environment: resource.environment },
              header: ifMatch(resource),
            },
          })
        }
      />
    </>
  );
}

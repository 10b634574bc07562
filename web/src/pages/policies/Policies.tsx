import { Button, Checkbox } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, client, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { PolicyFilters, usePolicyColumns, usePolicyList } from "./list";

type Policy = Schemas["Policy"];

export default function Policies() {
  const { t, number, percent } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const [, showDeleted] = useFilter("deleted");
  const { source, total, deleted, filtered, clear } = usePolicyList("control");
  const shared = usePolicyColumns();
  const [chosen, setChosen] = useState<ReadonlyMap<number, Policy>>(new Map());
  const [change, setChange] = useState<"active" | "inactive" | null>(null);
  const resources = useNames("resources", environment);
  const bouncers = useNames("bouncers", environment);
  const top = api.useQuery(
    "get",
    "/api/v1/dashboard/top",
    { params: { query: { environment, by: "policy", window: "24h", limit: 100 } } },
    { enabled: can("dashboard:read") },
  );
  const denials = new Map(top.data?.items.map((i) => [i.id, i]) ?? []);
  const write = can("policies:write");

  const toggle = (policy: Policy) => {
    const next = new Map(chosen);
    if (!next.delete(policy.id)) next.set(policy.id, policy);
    setChosen(next);
  };
  const columns: Column<Policy>[] = [
    shared.name,
    {
      id: "status",
      header: t("policies.status"),
      cell: (p) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }}>
          <StatusOf value={p.status} />
          {p.sync_errors.length > 0 && <Status tone="bad">{t("policies.notDelivered")}</Status>}
        </span>
      ),
    },
    {
      id: "resource",
      header: t("policies.resource"),
      cell: (p) => {
        if (p.resource_id === null) return <span className="gh-dim">{t("policies.wholeTenant")}</span>;
        const label = resources.get(p.resource_id) ?? `#${p.resource_id}`;
        return <Link to={`/resources/${p.resource_id}`}>{label}</Link>;
      },
    },
    {
      id: "bouncer",
      header: t("policies.bouncer"),
      cell: (p) =>
        p.bouncer_id === null ? (
          <span className="gh-dim">{t("policies.anyBouncer")}</span>
        ) : (
          (bouncers.get(p.bouncer_id) ?? `#${p.bouncer_id}`)
        ),
    },
    shared.version,
    shared.changed,
    {
      id: "evaluations",
      header: t("policies.evaluations"),
      numeric: true,
      cell: (p) => number(p.performance_metrics.total_evaluations),
    },
    {
      id: "denied",
      header: t("policies.deniedShare"),
      numeric: true,
      cell: (p) => {
        const counts = denials.get(String(p.id));
        const all = counts ? counts.denied + counts.permitted : 0;
        return counts && all > 0 ? percent(counts.denied / all) : <span className="gh-dim">–</span>;
      },
    },
  ];
  if (deleted) {
    columns.push({
      id: "deleted",
      header: t("policies.deletedAt"),
      cell: (p) => p.deleted_at && <Time at={p.deleted_at} />,
    });
    if (write) {
      columns.push({
        id: "restore",
        header: t("policies.restore"),
        hiddenHeader: true,
        cell: (p) => <Restore policy={p} />,
      });
    }
  } else if (write) {
    columns.unshift({
      id: "choose",
      header: t("policies.choose"),
      hiddenHeader: true,
      width: 36,
      cell: (p) => (
        <Checkbox
          size="xs"
          aria-label={t("policies.chooseOne", { name: p.name })}
          checked={chosen.has(p.id)}
          onChange={() => toggle(p)}
        />
      ),
    });
  }
  const newControl = write && (
    <Link to="/policies/new">
      <Button component="span" leftSection={<Icon name="plus" />}>
        {t("policies.new")}
      </Button>
    </Link>
  );
  return (
    <>
      <PageHeader title={t("policies.title")} about={t("policies.about")}>
        {newControl}
      </PageHeader>
      <PolicyFilters total={total}>
        <Checkbox
          label={t("policies.showDeleted")}
          checked={deleted}
          onChange={(event) => {
            setChosen(new Map());
            showDeleted(event.currentTarget.checked ? "true" : null);
          }}
        />
        {chosen.size > 0 && (
          <>
            <span>{t("policies.chosen", { count: chosen.size })}</span>
            <Button variant="default" onClick={() => setChange("active")}>
              {t("policies.activate")}
            </Button>
            <Button variant="default" onClick={() => setChange("inactive")}>
              {t("policies.deactivate")}
            </Button>
          </>
        )}
      </PolicyFilters>
      <DataTable
        label={t("policies.title")}
        columns={columns}
        source={source}
        rowKey={(p) => p.id}
        selected={(p) => chosen.has(p.id)}
        filtered={filtered}
        clear={clear}
        empty={<Empty title={t("policies.empty")} about={t("policies.emptyAbout")} action={newControl || undefined} />}
      />
      {change && (
        <BulkChange
          policies={[...chosen.values()]}
          status={change}
          close={() => setChange(null)}
          done={() => setChosen(new Map())}
        />
      )}
    </>
  );
}

/** Brings a deleted control back as it was. */
function Restore({ policy }: { policy: Policy }) {
  const { t } = useI18n();
  const queries = useQueryClient();
  const restore = api.useMutation("post", "/api/v1/policies/{policy_id}/restore", {
    onSuccess: () => refresh(queries, "policies"),
  });
  return (
    <span className="gh-row">
      <Button
        size="compact-xs"
        variant="default"
        loading={restore.isPending}
        aria-label={t("policies.restoreOne", { name: policy.name })}
        onClick={() =>
          restore.mutate({
            params: { path: { policy_id: policy.id }, query: { environment: policy.environment } },
          })
        }
      >
        {t("policies.restore")}
      </Button>
      {restore.error ? (
        <span className="gh-bad-text" role="alert">
          {restore.error.message}
        </span>
      ) : null}
    </span>
  );
}

/** The names of an environment's resources or bouncers by id. */
export function useNames(kind: "resources" | "bouncers", environment: "sandbox" | "production"): Map<number, string> {
  const { can } = useMe();
  const resources = api.useQuery(
    "get",
    "/api/v1/resources",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: kind === "resources" && can("resources:read") },
  );
  const bouncers = api.useQuery(
    "get",
    "/api/v1/bouncers",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: kind === "bouncers" && can("bouncers:read") },
  );
  const list: { id: number; name: string }[] =
    (kind === "resources" ? resources.data?.resources : bouncers.data?.bouncers) ?? [];
  return new Map(list.map((o) => [o.id, o.name]));
}

/** Changes the status of several controls, one after the other, and says which could not be changed. */
function BulkChange({
  policies,
  status,
  close,
  done,
}: {
  policies: Policy[];
  status: "active" | "inactive";
  close: () => void;
  done: () => void;
}) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [busy, setBusy] = useState(false);
  const [failures, setFailures] = useState<[string, string][]>([]);
  const run = async () => {
    setBusy(true);
    const failed: [string, string][] = [];
    for (const policy of policies) {
      if (policy.status === status) continue;
      try {
        await client.PUT("/api/v1/policies/{policy_id}", {
          params: {
            path: { policy_id: policy.id },
            query: { environment },
            header: ifMatch(policy),
          },
          body: { status },
        });
      } catch (failure) {
        failed.push([policy.name, failure instanceof Error ? failure.message : String(failure)]);
      }
    }
    refresh(queries, "policies");
    setBusy(false);
    setFailures(failed);
    if (failed.length === 0) {
      done();
      close();
    }
  };
  return (
    <ConfirmDialog
      opened
      close={close}
      title={status === "active" ? t("policies.activate") : t("policies.deactivate")}
      object={t("policies.chosen", { count: policies.length })}
      environment={environment}
      about={status === "active" ? t("policies.activateAbout") : t("policies.deactivateAbout")}
      action={status === "active" ? t("policies.activate") : t("policies.deactivate")}
      busy={busy}
      confirm={() => void run()}
    >
      <ul style={{ margin: 0 }}>
        {policies.slice(0, 20).map((p) => (
          <li key={p.id}>{p.name}</li>
        ))}
      </ul>
      {failures.map(([name, message]) => (
        <p key={name} className="gh-error" role="alert">
          <strong>{name}</strong>: {message}
        </p>
      ))}
    </ConfirmDialog>
  );
}

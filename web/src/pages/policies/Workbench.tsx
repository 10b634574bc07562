import { Button, Tabs } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { useEnvironment, useFilter, useMe, useTo } from "../../ui/scope";
import { Unsaved } from "../../ui/Unsaved";
import { Code } from "./Code";
import type { Policy } from "./policy";
import "./workbench.css";

// The other tabs come when they are opened.
const Promote = lazy(async () => ({ default: (await import("./Promote")).Promote }));
const Tests = lazy(async () => ({ default: (await import("./Tests")).Tests }));
const Usage = lazy(async () => ({ default: (await import("./Usage")).Usage }));
const Versions = lazy(async () => ({ default: (await import("./Versions")).Versions }));

const tabs = ["code", "tests", "versions", "usage", "promote"] as const;
type Tab = (typeof tabs)[number];

export default function Workbench() {
  const { t } = useI18n();
  const environment = useEnvironment();
  const { id = "" } = useParams();
  const policy = api.useQuery("get", "/api/v1/policies/{policy_id}", {
    params: { path: { policy_id: Number(id) }, query: { environment } },
  });
  if (policy.error && !policy.data) {
    return (
      <>
        <PageHeader title={t("workbench.title")} />
        <ErrorPanel error={policy.error} retry={() => void policy.refetch()} />
      </>
    );
  }
  if (!policy.data) {
    return (
      <>
        <PageHeader title={t("workbench.title")} />
        <Skeleton label={t("workbench.title")} />
      </>
    );
  }
  return <Bench key={policy.data.id} policy={policy.data} />;
}

function Bench({ policy }: { policy: Policy }) {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [chosen, choose] = useFilter("tab");
  const [code, setCode] = useState(policy.rego_code);
  const [stored, setStored] = useState(policy);
  const dirty = code !== stored.rego_code;
  const theirs = policy.version > stored.version && dirty && policy.rego_code !== stored.rego_code;
  // What others changed is taken over, unless it would lose what is typed here.
  useEffect(() => {
    if (policy.version === stored.version) return;
    if (dirty && policy.rego_code !== stored.rego_code) return;
    if (!dirty) setCode(policy.rego_code);
    setStored(policy);
  }, [policy, stored, dirty]);

  const path = { policy_id: policy.id };
  const save = api.useMutation("put", "/api/v1/policies/{policy_id}", {
    onSuccess: (next) => {
      setStored(next);
      queries.setQueryData(["get", "/api/v1/policies/{policy_id}", { params: { path, query: { environment } } }], next);
      refresh(queries, "policies");
    },
  });
  const change = (body: Schemas["PolicyChange"]) =>
    save.mutate({ params: { path, query: { environment }, header: ifMatch(stored) }, body });
  const write = can("policies:write");
  const library = policy.kind === "library";
  const shown = tabs.filter((tab) =>
    tab === "promote" ? environment === "sandbox" && write : tab !== "tests" || !library,
  );
  const affected = library ? (save.data?.affected_policies ?? []) : [];
  const tab: Tab = shown.find((name) => name === chosen) ?? "code";
  return (
    <>
      <PageHeader
        title={policy.name}
        about={policy.description}
        mark={
          <>
            <StatusOf value={stored.status} />
            <StatusOf value={environment} />
            <span className="gh-dim">{t("workbench.version", { version: stored.version })}</span>
            {dirty && <Status tone="warn">{t("workbench.unsaved")}</Status>}
          </>
        }
      >
        {write && (
          <>
            <Button disabled={!dirty} loading={save.isPending} onClick={() => change({ rego_code: code })}>
              {t("common.save")}
            </Button>
            <StatusButton policy={stored} busy={save.isPending} change={change} />
            <DeleteButton policy={stored} />
          </>
        )}
      </PageHeader>
      {save.error ? <ErrorPanel error={save.error} /> : null}
      {affected.length > 0 && (
        <p className="gh-note" data-tone="good" role="status" style={{ marginTop: 0 }}>
          {t("libraries.usersAbout", { count: affected.length })}{" "}
          {affected
            .slice(0, 10)
            .map((p) => p.name)
            .join(", ")}
        </p>
      )}
      {theirs && (
        <div className="gh-note" data-tone="warn" role="alert">
          {t("workbench.theirs", { version: policy.version })}{" "}
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => {
              setCode(policy.rego_code);
              setStored(policy);
            }}
          >
            {t("workbench.takeTheirs")}
          </Button>
        </div>
      )}
      <Tabs value={tab} onChange={(next) => choose(next === "code" ? null : next)} keepMounted={false}>
        <Tabs.List mb="md">
          {shown.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {t(`workbench.tab_${name}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="code">
          <Code
            policy={stored}
            code={code}
            setCode={write ? setCode : undefined}
            dirty={dirty}
            save={write ? () => change({ rego_code: code }) : undefined}
            addTest={write ? (test) => change({ test_cases: [...stored.test_cases, test] }) : undefined}
          />
        </Tabs.Panel>
        <Suspense fallback={<Skeleton label={t(`workbench.tab_${tab}`)} />}>
          <Tabs.Panel value="tests">
            <Tests policy={stored} change={write ? change : undefined} busy={save.isPending} />
          </Tabs.Panel>
          <Tabs.Panel value="versions">
            <Versions policy={stored} />
          </Tabs.Panel>
          <Tabs.Panel value="usage">
            <Usage policy={policy} />
          </Tabs.Panel>
          {shown.includes("promote") && (
            <Tabs.Panel value="promote">
              <Promote policy={stored} dirty={dirty} />
            </Tabs.Panel>
          )}
        </Suspense>
      </Tabs>
      <Unsaved when={dirty} object={policy.name} />
    </>
  );
}

function StatusButton({
  policy,
  busy,
  change,
}: {
  policy: Policy;
  busy: boolean;
  change: (body: Schemas["PolicyChange"]) => void;
}) {
  const { t } = useI18n();
  const [asking, setAsking] = useState(false);
  const next = policy.status === "active" ? "inactive" : "active";
  const label = next === "active" ? t("policies.activate") : t("policies.deactivate");
  const area = policy.kind === "library" ? "libraries" : "policies";
  return (
    <>
      <Button variant="default" onClick={() => setAsking(true)}>
        {label}
      </Button>
      <ConfirmDialog
        opened={asking}
        close={() => setAsking(false)}
        title={label}
        object={policy.name}
        environment={policy.environment}
        about={t(`${area}.${next === "active" ? "activateAbout" : "deactivateAbout"}`)}
        action={label}
        busy={busy}
        confirm={() => {
          change({ status: next });
          setAsking(false);
        }}
      />
    </>
  );
}

function DeleteButton({ policy }: { policy: Policy }) {
  const { t } = useI18n();
  const to = useTo();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const remove = api.useMutation("delete", "/api/v1/policies/{policy_id}", {
    onSuccess: () => {
      refresh(queries, "policies");
      void navigate(to(policy.kind === "library" ? "/libraries" : "/policies"));
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
        title={policy.kind === "library" ? t("libraries.delete") : t("workbench.delete")}
        object={policy.name}
        environment={policy.environment}
        about={policy.kind === "library" ? t("libraries.deleteAbout") : t("workbench.deleteAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() =>
          remove.mutate({
            params: {
              path: { policy_id: policy.id },
              query: { environment: policy.environment },
              header: ifMatch(policy),
            },
          })
        }
      />
    </>
  );
}

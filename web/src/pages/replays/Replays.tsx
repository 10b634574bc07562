import { Button, MultiSelect, Select, Stack } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Filters } from "../../ui/Filters";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Run } from "./Run";

type RunRow = Schemas["ReplayRun"];

/** Replays of recorded decisions: those that run, those that ended, and a new one. */
export default function Replays() {
  const { t, number } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const [shown, show] = useFilter("run");
  const [adding, setAdding] = useState(false);
  const runs = api.useQuery(
    "get",
    "/api/v1/compliance/replays",
    { params: { query: { environment, limit: 200 } } },
    // A replay that runs moves without a change that the stream would tell.
    { refetchInterval: (query) => (query.state.data?.runs.some((r) => r.status === "running") ? 2000 : false) },
  );
  const policies = api.useQuery(
    "get",
    "/api/v1/policies",
    { params: { query: { environment, limit: 1000 } } },
    { enabled: can("policies:read") },
  );
  const names = new Map((policies.data?.policies ?? []).map((p) => [p.id, p.name]));
  const columns: Column<RunRow>[] = [
    {
      id: "started",
      header: t("replays.started"),
      cell: (r) => (
        <button type="button" className="gh-link" onClick={() => show(String(r.id))}>
          <Time at={r.created_at} />
        </button>
      ),
    },
    { id: "status", header: t("replays.status"), cell: (r) => <StatusOf value={r.status} /> },
    { id: "source", header: t("replays.source"), cell: (r) => <StatusOf value={r.source_environment} /> },
    {
      id: "controls",
      header: t("replays.controls"),
      cell: (r) => r.request.control_ids?.map((id) => names.get(id) ?? `#${id}`).join(", ") || t("replays.activeOnes"),
    },
    { id: "evaluated", header: t("replays.evaluated"), numeric: true, cell: (r) => number(r.progress.evaluated) },
  ];
  return (
    <>
      <PageHeader title={t("nav.replays")} about={t("replays.about")}>
        <Button onClick={() => setAdding(true)}>{t("replays.start")}</Button>
      </PageHeader>
      <Filters count={runs.data ? t("common.count", { count: runs.data.total }) : undefined}>{null}</Filters>
      <DataTable
        label={t("nav.replays")}
        columns={columns}
        rowKey={(r) => r.id}
        open={(r) => show(String(r.id))}
        selected={(r) => String(r.id) === shown}
        source={{ rows: runs.data?.runs, error: runs.error, retry: () => void runs.refetch() }}
        empty={
          <Empty
            title={t("replays.empty")}
            about={t("replays.emptyAbout")}
            action={<Button onClick={() => setAdding(true)}>{t("replays.start")}</Button>}
          />
        }
        maxHeight={shown ? 300 : undefined}
      />
      {shown && <Run id={Number(shown)} close={() => show(null)} />}
      {adding && (
        <Start
          close={() => setAdding(false)}
          started={(run) => {
            setAdding(false);
            show(String(run.id));
          }}
        />
      )}
    </>
  );
}

function Start({ close, started }: { close: () => void; started: (run: RunRow) => void }) {
  const { t, word } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [controls, setControls] = useState<string[]>([]);
  const [source, setSource] = useState<"sandbox" | "production">(environment);
  const [hours, setHours] = useState("24");
  const policies = api.useQuery("get", "/api/v1/policies", {
    params: { query: { environment, kind: "control", limit: 1000 } },
  });
  const start = api.useMutation("post", "/api/v1/compliance/replays", {
    onSuccess: (run) => {
      refresh(queries, "replays");
      started(run);
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    start.mutate({
      body: {
        environment,
        source_environment: source,
        control_ids: controls.map(Number),
        window_hours: Number(hours),
        samples: 50,
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("replays.start")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <MultiSelect
            label={t("replays.controls")}
            description={t("replays.controlsAbout")}
            data={(policies.data?.policies ?? []).map((p) => ({ value: String(p.id), label: p.name }))}
            value={controls}
            onChange={setControls}
            searchable
          />
          <Select
            label={t("replays.source")}
            description={t("replays.sourceAbout")}
            data={(["sandbox", "production"] as const).map((value) => ({
              value,
              label: word("common", "state", value),
            }))}
            value={source}
            onChange={(value) => setSource(value === "production" ? "production" : "sandbox")}
            allowDeselect={false}
          />
          <Select
            label={t("replays.window")}
            data={["1", "24", "72", "168", "720"].map((value) => ({
              value,
              label: t("replays.hours", { count: Number(value) }),
            }))}
            value={hours}
            onChange={(value) => setHours(value ?? "24")}
            allowDeselect={false}
          />
          {start.error ? <ErrorPanel error={start.error} /> : null}
          <Button type="submit" loading={start.isPending}>
            {t("replays.start")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

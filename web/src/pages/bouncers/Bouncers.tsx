import { Button, NumberInput, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { useNavigate } from "react-router";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { FilterSelect, Filters } from "../../ui/Filters";
import { refresh } from "../../ui/live";
import { PageHeader } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { Link, useClearFilters, useEnvironment, useFilter, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Enforcement } from "./Enforcement";
import { Issued } from "./Issued";

type Bouncer = Schemas["Bouncer"];
const states = ["connected", "degraded", "disconnected"] as const;
type State = (typeof states)[number];

/** The enforcement points of an environment: whether they are there, what they run, and how busy they are. */
export default function Bouncers() {
  const { t, word, number, percent } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const navigate = useNavigate();
  const clear = useClearFilters(["status"]);
  const [filter] = useFilter("status");
  const status = states.find((s) => s === filter) as State | undefined;
  const bouncers = api.useQuery("get", "/api/v1/bouncers", {
    params: { query: { environment, limit: 1000, status } },
  });
  const [adding, setAdding] = useState(false);
  const [issued, setIssued] = useState<Schemas["BouncerIssued"] | null>(null);
  const write = can("bouncers:write");
  const columns: Column<Bouncer>[] = [
    { id: "name", header: t("bouncers.name"), cell: (b) => <Link to={`/bouncers/${b.id}`}>{b.name}</Link> },
    { id: "status", header: t("bouncers.status"), cell: (b) => <StatusOf value={b.status} /> },
    { id: "seen", header: t("bouncers.lastSeen"), cell: (b) => <Time at={b.last_heartbeat} /> },
    { id: "version", header: t("bouncers.version"), cell: (b) => b.version || t("common.none") },
    { id: "target", header: t("bouncers.target"), cell: (b) => b.target_app || t("common.none") },
    {
      id: "policies",
      header: t("bouncers.policies"),
      numeric: true,
      cell: (b) => number(b.policies_synced),
    },
    { id: "rate", header: t("bouncers.rate"), numeric: true, cell: (b) => number(b.requests_per_second) },
    { id: "cache", header: t("bouncers.hitRate"), numeric: true, cell: (b) => percent(b.cache_hit_rate) },
  ];
  return (
    <>
      <PageHeader title={t("nav.bouncers")} about={t("bouncers.about")}>
        {write && <Button onClick={() => setAdding(true)}>{t("bouncers.add")}</Button>}
      </PageHeader>
      <Enforcement environment={environment} />
      {issued && <Issued issued={issued} close={() => setIssued(null)} />}
      <Filters count={bouncers.data ? t("common.count", { count: bouncers.data.total }) : undefined}>
        <FilterSelect
          name="status"
          label={t("bouncers.status")}
          options={states.map((value) => ({ value, label: word("common", "state", value) }))}
        />
      </Filters>
      <DataTable
        label={t("nav.bouncers")}
        columns={columns}
        rowKey={(b) => b.id}
        open={(b) => void navigate(`/bouncers/${b.id}?environment=${environment}`)}
        filtered={status !== undefined}
        clear={clear}
        source={{ rows: bouncers.data?.bouncers, error: bouncers.error, retry: () => void bouncers.refetch() }}
        empty={
          <Empty
            title={t("bouncers.empty")}
            about={t("bouncers.emptyAbout")}
            action={write ? <Button onClick={() => setAdding(true)}>{t("bouncers.add")}</Button> : undefined}
          />
        }
      />
      {adding && (
        <Register
          close={() => setAdding(false)}
          created={(made) => {
            setAdding(false);
            setIssued(made);
          }}
        />
      )}
    </>
  );
}

function Register({ close, created }: { close: () => void; created: (made: Schemas["BouncerIssued"]) => void }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const create = api.useMutation("post", "/api/v1/bouncers", {
    onSuccess: (made) => {
      refresh(queries, "bouncers");
      created(made);
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const target = String(form.get("target")).trim();
    create.mutate({
      body: {
        name: String(form.get("name")).trim(),
        hostname: String(form.get("hostname")).trim(),
        port: Number(form.get("port")),
        environment,
        ...(target ? { target_app: target } : {}),
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("bouncers.add")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput name="name" label={t("bouncers.name")} required withAsterisk={false} data-autofocus />
          <TextInput
            name="hostname"
            label={t("bouncers.hostname")}
            description={t("bouncers.hostnameAbout")}
            defaultValue={window.location.hostname}
            required
            withAsterisk={false}
          />
          <NumberInput
            name="port"
            label={t("bouncers.port")}
            defaultValue={8081}
            min={1}
            max={65535}
            allowDecimal={false}
            required
            withAsterisk={false}
            hideControls
          />
          <TextInput
            name="target"
            label={t("bouncers.target")}
            description={t("bouncers.targetAbout")}
            placeholder="127.0.0.1:3000"
          />
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("bouncers.add")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

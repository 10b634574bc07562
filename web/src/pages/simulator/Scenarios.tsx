import { Button, Select, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Icon } from "../../ui/icons";
import { refresh } from "../../ui/live";
import { useEnvironment, useMe } from "../../ui/scope";
import type { Input } from "./input";

type Scenario = Schemas["SimulatorScenario"];

/** The scenarios of a control: load one, keep the input as a new one, change or delete the loaded one. */
export function Scenarios({
  policyId,
  scenarios,
  chosen,
  input,
  changed,
  choose,
}: {
  policyId: number;
  scenarios: Scenario[];
  chosen: Scenario | undefined;
  /** The input as it stands; undefined: its text cannot be read. */
  input: Input | undefined;
  /** Whether it differs from the loaded scenario. */
  changed: boolean;
  choose: (scenario: Scenario | null) => void;
}) {
  const { t } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [saving, setSaving] = useState(false);
  const [removing, setRemoving] = useState(false);
  const update = api.useMutation("put", "/api/v1/pis/scenarios/{scenario_id}", {
    onSuccess: () => refresh(queries, "scenarios"),
  });
  const remove = api.useMutation("delete", "/api/v1/pis/scenarios/{scenario_id}", {
    onSuccess: () => {
      setRemoving(false);
      choose(null);
      refresh(queries, "scenarios");
    },
  });
  const write = can("simulator:write");
  return (
    <>
      <div className="gh-row" style={{ alignItems: "end" }}>
        <Select
          label={t("simulator.scenario")}
          placeholder={scenarios.length > 0 ? t("simulator.noScenario") : t("simulator.noScenarios")}
          data={scenarios.map((s) => ({ value: String(s.id), label: s.name }))}
          value={chosen ? String(chosen.id) : null}
          onChange={(id) => choose(scenarios.find((s) => String(s.id) === id) ?? null)}
          disabled={scenarios.length === 0}
          clearable
          clearButtonProps={{ "aria-label": t("simulator.noScenario") }}
          searchable
          limit={100}
          flex={1}
          miw={180}
        />
        {write && (
          <Button variant="default" disabled={!input} onClick={() => setSaving(true)}>
            {t("simulator.saveScenario")}
          </Button>
        )}
        {write && chosen && (
          <>
            <Button
              variant="default"
              disabled={!changed || !input}
              loading={update.isPending}
              onClick={() =>
                update.mutate({
                  params: { path: { scenario_id: chosen.id }, query: { environment } },
                  body: { attributes: input },
                })
              }
            >
              {t("simulator.updateScenario")}
            </Button>
            <Button
              variant="default"
              px={10}
              aria-label={t("simulator.deleteScenario", { name: chosen.name })}
              onClick={() => setRemoving(true)}
            >
              <Icon name="trash" />
            </Button>
          </>
        )}
      </div>
      {chosen?.description && <p className="gh-dim gh-flat">{chosen.description}</p>}
      {update.error ? <ErrorPanel error={update.error} /> : null}
      {saving && input && (
        <Save
          policyId={policyId}
          input={input}
          close={() => setSaving(false)}
          saved={(made) => {
            setSaving(false);
            choose(made);
          }}
        />
      )}
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          remove.reset();
        }}
        title={t("simulator.deleteScenarioTitle")}
        object={chosen?.name ?? ""}
        environment={environment}
        about={t("simulator.deleteScenarioAbout")}
        action={t("common.delete")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() =>
          chosen && remove.mutate({ params: { path: { scenario_id: chosen.id }, query: { environment } } })
        }
      />
    </>
  );
}

function Save({
  policyId,
  input,
  close,
  saved,
}: {
  policyId: number;
  input: Input;
  close: () => void;
  saved: (made: Scenario) => void;
}) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const queries = useQueryClient();
  const create = api.useMutation("post", "/api/v1/pis/scenarios", {
    onSuccess: (made) => {
      refresh(queries, "scenarios");
      saved(made);
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    create.mutate({
      params: { query: { environment } },
      body: {
        name: String(form.get("scenario-name")).trim(),
        description: String(form.get("scenario-description")).trim(),
        policy_id: policyId,
        attributes: input,
      },
    });
  };
  return (
    <Dialog opened close={close} title={t("simulator.saveScenario")}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput label={t("policies.name")} name="scenario-name" required maxLength={200} data-autofocus />
          <TextInput label={t("simulator.scenarioAbout")} name="scenario-description" maxLength={1000} />
          {create.error ? <ErrorPanel error={create.error} /> : null}
          <Button type="submit" loading={create.isPending}>
            {t("common.save")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

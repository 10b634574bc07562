import { Button, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { api, type Environment, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Copyable } from "../../ui/Copy";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { Link, useMe } from "../../ui/scope";
import { bouncerCommand } from "../bouncers/command";

/** The path from nothing to a protected application, until all four steps are done. */
export default function FirstSteps({
  stats,
  mode,
  environment,
  hide,
}: {
  stats: Schemas["DashboardStats"];
  mode: Schemas["TenantEnforcement"]["mode"] | undefined;
  environment: Environment;
  hide: () => void;
}) {
  const { t, word } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const enforce = api.useMutation("put", "/api/v1/environments/{environment}/enforcement", {
    onSuccess: () => {
      setAsking(false);
      refresh(queries, "tenant");
    },
  });
  const [asking, setAsking] = useState(false);
  const [issued, setIssued] = useState<Schemas["BouncerIssued"] | null>(null);
  const connected = stats.operationalPEPs > 0;
  const active = stats.activePolicies > 0;
  const decided = stats.authDecisions24h > 0;
  const enforced = mode === "enforce";
  return (
    <Panel
      title={t("dashboard.stepsTitle")}
      flush
      actions={
        <Button size="compact-sm" variant="default" onClick={hide}>
          {t("dashboard.stepsHide")}
        </Button>
      }
    >
      <ol className="gh-steps">
        <Step title={t("dashboard.stepProtect")} about={t("dashboard.stepProtectAbout")} done={connected}>
          {!connected &&
            (issued ? <Issued issued={issued} /> : <Register environment={environment} onIssued={setIssued} />)}
        </Step>
        <Step title={t("dashboard.stepControl")} about={t("dashboard.stepControlAbout")} done={active}>
          {!active && can("policies:write") && <Link to="/policies/new">{t("dashboard.stepControlAction")}</Link>}
        </Step>
        <Step title={t("dashboard.stepSee")} about={t("dashboard.stepSeeAbout")} done={decided}>
          {<Link to="/decisions">{t("dashboard.stepSeeAction")}</Link>}
        </Step>
        <Step title={t("dashboard.stepEnforce")} about={t("dashboard.stepEnforceAbout")} done={enforced}>
          {!enforced && mode && can("bouncers:write") && (
            <Button variant="default" onClick={() => setAsking(true)}>
              {t("dashboard.stepEnforceAction", { environment: word("common", "state", environment) })}
            </Button>
          )}
        </Step>
      </ol>
      <ConfirmDialog
        opened={asking}
        close={() => setAsking(false)}
        title={t("dashboard.stepEnforce")}
        object={word("common", "state", environment)}
        environment={environment}
        about={t("dashboard.stepEnforceAsk")}
        action={t("dashboard.stepEnforceAction", { environment: word("common", "state", environment) })}
        busy={enforce.isPending}
        error={enforce.error}
        confirm={() => enforce.mutate({ params: { path: { environment } }, body: { mode: "enforce" } })}
      />
    </Panel>
  );
}

function Step({ title, about, done, children }: { title: string; about: string; done: boolean; children: ReactNode }) {
  const { t } = useI18n();
  return (
    <li data-done={done}>
      <h3>
        {title}
        {done && <span className="gh-sr">{t("dashboard.stepDone")}</span>}
      </h3>
      <p>{about}</p>
      {children}
    </li>
  );
}

function Register({
  environment,
  onIssued,
}: {
  environment: Environment;
  onIssued: (issued: Schemas["BouncerIssued"]) => void;
}) {
  const { t } = useI18n();
  const queries = useQueryClient();
  const create = api.useMutation("post", "/api/v1/bouncers", {
    onSuccess: (made) => {
      onIssued(made);
      refresh(queries, "bouncers");
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const target = String(form.get("target")).trim();
    const [host = ""] = target.split(":");
    create.mutate({
      body: {
        name: `bouncer-${host}`.slice(0, 60),
        hostname: window.location.hostname,
        port: Number(form.get("port")),
        environment,
        target_app: target,
      },
    });
  };
  return (
    <form onSubmit={submit}>
      <Stack gap="xs">
        <TextInput
          name="target"
          label={t("dashboard.targetApp")}
          placeholder="127.0.0.1:3000"
          required
          withAsterisk={false}
        />
        <TextInput
          name="port"
          label={t("dashboard.bouncerPort")}
          defaultValue="8081"
          inputMode="numeric"
          pattern="[0-9]{1,5}"
          required
          withAsterisk={false}
        />
        {create.error ? <ErrorPanel error={create.error} /> : null}
        <Button type="submit" loading={create.isPending}>
          {t("dashboard.stepProtectAction")}
        </Button>
      </Stack>
    </form>
  );
}

function Issued({ issued }: { issued: Schemas["BouncerIssued"] }) {
  const { t } = useI18n();
  return (
    <div className="gh-stack" style={{ gap: 8 }}>
      <strong>{t("dashboard.stepProtectCommand")}</strong>
      <Copyable
        label={t("dashboard.stepProtectCommand")}
        text={bouncerCommand(window.location.origin, issued.token, issued.target_app, issued.port)}
      />
      <p>{t("dashboard.stepProtectOnce")}</p>
      <p role="status">{t("dashboard.stepProtectWait")}</p>
    </div>
  );
}

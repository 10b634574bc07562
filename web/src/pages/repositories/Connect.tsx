import { Button, PasswordInput, Select, Stack, Switch, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { api, ifMatch } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog, Dialog } from "../../ui/ConfirmDialog";
import { Copyable } from "../../ui/Copy";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { Panel } from "../../ui/PageHeader";
import { Time } from "../../ui/Time";
import { useNames } from "../policies/Policies";
import type { Repository } from "./repository";

/** A secret that nobody guesses: 24 bytes of the browser's generator. */
function newSecret(): string {
  return [...crypto.getRandomValues(new Uint8Array(24))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** The form of a repository: a new one, or what is to change of one. */
export function Connect({
  repository: current,
  close,
  saved,
}: {
  repository?: Repository & { etag: string };
  close: () => void;
  saved: (repository: Repository, secret: string) => void;
}) {
  const { t } = useI18n();
  const queries = useQueryClient();
  // The form shows the repository as it was when it opened: a save must not undo what others change meanwhile.
  const [repository] = useState(current);
  const resources = useNames("resources", "sandbox");
  const bouncers = useNames("bouncers", "sandbox");
  const [secret, setSecret] = useState(() => (repository ? "" : newSecret()));
  const [resource, setResource] = useState(repository?.resource_id ? String(repository.resource_id) : null);
  const [bouncer, setBouncer] = useState(repository?.bouncer_id ? String(repository.bouncer_id) : null);
  const [enabled, setEnabled] = useState(repository?.enabled ?? true);
  const done = (made: Repository) => {
    refresh(queries, "repositories");
    saved(made, secret);
  };
  const create = api.useMutation("post", "/api/v1/ide-integration/repositories", { onSuccess: done });
  const update = api.useMutation("put", "/api/v1/ide-integration/repositories/{repository_id}", { onSuccess: done });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const token = text("repository-token");
    const body = {
      name: text("repository-name"),
      url: text("repository-url"),
      branch: text("repository-branch"),
      path: text("repository-path"),
      resource_id: resource ? Number(resource) : null,
      bouncer_id: bouncer ? Number(bouncer) : null,
      enabled,
      ...(token ? { access_token: token } : {}),
      ...(secret ? { secret } : {}),
    };
    if (repository)
      update.mutate({ params: { path: { repository_id: repository.id }, header: ifMatch(repository) }, body });
    else create.mutate({ body: { ...body, secret } });
  };
  const options = (names: Map<number, string>) => [...names].map(([id, name]) => ({ value: String(id), label: name }));
  const error = create.error ?? update.error;
  return (
    <Dialog opened close={close} title={repository ? t("repositories.editTitle") : t("repositories.connect")} size="lg">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("policies.name")}
            name="repository-name"
            defaultValue={repository?.name}
            required
            maxLength={200}
            data-autofocus
          />
          <TextInput
            label={t("resources.url")}
            description={t("repositories.urlAbout")}
            name="repository-url"
            type="url"
            placeholder="https://git.example.com/acme/controls.git"
            defaultValue={repository?.url}
            required
          />
          <div className="gh-two">
            <TextInput
              label={t("repositories.branch")}
              description={t("repositories.branchAbout")}
              name="repository-branch"
              defaultValue={repository?.branch}
              maxLength={255}
            />
            <TextInput
              label={t("repositories.path")}
              description={t("repositories.pathAbout")}
              name="repository-path"
              defaultValue={repository?.path}
              maxLength={512}
            />
          </div>
          <PasswordInput
            label={t("repositories.token")}
            description={repository?.access_token_set ? t("repositories.tokenSet") : t("repositories.tokenAbout")}
            name="repository-token"
            autoComplete="off"
            visibilityToggleButtonProps={{ "aria-label": t("users.showPassword") }}
          />
          <TextInput
            label={t("repositories.secret")}
            description={repository ? t("repositories.secretKept") : t("repositories.secretAbout")}
            value={secret}
            onChange={(e) => setSecret(e.currentTarget.value)}
            classNames={{ input: "gh-mono" }}
            autoComplete="off"
            minLength={16}
            required={!repository}
          />
          <div className="gh-two">
            <Select
              label={t("policies.resource")}
              description={t("repositories.linked")}
              data={options(resources)}
              value={resource}
              onChange={setResource}
              clearable
              clearButtonProps={{ "aria-label": t("resources.clear", { field: t("policies.resource") }) }}
              searchable
              limit={100}
            />
            <Select
              label={t("policies.bouncer")}
              description={t("repositories.linked")}
              data={options(bouncers)}
              value={bouncer}
              onChange={setBouncer}
              clearable
              clearButtonProps={{ "aria-label": t("resources.clear", { field: t("policies.bouncer") }) }}
              searchable
              limit={100}
            />
          </div>
          <Switch
            label={t("repositories.take")}
            checked={enabled}
            onChange={(e) => setEnabled(e.currentTarget.checked)}
          />
          {error ? <ErrorPanel error={error} /> : null}
          <Button type="submit" loading={create.isPending || update.isPending}>
            {repository ? t("common.save") : t("repositories.connect")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

/** What is registered of one repository, with a way to change and to remove it. */
export function Details({
  repository: listed,
  close,
  write,
}: {
  repository: Repository;
  close: () => void;
  write: boolean;
}) {
  const { t } = useI18n();
  const queries = useQueryClient();
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const resources = useNames("resources", "sandbox");
  const bouncers = useNames("bouncers", "sandbox");
  const remove = api.useMutation("delete", "/api/v1/ide-integration/repositories/{repository_id}", {
    onSuccess: () => {
      refresh(queries, "repositories");
      close();
    },
  });
  const path = { repository_id: listed.id };
  const current = api.useQuery(
    "get",
    "/api/v1/ide-integration/repositories/{repository_id}",
    { params: { path } },
    // What is gone is not asked for again.
    { enabled: !remove.isPending && !remove.isSuccess },
  );
  const r = current.data ?? listed;
  const name = (names: Map<number, string>, id: number | null) => (id === null ? "" : (names.get(id) ?? `#${id}`));
  const facts: [string, ReactNode][] = [
    [t("resources.url"), r.url],
    [t("repositories.branch"), r.branch || t("repositories.anyBranch")],
    [t("repositories.path"), r.path || "/"],
    [t("repositories.token"), r.access_token_set ? t("common.yes") : t("common.no")],
    [t("policies.resource"), name(resources, r.resource_id) || t("policies.wholeTenant")],
    [t("policies.bouncer"), name(bouncers, r.bouncer_id) || t("policies.anyBouncer")],
    [t("workbench.createdBy"), r.created_by],
    [t("workbench.created"), <Time key="c" at={r.created_at} />],
  ];
  return (
    <Panel
      title={r.name}
      style={{ marginTop: 16 }}
      actions={
        <>
          {write && (
            <>
              <Button size="compact-sm" variant="default" disabled={!current.data} onClick={() => setEditing(true)}>
                {t("common.edit")}
              </Button>
              <Button size="compact-sm" variant="default" disabled={!current.data} onClick={() => setRemoving(true)}>
                {t("repositories.remove")}
              </Button>
            </>
          )}
          <Button size="compact-sm" variant="default" onClick={close}>
            {t("common.close")}
          </Button>
        </>
      }
    >
      <div className="gh-stack">
        <dl className="gh-facts">
          {facts.map(([label, value]) => (
            <div key={label} style={{ display: "contents" }}>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
        <Copyable label={t("repositories.webhook")} text={r.webhook_url} />
      </div>
      {editing && current.data && (
        <Connect repository={current.data} close={() => setEditing(false)} saved={() => setEditing(false)} />
      )}
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          remove.reset();
        }}
        title={t("repositories.removeTitle")}
        object={r.name}
        environment="sandbox"
        about={t("repositories.removeAbout")}
        action={t("repositories.remove")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => current.data && remove.mutate({ params: { path, header: ifMatch(current.data) } })}
      />
    </Panel>
  );
}

import { Button, MultiSelect, PasswordInput, Stack, Switch, TagsInput, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { Copyable } from "../../ui/Copy";
import { Skeleton } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { PageHeader, Panel } from "../../ui/PageHeader";
import { StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Unsaved } from "../../ui/Unsaved";
import { useRoles } from "../users/roles";
import { Directory } from "./Directory";
import { Pairs } from "./Pairs";
import { changed, type Pair, pairsOf, recordOf } from "./pairs";

type Record = Schemas["SignonSignOn"];

const path = "/api/v1/tenants/{tenant_id}/sign-on";
// The members that have a field, which their errors stand at.
const fields = [
  "/name",
  "/issuer",
  "/client_id",
  "/client_secret",
  "/scopes",
  "/audience",
  "/allowed_email_domains",
  "/default_roles",
  "/role_claim",
  "/role_map",
  "/department_claim",
  "/attribute_claims",
];

/** The identity provider that the tenant's people sign in at. */
export default function SignOn() {
  const { t } = useI18n();
  const { me, can } = useMe();
  const params = { path: { tenant_id: me.tenant_id } };
  const record = api.useQuery("get", path, { params }, { retry: false });
  const none = record.error instanceof ApiError && record.error.status === 404;
  const [removing, setRemoving] = useState(false);
  const [saved, setSaved] = useState<Record>();
  const queries = useQueryClient();
  const remove = api.useMutation("delete", path, {
    onSuccess: () => {
      setRemoving(false);
      setSaved(undefined);
      queries.removeQueries({ queryKey: ["get", path] });
      refresh(queries, "tenant");
    },
  });
  const known = none ? undefined : record.data;
  return (
    <div className="gh-stack">
      <PageHeader
        title={t("nav.signon")}
        about={t("signon.about")}
        mark={known && <StatusOf value={known.enabled ? "enabled" : "disabled"} />}
      >
        {known && can("tenants:write") && (
          <Button variant="default" onClick={() => setRemoving(true)}>
            {t("signon.remove")}
          </Button>
        )}
      </PageHeader>
      {record.error && !none ? (
        <ErrorPanel error={record.error} retry={() => void record.refetch()} />
      ) : record.isPending ? (
        <Skeleton label={t("nav.signon")} />
      ) : (
        // What is being written stays, whatever others change meanwhile.
        <Form key={saved?.updated_at ?? (known ? "known" : "new")} record={saved ?? known} saved={setSaved} />
      )}
      <Directory />
      <ConfirmDialog
        opened={removing}
        close={() => {
          setRemoving(false);
          remove.reset();
        }}
        title={t("signon.removeTitle")}
        object={known?.name || known?.issuer || ""}
        about={t("signon.removeAbout")}
        action={t("signon.remove")}
        busy={remove.isPending}
        error={remove.error}
        confirm={() => remove.mutate({ params })}
      />
    </div>
  );
}

function Form({ record: current, saved }: { record?: Record; saved: (record: Record) => void }) {
  const { t } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  const { offer: roleOptions } = useRoles();
  const params = { path: { tenant_id: me.tenant_id } };
  const write = can("tenants:write");
  const [record] = useState(current);
  const [draft, setDraft] = useState({
    name: record?.name ?? "",
    issuer: record?.issuer ?? "",
    client_id: record?.client_id ?? "",
    scopes: record?.scopes ?? ["openid", "email", "profile"],
    audience: record?.audience ?? "",
    allowed_email_domains: record?.allowed_email_domains ?? [],
    create_users: record?.create_users ?? false,
    password_login: record?.password_login ?? true,
    enabled: record?.enabled ?? true,
    default_roles: record?.default_roles ?? [],
    role_claim: record?.role_claim ?? "",
    department_claim: record?.department_claim ?? "",
  });
  const [secret, setSecret] = useState("");
  const [noSecret, setNoSecret] = useState(false);
  const [roles, setRoles] = useState<Pair<string[]>[]>(pairsOf(record?.role_map));
  const [attributes, setAttributes] = useState<Pair<string>[]>(pairsOf(record?.attribute_claims));
  const [touched, setTouched] = useState(false);
  const set = (change: Partial<typeof draft>) => {
    setDraft({ ...draft, ...change });
    setTouched(true);
  };
  const save = api.useMutation("put", path, {
    onSuccess: (after) => {
      setTouched(false);
      refresh(queries, "tenant");
      saved(after);
    },
  });
  const check = api.useMutation("post", "/api/v1/tenants/{tenant_id}/sign-on/check");
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const wanted = { ...draft, role_map: recordOf(roles), attribute_claims: recordOf(attributes) };
    // Only what was changed here is sent, so that nothing is undone that others changed.
    const body: Schemas["SignonChange"] = record ? changed(wanted, record) : wanted;
    if (noSecret) body.client_secret = null;
    else if (secret) body.client_secret = secret;
    save.mutate({ params, body });
  };
  const { at, rest } = fieldErrors(save.error, fields);
  const checked = fieldErrors(check.error, ["/issuer"]);
  const register = record ?? check.data;
  return (
    <form onSubmit={submit}>
      <Unsaved when={touched && !save.isPending} object={draft.name || t("nav.signon")} />
      <fieldset className="gh-plain gh-stack" disabled={!write}>
        <Panel title={t("signon.provider")}>
          <Stack gap="sm">
            <TextInput
              name="issuer"
              label={t("signon.issuer")}
              description={t("signon.issuerAbout")}
              placeholder="https://login.example.com/"
              maxLength={512}
              required
              value={draft.issuer}
              error={at("/issuer") ?? checked.at("/issuer")}
              onChange={(e) => set({ issuer: e.currentTarget.value })}
            />
            {write && (
              <div>
                <Button
                  variant="default"
                  loading={check.isPending}
                  disabled={draft.issuer.trim() === ""}
                  onClick={() => check.mutate({ params, body: { issuer: draft.issuer.trim() } })}
                >
                  {t("signon.check")}
                </Button>
              </div>
            )}
            {checked.rest ? <ErrorPanel error={checked.rest} /> : null}
            {check.data && <Found found={check.data} />}
            <TextInput
              name="client-id"
              label={t("signon.client")}
              description={t("signon.clientAbout")}
              maxLength={256}
              required
              autoComplete="off"
              value={draft.client_id}
              error={at("/client_id")}
              onChange={(e) => set({ client_id: e.currentTarget.value })}
            />
            <PasswordInput
              name="client-secret"
              label={t("signon.secret")}
              description={record?.client_secret_set ? t("signon.secretSet") : t("signon.secretAbout")}
              autoComplete="new-password"
              maxLength={1024}
              disabled={noSecret}
              value={secret}
              error={at("/client_secret")}
              visibilityToggleButtonProps={{ "aria-label": t("signon.secretShow") }}
              onChange={(e) => {
                setSecret(e.currentTarget.value);
                setTouched(true);
              }}
            />
            {record?.client_secret_set && (
              <Switch
                label={t("signon.secretNone")}
                checked={noSecret}
                onChange={(e) => {
                  setNoSecret(e.currentTarget.checked);
                  setTouched(true);
                }}
              />
            )}
            <TextInput
              name="provider-name"
              label={t("signon.name")}
              description={t("signon.nameAbout")}
              maxLength={64}
              value={draft.name}
              error={at("/name")}
              onChange={(e) => set({ name: e.currentTarget.value })}
            />
            <TagsInput
              label={t("signon.scopes")}
              description={t("signon.scopesAbout")}
              value={draft.scopes}
              error={at("/scopes")}
              onChange={(scopes) => set({ scopes })}
            />
            <TextInput
              name="audience"
              label={t("signon.audience")}
              description={t("signon.audienceAbout")}
              maxLength={512}
              value={draft.audience}
              error={at("/audience")}
              onChange={(e) => set({ audience: e.currentTarget.value })}
            />
          </Stack>
        </Panel>
        {register && (
          <Panel title={t("signon.register")}>
            <div className="gh-stack" style={{ gap: 8 }}>
              <p className="gh-flat">{t("signon.registerAbout")}</p>
              <strong>{t("signon.redirect")}</strong>
              <Copyable label={t("signon.redirect")} text={register.redirect_uri} />
              <strong>{t("signon.backchannel")}</strong>
              <Copyable label={t("signon.backchannel")} text={register.backchannel_logout_uri} />
              <strong>{t("signon.postLogout")}</strong>
              <Copyable label={t("signon.postLogout")} text={register.post_logout_redirect_uri} />
            </div>
          </Panel>
        )}
        <Panel title={t("signon.who")}>
          <Stack gap="sm">
            <Switch
              label={t("signon.enabled")}
              description={t("signon.enabledAbout")}
              checked={draft.enabled}
              onChange={(e) => set({ enabled: e.currentTarget.checked })}
            />
            <Switch
              label={t("signon.create")}
              description={t("signon.createAbout")}
              checked={draft.create_users}
              onChange={(e) => set({ create_users: e.currentTarget.checked })}
            />
            <Switch
              label={t("signon.passwords")}
              description={t("signon.passwordsAbout")}
              checked={draft.password_login}
              onChange={(e) => set({ password_login: e.currentTarget.checked })}
            />
            <TagsInput
              label={t("signon.domains")}
              description={t("signon.domainsAbout")}
              placeholder={draft.allowed_email_domains.length === 0 ? "example.com" : undefined}
              value={draft.allowed_email_domains}
              error={at("/allowed_email_domains")}
              onChange={(allowed_email_domains) => set({ allowed_email_domains })}
            />
          </Stack>
        </Panel>
        <Panel title={t("signon.what")}>
          <Stack gap="sm">
            <MultiSelect
              label={t("signon.defaultRoles")}
              description={t("signon.defaultRolesAbout")}
              data={roleOptions(draft.default_roles)}
              value={draft.default_roles}
              error={at("/default_roles")}
              onChange={(default_roles) => set({ default_roles })}
            />
            <TextInput
              name="role-claim"
              label={t("signon.roleClaim")}
              description={t("signon.roleClaimAbout")}
              maxLength={256}
              value={draft.role_claim}
              error={at("/role_claim")}
              onChange={(e) => set({ role_claim: e.currentTarget.value })}
            />
            <Pairs
              title={t("signon.roleMap")}
              error={at("/role_map")}
              pairs={roles}
              blank={[]}
              change={(next) => {
                setRoles(next);
                setTouched(true);
              }}
              nameLabel={t("signon.claimValue")}
              value={(pair, change) => (
                <MultiSelect
                  aria-label={t("signon.rolesOf", { value: pair.name || "–" })}
                  placeholder={pair.value.length === 0 ? t("users.roles") : undefined}
                  data={roleOptions(pair.value)}
                  value={pair.value}
                  onChange={change}
                />
              )}
            />
            <TextInput
              name="department-claim"
              label={t("signon.department")}
              description={t("signon.claimAbout")}
              maxLength={256}
              value={draft.department_claim}
              error={at("/department_claim")}
              onChange={(e) => set({ department_claim: e.currentTarget.value })}
            />
            <Pairs
              title={t("signon.attributes")}
              error={at("/attribute_claims")}
              pairs={attributes}
              blank=""
              change={(next) => {
                setAttributes(next);
                setTouched(true);
              }}
              nameLabel={t("signon.attribute")}
              value={(pair, change) => (
                <TextInput
                  aria-label={t("signon.claimOf", { attribute: pair.name || "–" })}
                  placeholder={t("signon.claim")}
                  value={pair.value}
                  onChange={(e) => change(e.currentTarget.value)}
                />
              )}
            />
          </Stack>
        </Panel>
        {rest ? <ErrorPanel error={rest} /> : null}
        {save.error && !rest ? (
          <p className="gh-note gh-flat" data-tone="warn" role="alert">
            {t("signon.seeFields")}
          </p>
        ) : null}
        {write && (
          <div>
            <Button type="submit" loading={save.isPending}>
              {record ? t("common.save") : t("signon.connect")}
            </Button>
          </div>
        )}
      </fieldset>
    </form>
  );
}

/** What the provider's configuration offers. */
function Found({ found }: { found: Schemas["SignonEndpoints"] }) {
  const { t } = useI18n();
  const rows: [string, string][] = [
    [t("signon.authorization"), found.authorization_endpoint],
    [t("signon.token"), found.token_endpoint],
    [t("signon.userinfo"), found.userinfo_endpoint],
    [t("signon.endSession"), found.end_session_endpoint],
  ];
  return (
    <div className="gh-note gh-flat" data-tone="good" role="status">
      <p className="gh-flat">{t("signon.found")}</p>
      <dl className="gh-facts">
        {rows.map(([name, value]) => (
          <div key={name} style={{ display: "contents" }}>
            <dt>{name}</dt>
            <dd style={{ overflowWrap: "anywhere" }}>{value ? <code>{value}</code> : t("common.none")}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

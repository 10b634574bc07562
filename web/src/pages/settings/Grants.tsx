import { Button, MultiSelect, Stack, Switch } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, ifMatch, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { useMe } from "../../ui/scope";
import { Unsaved } from "../../ui/Unsaved";
import { useRoles } from "../users/roles";
import { changeOf, type Grants as Draft, twice } from "./directory";
import { Pairs } from "./Pairs";
import { pairsOf } from "./pairs";

type Record = Schemas["ScimDirectory"];

/** What a directory may give: roles by group, the roles of everybody, and whom a first sign-in finds. */
export function Grants({ record: current, saved }: { record: Record; saved: (record: Record) => void }) {
  const { t } = useI18n();
  const { me, can } = useMe();
  const { offer } = useRoles();
  const queries = useQueryClient();
  const [record] = useState(current);
  const [draft, setDraft] = useState<Draft>({
    groups: pairsOf(record.role_map),
    default_roles: record.default_roles,
    match_subject: record.match_subject,
  });
  const [touched, setTouched] = useState(false);
  const set = (change: Partial<Draft>) => {
    setDraft({ ...draft, ...change });
    setTouched(true);
  };
  const save = api.useMutation("put", "/api/v1/tenants/{tenant_id}/scim", {
    onSuccess: (after) => {
      setTouched(false);
      refresh(queries, "tenant");
      saved(after);
    },
  });
  const same = twice(draft.groups);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (same !== undefined) return;
    save.mutate({
      params: { path: { tenant_id: me.tenant_id }, header: ifMatch(record) },
      body: changeOf(draft, record),
    });
  };
  const { at, rest } = fieldErrors(save.error, ["/role_map", "/default_roles", "/match_subject"]);
  // Who says what a directory gives must be able to give it.
  const write = can("tenants:write") && can("users:write");
  return (
    <form onSubmit={submit}>
      <Unsaved when={touched && !save.isPending} object={t("directory.title")} />
      <fieldset className="gh-plain" disabled={!write}>
        <Stack gap="sm">
          <Pairs
            title={t("directory.roleMap")}
            error={same === undefined ? at("/role_map") : t("directory.twice", { group: same })}
            pairs={draft.groups}
            blank={[]}
            change={(groups) => set({ groups })}
            nameLabel={t("directory.group")}
            value={(pair, change) => (
              <MultiSelect
                aria-label={t("signon.rolesOf", { value: pair.name || "–" })}
                placeholder={pair.value.length === 0 ? t("users.roles") : undefined}
                data={offer(pair.value)}
                value={pair.value}
                onChange={change}
              />
            )}
          />
          <p className="gh-flat gh-dim">{t("directory.roleMapAbout")}</p>
          <MultiSelect
            label={t("directory.defaultRoles")}
            description={t("directory.defaultRolesAbout")}
            data={offer(draft.default_roles)}
            value={draft.default_roles}
            error={at("/default_roles")}
            onChange={(default_roles) => set({ default_roles })}
          />
          <Switch
            label={t("directory.match")}
            description={t("directory.matchAbout")}
            checked={draft.match_subject}
            error={at("/match_subject")}
            onChange={(e) => set({ match_subject: e.currentTarget.checked })}
          />
          {rest ? <ErrorPanel error={rest} /> : null}
          {write && (
            <div>
              <Button type="submit" loading={save.isPending}>
                {t("directory.save")}
              </Button>
            </div>
          )}
        </Stack>
      </fieldset>
    </form>
  );
}

import { Button, MultiSelect, Select, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { useMe } from "../../ui/scope";
import { useRoles } from "./roles";

/** Changes a person: e-mail, department, state, and the roles, with the reason that the audit keeps. */
export function EditUser({ user, close }: { user: Schemas["User"]; close: () => void }) {
  const { t, word } = useI18n();
  const { me } = useMe();
  const queries = useQueryClient();
  const known = useRoles().options;
  // Roles with other names are kept: controls may read them.
  const options = [
    ...known,
    ...user.roles.filter((r) => !known.some((o) => o.value === r)).map((value) => ({ value, label: value })),
  ];
  const [roles, setRoles] = useState(user.roles);
  const [status, setStatus] = useState<"active" | "disabled">(user.status);
  const [reason, setReason] = useState("");
  const change = api.useMutation("put", "/api/v1/users/{user_id}");
  const setRolesOf = api.useMutation("put", "/api/v1/users/{user_id}/roles");
  const newRoles = roles.toSorted().join() !== user.roles.toSorted().join();
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const body: Schemas["UserChange"] = {};
    const email = String(form.get("email")).trim();
    const department = String(form.get("department")).trim();
    if (email !== user.email) body.email = email;
    if (department !== user.department) body.department = department;
    if (status !== user.status) body.status = status;
    const params = { path: { user_id: user.id } };
    try {
      if (Object.keys(body).length > 0) await change.mutateAsync({ params, body });
      if (newRoles) await setRolesOf.mutateAsync({ params, body: { roles, ...(reason ? { reason } : {}) } });
      close();
    } catch {
      // The dialog stays open and shows what was refused.
    } finally {
      refresh(queries, "users");
    }
  };
  const error = change.error ?? setRolesOf.error;
  return (
    <Dialog opened close={close} title={t("users.editNamed", { name: user.username })}>
      <form onSubmit={(event) => void submit(event)}>
        <Stack gap="sm">
          <TextInput
            name="email"
            type="email"
            label={t("users.email")}
            defaultValue={user.email}
            required
            withAsterisk={false}
          />
          <TextInput name="department" label={t("users.department")} defaultValue={user.department} />
          {user.id !== me.id && (
            <Select
              label={t("users.status")}
              data={(["active", "disabled"] as const).map((value) => ({
                value,
                label: word("common", "state", value),
              }))}
              value={status}
              onChange={(value) => setStatus(value === "disabled" ? "disabled" : "active")}
              allowDeselect={false}
            />
          )}
          <MultiSelect label={t("users.roles")} data={options} value={roles} onChange={setRoles} />
          {newRoles && (
            <TextInput
              label={t("users.reason")}
              description={t("users.reasonAbout")}
              value={reason}
              onChange={(event) => setReason(event.currentTarget.value)}
              required
              withAsterisk={false}
            />
          )}
          {error ? <ErrorPanel error={error} /> : null}
          <Button type="submit" loading={change.isPending || setRolesOf.isPending}>
            {t("common.save")}
          </Button>
        </Stack>
      </form>
    </Dialog>
  );
}

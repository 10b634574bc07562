import { PasswordInput, Select, Textarea } from "@mantine/core";
import { useI18n } from "../../i18n";
import { chosenSet, keep, setName } from "./channel";

/** The secrets that have several lines. */
const pem = ["client_certificate", "client_key"];

/** The choice of a credential, and its secrets. A stored one can be kept, and is never shown. */
export function CredentialFields({
  sets,
  stored,
  credential,
  choose,
  secrets,
  change,
  at,
}: {
  sets: string[][];
  stored: boolean;
  credential: string | null;
  choose: (credential: string | null) => void;
  secrets: Record<string, string>;
  change: (secrets: Record<string, string>) => void;
  at: (pointer: string) => string | undefined;
}) {
  const { t, word } = useI18n();
  const label = (member: string) => word("notifications", "secret", member);
  const chosen = chosenSet(sets, credential);
  return (
    <>
      {(sets.length > 1 || stored) && (
        <Select
          label={t("notifications.credential")}
          description={t("notifications.credentialAbout")}
          data={[
            ...(stored ? [{ value: keep, label: t("notifications.credentialKeep") }] : []),
            ...sets.map((members) => ({
              value: setName(members) || "none",
              label: members.map(label).join(" + ") || t("notifications.credentialNone"),
            })),
          ]}
          value={chosen ? setName(chosen) || "none" : credential}
          error={at("/credential")}
          onChange={(value) => choose(value === "none" ? "" : value)}
          allowDeselect={false}
        />
      )}
      {chosen?.map((member) =>
        pem.includes(member) ? (
          <Textarea
            key={member}
            name={`secret-${member}`}
            label={label(member)}
            placeholder="-----BEGIN"
            autoComplete="off"
            spellCheck={false}
            maxLength={8000}
            required
            value={secrets[member] ?? ""}
            error={at(`/credential/${member}`)}
            onChange={(e) => change({ ...secrets, [member]: e.currentTarget.value })}
            classNames={{ input: "gh-mono" }}
            autosize
            minRows={2}
            maxRows={10}
          />
        ) : (
          <PasswordInput
            key={member}
            name={`secret-${member}`}
            label={label(member)}
            autoComplete="new-password"
            maxLength={8000}
            required
            value={secrets[member] ?? ""}
            error={sets.length > 1 ? at(`/credential/${member}`) : at("/credential")}
            visibilityToggleButtonProps={{ "aria-label": t("notifications.show", { name: label(member) }) }}
            onChange={(e) => change({ ...secrets, [member]: e.currentTarget.value })}
          />
        ),
      )}
    </>
  );
}

import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Environment } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { refresh } from "../../ui/live";
import { StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";

/** Whether the bouncers of an environment enforce or only record, and the switch between the two. */
export function Enforcement({ environment }: { environment: Environment }) {
  const { t, word } = useI18n();
  const { can } = useMe();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const mode = api.useQuery("get", "/api/v1/environments/{environment}/enforcement", {
    params: { path: { environment } },
  });
  const change = api.useMutation("put", "/api/v1/environments/{environment}/enforcement", {
    onSuccess: () => {
      setAsking(false);
      refresh(queries, "tenant");
      refresh(queries, "bouncers");
    },
  });
  if (mode.error) return <ErrorPanel error={mode.error} retry={() => void mode.refetch()} />;
  if (!mode.data) return null;
  const enforced = mode.data.mode === "enforce";
  const next = enforced ? "shadow" : "enforce";
  const name = word("common", "state", environment);
  return (
    <div className="gh-row" style={{ marginBottom: 16 }}>
      <StatusOf value={mode.data.mode} />
      <span>{enforced ? t("bouncers.enforces") : t("bouncers.observes")}</span>
      {can("bouncers:write") && (
        <Button size="compact-sm" variant="default" onClick={() => setAsking(true)}>
          {enforced ? t("bouncers.toShadow") : t("bouncers.toEnforce")}
        </Button>
      )}
      <ConfirmDialog
        opened={asking}
        close={() => {
          setAsking(false);
          change.reset();
        }}
        title={enforced ? t("bouncers.toShadow") : t("bouncers.toEnforce")}
        object={name}
        environment={environment}
        about={enforced ? t("bouncers.toShadowAbout") : t("bouncers.toEnforceAbout")}
        action={enforced ? t("bouncers.toShadow") : t("bouncers.toEnforce")}
        busy={change.isPending}
        error={change.error}
        confirm={() => change.mutate({ params: { path: { environment } }, body: { mode: next } })}
      />
    </div>
  );
}

import { Button, Menu } from "@mantine/core";
import { useState } from "react";
import { api } from "../../api/client";
import { useI18n } from "../../i18n";
import { Icon } from "../../ui/icons";
import { useEnvironment, useMe } from "../../ui/scope";
import type { Policy } from "./policy";
import { inputOfDecision } from "./run";

/** The menu of InputPicker: inputs of tests, of scenarios of the simulator, and of decisions that were really made. */
export default function InputMenu({
  policy,
  pick,
}: {
  policy: Policy;
  pick: (input: Record<string, unknown>) => void;
}) {
  const { t, word, ago } = useI18n();
  const { can } = useMe();
  const environment = useEnvironment();
  const [open, setOpen] = useState(true);
  const [failed, setFailed] = useState("");
  const scenarios = api.useQuery(
    "get",
    "/api/v1/pis/scenarios",
    { params: { query: { environment, policy_id: policy.id } } },
    { enabled: open && can("simulator:write") },
  );
  const decisions = api.useQuery(
    "get",
    "/api/v1/decisions/audit",
    { params: { query: { environment, policy_id: policy.id, limit: 20 } } },
    { enabled: open && can("audit:read") && can("policies:write") },
  );
  const load = async (id: string) => {
    setFailed("");
    try {
      const input = await inputOfDecision(policy.id, environment, id);
      if (input) pick(input);
      else setFailed(t("workbench.noInput"));
    } catch (failure) {
      setFailed(failure instanceof Error ? failure.message : String(failure));
    }
  };
  const tests = policy.test_cases.filter((c) => !c.input_hidden);
  return (
    <>
      {failed && (
        <span className="gh-bad-text" role="alert">
          {failed}
        </span>
      )}
      <Menu opened={open} onChange={setOpen} position="bottom-end" width={380}>
        <Menu.Target>
          <Button size="compact-sm" variant="default" rightSection={<Icon name="chevron" size={12} />}>
            {t("workbench.load")}
          </Button>
        </Menu.Target>
        <Menu.Dropdown mah={420} style={{ overflowY: "auto" }}>
          {tests.length > 0 && <Menu.Label>{t("workbench.fromTests")}</Menu.Label>}
          {tests.map((c) => (
            <Menu.Item key={c.name} onClick={() => pick(c.input)}>
              {c.name}
            </Menu.Item>
          ))}
          {(scenarios.data?.length ?? 0) > 0 && <Menu.Label>{t("workbench.fromScenarios")}</Menu.Label>}
          {scenarios.data?.map((s) => (
            <Menu.Item key={s.id} onClick={() => pick(s.attributes)}>
              {s.name}
            </Menu.Item>
          ))}
          {(decisions.data?.logs.length ?? 0) > 0 && <Menu.Label>{t("workbench.fromDecisions")}</Menu.Label>}
          {decisions.data?.logs.map((d) => (
            <Menu.Item key={d.decision_id} onClick={() => void load(d.decision_id)}>
              {word("common", "state", d.effect ?? d.decision)} · {d.user.id || t("decisions.anonymous")} ·{" "}
              {d.resource.path} · {ago(d.timestamp)}
            </Menu.Item>
          ))}
          {tests.length === 0 && !scenarios.data?.length && !decisions.data?.logs.length && (
            <Menu.Item disabled>{t("workbench.nothingToLoad")}</Menu.Item>
          )}
        </Menu.Dropdown>
      </Menu>
    </>
  );
}

import { Table, Text, Title } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Time } from "../../ui/Time";

/** What an agent did, as the decision log has it. */
export function AgentUsage({ agent }: { agent: Schemas["Agent"] }) {
  const { t, number } = useI18n();
  const usage = agent.usage;
  if (!usage) return null;
  return (
    <section aria-labelledby="agent-usage">
      <Title order={3} size="h5" id="agent-usage" mt="md">
        {t("agents.usage")}
      </Title>
      <Text size="sm">
        {t("agents.lastSeen")}: {agent.last_seen_at ? <Time at={agent.last_seen_at} /> : t("agents.neverSeen")}
      </Text>
      <Text size="sm">
        {t("agents.usageAbout", {
          requests: number(usage.requests),
          denied: number(usage.denied),
          tokens: number(usage.estimated_tokens),
        })}
      </Text>
      {usage.tools.length > 0 && (
        <Table aria-label={t("agents.tools")}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("agents.tool")}</Table.Th>
              <Table.Th>{t("agents.toolCalls")}</Table.Th>
              <Table.Th>{t("agents.toolLast")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {usage.tools.map((tool) => (
              <Table.Tr key={tool.name}>
                <Table.Td>{tool.name}</Table.Td>
                <Table.Td>{number(tool.calls)}</Table.Td>
                <Table.Td>
                  <Time at={tool.last_call_at} />
                </Table.Td>
              </Table.Tr>
            ))}
            {usage.other_tool_calls > 0 && (
              <Table.Tr>
                <Table.Td>{t("agents.toolOther")}</Table.Td>
                <Table.Td>{number(usage.other_tool_calls)}</Table.Td>
                <Table.Td />
              </Table.Tr>
            )}
          </Table.Tbody>
        </Table>
      )}
    </section>
  );
}

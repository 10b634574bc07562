import { Group, NumberInput, Select } from "@mantine/core";
import { useI18n } from "../../i18n";
import { type Span, type Unit, units } from "./request";

/** How long access lasts or is needed: a number and its unit. */
export function Lasting({
  span,
  change,
  label,
  about,
  error,
  required,
}: {
  span: Span;
  change: (span: Span) => void;
  label: string;
  about: string;
  error?: string | undefined;
  required?: boolean;
}) {
  const { t } = useI18n();
  return (
    <Group gap="sm" align="flex-start" grow>
      <NumberInput
        name="request-duration"
        label={label}
        description={about}
        min={0}
        value={span.amount}
        onChange={(amount) => change({ ...span, amount })}
        error={error}
        required={required ?? false}
      />
      <Select
        label={t("requests.unit")}
        description={"\u00a0"}
        data={Object.keys(units).map((u) => ({ value: u, label: t(`requests.unit_${u as Unit}`) }))}
        value={span.unit}
        onChange={(value) => change({ ...span, unit: (value ?? "hours") as Unit })}
        allowDeselect={false}
      />
    </Group>
  );
}

import { Select, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { type ReactNode, useEffect, useState } from "react";
import { useI18n } from "../i18n";
import { Icon } from "./icons";
import { useFilter } from "./scope";

/** The row of filters above a table, with how many entries there are. */
export function Filters({ children, count }: { children: ReactNode; count?: string }) {
  const { t } = useI18n();
  return (
    <search className="gh-filters" aria-label={t("common.filters")}>
      {children}
      <span className="gh-count" aria-live="polite">
        {count}
      </span>
    </search>
  );
}

/** A choice that lives in the address as ?name=. */
export function FilterSelect({
  name,
  label,
  options,
  width = 150,
}: {
  name: string;
  label: string;
  options: { value: string; label: string }[];
  width?: number;
}) {
  const [value, set] = useFilter(name);
  return (
    <Select
      aria-label={label}
      placeholder={label}
      data={options}
      value={value || null}
      onChange={set}
      clearable
      clearButtonProps={{ "aria-label": label }}
      searchable={options.length > 12}
      w={width}
    />
  );
}

/** Text that lives in the address as ?name=, 120 ms after the last key, so that the answer is there within 200. */
export function FilterText({ name, label, width = 240 }: { name: string; label: string; width?: number }) {
  const [value, set] = useFilter(name);
  const [text, setText] = useState(value);
  const late = useDebouncedCallback((next: string) => set(next), 120);
  useEffect(() => setText(value), [value]);
  return (
    <TextInput
      aria-label={label}
      placeholder={label}
      leftSection={<Icon name="search" />}
      value={text}
      onChange={(event) => {
        setText(event.currentTarget.value);
        late(event.currentTarget.value);
      }}
      w={width}
    />
  );
}

/** A day that lives in the address as ?name=YYYY-MM-DD. */
export function FilterDate({ name, label }: { name: string; label: string }) {
  const [value, set] = useFilter(name);
  return (
    <TextInput
      type="date"
      aria-label={label}
      title={label}
      leftSection={<span className="gh-dim gh-date-label">{label}</span>}
      leftSectionWidth={60}
      value={value.slice(0, 10)}
      onChange={(event) => set(event.currentTarget.value)}
      w={190}
    />
  );
}

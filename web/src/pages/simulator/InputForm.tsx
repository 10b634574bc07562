import { Autocomplete, NumberInput, Select, Stack, TagsInput, Textarea } from "@mantine/core";
import { useEffect, useState } from "react";
import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { groupsOf, type Input, listOf, valueAt, withValue } from "./input";

type Attribute = Schemas["RegoAttribute"];

/** The input as a form: a field for each attribute that the control reads. */
export function InputForm({
  attributes,
  input,
  change,
}: {
  attributes: Attribute[];
  input: Input;
  change: (input: Input) => void;
}) {
  return (
    <Stack gap="sm">
      {groupsOf(attributes).map(([group, fields]) => (
        <fieldset key={group} className="gh-fieldset">
          <legend>
            <code>{group}</code>
          </legend>
          <Stack gap="sm">
            {fields.map((a) => (
              <Field
                key={a.key}
                attribute={a}
                value={valueAt(input, a.key)}
                set={(value) => change(withValue(input, a.key, value))}
              />
            ))}
          </Stack>
        </fieldset>
      ))}
    </Stack>
  );
}

function Field({ attribute: a, value, set }: { attribute: Attribute; value: unknown; set: (value: unknown) => void }) {
  const { t } = useI18n();
  const texts = [...new Set(a.values.map(String))];
  const shared = { label: a.key, description: a.description, name: a.key };
  // The list stays in the page's landmark while it is open.
  const comboboxProps = { withinPortal: false };
  switch (a.type) {
    case "boolean":
      return (
        <Select
          {...shared}
          comboboxProps={comboboxProps}
          data={["true", "false"]}
          value={typeof value === "boolean" ? String(value) : null}
          onChange={(v) => set(v === null ? undefined : v === "true")}
          placeholder={t("simulator.absent")}
          clearable
          clearButtonProps={{ "aria-label": t("resources.clear", { field: a.key }) }}
        />
      );
    case "number":
      return (
        <NumberInput
          {...shared}
          value={typeof value === "number" ? value : ""}
          onChange={(v) => set(v === "" ? undefined : Number(v))}
          placeholder={t("simulator.absent")}
        />
      );
    case "array":
      return (
        <TagsInput
          {...shared}
          comboboxProps={comboboxProps}
          data={texts}
          value={Array.isArray(value) ? value.map((v) => (typeof v === "string" ? v : JSON.stringify(v))) : []}
          onChange={(v) => set(v.length === 0 ? undefined : listOf(v, a.values))}
          placeholder={Array.isArray(value) ? "" : t("simulator.absent")}
        />
      );
    case "object":
      return <ObjectField {...shared} value={value} set={set} />;
    default:
      return (
        <Autocomplete
          {...shared}
          comboboxProps={comboboxProps}
          data={texts}
          value={value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value)}
          onChange={(v) => set(v === "" ? undefined : v)}
          placeholder={t("simulator.absent")}
        />
      );
  }
}

/** A part of the input that is an object, as JSON. It counts once it can be read. */
function ObjectField({
  label,
  description,
  value,
  set,
}: {
  label: string;
  description: string;
  value: unknown;
  set: (value: unknown) => void;
}) {
  const { t } = useI18n();
  const stored = value === undefined ? "" : JSON.stringify(value, null, 2);
  const [text, setText] = useState(stored);
  const [wrong, setWrong] = useState(false);
  useEffect(() => setText(stored), [stored]);
  const leave = () => {
    if (text.trim() === "") return set(undefined);
    try {
      set(JSON.parse(text));
      setWrong(false);
    } catch {
      setWrong(true);
    }
  };
  return (
    <Textarea
      label={label}
      description={description}
      classNames={{ input: "gh-mono" }}
      autosize
      minRows={2}
      value={text}
      onChange={(e) => setText(e.currentTarget.value)}
      onBlur={leave}
      error={wrong ? t("simulator.noJson") : undefined}
      placeholder={t("simulator.absent")}
    />
  );
}

import { Button, TextInput } from "@mantine/core";
import { useI18n } from "../../i18n";
import { Icon } from "../../ui/icons";
import type { Pair } from "./pairs";

/** Rows of a name and what belongs to it. */
export function Pairs<V>({
  title,
  error,
  pairs,
  blank,
  change,
  nameLabel,
  value,
}: {
  title: string;
  error?: string;
  pairs: Pair<V>[];
  blank: V;
  change: (next: Pair<V>[]) => void;
  nameLabel: string;
  value: (pair: Pair<V>, change: (value: V) => void) => React.ReactNode;
}) {
  const { t } = useI18n();
  const replace = (key: number, next: Partial<Pair<V>>) =>
    change(pairs.map((p) => (p.key === key ? { ...p, ...next } : p)));
  return (
    <fieldset className="gh-pairs">
      <legend>{title}</legend>
      {pairs.map((pair) => (
        <div key={pair.key} className="gh-pair">
          <TextInput
            aria-label={nameLabel}
            placeholder={nameLabel}
            value={pair.name}
            onChange={(e) => replace(pair.key, { name: e.currentTarget.value })}
          />
          {value(pair, (next) => replace(pair.key, { value: next }))}
          <Button
            variant="default"
            aria-label={t("signon.removeRow", { name: pair.name || nameLabel })}
            onClick={() => change(pairs.filter((p) => p.key !== pair.key))}
          >
            <Icon name="trash" />
          </Button>
        </div>
      ))}
      {error && (
        <p className="gh-flat gh-field-error" role="alert">
          {error}
        </p>
      )}
      <Button
        size="compact-sm"
        variant="default"
        leftSection={<Icon name="plus" />}
        aria-label={t("signon.addRow", { what: title })}
        onClick={() => change([...pairs, { key: Math.max(0, ...pairs.map((p) => p.key)) + 1, name: "", value: blank }])}
      >
        {t("signon.add")}
      </Button>
    </fieldset>
  );
}

import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { useEnvironment } from "../../ui/scope";
import { download, formats } from "./runs";

/** Saves a run as JSON, CSV or PDF. */
export function Export({ id, name }: { id: number; name?: string }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const save = useMutation({ mutationFn: (format: (typeof formats)[number]) => download(id, environment, format) });
  return (
    <>
      <span className="gh-row" role="group" aria-label={t("simulator.exportNamed", { id: name ?? id })}>
        {formats.map((format) => (
          <Button
            key={format}
            size="compact-xs"
            variant="default"
            loading={save.isPending && save.variables === format}
            onClick={() => save.mutate(format)}
          >
            {format.toUpperCase()}
          </Button>
        ))}
      </span>
      {save.error ? <ErrorPanel error={save.error} /> : null}
    </>
  );
}

import { Button } from "@mantine/core";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { foretold, measured } from "./rule";

/** A button that says how often a rule would have fired, and when. `draft` is undefined while the form is not complete. */
export function Foretold({ draft }: { draft: Schemas["AlertDraft"] | undefined }) {
  const i18n = useI18n();
  const { t, dateTime } = i18n;
  const preview = api.useMutation("post", "/api/v1/notifications/alert-rules/preview");
  // What is shown is of the rule that was asked about, not of what was typed since.
  const asked = JSON.stringify(preview.variables?.body.trigger) + JSON.stringify(preview.variables?.body.frequency);
  const current = asked === JSON.stringify(draft?.trigger) + JSON.stringify(draft?.frequency);
  const found = current ? preview.data : undefined;
  return (
    <>
      <div>
        <Button
          variant="default"
          loading={preview.isPending}
          disabled={!draft}
          onClick={() => draft && preview.mutate({ body: draft })}
        >
          {t("alerts.preview")}
        </Button>
      </div>
      {preview.error && current ? <ErrorPanel error={preview.error} /> : null}
      {found && draft && (
        <div className="gh-note gh-flat" role="status">
          <p className="gh-flat">
            <strong>{foretold(found, i18n)}</strong>{" "}
            {found.highest_value === null
              ? t("alerts.noValue")
              : t("alerts.highest", { value: measured(found.highest_value, draft.trigger.metric, i18n) })}
          </p>
          {found.firings.length > 0 && (
            <ul className="gh-flat" aria-label={t("alerts.previewList")}>
              {found.firings.slice(0, 10).map((f) => (
                <li key={f.at}>
                  {dateTime(f.at)}: {measured(f.value, draft.trigger.metric, i18n)}
                </li>
              ))}
            </ul>
          )}
        </div>
      )}
    </>
  );
}

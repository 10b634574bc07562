import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { JsonView } from "../../ui/JsonView";

/** What a source answered to a test: its members and its first records, as controls would see them. */
export function Tried({ result }: { result: Schemas["PipTestResult"] }) {
  const { t, duration } = useI18n();
  if (!result.success) {
    return (
      <p className="gh-note" role="status" data-tone="bad">
        {t("sources.testFailed", { error: result.message })}
      </p>
    );
  }
  return (
    <div className="gh-stack" style={{ gap: 12 }}>
      <p className="gh-note gh-flat" role="status" data-tone="good">
        {t("sources.testRead", { time: duration(result.response_time) })}
      </p>
      <section className="gh-table-box" tabIndex={0} aria-label={t("sources.fields")}>
        <table className="gh-table">
          <thead>
            <tr>
              <th scope="col">{t("sources.field")}</th>
              <th scope="col">{t("sources.fieldType")}</th>
            </tr>
          </thead>
          <tbody>
            {result.fields.map((f) => (
              <tr key={f.name}>
                <td>
                  <code>{f.name}</code>
                </td>
                <td>{f.type}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <JsonView value={result.sample_data} label={t("sources.sample")} />
    </div>
  );
}

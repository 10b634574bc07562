import { useI18n } from "../../i18n";

/** What an entry changed, member by member: before and after. */
export function Changes({ changes }: { changes: Record<string, unknown> }) {
  const { t } = useI18n();
  const rows = Object.entries(changes).map(([member, change]) => ({ member, ...sides(change) }));
  if (rows.length === 0) return null;
  return (
    <section className="gh-table-box" aria-label={t("audit.changes")} tabIndex={0}>
      <table className="gh-table">
        <thead>
          <tr>
            <th scope="col">{t("audit.member")}</th>
            <th scope="col">{t("audit.before")}</th>
            <th scope="col">{t("audit.after")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={r.member}>
              <th scope="row">{r.member}</th>
              <td title={text(r.before)}>{text(r.before)}</td>
              <td title={text(r.after)}>{text(r.after)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The two sides of a change, {from, to}. Anything else is a value that was set. */
export function sides(change: unknown): { before: unknown; after: unknown } {
  if (typeof change === "object" && change !== null && ("from" in change || "to" in change)) {
    const { from, to } = change as { from?: unknown; to?: unknown };
    return { before: from, after: to };
  }
  return { before: undefined, after: change };
}

function text(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

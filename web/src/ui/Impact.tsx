import type { Schemas } from "../api/client";
import { useI18n } from "../i18n";
import { StatusOf } from "./Status";
import { Link } from "./scope";
import { Time } from "./Time";
import "./impact.css";

/** What a replay found: how many decisions flip, by which rules, and the newest of them. */
export function Impact({ impact: r }: { impact: Schemas["ReplayImpact"] }) {
  const { t, number, percent } = useI18n();
  return (
    <>
      {r.evaluated > 0 && (
        <ul className="gh-flips">
          <Flip
            label={t("workbench.wouldDeny")}
            count={number(r.newly_blocked)}
            note={percent(r.newly_blocked_percent / 100)}
            tone="bad"
          />
          <Flip label={t("workbench.wouldAllow")} count={number(r.newly_allowed)} tone="good" />
          <Flip label={t("workbench.unchanged")} count={number(r.evaluated - r.changed)} tone="neutral" />
          <Flip
            label={t("workbench.notReplayable")}
            count={number(r.not_replayable.total + r.without_input)}
            tone="neutral"
          />
        </ul>
      )}
      {r.note && <p className="gh-dim">{r.note}</p>}
      {r.by_rule.length > 0 && (
        <ul className="gh-by-rule">
          {r.by_rule.slice(0, 8).map((rule) => (
            <li key={`${rule.policy_name}:${rule.line}`}>
              {t("workbench.byRule", { count: rule.changed, rule: rule.rule, line: rule.line, name: rule.policy_name })}
            </li>
          ))}
        </ul>
      )}
      {r.samples.length > 0 && <Samples samples={r.samples} />}
    </>
  );
}

function Flip({ label, count, note, tone }: { label: string; count: string; note?: string; tone: string }) {
  return (
    <li data-tone={tone}>
      <strong>{count}</strong>
      <span>{label}</span>
      {note && <span className="gh-dim">{note}</span>}
    </li>
  );
}

function Samples({ samples }: { samples: Schemas["RerunSample"][] }) {
  const { t } = useI18n();
  return (
    <section className="gh-table-box" tabIndex={0} aria-label={t("workbench.samples")}>
      <table className="gh-table">
        <thead>
          <tr>
            <th scope="col">{t("common.time")}</th>
            <th scope="col">{t("decisions.user")}</th>
            <th scope="col">{t("decisions.resource")}</th>
            <th scope="col">{t("workbench.before")}</th>
            <th scope="col">{t("workbench.after")}</th>
            <th scope="col">{t("decisions.reason")}</th>
          </tr>
        </thead>
        <tbody>
          {samples.map((s) => (
            <tr key={s.decision_id}>
              <td>
                <Link to={`/decisions/${s.decision_id}`} params={{ at: s.timestamp }}>
                  <Time at={s.timestamp} />
                </Link>
              </td>
              <td>{s.user_id || t("decisions.anonymous")}</td>
              <td>{s.path}</td>
              <td>
                <StatusOf value={s.before.effect} />
              </td>
              <td>
                <StatusOf value={s.after.effect} />
              </td>
              <td title={s.after.explanation}>{s.after.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

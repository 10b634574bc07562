import type { Schemas } from "../api/client";
import { useI18n } from "../i18n";
import "./conditions.css";

/** Conditions of a rule, each with its mark, the values it saw, and the conditions that made it so. */
export function Conditions({
  conditions,
  goTo,
}: {
  conditions: Schemas["RegoCondition"][];
  goTo?: (line: number) => void;
}) {
  const { t } = useI18n();
  return (
    <ul className="gh-conditions">
      {conditions.map((c) => (
        <li key={`${c.line}:${c.source}`} data-holds={c.unreached ? "unreached" : c.holds}>
          <span className="gh-condition-mark" aria-hidden="true">
            {c.unreached ? "–" : c.holds ? "✓" : "✕"}
          </span>
          <span className="gh-sr">
            {c.unreached ? t("decisions.unreached") : c.holds ? t("decisions.holds") : t("decisions.fails")}
          </span>
          <code>{c.source}</code>
          {goTo ? (
            <button type="button" className="gh-line" onClick={() => goTo(c.line)}>
              {t("common.line", { line: c.line })}
            </button>
          ) : (
            <span className="gh-dim">{t("common.line", { line: c.line })}</span>
          )}
          {c.values.length > 0 && (
            <div className="gh-values">
              {c.values.map((v) => (
                <code key={`${v.path}${v.variable ?? ""}`}>
                  {v.path || v.variable} = {JSON.stringify(v.value) ?? t("decisions.undefined")}
                </code>
              ))}
            </div>
          )}
          {c.because && c.because.length > 0 && <Conditions conditions={c.because} goTo={goTo} />}
        </li>
      ))}
    </ul>
  );
}

/** Why a control decided as it did: the rule that held, or the nearest one that would have allowed and what it lacked. */
export function Explanation({
  explanation,
  goTo,
}: {
  explanation: Schemas["RegoExplanation"];
  goTo?: (line: number) => void;
}) {
  const { t } = useI18n();
  const { nearest } = explanation;
  return (
    <div className="gh-stack" style={{ gap: 10 }}>
      {explanation.rule && (
        <div>
          {t("decisions.byRule", { rule: explanation.rule, line: explanation.line ?? 0 })}
          {explanation.conditions.length > 0 && <Conditions conditions={explanation.conditions} goTo={goTo} />}
        </div>
      )}
      {nearest && (
        <div>
          {t("decisions.nearest", { rule: nearest.rule, line: nearest.line })}
          <Conditions conditions={[...nearest.missing, ...nearest.held]} goTo={goTo} />
        </div>
      )}
      {explanation.partial && <p className="gh-dim">{t("decisions.partial")}</p>}
    </div>
  );
}

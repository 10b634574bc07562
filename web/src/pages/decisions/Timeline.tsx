import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Panel } from "../../ui/PageHeader";
import { lanesOf } from "./timeline";

type Decision = Schemas["AuditDecision"];

/**
 * What one subject did at which resources, or who came to one resource, over the time of the decisions that are
 * listed below it. The list is the table behind the picture.
 */
export function Timeline({ decisions, of }: { decisions: Decision[]; of: "user" | "resource" }) {
  const { t, dateTime, number } = useI18n();
  const points = decisions.map((d) => ({
    at: Date.parse(d.timestamp),
    lane: (of === "user" ? d.resource.path || d.resource.id || d.resource.type : d.user.id || d.user.email) || "–",
    denied: d.decision === "DENY",
  }));
  const lanes = lanesOf(points);
  const times = points.map((p) => p.at).sort((a, b) => a - b);
  const [first, last] = [times[0], times.at(-1)];
  if (first === undefined || last === undefined) return null;
  const summary = t("decisions.timelineSummary", {
    count: points.length,
    denied: number(points.filter((p) => p.denied).length),
    from: dateTime(first),
    to: dateTime(last),
  });
  return (
    <Panel
      title={of === "user" ? t("decisions.timelineUser") : t("decisions.timelineResource")}
      style={{ marginBottom: 16 }}
    >
      <div className="gh-timeline" role="img" aria-label={summary}>
        {lanes.map((lane) => (
          <div key={lane.name || "…"} className="gh-lane">
            <bdi className="gh-lane-name" title={lane.name}>
              {lane.name || t("decisions.timelineOthers")}
            </bdi>
            <div className="gh-lane-track">
              {lane.marks.map((m) => (
                <span
                  key={`${m.left} ${m.denied}`}
                  className="gh-lane-mark"
                  data-denied={m.denied}
                  data-many={m.count > 1}
                  style={{ left: `${m.left}%` }}
                />
              ))}
            </div>
          </div>
        ))}
      </div>
      <div className="gh-lane" aria-hidden="true">
        <span className="gh-lane-name" />
        <div className="gh-lane-ends gh-dim">
          <span>{dateTime(first)}</span>
          {last > first && <span>{dateTime(last)}</span>}
        </div>
      </div>
    </Panel>
  );
}

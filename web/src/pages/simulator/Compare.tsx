import { useI18n } from "../../i18n";
import { Skeleton } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { Panel } from "../../ui/PageHeader";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { stepsOf } from "../policies/run";
import { differences } from "./input";
import { type Kept, useRun } from "./runs";

/** Two runs beside each other: what came of each, where their inputs differ, and which conditions turned. */
export function Compare({ first, second }: { first: number | undefined; second: number | undefined }) {
  const { t } = useI18n();
  const environment = useEnvironment();
  const a = useRun(first, environment);
  const b = useRun(second, environment);
  if (first === undefined || second === undefined) {
    return <Empty title={t("simulator.compareEmpty")} about={t("simulator.compareAbout")} />;
  }
  const failed = a.error ?? b.error;
  if (failed) {
    return (
      <ErrorPanel
        error={failed}
        retry={() => {
          void a.refetch();
          void b.refetch();
        }}
      />
    );
  }
  if (!a.data || !b.data) return <Skeleton label={t("simulator.tab_compare")} />;
  return <Compared a={a.data} b={b.data} />;
}

function Compared({ a, b }: { a: Kept; b: Kept }) {
  const { t } = useI18n();
  const inputs = differences(a.record.input_json, b.record.input_json);
  const conditions = turned(a, b);
  return (
    <div className="gh-stack">
      <p
        className="gh-note gh-flat"
        data-tone={a.record.decision === b.record.decision ? "good" : "warn"}
        role="status"
      >
        {a.record.decision === b.record.decision ? t("simulator.sameDecision") : t("simulator.otherDecision")}
      </p>
      <div className="gh-two">
        <Side kept={a} />
        <Side kept={b} />
      </div>
      <Panel title={t("simulator.inputDiffers")} flush={inputs.length > 0}>
        {inputs.length === 0 ? (
          <span className="gh-dim">{t("simulator.sameInput")}</span>
        ) : (
          <Sides
            first={t("simulator.attribute")}
            ids={[a.simulation_id, b.simulation_id]}
            rows={inputs.map((d) => ({
              key: d.path,
              name: d.path,
              a: <Value value={d.a} />,
              b: <Value value={d.b} />,
            }))}
          />
        )}
      </Panel>
      <Panel title={t("simulator.conditionsDiffer")} flush={conditions.length > 0}>
        {conditions.length === 0 ? (
          <span className="gh-dim">{t("simulator.sameConditions")}</span>
        ) : (
          <Sides
            first={t("simulator.condition")}
            ids={[a.simulation_id, b.simulation_id]}
            rows={conditions.map((c) => ({
              key: c.key,
              name: `${t("common.line", { line: c.line })}: ${c.source}`,
              a: <Held held={c.a} />,
              b: <Held held={c.b} />,
            }))}
          />
        )}
      </Panel>
    </div>
  );
}

interface Turned {
  key: string;
  line: number;
  source: string;
  a?: boolean;
  b?: boolean;
}

/** The conditions that held in one run and not in the other, or that only one of them came to. */
function turned(a: Kept, b: Kept): Turned[] {
  const found = new Map<string, Turned>();
  for (const [side, kept] of [
    ["a", a],
    ["b", b],
  ] as const) {
    for (const s of stepsOf(kept.record.trace)) {
      const key = `${s.line}:${s.source}`;
      const row = found.get(key) ?? { key, line: s.line, source: s.source };
      row[side] = (row[side] ?? false) || s.held;
      found.set(key, row);
    }
  }
  return [...found.values()].filter((row) => row.a !== row.b).sort((x, y) => x.line - y.line);
}

function Side({ kept }: { kept: Kept }) {
  const { t, duration } = useI18n();
  const { record } = kept;
  return (
    <Panel title={t("simulator.run", { id: kept.simulation_id })}>
      <div className="gh-stack" style={{ gap: 10 }}>
        <div className="gh-verdict" data-effect={record.decision}>
          <StatusOf value={record.decision} />
          <strong>{record.reason}</strong>
          <span className="gh-dim">{duration(record.execution_time_ms)}</span>
        </div>
        <dl className="gh-facts">
          <dt>{t("decisions.control")}</dt>
          <dd>
            <Link to="/simulator" params={{ policy: record.policy.id, run: kept.simulation_id }}>
              {record.policy.name}
            </Link>
            , {t("workbench.version", { version: record.policy.version })}
          </dd>
          <dt>{t("common.time")}</dt>
          <dd>
            <Time at={record.timestamp} />
          </dd>
          <dt>{t("simulator.by")}</dt>
          <dd>{record.user.name}</dd>
        </dl>
      </div>
    </Panel>
  );
}

function Sides({
  first,
  ids,
  rows,
}: {
  first: string;
  ids: [number, number];
  rows: { key: string; name: string; a: React.ReactNode; b: React.ReactNode }[];
}) {
  const { t } = useI18n();
  return (
    <section className="gh-table-box gh-inset" tabIndex={0} aria-label={first}>
      <table className="gh-table">
        <thead>
          <tr>
            <th scope="col">{first}</th>
            <th scope="col">{t("simulator.run", { id: ids[0] })}</th>
            <th scope="col">{t("simulator.run", { id: ids[1] })}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <td title={row.name}>
                <code>{row.name}</code>
              </td>
              <td>{row.a}</td>
              <td>{row.b}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Value({ value }: { value: unknown }) {
  const { t } = useI18n();
  if (value === undefined) return <span className="gh-dim">{t("simulator.absent")}</span>;
  const text = JSON.stringify(value);
  return <code title={text}>{text}</code>;
}

function Held({ held }: { held: boolean | undefined }) {
  const { t } = useI18n();
  if (held === undefined) return <Status>{t("decisions.unreached")}</Status>;
  return <Status tone={held ? "good" : "bad"}>{held ? t("decisions.holds") : t("decisions.fails")}</Status>;
}

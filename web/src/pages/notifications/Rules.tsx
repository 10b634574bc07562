import { useQueryClient } from "@tanstack/react-query";
import { api, client, ifMatch, must } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import type { Column } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { ListPage } from "../../ui/ListPage";
import { refresh } from "../../ui/live";
import { Status, StatusOf } from "../../ui/Status";
import { useEnvironment, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { EntryPanel } from "./EntryPanel";
import { Foretold } from "./Foretold";
import { useNames } from "./names";
import { RuleForm } from "./RuleForm";
import { again, measured, type Rule, sentence } from "./rule";

/** The alert rules of the environment. */
export default function Rules() {
  const i18n = useI18n();
  const { t, word } = i18n;
  const environment = useEnvironment();
  const { can } = useMe();
  const names = useNames();
  const { source, total } = useSkipped<Rule>(
    ["get", "/api/v1/notifications/alert-rules", environment],
    async (skip, signal) => {
      const query = { environment, skip, limit: 200 };
      const page = must(await client.GET("/api/v1/notifications/alert-rules", { params: { query }, signal }));
      return { rows: page.alert_rules, total: page.total };
    },
  );
  const columns: Column<Rule>[] = [
    { id: "state", header: t("notifications.status"), cell: (r) => <State rule={r} /> },
    {
      id: "severity",
      header: t("notifications.severityOf"),
      cell: (r) => word("notifications", "severity", r.severity),
    },
    {
      id: "sentence",
      header: t("alerts.rule"),
      cell: (r) => {
        const text = sentence(r, names, i18n);
        return <span title={text}>{text}</span>;
      },
    },
    {
      id: "value",
      header: t("alerts.value"),
      numeric: true,
      cell: (r) => (r.last_value === null ? "–" : measured(r.last_value, r.trigger.metric, i18n)),
    },
    { id: "fired", header: t("alerts.lastFired"), cell: (r) => <Time at={r.last_fired_at} /> },
  ];
  return (
    <ListPage
      title={t("nav.alerts")}
      about={t("alerts.about")}
      param="rule"
      columns={columns}
      source={source}
      total={total}
      empty={{ title: t("alerts.empty"), about: t("alerts.emptyAbout") }}
      add={can("notifications:write") && t("alerts.new")}
      form={(close, saved) => <RuleForm close={close} saved={saved} />}
      detail={(id, close) => <Detail id={id} close={close} />}
    />
  );
}

function State({ rule }: { rule: Rule }) {
  const { t } = useI18n();
  if (rule.firing) return <Status tone="bad">{t("alerts.firing")}</Status>;
  return <StatusOf value={rule.enabled ? "enabled" : "disabled"} />;
}

/** One rule: what it says, what it found, how often it would have fired, and what can be done with it. */
function Detail({ id, close }: { id: number; close: () => void }) {
  const i18n = useI18n();
  const { t } = i18n;
  const { can } = useMe();
  const queries = useQueryClient();
  const names = useNames();
  const params = { path: { rule_id: id } };
  const rule = api.useQuery("get", "/api/v1/notifications/alert-rules/{rule_id}", { params });
  const update = api.useMutation("put", "/api/v1/notifications/alert-rules/{rule_id}", {
    onSettled: () => refresh(queries, "notifications"),
  });
  const remove = api.useMutation("delete", "/api/v1/notifications/alert-rules/{rule_id}", {
    onSuccess: () => {
      close();
      refresh(queries, "notifications");
    },
  });
  const r = rule.data;
  if (!r) return rule.error ? <ErrorPanel error={rule.error} retry={() => void rule.refetch()} /> : null;
  const header = ifMatch(r);
  const { name, environment, trigger, frequency } = r;
  return (
    <EntryPanel
      name={r.name}
      environment={r.environment}
      write={can("notifications:write")}
      toggle={{
        enabled: r.enabled,
        busy: update.isPending,
        run: () => update.mutate({ params: { ...params, header }, body: { enabled: !r.enabled } }),
      }}
      form={(close) => <RuleForm rule={r} close={close} saved={close} />}
      removal={{
        title: t("alerts.removeTitle"),
        about: t("alerts.removeAbout"),
        busy: remove.isPending,
        error: remove.error,
        reset: remove.reset,
        run: () => remove.mutate({ params: { ...params, header } }),
      }}
    >
      <div className="gh-stack" style={{ gap: 12 }}>
        <p className="gh-flat" style={{ overflowWrap: "anywhere" }} data-rule-sentence="">
          {sentence(r, names, i18n)} {again(r.frequency, i18n)}
        </p>
        {r.description && (
          <p className="gh-flat gh-dim" style={{ overflowWrap: "anywhere" }}>
            {r.description}
          </p>
        )}
        {r.problem && (
          <p className="gh-note gh-flat" data-tone="warn">
            {t("alerts.problem", { problem: r.problem })}
          </p>
        )}
        <dl className="gh-facts">
          <dt>{t("notifications.status")}</dt>
          <dd>
            <State rule={r} />
          </dd>
          <dt>{t("common.environment")}</dt>
          <dd>
            <StatusOf value={r.environment} />
          </dd>
          <dt>{t("alerts.value")}</dt>
          <dd>{r.last_value === null ? t("common.none") : measured(r.last_value, r.trigger.metric, i18n)}</dd>
          <dt>{t("alerts.lastFired")}</dt>
          <dd>
            <Time at={r.last_fired_at} />
          </dd>
        </dl>
        {update.error ? <ErrorPanel error={update.error} /> : null}
        <Foretold draft={{ name, environment, trigger, frequency }} />
      </div>
    </EntryPanel>
  );
}

import { Button } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { api, client, ifMatch, must, type Schemas } from "../../api/client";
import { useSkipped } from "../../api/paged";
import { useI18n } from "../../i18n";
import type { Column } from "../../ui/DataTable";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { ListPage } from "../../ui/ListPage";
import { refresh } from "../../ui/live";
import { Status, StatusOf } from "../../ui/Status";
import { Link, useEnvironment, useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { ChannelForm } from "./ChannelForm";
import { EntryPanel } from "./EntryPanel";
import { inWords } from "./quiet";
import { span } from "./rule";

type Channel = Schemas["NotifyChannel"];

/** Where messages go: the channels of the environment. */
export default function Channels() {
  const { t, number, word } = useI18n();
  const environment = useEnvironment();
  const { can } = useMe();
  const { source, total } = useSkipped<Channel>(
    ["get", "/api/v1/notifications/channels", environment],
    async (skip, signal) => {
      const query = { environment, skip, limit: 200 };
      const page = must(await client.GET("/api/v1/notifications/channels", { params: { query }, signal }));
      return { rows: page.channels, total: page.total };
    },
  );
  const columns: Column<Channel>[] = [
    { id: "type", header: t("notifications.type"), cell: (c) => word("notifications", "type", c.type) },
    {
      id: "status",
      header: t("notifications.status"),
      cell: (c) => <StatusOf value={c.enabled ? "enabled" : "disabled"} />,
    },
    {
      id: "severity",
      header: t("notifications.severity"),
      cell: (c) => word("notifications", "severity", c.severity_threshold),
    },
    { id: "endpoint", header: t("notifications.endpoint"), cell: (c) => <span title={c.endpoint}>{c.endpoint}</span> },
    { id: "pending", header: t("notifications.pending"), numeric: true, cell: (c) => number(c.pending_deliveries) },
    {
      id: "dlq",
      header: t("notifications.dlq"),
      numeric: true,
      cell: (c) => (c.dlq_deliveries > 0 ? <Status tone="bad">{number(c.dlq_deliveries)}</Status> : number(0)),
    },
    { id: "success", header: t("notifications.lastSuccess"), cell: (c) => <Time at={c.last_success_at} /> },
  ];
  return (
    <ListPage
      title={t("nav.notifications")}
      about={t("notifications.about")}
      param="channel"
      columns={columns}
      source={source}
      total={total}
      empty={{ title: t("notifications.empty"), about: t("notifications.emptyAbout") }}
      add={can("notifications:write") && t("notifications.new")}
      form={(close, saved) => <ChannelForm close={close} saved={saved} />}
      detail={(id, close) => <Detail id={id} close={close} />}
    />
  );
}

/** One channel: what it is, a test that shows the receiver's own answer, and what can be done with it. */
function Detail({ id, close }: { id: number; close: () => void }) {
  const i18n = useI18n();
  const { t, number, word, duration } = i18n;
  const { can } = useMe();
  const queries = useQueryClient();
  const params = { path: { channel_id: id } };
  const channel = api.useQuery("get", "/api/v1/notifications/channels/{channel_id}", { params });
  const done = { onSettled: () => refresh(queries, "notifications") };
  const test = api.useMutation("post", "/api/v1/notifications/channels/{channel_id}/test", done);
  const enable = api.useMutation("post", "/api/v1/notifications/channels/{channel_id}/enable", done);
  const disable = api.useMutation("post", "/api/v1/notifications/channels/{channel_id}/disable", done);
  const remove = api.useMutation("delete", "/api/v1/notifications/channels/{channel_id}", {
    onSuccess: () => {
      close();
      refresh(queries, "notifications");
    },
  });
  const c = channel.data;
  if (!c) return channel.error ? <ErrorPanel error={channel.error} retry={() => void channel.refetch()} /> : null;
  const failure = test.error ?? enable.error ?? disable.error;
  return (
    <EntryPanel
      name={c.name}
      environment={c.environment}
      write={can("notifications:write")}
      first={
        <Button size="compact-sm" loading={test.isPending} onClick={() => test.mutate({ params })}>
          {t("notifications.test")}
        </Button>
      }
      toggle={{
        enabled: c.enabled,
        busy: enable.isPending || disable.isPending,
        run: () => (c.enabled ? disable : enable).mutate({ params }),
      }}
      form={(close) => <ChannelForm channel={c} close={close} saved={close} />}
      removal={{
        title: t("notifications.removeTitle"),
        about: t("notifications.removeAbout"),
        busy: remove.isPending,
        error: remove.error,
        reset: remove.reset,
        run: () => remove.mutate({ params: { ...params, header: ifMatch(c) } }),
      }}
    >
      <div className="gh-stack" style={{ gap: 12 }}>
        <dl className="gh-facts">
          <dt>{t("notifications.type")}</dt>
          <dd>{word("notifications", "type", c.type)}</dd>
          <dt>{t("notifications.endpoint")}</dt>
          <dd style={{ overflowWrap: "anywhere" }}>{c.endpoint || t("common.none")}</dd>
          <dt>{t("common.environment")}</dt>
          <dd>
            <StatusOf value={c.environment} />
          </dd>
          <dt>{t("notifications.credential")}</dt>
          <dd>{c.credential_set ? t("notifications.credentialSet") : t("common.none")}</dd>
          <dt>{t("notifications.attempts")}</dt>
          <dd>{number(c.max_attempts)}</dd>
          {Object.entries(c.settings).map(([name, value]) => (
            <div key={name} style={{ display: "contents" }}>
              <dt>{word("notifications", "setting", name)}</dt>
              <dd style={{ overflowWrap: "anywhere" }}>
                {Array.isArray(value)
                  ? value.join(", ")
                  : typeof value === "string"
                    ? word("notifications", "value", value)
                    : JSON.stringify(value)}
              </dd>
            </div>
          ))}
          {c.quiet_hours && (
            <>
              <dt>{t("notifications.quiet")}</dt>
              <dd>{inWords(c.quiet_hours, i18n)}</dd>
            </>
          )}
          {c.digest_window_seconds > 0 && (
            <>
              <dt>{t("notifications.digest")}</dt>
              <dd>{t("notifications.digestSays", { time: span(c.digest_window_seconds, i18n) })}</dd>
            </>
          )}
          {c.held_deliveries > 0 && (
            <>
              <dt>{t("notifications.held")}</dt>
              <dd>
                <Link to="/notifications/deliveries" params={{ channel_id: c.id, status: "held" }}>
                  {number(c.held_deliveries)}
                </Link>
              </dd>
            </>
          )}
          <dt>{t("notifications.lastSuccess")}</dt>
          <dd>
            <Time at={c.last_success_at} />
          </dd>
          <dt>{t("notifications.lastFailure")}</dt>
          <dd>
            <Time at={c.last_failure_at} />
          </dd>
        </dl>
        {failure ? <ErrorPanel error={failure} /> : null}
        {test.data && (
          <div className="gh-note gh-flat" data-tone={test.data.delivered ? "good" : "warn"} role="status">
            <strong>{test.data.delivered ? t("notifications.testArrived") : t("notifications.testFailed")}</strong>{" "}
            {t("notifications.testAnswer", {
              code: test.data.response_code ? String(test.data.response_code) : t("common.none"),
              time: duration(test.data.duration_ms),
            })}
            {(test.data.response || test.data.error) && (
              <p className="gh-flat" lang="en" style={{ overflowWrap: "anywhere" }}>
                <code>{test.data.response || test.data.error}</code>
              </p>
            )}
          </div>
        )}
        <p className="gh-flat">
          <Link to="/notifications/deliveries" params={{ channel_id: c.id }}>
            {t("notifications.showDeliveries")}
          </Link>
        </p>
      </div>
    </EntryPanel>
  );
}

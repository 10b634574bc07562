import { Button, Group, Stack, Textarea } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { Dialog } from "../../ui/ConfirmDialog";
import { ErrorPanel } from "../../ui/ErrorPanel";
import { fieldErrors } from "../../ui/fieldErrors";
import { refresh } from "../../ui/live";
import { Status, StatusOf } from "../../ui/Status";
import { useMe } from "../../ui/scope";
import { Time } from "../../ui/Time";
import { Lasting } from "./Lasting";
import { isOwn, type Span, secondsOf, spanOf } from "./request";

export type AccessRequest = Schemas["AccessRequest"];

/** One request: what is asked for, by whom and why, and what an approver can do with it. */
export function RequestDialog({ id, close }: { id: number; close: () => void }) {
  const { t } = useI18n();
  const { data: request, error } = api.useQuery("get", "/access/v1/requests/{request_id}", {
    params: { path: { request_id: id } },
  });
  return (
    <Dialog opened close={close} title={t("requests.one", { id: String(id) })} size="lg">
      <Stack gap="md">
        {error && !request ? <ErrorPanel error={error} /> : null}
        {request && <Facts request={request} />}
        {request && <Deciding request={request} />}
      </Stack>
    </Dialog>
  );
}

function Facts({ request: r }: { request: AccessRequest }) {
  const { t, duration } = useI18n();
  const facts: [string, ReactNode][] = [
    [
      t("requests.status"),
      <span key="s" className="gh-row">
        <StatusOf value={r.status} />
        {r.break_glass && <Status tone="bad">{t("requests.breakGlass")}</Status>}
        <StatusOf value={r.environment} />
      </span>,
    ],
    [t("requests.subject"), <bdi key="u">{r.subject_id}</bdi>],
    [t("requests.resource"), <bdi key="n">{`${r.resource_name} (${r.resource_type}, ${r.resource_id})`}</bdi>],
    [t("requests.action"), <code key="a">{r.action}</code>],
    [
      t("requests.reason"),
      <span key="r" style={{ whiteSpace: "pre-wrap" }}>
        {r.reason}
      </span>,
    ],
    [t("requests.by"), <bdi key="b">{r.requested_by}</bdi>],
    [t("requests.asked"), <Time key="c" at={r.created_at} />],
  ];
  if (r.duration_seconds) facts.push([t("requests.wanted"), duration(r.duration_seconds * 1000)]);
  if (r.decided_at) facts.push([t("requests.decidedBy"), <bdi key="d">{r.decided_by}</bdi>]);
  if (r.decided_at) facts.push([t("requests.decided"), <Time key="t" at={r.decided_at} />]);
  if (r.expires_at) facts.push([t("requests.ends"), <Time key="e" at={r.ended_at ?? r.expires_at} />]);
  if (r.status === "pending" && r.lapses_at) facts.push([t("requests.lapses"), <Time key="l" at={r.lapses_at} />]);
  if (!r.expires_at && r.ended_at) facts.push([t("requests.ends"), <Time key="e" at={r.ended_at} />]);
  if (r.ended_by)
    facts.push([
      t(r.status === "withdrawn" ? "requests.withdrawnBy" : "requests.endedBy"),
      <bdi key="x">{r.ended_by}</bdi>,
    ]);
  if (r.decision_reason) facts.push([t("requests.comment"), r.decision_reason]);
  return (
    <dl className="gh-facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What an approver can do: approve or deny what waits, revoke what was granted. */
function Deciding({ request: r }: { request: AccessRequest }) {
  const { t } = useI18n();
  const { me, can } = useMe();
  const queries = useQueryClient();
  // What was wanted is in the form, for the approver to change.
  const [span, setSpan] = useState<Span>(spanOf(r.duration_seconds ?? 3600));
  const [comment, setComment] = useState("");
  const done = {
    onSuccess: () => setComment(""),
    // Somebody else may have decided first: then what they decided is shown.
    onSettled: () => refresh(queries, "resources"),
  };
  const approve = api.useMutation("post", "/access/v1/requests/{request_id}/approve", done);
  const deny = api.useMutation("post", "/access/v1/requests/{request_id}/deny", done);
  const revoke = api.useMutation("post", "/access/v1/requests/{request_id}/revoke", done);
  const withdraw = api.useMutation("post", "/access/v1/requests/{request_id}/withdraw", done);
  const error = approve.error ?? deny.error ?? revoke.error ?? withdraw.error;
  const waits = r.status === "pending";
  const params = { path: { request_id: r.id } };
  if (waits && isOwn(r.subject_id, me)) {
    return (
      <Stack gap="sm">
        <p className="gh-flat gh-dim">{t("requests.own")}</p>
        {error ? <ErrorPanel error={error} /> : null}
        <Group>
          <Button variant="default" loading={withdraw.isPending} onClick={() => withdraw.mutate({ params })}>
            {t("requests.withdraw")}
          </Button>
        </Group>
      </Stack>
    );
  }
  if (!can("resources:write") || !(waits || r.status === "approved")) {
    return error ? <ErrorPanel error={error} /> : null;
  }
  const { at, rest } = fieldErrors(error, ["/duration_seconds"]);
  const reason = comment.trim();
  const busy = approve.isPending || deny.isPending || revoke.isPending;
  return (
    <Stack gap="sm">
      {waits && (
        <Lasting
          span={span}
          change={setSpan}
          label={t("requests.duration")}
          about={t("requests.durationAbout")}
          error={at("/duration_seconds")}
        />
      )}
      <Textarea
        label={t("requests.comment")}
        description={t(waits ? "requests.commentAbout" : "requests.revokeAbout")}
        name="request-comment"
        value={comment}
        onChange={(event) => setComment(event.currentTarget.value)}
        maxLength={500}
        autosize
        maxRows={6}
      />
      {rest ? <ErrorPanel error={rest} /> : null}
      <Group>
        {waits ? (
          <>
            <Button
              loading={approve.isPending}
              disabled={busy}
              onClick={() => approve.mutate({ params, body: { duration_seconds: secondsOf(span) ?? 0, reason } })}
            >
              {t("requests.approve")}
            </Button>
            <Button
              variant="default"
              loading={deny.isPending}
              disabled={busy || !reason}
              onClick={() => deny.mutate({ params, body: { reason } })}
            >
              {t("requests.deny")}
            </Button>
          </>
        ) : (
          <Button
            color="red"
            autoContrast
            loading={revoke.isPending}
            disabled={!reason}
            onClick={() => revoke.mutate({ params, body: { reason } })}
          >
            {t("requests.revoke")}
          </Button>
        )}
      </Group>
    </Stack>
  );
}

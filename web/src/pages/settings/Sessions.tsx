import { Button } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useI18n } from "../../i18n";
import { ConfirmDialog } from "../../ui/ConfirmDialog";
import { type Column, DataTable, type Source } from "../../ui/DataTable";
import { Empty } from "../../ui/Empty";
import { Panel } from "../../ui/PageHeader";
import { Status } from "../../ui/Status";
import { Time } from "../../ui/Time";

type Session = Schemas["AuthSessionInfo"];

/** What ends sessions. `done` is called once it has. */
interface Ending {
  mutation: { isPending: boolean; error: unknown; reset: () => void };
  run: (session: Session | null, done: () => void) => void;
}

/** The sessions of a person, and the ends of them. The session of whoever looks is marked, and is not ended here. */
export function Sessions({
  words,
  source,
  write,
  person,
  one,
  all,
}: {
  words: {
    title: string;
    list: string;
    none: string;
    noneAbout: string;
    end: string;
    endAbout: string;
    endAll: string;
    endAllAbout: string;
  };
  source: Source<Session>;
  /** Whether sessions may be ended. */
  write: boolean;
  /** Whose sessions they are; absent: those of whoever looks. */
  person?: string;
  one: Ending;
  all: Ending;
}) {
  const { t } = useI18n();
  const [ending, setEnding] = useState<Session | "all" | null>(null);
  const columns: Column<Session>[] = [
    {
      id: "device",
      header: t("settings.device"),
      cell: (s) => (
        <span className="gh-row" style={{ flexWrap: "nowrap" }} title={s.user_agent}>
          {s.device || t("settings.unknownDevice")}
          {s.current && <Status tone="good">{t("settings.current")}</Status>}
        </span>
      ),
    },
    {
      id: "kind",
      header: t("settings.kind"),
      cell: (s) => (s.kind === "browser" ? t("settings.browser") : t("settings.token")),
    },
    { id: "address", header: t("settings.address"), cell: (s) => s.ip_address },
    { id: "created", header: t("settings.signedIn"), cell: (s) => <Time at={s.created_at} /> },
    { id: "used", header: t("settings.lastUsed"), cell: (s) => <Time at={s.last_used_at} /> },
    { id: "expires", header: t("settings.expires"), cell: (s) => <Time at={s.expires_at} /> },
  ];
  if (write) {
    columns.push({
      id: "actions",
      header: t("settings.actions"),
      hiddenHeader: true,
      width: 90,
      cell: (s) =>
        s.current ? null : (
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setEnding(s)}
            aria-label={t("settings.endNamed", { name: s.device || s.ip_address })}
          >
            {t("settings.end")}
          </Button>
        ),
    });
  }
  const session = ending !== null && ending !== "all" ? ending : null;
  const device = session ? session.device || session.ip_address : "";
  const close = () => {
    setEnding(null);
    one.mutation.reset();
    all.mutation.reset();
  };
  return (
    <Panel
      title={words.title}
      actions={
        write && source.rows?.some((s) => !s.current) ? (
          <Button size="compact-sm" variant="default" onClick={() => setEnding("all")}>
            {words.endAll}
          </Button>
        ) : undefined
      }
    >
      <DataTable
        label={words.list}
        columns={columns}
        rowKey={(s) => s.id}
        source={source}
        empty={<Empty title={words.none} about={words.noneAbout} />}
        maxHeight={420}
      />
      <ConfirmDialog
        opened={session !== null}
        close={close}
        title={words.end}
        object={person ? `${person}: ${device}` : device}
        about={words.endAbout}
        action={t("settings.end")}
        busy={one.mutation.isPending}
        error={one.mutation.error}
        confirm={() => one.run(session, close)}
      />
      <ConfirmDialog
        opened={ending === "all"}
        close={close}
        title={words.endAll}
        object={person ?? words.title}
        about={words.endAllAbout}
        action={words.endAll}
        busy={all.mutation.isPending}
        error={all.mutation.error}
        confirm={() => all.run(null, close)}
      />
    </Panel>
  );
}

import { Button } from "@mantine/core";
import { Fragment, type ReactNode, useState } from "react";
import { useI18n } from "../i18n";
import { type Column, DataTable, type Source } from "./DataTable";
import { Empty } from "./Empty";
import { Filters } from "./Filters";
import { Icon } from "./icons";
import { PageHeader } from "./PageHeader";
import { useFilter } from "./scope";

/**
 * A list of named objects. A click on a row opens the object below the list; its id is in the address as ?param=. A
 * button opens the form for a new object.
 */
export function ListPage<R extends { id: number; name: string }>({
  title,
  about,
  param,
  columns,
  source,
  total,
  filters = null,
  filtered,
  clear,
  empty,
  add,
  form,
  detail,
}: {
  title: string;
  about: string;
  param: string;
  /** The columns after the name. */
  columns: Column<R>[];
  source: Source<R>;
  total: number | undefined;
  filters?: ReactNode;
  filtered?: boolean;
  clear?: () => void;
  empty: { title: string; about: string };
  /** The label of the button; false for people who may not add an object. */
  add: string | false;
  form: (close: () => void, saved: (id: number) => void) => ReactNode;
  detail: (id: number, close: () => void) => ReactNode;
}) {
  const { t } = useI18n();
  const [shown, show] = useFilter(param);
  const [adding, setAdding] = useState(false);
  const close = () => setAdding(false);
  const name: Column<R> = {
    id: "name",
    header: t("policies.name"),
    cell: (row) => (
      <button type="button" className="gh-link" onClick={() => show(String(row.id))}>
        {row.name}
      </button>
    ),
  };
  const button = add && (
    <Button leftSection={<Icon name="plus" />} onClick={() => setAdding(true)}>
      {add}
    </Button>
  );
  return (
    <>
      <PageHeader title={title} about={about}>
        {button}
      </PageHeader>
      <Filters count={total === undefined ? undefined : t("common.count", { count: total })}>{filters}</Filters>
      <DataTable
        label={title}
        columns={[name, ...columns]}
        source={source}
        rowKey={(row) => row.id}
        selected={(row) => String(row.id) === shown}
        open={(row) => show(String(row.id))}
        filtered={filtered}
        clear={clear}
        empty={<Empty title={empty.title} about={empty.about} action={button || undefined} />}
      />
      {/^[1-9]\d*$/.test(shown) && <Fragment key={shown}>{detail(Number(shown), () => show(null))}</Fragment>}
      {adding &&
        form(close, (id) => {
          close();
          show(String(id));
        })}
    </>
  );
}

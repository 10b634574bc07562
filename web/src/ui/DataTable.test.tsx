import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { ApiError } from "../api/client";
import { I18nProvider, translator } from "../i18n";
import { en } from "../test/words";
import { DataTable } from "./DataTable";

type Row = { id: number; name: string };
const rows = (n: number): Row[] => Array.from({ length: n }, (_, id) => ({ id, name: `row ${id}` }));

function show(
  props: Partial<Parameters<typeof DataTable<Row>>[0]> & { rows?: Row[]; error?: unknown; retry?: () => void },
) {
  const { rows, error = null, retry = () => {}, ...rest } = props;
  const value = { ...translator("en", en), setLanguage: () => {} };
  return render(
    <MantineProvider env="test">
      <I18nProvider value={value}>
        <DataTable<Row>
          label="Rows"
          columns={[{ id: "name", header: "Name", cell: (r) => r.name }]}
          rowKey={(r) => r.id}
          empty={<p>Nothing yet</p>}
          source={{ rows, error, retry }}
          {...rest}
        />
      </I18nProvider>
    </MantineProvider>,
  );
}

describe("DataTable", () => {
  it("says that it is loading", () => {
    show({});
    expect(screen.getByRole("status").textContent).toContain("Loading Rows");
  });
  it("explains an empty list", () => {
    show({ rows: [] });
    expect(screen.getByText("Nothing yet")).toBeTruthy();
  });
  it("offers to clear filters that leave nothing", () => {
    const clear = vi.fn();
    show({ rows: [], filtered: true, clear });
    screen.getByRole("button", { name: "Clear filters" }).click();
    expect(clear).toHaveBeenCalledOnce();
  });
  it("shows a failure with its request and tries again", () => {
    const retry = vi.fn();
    show({ error: new ApiError(500, { message: "broken", request_id: "r-1" }, ""), retry });
    expect(screen.getByRole("alert").textContent).toContain("r-1");
    screen.getByRole("button", { name: "Try again" }).click();
    expect(retry).toHaveBeenCalledOnce();
  });
  it("keeps only the rows in view of a long list in the document, and says how long it is", () => {
    show({ rows: rows(10_000) });
    expect(document.querySelectorAll("tbody tr").length).toBeLessThan(80);
    expect(screen.getByRole("table").getAttribute("aria-rowcount")).toBe("10001");
  });
});

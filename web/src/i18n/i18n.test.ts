import { describe, expect, it } from "vitest";
import { en, es, fr } from "../test/words";
import rest from "./en/rest";
import { loadMessages, loadRest, translator } from "./index";

type Tree = Record<string, Record<string, string | Record<string, string>>>;
const placeholders = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((m) => m[1]).sort();
const forms = (message: string | Record<string, string>) =>
  typeof message === "string" ? [message] : Object.values(message);

describe.each([
  ["es", es],
  ["fr", fr],
] as const)("%s", (language, messages) => {
  it("has the areas and keys of English, and no others", () => {
    expect(Object.keys(messages).sort()).toEqual(Object.keys(en).sort());
    for (const [area, words] of Object.entries(en)) {
      expect(Object.keys((messages as Tree)[area] ?? {}).sort(), area).toEqual(Object.keys(words).sort());
    }
  });
  it("keeps the placeholders", () => {
    for (const [area, words] of Object.entries(en as Tree)) {
      for (const [key, message] of Object.entries(words)) {
        const wanted = [...new Set(forms(message).flatMap(placeholders))].sort();
        for (const form of forms((messages as Tree)[area]?.[key] ?? "")) {
          expect([...new Set(placeholders(form))], `${area}.${key}`).toEqual(wanted);
        }
      }
    }
  });
  it("has a plural form for each that the language asks for", () => {
    const rules = new Intl.PluralRules(language);
    for (const words of Object.values(messages as Tree)) {
      for (const [key, message] of Object.entries(words)) {
        if (typeof message === "string") continue;
        for (const n of [0, 1, 2, 5, 1_000_000]) expect(Object.keys(message), key).toContain(rules.select(n));
      }
    }
  });
});

describe("translator", () => {
  it("picks the plural form and writes numbers as the language does", () => {
    expect(translator("en", en).t("common.count", { count: 1 })).toBe("1 entry");
    expect(translator("es", es).t("common.count", { count: 12_345 })).toBe("12.345 entradas");
    expect(translator("fr", fr).t("common.count", { count: 0 })).toBe("0 entrée");
  });
  it("says how long ago in words", () => {
    const now = Date.parse("2026-01-01T12:00:00Z");
    expect(translator("en", en).ago("2026-01-01T11:57:10Z", now)).toBe("2 minutes ago");
    expect(translator("es", es).ago("2025-12-31T11:00:00Z", now)).toBe("ayer");
  });
  it("shows a name of the API as it is when there is no word for it", () => {
    expect(translator("en", en).word("common", "state", "brand_new")).toBe("brand_new");
  });
});

describe("the words that are loaded first", () => {
  const code: Record<string, string> = import.meta.glob(
    [
      "../*.tsx",
      "../ui/*.tsx",
      "../pages/{dashboard,decisions,libraries,login,policies}/*.tsx",
      "!../**/{NewPolicy,*.test}.tsx",
    ],
    { query: "?raw", import: "default", eager: true },
  );
  it("are all that the frame and the core screens use", () => {
    expect(Object.keys(code)).toContain("../pages/policies/Workbench.tsx");
    for (const [file, text] of Object.entries(code)) {
      for (const area of Object.keys(rest)) {
        expect(text.match(new RegExp(`["'\`]${area}\\.\\w+|word\\(\\s*"${area}"`)), file).toBeNull();
      }
    }
  });
  it("get the rest when a screen needs it, also in languages chosen later", async () => {
    const first = await loadMessages("en");
    expect(translator("en", first).t("users.add")).toBe("users.add");
    const slow = loadMessages("es");
    await loadRest();
    expect(translator("es", await slow).t("users.add")).toBe(es.users.add);
    expect(translator("fr", await loadMessages("fr")).t("users.add")).toBe(fr.users.add);
  });
});

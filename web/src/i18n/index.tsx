import { createContext, type ReactNode, useContext } from "react";
import type { Same } from "./shape";

type Core = typeof import("./en/index").default;
type Rest = typeof import("./en/rest").default;
type Messages = Core & Rest;
/** What is loaded of a language: the core, and the rest once a screen needs it. */
export type Loaded = Same<Core> & Partial<Same<Rest>>;

/** A key such as "policies.title". */
export type Key = { [A in keyof Messages]: `${A & string}.${keyof Messages[A] & string}` }[keyof Messages];
/** The keys of one area that begin with a prefix, for words that the API names, such as statuses. */
export type Params = Record<string, string | number>;

export const languages = { en: "English", es: "Español", fr: "Français" } as const;
export type Language = keyof typeof languages;

const stored = "gatehouse-language";

/** Which language the person chose, or the browser's first that there is. */
export function chosenLanguage(): Language {
  const wanted = [localStorage.getItem(stored) ?? "", ...navigator.languages];
  for (const tag of wanted) {
    const language = tag.toLowerCase().split("-")[0] ?? "";
    if (language in languages) return language as Language;
  }
  return "en";
}

export function keepLanguage(language: Language): void {
  localStorage.setItem(stored, language);
}

const files = {
  en: { core: () => import("./en/index"), rest: () => import("./en/rest") },
  es: { core: () => import("./es/index"), rest: () => import("./es/rest") },
  fr: { core: () => import("./fr/index"), rest: () => import("./fr/rest") },
};

let restNeeded = false;
let current: { language: Language; messages: Loaded } | undefined;

/** Loads one language. Only its readers load its files. */
export async function loadMessages(language: Language): Promise<Loaded> {
  const messages: Loaded = { ...(await files[language].core()).default };
  if (restNeeded) Object.assign(messages, (await files[language].rest()).default);
  current = { language, messages };
  return messages;
}

/** Loads the rest of the current language. Screens outside the core wait for it, and so do later changes of language. */
export async function loadRest(): Promise<void> {
  restNeeded = true;
  while (current && !("users" in current.messages)) {
    const { language, messages } = current;
    Object.assign(messages, (await files[language].rest()).default);
  }
}

function fill(text: string, params: Params, number: Intl.NumberFormat): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = params[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? number.format(value) : value;
  });
}

const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

/** Words, numbers and times in one language. */
export function translator(language: Language, messages: Loaded) {
  const rules = new Intl.PluralRules(language);
  const number = new Intl.NumberFormat(language, { maximumFractionDigits: 2 });
  const percent = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });
  const compact = new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 });
  const dateTime = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
  const utc = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "long", timeZone: "UTC" });
  const date = new Intl.DateTimeFormat(language, { dateStyle: "medium" });
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
  const list = new Intl.ListFormat(language, { type: "conjunction" });
  const all = messages as unknown as Record<string, Record<string, string | Record<string, string>>>;

  function lookup(key: string): string | Record<string, string> | undefined {
    const dot = key.indexOf(".");
    return all[key.slice(0, dot)]?.[key.slice(dot + 1)];
  }
  function t(key: Key, params: Params = {}): string {
    const found = lookup(key);
    if (found === undefined) return key;
    if (typeof found === "string") return fill(found, params, number);
    const form = rules.select(Number(params.count ?? 0));
    return fill(found[form] ?? found.other ?? key, params, number);
  }
  return {
    language,
    t,
    /** A word that the API names, such as a status: the area's word, or the name itself for one that is new. */
    word(area: keyof Messages, prefix: string, name: string): string {
      const found = lookup(`${area}.${prefix}_${name}`);
      return typeof found === "string" ? found : name;
    },
    number: (n: number) => number.format(n),
    compact: (n: number) => compact.format(n),
    /** A share of one, such as 0.12. */
    percent: (share: number) => percent.format(share),
    dateTime: (time: string | number | Date) => dateTime.format(new Date(time)),
    utc: (time: string | number | Date) => utc.format(new Date(time)),
    date: (time: string | number | Date) => date.format(new Date(time)),
    list: (items: string[]) => list.format(items),
    /** How long ago, or how far off. */
    ago(time: string | number | Date, now = Date.now()): string {
      const seconds = (new Date(time).getTime() - now) / 1000;
      for (const [unit, size] of units) {
        if (Math.abs(seconds) >= size || unit === "second") return relative.format(Math.trunc(seconds / size), unit);
      }
      return "";
    },
    /** Milliseconds, in the unit that reads best. */
    duration(ms: number): string {
      if (ms >= 60_000) return `${number.format(Math.round(ms / 6000) / 10)} min`;
      if (ms >= 1000) return `${number.format(Math.round(ms / 10) / 100)} s`;
      if (ms >= 1) return `${number.format(Math.round(ms * 100) / 100)} ms`;
      return `${number.format(Math.round(ms * 1000))} µs`;
    },
  };
}

export type I18n = ReturnType<typeof translator>;

const Context = createContext<(I18n & { setLanguage(language: Language): void }) | null>(null);

export function I18nProvider({
  value,
  children,
}: {
  value: I18n & { setLanguage(language: Language): void };
  children: ReactNode;
}) {
  return <Context.Provider value={value}>{children}</Context.Provider>;
}

/** The words of the person's language: const { t } = useI18n(). */
export function useI18n() {
  const value = useContext(Context);
  if (!value) throw new Error("useI18n is called outside I18nProvider");
  return value;
}

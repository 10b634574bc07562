/** The plural forms of a phrase; `count` picks one. Spanish and French also have "many" (a million). */
export type Plural = { one: string; many?: string; other: string };

/** The shape of an area in another language: the same keys, with words where there are words and plural forms where there are plural forms. */
export type Same<T> = { [K in keyof T]: T[K] extends string ? string : T[K] extends Plural ? Plural : Same<T[K]> };

/** The words of one area in another language: const policies: Area<typeof en> = {…}. */
export type Area<T> = Same<T>;

import enCore from "../i18n/en/index";
import enRest from "../i18n/en/rest";
import esCore from "../i18n/es/index";
import esRest from "../i18n/es/rest";
import frCore from "../i18n/fr/index";
import frRest from "../i18n/fr/rest";

/** All words of each language. */
export const en = { ...enCore, ...enRest };
export const es = { ...esCore, ...esRest };
export const fr = { ...frCore, ...frRest };

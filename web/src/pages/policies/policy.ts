import type { Schemas } from "../../api/client";

/** A policy as the API returns it. */
export type Policy = Schemas["Policy"];

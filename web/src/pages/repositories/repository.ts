import type { Schemas } from "../../api/client";

/** A connected repository as the API returns it. */
export type Repository = Schemas["IdeRepository"];

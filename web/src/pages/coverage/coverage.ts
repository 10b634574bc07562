import type { Schemas } from "../../api/client";

type Policy = Pick<Schemas["Policy"], "id" | "name" | "status" | "resource_id">;
type Resource = Pick<Schemas["Resource"], "id" | "name" | "resource_kind" | "data_classification">;

/** How a control stands to a resource: bound to it, or of the whole tenant; and whether it decides yet. */
export type Cell = "bound" | "wide" | "draft" | "";

export interface Row {
  resource: Resource;
  /** The controls that are bound to it, active ones first. */
  bound: Policy[];
  protected: boolean;
}

export interface Coverage {
  rows: Row[];
  /** Controls of the whole tenant first, then those with a resource. */
  controls: Policy[];
  wide: number;
  gaps: number;
}

const live = (p: Policy) => p.status === "active";

/**
 * Which control covers which resource. A resource is protected once an active control is bound to it, as the inventory
 * counts; resources without one come first.
 */
export function coverageOf(resources: Resource[], policies: Policy[]): Coverage {
  const used = policies.filter((p) => p.status !== "inactive");
  const bound = new Map<number, Policy[]>();
  for (const p of used) {
    if (p.resource_id !== null) bound.set(p.resource_id, [...(bound.get(p.resource_id) ?? []), p]);
  }
  const rows = resources.map((resource) => {
    const own = (bound.get(resource.id) ?? []).toSorted((a, b) => Number(live(b)) - Number(live(a)));
    return { resource, bound: own, protected: own.some(live) };
  });
  rows.sort((a, b) => Number(a.protected) - Number(b.protected) || a.resource.name.localeCompare(b.resource.name));
  const known = new Set(resources.map((r) => r.id));
  const wide = used.filter((p) => p.resource_id === null);
  return {
    rows,
    controls: [...wide, ...used.filter((p) => p.resource_id !== null && known.has(p.resource_id))],
    wide: wide.filter(live).length,
    gaps: rows.filter((r) => !r.protected).length,
  };
}

/** What one control is to one resource. */
export function cellOf(control: Policy, resource: Resource): Cell {
  if (control.resource_id !== null && control.resource_id !== resource.id) return "";
  if (!live(control)) return "draft";
  return control.resource_id === null ? "wide" : "bound";
}

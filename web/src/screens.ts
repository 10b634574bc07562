import type { ComponentType } from "react";
import type { Key } from "./i18n";
import type { IconName } from "./ui/icons";

/** A screen: its address, its code (a chunk of its own), and its place in the navigation. */
export interface Screen {
  path: string;
  load: () => Promise<{ default: ComponentType }>;
  /** What one must hold to see it. */
  permission?: string;
  nav?: {
    group: "overview" | "controls" | "estate" | "people" | "settings";
    title: Key;
    icon: IconName;
    /** `g` and then this letter goes there. */
    key?: string;
    /** For platform administrators only. */
    platform?: boolean;
  };
}

// One line each, so that two people who add screens do not meet.
export const screens: Screen[] = [
  {
    path: "/",
    load: () => import("./pages/dashboard/Dashboard"),
    permission: "dashboard:read",
    nav: { group: "overview", title: "dashboard.title", icon: "dashboard", key: "d" },
  },
  {
    path: "/policies",
    load: () => import("./pages/policies/Policies"),
    permission: "policies:read",
    nav: { group: "controls", title: "policies.title", icon: "policy", key: "p" },
  },
  { path: "/policies/:id", load: () => import("./pages/policies/Workbench"), permission: "policies:read" },
  {
    path: "/decisions",
    load: () => import("./pages/decisions/Decisions"),
    permission: "audit:read",
    nav: { group: "controls", title: "decisions.title", icon: "decision", key: "e" },
  },
  { path: "/decisions/:id", load: () => import("./pages/decisions/Decision"), permission: "audit:read" },
];

/** Whether there is a screen at a path as it is written above, so that links lead to something. */
export function has(path: string): boolean {
  return screens.some((s) => s.path === path);
}

/** The screens of the navigation that somebody may see. */
export function visible(permissions: string[], roles: string[]): Screen[] {
  return screens.filter(
    (s) =>
      s.nav &&
      (!s.permission || permissions.includes(s.permission)) &&
      (!s.nav.platform || roles.includes("platform_admin")),
  );
}

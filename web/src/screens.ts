import type { ComponentType } from "react";
import type { Key } from "./i18n";
import type { IconName } from "./ui/icons";

/** A screen: its address, its code (a chunk of its own), and its place in the navigation. */
export interface Screen {
  path: string;
  load: () => Promise<{ default: ComponentType }>;
  /** It uses only the words that are loaded first. */
  core?: boolean;
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
    core: true,
    load: () => import("./pages/dashboard/Dashboard"),
    permission: "dashboard:read",
    nav: { group: "overview", title: "dashboard.title", icon: "dashboard", key: "d" },
  },
  {
    path: "/policies",
    core: true,
    load: () => import("./pages/policies/Policies"),
    permission: "policies:read",
    nav: { group: "controls", title: "policies.title", icon: "policy", key: "p" },
  },
  { path: "/policies/new", load: () => import("./pages/policies/NewPolicy"), permission: "policies:write" },
  { path: "/policies/:id", core: true, load: () => import("./pages/policies/Workbench"), permission: "policies:read" },
  {
    path: "/libraries",
    load: () => import("./pages/libraries/Libraries"),
    permission: "policies:read",
    nav: { group: "controls", title: "nav.libraries", icon: "library", key: "l" },
  },
  {
    path: "/repositories",
    load: () => import("./pages/repositories/Repositories"),
    permission: "editor:read",
    nav: { group: "controls", title: "nav.repositories", icon: "repository", key: "o" },
  },
  {
    path: "/simulator",
    load: () => import("./pages/simulator/Simulator"),
    permission: "simulator:read",
    nav: { group: "controls", title: "nav.simulator", icon: "simulator", key: "m" },
  },
  {
    path: "/decisions",
    core: true,
    load: () => import("./pages/decisions/Decisions"),
    permission: "audit:read",
    nav: { group: "controls", title: "decisions.title", icon: "decision", key: "e" },
  },
  { path: "/decisions/:id", core: true, load: () => import("./pages/decisions/Decision"), permission: "audit:read" },
  {
    path: "/resources",
    load: () => import("./pages/resources/Resources"),
    permission: "resources:read",
    nav: { group: "estate", title: "nav.resources", icon: "resource", key: "r" },
  },
  { path: "/resources/:id", load: () => import("./pages/resources/Resource"), permission: "resources:read" },
  {
    path: "/users",
    load: () => import("./pages/users/Users"),
    permission: "users:read",
    nav: { group: "people", title: "nav.users", icon: "users", key: "u" },
  },
  { path: "/users/:id", load: () => import("./pages/users/User"), permission: "users:read" },
  {
    path: "/api-keys",
    load: () => import("./pages/keys/Keys"),
    permission: "tenants:read",
    nav: { group: "people", title: "nav.keys", icon: "key", key: "k" },
  },
  {
    path: "/bouncers",
    load: () => import("./pages/bouncers/Bouncers"),
    permission: "bouncers:read",
    nav: { group: "estate", title: "nav.bouncers", icon: "gate", key: "b" },
  },
  { path: "/bouncers/:id", load: () => import("./pages/bouncers/Bouncer"), permission: "bouncers:read" },
  {
    path: "/revisions",
    load: () => import("./pages/revisions/Revisions"),
    permission: "bouncers:read",
    nav: { group: "estate", title: "nav.revisions", icon: "revision", key: "v" },
  },
  {
    path: "/coverage",
    load: () => import("./pages/coverage/Coverage"),
    permission: "resources:read",
    nav: { group: "estate", title: "nav.coverage", icon: "table", key: "c" },
  },
  {
    path: "/agents",
    load: () => import("./pages/agents/Agents"),
    permission: "agents:read",
    nav: { group: "estate", title: "nav.agents", icon: "agent", key: "j" },
  },
  {
    path: "/requests",
    load: () => import("./pages/requests/Requests"),
    permission: "decisions:read",
    nav: { group: "people", title: "nav.requests", icon: "check" },
  },
  {
    path: "/audit",
    load: () => import("./pages/audit/Audit"),
    permission: "audit:read",
    nav: { group: "people", title: "nav.audit", icon: "audit", key: "a" },
  },
  {
    path: "/replays",
    load: () => import("./pages/replays/Replays"),
    permission: "policies:write",
    nav: { group: "controls", title: "nav.replays", icon: "replay", key: "y" },
  },
  {
    path: "/inventory",
    load: () => import("./pages/inventory/Inventory"),
    permission: "resources:read",
    nav: { group: "estate", title: "nav.inventory", icon: "inventory", key: "i" },
  },
  {
    path: "/tenant",
    load: () => import("./pages/tenants/Tenant"),
    permission: "tenants:read",
    nav: { group: "settings", title: "nav.tenant", icon: "tenant", key: "t" },
  },
  { path: "/tenant/domains", load: () => import("./pages/tenants/Domains"), permission: "tenants:read" },
  { path: "/tenant/regions", load: () => import("./pages/tenants/Regions"), permission: "tenants:read" },
  { path: "/tenant/billing", load: () => import("./pages/tenants/Billing"), permission: "billing:read" },
  { path: "/tenant/usage", load: () => import("./pages/tenants/UsageScreen"), permission: "tenants:read" },
  {
    path: "/webhooks",
    load: () => import("./pages/webhooks/Webhooks"),
    permission: "webhooks:read",
    nav: { group: "settings", title: "nav.webhooks", icon: "webhook", key: "w" },
  },
  {
    path: "/integrations",
    load: () => import("./pages/integrations/Integrations"),
    permission: "integrations:read",
    nav: { group: "settings", title: "nav.integrations", icon: "external" },
  },
  {
    path: "/data-sources",
    load: () => import("./pages/sources/Sources"),
    permission: "pip:read",
    nav: { group: "estate", title: "nav.sources", icon: "inventory" },
  },
  { path: "/data-sources/:id", load: () => import("./pages/sources/Source"), permission: "pip:read" },
  {
    path: "/notifications",
    load: () => import("./pages/notifications/Channels"),
    permission: "notifications:read",
    nav: { group: "settings", title: "nav.notifications", icon: "bell", key: "f" },
  },
  {
    path: "/notifications/deliveries",
    load: () => import("./pages/notifications/Deliveries"),
    permission: "notifications:read",
    nav: { group: "settings", title: "nav.deliveries", icon: "list", key: "z" },
  },
  {
    path: "/notifications/alert-rules",
    load: () => import("./pages/notifications/Rules"),
    permission: "notifications:read",
    nav: { group: "settings", title: "nav.alerts", icon: "alert", key: "h" },
  },
  {
    path: "/telemetry",
    load: () => import("./pages/telemetry/Telemetry"),
    permission: "telemetry:read",
    nav: { group: "settings", title: "nav.telemetry", icon: "external", key: "q" },
  },
  { path: "/webhooks/:id", load: () => import("./pages/webhooks/Webhook"), permission: "webhooks:read" },
  {
    path: "/tenants",
    load: () => import("./pages/tenants/Tenants"),
    permission: "tenants:read",
    nav: { group: "settings", title: "nav.tenants", icon: "list", key: "n", platform: true },
  },
  {
    path: "/vendors",
    load: () => import("./pages/tenants/Vendors"),
    permission: "tenants:read",
    nav: { group: "settings", title: "nav.vendors", icon: "inventory", key: "g", platform: true },
  },
  {
    path: "/settings/sign-on",
    load: () => import("./pages/settings/SignOn"),
    permission: "tenants:read",
    nav: { group: "people", title: "nav.signon", icon: "user", key: "x" },
  },
  { path: "/settings/security", load: () => import("./pages/settings/Security") },
  {
    path: "/settings",
    load: () => import("./pages/settings/Settings"),
    nav: { group: "settings", title: "nav.settings", icon: "settings", key: "s" },
  },
];

/** The screens of the navigation that somebody may see. */
export function visible(permissions: string[], roles: string[]): Screen[] {
  return screens.filter(
    (s) =>
      s.nav &&
      (!s.permission || permissions.includes(s.permission)) &&
      (!s.nav.platform || roles.includes("platform_admin")),
  );
}

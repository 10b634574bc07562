// The icons of the console, drawn on a grid of 24. They are decoration: what
// they stand beside says the same in words.
const paths = {
  agent: "M6 9h12v9H6ZM12 9V5m0 0a1 1 0 1 0-.1 0M9.5 13v.5M14.5 13v.5M3.5 12v3M20.5 12v3",
  alert: "M12 9v4m0 3v.5M10.3 4 2.6 17.5A2 2 0 0 0 4.3 20.5h15.4a2 2 0 0 0 1.7-3L13.7 4a2 2 0 0 0-3.4 0Z",
  audit: "M6 3h9l4 4v14H6ZM15 3v4h4M9 12h7M9 16h7",
  bell: "M6 16v-5a6 6 0 0 1 12 0v5l2 2H4ZM10 21h4",
  book: "M5 4h11a3 3 0 0 1 3 3v13H8a3 3 0 0 1-3-3ZM5 17a3 3 0 0 1 3-3h11",
  check: "m5 12.5 4.5 4.5L19 7.5",
  chevron: "m9 6 6 6-6 6",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h10v11H9ZM15 9V4H5v11h4",
  dashboard: "M4 4h7v9H4ZM13 4h7v5h-7ZM13 11h7v9h-7ZM4 15h7v5H4Z",
  decision: "M12 3v6m0 0-6 5v6m6-11 6 5v6",
  diff: "M8 4v16m8-16v16M5 9h6M13 15h6",
  external: "M14 4h6v6M20 4l-9 9M10 6H5v13h13v-5",
  filter: "M4 5h16l-6.5 8v6l-3-2v-4Z",
  gate: "M5 21V11a7 7 0 0 1 14 0v10M12 4v17M5 14h14",
  inventory: "M4 8l8-4 8 4v8l-8 4-8-4ZM4 8l8 4 8-4M12 12v8",
  key: "M14 10a4 4 0 1 1-1.2-2.8A4 4 0 0 1 14 10Zm0 0h7v3m-3-3v3",
  keyboard: "M3 7h18v10H3ZM7 11v.1M11 11v.1M15 11v.1M8 14h8",
  library: "M5 4h4v16H5ZM11 4h4v16h-4ZM16.5 5l3.5-1 0 16-3 .5",
  list: "M9 6h11M9 12h11M9 18h11M4.5 6v.1M4.5 12v.1M4.5 18v.1",
  menu: "M4 7h16M4 12h16M4 17h16",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5Z",
  play: "M7 5v14l12-7Z",
  plus: "M12 5v14M5 12h14",
  policy: "M12 3 5 6v6c0 4.5 3 7.5 7 9 4-1.5 7-4.5 7-9V6Zm-3 9 2.2 2.2L15.5 10",
  refresh: "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
  replay: "M4 12a8 8 0 1 0 2.5-5.8L4 8.5M4 4v4.5h4.5M12 8v4l3 2",
  repository: "M7 4v11m0 0a2.5 2.5 0 1 0 .1 0M17 4a2.5 2.5 0 1 0 .1 0M17 9c0 4-5 4-9.5 6.5",
  resource: "M4 6h16v4H4ZM4 14h16v4H4ZM7 8v.1M7 16v.1",
  revision: "M12 3v5m0 8v5M12 8a4 4 0 1 0 .1 0",
  search: "M10.5 4a6.5 6.5 0 1 1-.1 0M20 20l-4.8-4.8",
  settings:
    "M12 9a3 3 0 1 0 .1 0M12 3v3m0 12v3M3 12h3m12 0h3M5.6 5.6l2.1 2.1m8.6 8.6 2.1 2.1m0-12.8-2.1 2.1m-8.6 8.6-2.1 2.1",
  simulator: "M10 3v6L4.5 18.5A1.7 1.7 0 0 0 6 21h12a1.7 1.7 0 0 0 1.5-2.5L14 9V3M8 3h8M7.5 14h9",
  sun: "M12 8a4 4 0 1 0 .1 0M12 2v2m0 16v2M2 12h2m16 0h2M5 5l1.4 1.4m11.2 11.2L19 19m0-14-1.4 1.4M6.4 17.6 5 19",
  table: "M4 5h16v14H4ZM4 10h16M4 15h16M10 5v14",
  tenant: "M5 21V5l7-2 7 2v16M3 21h18M9 9h.1M15 9h.1M9 13h.1M15 13h.1M10 21v-4h4v4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  user: "M12 4a4 4 0 1 1-.1 0M5 21c0-4 3-7 7-7s7 3 7 7",
  users:
    "M9 5a3.5 3.5 0 1 1-.1 0M3 20c0-3.5 2.5-6 6-6s6 2.5 6 6M16 5.5a3.5 3.5 0 0 1 0 6M17.5 14.5c2.2.8 3.5 3 3.5 5.5",
  webhook: "M9 12 4 17l3 3 5-5m3-3 5-5-3-3-5 5M9.5 14.5l5-5",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={paths[name]} />
    </svg>
  );
}

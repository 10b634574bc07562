import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core";

// The one brand hue. #00666c is what the PDF report of the simulator uses too.
const pine: MantineColorsTuple = [
  "#e6f5f5",
  "#cfe8e9",
  "#a3d2d4",
  "#74bcc0",
  "#4ea9ad",
  "#2f989d",
  "#178a90",
  "#07777d",
  "#006d73",
  "#00666c",
];

// Neutral surfaces with a little green in them, lightest first.
const slate: MantineColorsTuple = [
  "#f5f8f7",
  "#e9eeec",
  "#d9e1de",
  "#c0cbc7",
  "#94a29d",
  "#67756f",
  "#4d5a55",
  "#37423e",
  "#222b28",
  "#141a18",
];

const dark: MantineColorsTuple = [
  "#dce5e2",
  "#b9c6c2",
  "#a0afaa",
  "#6b7a75",
  "#3a4743",
  "#2c3733",
  "#212a27",
  "#19211e",
  "#131917",
  "#0d1211",
];

export const theme = createTheme({
  colors: { pine, slate, gray: slate, dark },
  primaryColor: "pine",
  primaryShade: { light: 9, dark: 8 },
  fontFamily: "'Inter Variable', system-ui, sans-serif",
  fontFamilyMonospace: "'JetBrains Mono Variable', ui-monospace, monospace",
  fontSizes: { xs: "12px", sm: "13px", md: "14px", lg: "16px", xl: "18px" },
  defaultRadius: "sm",
  cursorType: "pointer",
  respectReducedMotion: true,
  headings: {
    fontWeight: "650",
    sizes: { h1: { fontSize: "22px" }, h2: { fontSize: "16px" }, h3: { fontSize: "14px" } },
  },
  components: {
    Modal: { defaultProps: { centered: true, overlayProps: { backgroundOpacity: 0.45 } } },
    Tooltip: { defaultProps: { openDelay: 300, events: { hover: true, focus: true, touch: true } } },
    Paper: { defaultProps: { withBorder: true, shadow: "none" } },
    TextInput: { defaultProps: { size: "sm" } },
    Select: { defaultProps: { size: "sm", checkIconPosition: "right" } },
    Button: { defaultProps: { size: "sm" } },
  },
});

// Colours of meaning and of contrast; each pair is at least 4.5:1 on its surface.
export const resolver: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-anchor": "#00666c",
    "--mantine-color-error": "#a61b1b",
    "--mantine-color-dimmed": "#55625d",
    "--mantine-color-body": "#ffffff",
    "--mantine-color-placeholder": "#67756f",
    "--gh-surface": "#f5f8f7",
    "--gh-border": "#d9e1de",
    "--gh-good": "#17692f",
    "--gh-bad": "#a61b1b",
    "--gh-warn": "#7d4e00",
    "--gh-info": "#00666c",
    "--gh-good-bg": "#e4f3e8",
    "--gh-bad-bg": "#fbe9e9",
    "--gh-warn-bg": "#fbf0dc",
    "--gh-info-bg": "#e6f5f5",
    "--gh-production": "#8a3b00",
    "--gh-production-bg": "#fdf1e6",
  },
  dark: {
    "--mantine-color-anchor": "#74bcc0",
    "--mantine-color-error": "#ff9c9c",
    "--mantine-color-dimmed": "#a0afaa",
    "--mantine-color-body": "#131917",
    "--mantine-color-placeholder": "#8b9b95",
    "--gh-surface": "#19211e",
    "--gh-border": "#2c3733",
    "--gh-good": "#83d69a",
    "--gh-bad": "#ff9c9c",
    "--gh-warn": "#f0bd6b",
    "--gh-info": "#8acdd1",
    "--gh-good-bg": "#16301f",
    "--gh-bad-bg": "#3a1a1c",
    "--gh-warn-bg": "#35280f",
    "--gh-info-bg": "#0f2f31",
    "--gh-production": "#ffb27a",
    "--gh-production-bg": "#33200f",
  },
});

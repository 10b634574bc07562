// Sets the colour scheme and the language before the first paint.
(() => {
  const stored = localStorage.getItem("mantine-color-scheme-value");
  const dark = stored === "dark" || (stored !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();

import { useEffect, useRef } from "react";

function typing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) ||
      target.closest(".cm-editor") !== null)
  );
}

/** The keys of the whole console: Ctrl/Cmd+K and `/` search, `?` shows the keys, `g` and a letter goes to a screen. */
export function useKeys(actions: { palette: () => void; help: () => void; go: (letter: string) => void }): void {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    let pending = 0;
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        latest.current.palette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      if (document.querySelector('[role="dialog"]')) return;
      if (Date.now() - pending < 1500) {
        pending = 0;
        latest.current.go(event.key.toLowerCase());
      } else if (event.key === "g") {
        pending = Date.now();
      } else if (event.key === "/") {
        event.preventDefault();
        latest.current.palette();
      } else if (event.key === "?") {
        latest.current.help();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}

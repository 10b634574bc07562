import { lazy, Suspense, useRef } from "react";
import type { ConfirmProps, DialogProps } from "./Dialog";

// Dialogs bring a good deal of script, which comes with the first one that opens.
const LazyConfirm = lazy(async () => ({ default: (await import("./Dialog")).Confirm }));
const LazyDialog = lazy(async () => ({ default: (await import("./Dialog")).Dialog }));

// Keeps a second click from the page until the dialog is there.
const veil = <div className="gh-veil" aria-busy="true" />;

/** Whether it was open once: then it stays, so that it can close in style. */
function useOpenedOnce(opened: boolean): boolean {
  const once = useRef(false);
  once.current ||= opened;
  return once.current;
}

/**
 * Asks before something that is hard to take back. It names the object and its environment; in production the
 * object's name is typed.
 */
export function ConfirmDialog(props: ConfirmProps) {
  if (!useOpenedOnce(props.opened)) return null;
  return (
    <Suspense fallback={veil}>
      <LazyConfirm {...props} />
    </Suspense>
  );
}

/** A dialog with a title. */
export function Dialog(props: DialogProps) {
  if (!useOpenedOnce(props.opened)) return null;
  return (
    <Suspense fallback={veil}>
      <LazyDialog {...props} />
    </Suspense>
  );
}

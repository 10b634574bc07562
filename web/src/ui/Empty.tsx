import type { ReactNode } from "react";

/** What stands where there is nothing: what this is, why it is empty, and one thing to do. */
export function Empty({ title, about, action }: { title: string; about: string; action?: ReactNode }) {
  return (
    <div className="gh-state">
      <p className="gh-state-title">{title}</p>
      <p className="gh-dim">{about}</p>
      {action}
    </div>
  );
}

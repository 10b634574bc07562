import { type ReactNode, useEffect } from "react";

/** The one h1 of a screen and the title of its tab, with what can be done there. */
export function PageHeader({
  title,
  about,
  mark,
  children,
}: {
  title: string;
  about?: ReactNode;
  mark?: ReactNode;
  children?: ReactNode;
}) {
  useEffect(() => {
    document.title = `${title} · gatehouse`;
  }, [title]);
  return (
    <div className="gh-head">
      <div>
        <div className="gh-row">
          <h1>{title}</h1>
          {mark}
        </div>
        {about && <p>{about}</p>}
      </div>
      {children && <div className="gh-actions">{children}</div>}
    </div>
  );
}

/** A bordered part of a screen with a heading. */
export function Panel({
  title,
  actions,
  children,
  flush = false,
  className = "",
  style,
}: {
  title: string;
  actions?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  className?: string;
  style?: React.CSSProperties;
}) {
  return (
    <section className={`gh-panel ${className}`} style={style} aria-label={title}>
      <div className="gh-panel-head">
        <h2>{title}</h2>
        {actions && (
          <div className="gh-row" style={{ marginLeft: "auto" }}>
            {actions}
          </div>
        )}
      </div>
      <div className={flush ? "" : "gh-panel-body"}>{children}</div>
    </section>
  );
}

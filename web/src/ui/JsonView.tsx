/** A value as indented JSON, shown as text. */
export function JsonView({ value, label }: { value: unknown; label: string }) {
  return (
    // A region that scrolls must be reachable by keyboard.
    <pre className="gh-json" tabIndex={0} aria-label={label} role="region">
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}

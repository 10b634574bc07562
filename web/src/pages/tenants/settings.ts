/** Settings with changes: null takes a member away. */
export function merged(settings: Record<string, unknown>, changes: Record<string, unknown>): Record<string, unknown> {
  const next = { ...settings };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) delete next[name];
    else next[name] = value;
  }
  return next;
}

import { useI18n } from "../i18n";

/** A time as people say it, with the exact one on hover and for screen readers. */
export function Time({ at }: { at: string | null | undefined }) {
  const { ago, utc, t } = useI18n();
  if (!at) return <span className="gh-dim">{t("common.never")}</span>;
  return (
    <time dateTime={at} title={utc(at)}>
      {ago(at)}
    </time>
  );
}

import { useI18n } from "../i18n";
import { visible } from "../screens";
import { Dialog } from "./ConfirmDialog";
import { useMe } from "./scope";

/** The keys that the console knows. */
export default function KeysDialog({ close }: { close: () => void }) {
  const { t } = useI18n();
  const { me } = useMe();
  const keys: [string[], string][] = [
    [["Ctrl", "K"], t("shell.search")],
    [["/"], t("shell.search")],
    [["?"], t("shell.keys")],
    [["Ctrl", "Enter"], t("shell.keyRun")],
    [["Ctrl", "S"], t("shell.keySave")],
    [["Shift", "Alt", "F"], t("shell.keyFormat")],
    [["Esc", "Tab"], t("shell.keyLeaveEditor")],
  ];
  for (const s of visible(me.permissions, me.roles)) if (s.nav?.key) keys.push([["g", s.nav.key], t(s.nav.title)]);
  return (
    <Dialog opened close={close} title={t("shell.keys")}>
      <dl className="gh-facts">
        {keys.map(([keys, what]) => (
          <div key={keys.join("+") + what} style={{ display: "contents" }}>
            <dt>
              {keys.map((k) => (
                <kbd key={k} className="gh-kbd" style={{ marginRight: 4 }}>
                  {k}
                </kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

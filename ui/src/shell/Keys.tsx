/** The sheet of keys. */
import { closeDialog, Dialog, DialogHead } from "../parts/Dialog";
import { type Key, known, t } from "../text";
import { entries } from "./menu";

const SHEET: readonly [Key, readonly (readonly [string, Key])[]][] = [
  ["keys.everywhere", [["Ctrl K", "keys.palette"], ["/", "keys.filter"], ["?", "keys.sheet"], ["t", "keys.theme"], ["l", "keys.live"], ["z", "keys.zone"], ["Esc", "keys.close"]]],
  ["keys.lists", [["j", "keys.next"], ["k", "keys.previous"], ["x", "keys.select"], ["Shift X", "keys.range"], ["Ctrl A", "keys.all"], ["Enter", "keys.open"], ["n", "keys.fresh"]]],
  ["keys.act", [["r", "keys.retry"], ["b", "keys.run_now"], ["e", "keys.edit"], ["c", "keys.cancel"], ["p", "keys.pause"], ["d", "keys.discard"], ["y", "keys.copy"]]],
  ["keys.query", [["Tab", "keys.take"], ["Enter", "keys.search"], ["Backspace", "keys.drop"]]],
];

export function Keys() {
  const go = entries().map((entry) => [`g ${entry.key}`, known(`nav.${entry.screen}`, entry.screen)] as const);
  return (
    <Dialog class="keys" label={t("keys.title")} onClose={closeDialog}>
      <DialogHead title={t("keys.title")} onClose={closeDialog} />
      <div>
        {SHEET.map(([title, lines]) => (
          <Section title={t(title)} lines={lines.map(([keys, text]) => [keys, t(text)] as const)} />
        ))}
        <Section title={t("keys.go")} lines={go} />
      </div>
      <footer>{t("keys.note")}</footer>
    </Dialog>
  );
}

function Section({ title, lines }: { title: string; lines: readonly (readonly [string, string])[] }) {
  return (
    <section>
      <h3>{title}</h3>
      <dl>
        {lines.map(([keys, text]) => (
          <div>
            <dt>{text}</dt>
            <dd>{keys.split(" ").map((key) => <kbd>{key}</kbd>)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

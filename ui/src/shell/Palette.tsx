/** Ctrl K: any queue, task, id, screen or command by a few letters. */
import { useEffect, useRef, useState } from "preact/hooks";

import { get } from "../data/client";
import { paused } from "../data/live";
import { nextTheme } from "../data/prefs";
import type { SearchItem } from "../data/schema";
import { closeDialog, Dialog, openDialog } from "../parts/Dialog";
import { Icon } from "../parts/Icon";
import { ICONS, type IconName } from "../parts/icons";
import { navigate, to } from "../router";
import { known, t } from "../text";
import { visible } from "../names";
import { Keys } from "./Keys";
import { entries, hrefOf } from "./menu";
import { switchZone } from "./Top";

interface Item {
  group: string;
  icon: IconName;
  text: string;
  note: string;
  keys: string;
  run: (newTab: boolean) => void;
}

const SHOWN_MAX = 12;
const SEARCH_MS = 150;
const KIND_ICONS = new Map<string, IconName>([["job", "jobs"], ["task", "tasks"], ["queue", "queues"], ["schedule", "schedules"], ["plan", "plans"], ["worker", "workers"]]);

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const found = useSearch(text.trim());
  const list = useRef<HTMLUListElement>(null);
  const items = [...matching(text), ...found].slice(0, SHOWN_MAX);
  const chosen = Math.min(at, items.length - 1);

  const run = (item: Item | undefined, newTab: boolean) => {
    closeDialog();
    if (item) item.run(newTab);
    else if (text.trim()) navigate(to("jobs", { q: text.trim() }));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(items.length - 1, chosen + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, chosen - 1));
    else if (event.key === "Enter") run(items[chosen], event.ctrlKey || event.metaKey);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  return (
    <Dialog class="palette" label={t("palette.title")} onClose={closeDialog}>
      <div class="pin">
        <Icon name="search" />
        <input
          type="text"
          role="combobox"
          autofocus
          autocomplete="off"
          spellcheck={false}
          aria-expanded="true"
          aria-controls="plist"
          aria-activedescendant={items.length > 0 ? `p${chosen}` : undefined}
          aria-label={t("palette.title")}
          placeholder={t("palette.hint")}
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        <kbd>Esc</kbd>
      </div>
      <ul id="plist" role="listbox" aria-label={t("palette.results")} ref={list}>
        {items.map((item, i) => (
          <>
            {item.group !== items[i - 1]?.group && (
              <li class="grp" role="presentation">
                {item.group}
              </li>
            )}
            <li role="option" id={`p${i}`} aria-selected={i === chosen} onClick={(event) => run(item, event.ctrlKey || event.metaKey)}>
              <Icon name={item.icon} />
              <span class="grow cut">
                <Marked text={visible(item.text)} query={text.trim()} />
              </span>
              {item.note && <small>{item.note}</small>}
              {item.keys && item.keys.split(" ").map((key) => <kbd>{key}</kbd>)}
            </li>
          </>
        ))}
        {items.length === 0 && (
          <li class="none" role="option" aria-selected="false">
            {t("palette.none")}
          </li>
        )}
      </ul>
      <footer>
        <span>
          <kbd>&uarr;</kbd> <kbd>&darr;</kbd> {t("palette.move")}
        </span>
        <span>
          <kbd>Enter</kbd> {t("palette.go")}
        </span>
        <span>
          <kbd>Ctrl</kbd> <kbd>Enter</kbd> {t("palette.tab")}
        </span>
        <span class="end">{t("palette.paste")}</span>
      </footer>
    </Dialog>
  );
}

function matching(text: string): Item[] {
  const query = text.trim().toLowerCase();
  return own().filter((item) => !query || `${item.text} ${item.group}`.toLowerCase().includes(query));
}

function own(): Item[] {
  const command = (icon: IconName, words: string, keys: string, run: () => void): Item => ({
    ...{ group: t("palette.page"), icon, text: words, note: "", keys },
    run,
  });
  const go = entries().map((entry) => ({
    ...{ group: t("palette.goto"), icon: entry.icon, note: "", keys: `g ${entry.key}` },
    text: known(`nav.${entry.screen}`, entry.screen),
    run: opener(hrefOf(entry.screen)),
  }));
  const pause = () => {
    paused.value = !paused.value;
  };
  return [
    ...go,
    command("plus", t("palette.enqueue"), "", () => navigate(to("jobs", { new: "1" }))),
    command(paused.value ? "play" : "pause", t(paused.value ? "palette.resume" : "palette.pause"), "l", pause),
    command("moon", t("palette.theme"), "t", nextTheme),
    command("timer", t("palette.zone"), "z", switchZone),
    command("info", t("palette.keys"), "?", () => openDialog(<Keys />)),
  ];
}

function useSearch(query: string): Item[] {
  const [items, setItems] = useState<Item[]>([]);
  useEffect(() => {
    if (!query) {
      setItems([]);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      get<{ items: SearchItem[] }>("search", { q: query }, abort.signal).then(
        (found) => setItems(found.items.map(itemOf)),
        () => setItems([]), // Enter still searches the jobs
      );
    }, SEARCH_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [query]);
  return items;
}

function itemOf(found: SearchItem): Item {
  const icon = KIND_ICONS.get(found.kind) ?? "right";
  const group = known(`palette.kind.${found.kind}`, found.kind);
  return { group, icon: icon in ICONS ? icon : "right", text: found.text, note: "", keys: "", run: opener(found.href) };
}

function opener(href: string): (newTab: boolean) => void {
  return (newTab) => {
    if (newTab) open(new URL(href, document.baseURI), "_blank", "noopener");
    else navigate(href);
  };
}

function Marked({ text, query }: { text: string; query: string }) {
  const at = query ? text.toLowerCase().indexOf(query.toLowerCase()) : -1;
  if (at < 0) return <bdi>{text}</bdi>;
  return (
    <bdi>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + query.length)}</mark>
      {text.slice(at + query.length)}
    </bdi>
  );
}

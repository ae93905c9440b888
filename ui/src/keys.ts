/** Keys of the page: a screen adds its own, which win over those of the page. */
import { useEffect, useRef } from "preact/hooks";

import { singleKeys } from "./data/prefs";
import { dialog } from "./parts/Dialog";

type Handler = (event: KeyboardEvent) => void;
export type KeyMap = Record<string, Handler>;

const CHORD_MS = 1200;
const layers: (() => KeyMap)[] = [];
let chordAt = 0;

/** Answer keys while the component is shown. `g q` is a chord; `Ctrl k` needs the key held.
 * Those of the page itself are the base: every screen's win over them. */
export function useKeys(keys: KeyMap, { isBase = false } = {}): void {
  const held = useRef(keys);
  held.current = keys;
  useEffect(() => {
    const layer = () => held.current;
    if (isBase) layers.unshift(layer);
    else layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, []);
}

export function startKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const handler = find(event);
    if (!handler) return;
    event.preventDefault();
    handler(event);
  });
}

function find(event: KeyboardEvent): Handler | null {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const isHeld = (event.ctrlKey || event.metaKey) && !event.altKey;
  if (event.altKey || dialog.value !== null) return null;
  if (isHeld && key === "k") return look("Ctrl k");
  if (isTyping(event.target) || isTaken(event)) return null;
  if (isHeld) return look(`Ctrl ${key}`);
  if (event.key === "Escape") return look("Escape");
  if (singleKeys.value === "off") return null;
  const isChord = Date.now() - chordAt < CHORD_MS;
  chordAt = 0;
  if (isChord) {
    const found = look(`g ${key}`);
    if (found) return found;
  }
  if (key === "g") {
    chordAt = Date.now();
    return null;
  }
  return look(event.shiftKey && /^[a-z]$/.test(key) ? `Shift ${key}` : key);
}

/** Enter and space belong to a focused button or link. */
function isTaken(event: KeyboardEvent): boolean {
  if (event.key !== "Enter" && event.key !== " ") return false;
  return event.target instanceof Element && event.target.closest("a, button, summary, [role=tab]") !== null;
}

function look(key: string): Handler | null {
  for (const layer of layers.toReversed()) {
    const handler = layer()[key];
    if (handler) return handler;
  }
  return null;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return target.type !== "checkbox" && target.type !== "radio";
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

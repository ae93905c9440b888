/** The current row and the selected rows of a list, by pointer and by key. */
import { useEffect, useState } from "preact/hooks";

import { type KeyMap, useKeys } from "../keys";

export interface Rows<T> {
  at: number;
  current: T | null;
  chosen: T[];
  isChosen: (item: T) => boolean;
  toggle: (item: T, range: boolean) => void;
  toggleAll: () => void;
  clear: () => void;
  setAt: (at: number) => void;
}

interface Wishes<T> {
  id: (item: T) => string;
  onOpen?: (item: T) => void;
  keys?: KeyMap;
  /** Rows can be selected. */
  select?: boolean;
  /** Another list: the selection is dropped. */
  reset?: string;
}

export function useRows<T>(items: readonly T[], { id, onOpen, keys = {}, select = false, reset = "" }: Wishes<T>): Rows<T> {
  const [at, setAt] = useState(-1);
  const [ids, setIds] = useState<ReadonlyMap<string, T>>(new Map());
  const [anchor, setAnchor] = useState(-1);
  useEffect(() => {
    setIds(new Map());
    setAt(-1);
  }, [reset]);

  const current = items[at] ?? null;
  const clear = () => setIds(new Map());
  const toggle = (item: T, range: boolean) => {
    const here = items.indexOf(item);
    const next = new Map(ids);
    const isOn = !next.has(id(item));
    const from = range && anchor >= 0 ? anchor : here;
    for (const each of items.slice(Math.min(from, here), Math.max(from, here) + 1)) {
      if (isOn) next.set(id(each), each);
      else next.delete(id(each));
    }
    setAnchor(here);
    setIds(next);
  };
  const toggleAll = () => setIds(ids.size === items.length ? new Map() : new Map(items.map((each) => [id(each), each])));
  const move = (step: number) => {
    const next = Math.max(0, Math.min(items.length - 1, at + step));
    setAt(next);
    document.querySelectorAll("[data-row]")[next]?.scrollIntoView({ block: "nearest" });
  };
  const selection: KeyMap = select
    ? { x: () => current && toggle(current, false), "Shift x": () => current && toggle(current, true), "Ctrl a": toggleAll }
    : {};
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    ...(onOpen && current ? { Enter: () => onOpen(current) } : {}),
    ...(ids.size > 0 ? { Escape: clear } : {}),
    ...selection,
    ...keys,
  });

  const known = new Map(items.map((each) => [id(each), each]));
  return {
    at,
    current,
    chosen: [...ids].map(([key, old]) => known.get(key) ?? old),
    isChosen: (item) => ids.has(id(item)),
    toggle,
    toggleAll,
    clear,
    setAt,
  };
}

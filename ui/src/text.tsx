/** Every sentence of the page comes from `en.json`, by its key. */
import type { ComponentChildren } from "preact";

import en from "./en.json";
import { formatNumber } from "./format";
import { visible } from "./names";

export type Key = keyof typeof en;
type Value = string | number;
type Rich = ComponentChildren;

const catalogue = new Map<string, string | { one: string; other: string }>(Object.entries(en));
const plural = new Intl.PluralRules("en");
const PART = /\{(\w+)\}|\*\*(.+?)\*\*|`([^`]+)`/g;

/** Return a text with its values; `n` chooses between one and many. */
export function t(key: Key, values: Record<string, Value> = {}): string {
  return pattern(key, values).replace(/\{(\w+)\}/g, (_, name: string) => plain(values[name]));
}

/** Return a text whose `**parts**` are bold, `parts` in backticks are code, values may be elements. */
export function rich(key: Key, values: Record<string, Rich> = {}): Rich {
  return pieces(pattern(key, values), values);
}

/** Tell whether the catalogue has a key that is made from data, such as `reason.exhausted`. */
export function has(key: string): key is Key {
  return catalogue.has(key);
}

/** Return the text of a key made from data, or the fallback. */
export function known(key: string, fallback: string): string {
  return has(key) ? t(key) : visible(fallback);
}

function pattern(key: Key, values: Record<string, unknown>): string {
  const entry = catalogue.get(key);
  if (entry === undefined) return key;
  if (typeof entry === "string") return entry;
  return plural.select(Number(values["n"] ?? 0)) === "one" ? entry.one : entry.other;
}

function pieces(text: string, values: Record<string, Rich>): Rich[] {
  const out: Rich[] = [];
  let end = 0;
  for (const found of text.matchAll(PART)) {
    out.push(text.slice(end, found.index));
    const [whole, name, bold, code] = found;
    if (name !== undefined) out.push(element(values[name]));
    else if (bold !== undefined) out.push(<b>{pieces(bold, values)}</b>);
    else if (code !== undefined) out.push(<code>{pieces(code, values)}</code>);
    end = found.index + whole.length;
  }
  out.push(text.slice(end));
  return out;
}

function element(value: Rich): Rich {
  if (typeof value === "number") return formatNumber(value);
  return typeof value === "string" ? <bdi>{visible(value)}</bdi> : value;
}

function plain(value: Value | undefined): string {
  if (typeof value === "number") return formatNumber(value);
  return value === undefined ? "" : visible(value);
}

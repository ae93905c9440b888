/** Arguments, meta and results: JSON texts, shown with every digit. */
import type { ComponentChildren } from "preact";

import { type Node, oneLine, readJson } from "../json";
import { short, visible } from "../names";
import { t } from "../text";

const SHOWN_MAX = 50; // entries of one object or array
const STRING_MAX = 2000;

/** A JSON text as a tree. */
export function Json({ text }: { text: string }) {
  const node = readJson(text);
  if (!node) return <pre class="json">{visible(short(text, STRING_MAX))}</pre>;
  return (
    <ul class="json" tabIndex={0}>
      {entriesOf(node)}
    </ul>
  );
}

/** Positional and named arguments, as one tree. */
export function Arguments({ args, kwargs }: { args: string | null | undefined; kwargs: string | null | undefined }) {
  const nodes = [readJson(args), readJson(kwargs)].filter((node) => node !== null);
  const lines = nodes.flatMap((node) => entriesOf(node));
  if (lines.length === 0) return <p class="q3">{t("args.none")}</p>;
  return (
    <ul class="json" tabIndex={0}>
      {lines}
    </ul>
  );
}

function entriesOf(node: Node): ComponentChildren[] {
  if (node.kind === "object") {
    const shown = node.entries.slice(0, SHOWN_MAX).map(([key, value]) => line(<span class="k">{visible(key)}</span>, value));
    return [...shown, more(node.entries.length)];
  }
  if (node.kind === "array") {
    const shown = node.items.slice(0, SHOWN_MAX).map((value, i) => line(<span class="q3">{i}</span>, value));
    return [...shown, more(node.items.length)];
  }
  return [<li>{scalar(node)}</li>];
}

function line(name: ComponentChildren, value: Node): ComponentChildren {
  const isFlat = value.kind !== "object" && value.kind !== "array";
  const text = oneLine(value);
  if (isFlat || text.length <= 40) {
    return (
      <li>
        {name}: {isFlat ? scalar(value) : text.length <= 2 ? text : inline(value)}
      </li>
    );
  }
  const [open, close] = value.kind === "object" ? ["{", "}"] : ["[", "]"];
  return (
    <li>
      {name}: {open}
      <ul>{entriesOf(value)}</ul>
      {close}
    </li>
  );
}

function inline(node: Node): ComponentChildren {
  if (node.kind === "object") {
    return <>{"{"}{node.entries.map(([key, value], i) => <>{i > 0 && ", "}<span class="k">{visible(key)}</span>: {inline(value)}</>)}{"}"}</>;
  }
  if (node.kind === "array") return <>[{node.items.map((value, i) => <>{i > 0 && ", "}{inline(value)}</>)}]</>;
  return scalar(node);
}

function scalar(node: Node): ComponentChildren {
  const text = oneLine(node);
  return <span class={node.kind === "string" ? "s" : "d"}>{visible(short(text, STRING_MAX))}</span>;
}

function more(all: number): ComponentChildren {
  return all > SHOWN_MAX ? <li class="q3">{t("args.more", { n: all - SHOWN_MAX })}</li> : null;
}

/** A field for JSON that is checked as it is typed, and the types that a task asks for. */
import { JsonError, type Node, oneLine, parseJson, readJson } from "../json";
import { visible } from "../names";
import { t } from "../text";

interface JsonFieldProps {
  label: string;
  value: string;
  kind: "object" | "array" | "any";
  onChange: (value: string) => void;
}

export function JsonField({ label, value, kind, onChange }: JsonFieldProps) {
  const problem = problemOf(value, kind);
  return (
    <label class="f">
      {label}
      <textarea
        class="mono"
        rows={Math.min(16, Math.max(4, value.split("\n").length + 1))}
        spellcheck={false}
        autocomplete="off"
        aria-invalid={problem !== null}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      <small class={problem ? "bad" : undefined} role="status">
        {problem ?? t("json.good")}
      </small>
    </label>
  );
}

/** Return what is wrong with a JSON text; null if nothing is. */
export function problemOf(text: string, kind: JsonFieldProps["kind"]): string | null {
  try {
    const node = parseJson(text);
    return kind === "any" || node.kind === kind ? null : t(kind === "object" ? "json.no_object" : "json.no_array");
  } catch (error) {
    const at = error instanceof JsonError ? error.at : 0;
    const before = text.slice(0, at).split("\n");
    return t("json.wrong", { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 });
  }
}

export interface Argument {
  name: string;
  type: string;
  /** The JSON type, such as `integer`; empty if there are several. */
  kind: string;
  fallback: string | null;
  isNeeded: boolean;
}

/** Return the arguments that a task's JSON schema names. */
export function argumentsOf(schema: string | null | undefined): Argument[] {
  const node = readJson(schema);
  const properties = entry(node, "properties");
  if (properties?.kind !== "object") return [];
  const required = entry(node, "required");
  const needed = new Set(required?.kind === "array" ? required.items.map(textOf) : []);
  return properties.entries.map(([name, each]) => {
    const fallback = entry(each, "default");
    const type = entry(each, "type");
    const kind = type?.kind === "string" ? type.value : "";
    return { name, type: typeOf(each), kind, fallback: fallback && oneLine(fallback), isNeeded: needed.has(name) };
  });
}

const EMPTY = new Map([["string", '""'], ["integer", "0"], ["number", "0"], ["boolean", "false"], ["array", "[]"], ["object", "{}"], ["null", "null"]]);

/** Return JSON to begin with: the arguments that a task needs, with empty values. */
export function templateOf(schema: string | null | undefined): string {
  const needed = argumentsOf(schema).filter((each) => each.isNeeded);
  if (needed.length === 0) return "{}";
  const lines = needed.map((each) => `  ${JSON.stringify(each.name)}: ${EMPTY.get(each.kind) ?? '""'}`);
  return `{\n${lines.join(",\n")}\n}`;
}

/** The arguments of a task, with their types. */
export function ArgsHint({ schema }: { schema: string | null | undefined }) {
  const all = argumentsOf(schema);
  if (all.length === 0) return null;
  return (
    <ul class="sum args-hint">
      {all.map((each) => (
        <li>
          <code>{visible(each.name)}</code>
          <span class="q3">{visible(each.type)}</span>
          <span class="n q3">{each.isNeeded ? t("args.needed") : each.fallback && t("args.default", { value: each.fallback })}</span>
        </li>
      ))}
    </ul>
  );
}

function typeOf(node: Node): string {
  const type = entry(node, "type");
  if (type?.kind === "string") {
    const items = entry(node, "items");
    const format = entry(node, "format");
    if (type.value === "array" && items) return `list of ${typeOf(items)}`;
    return format?.kind === "string" ? format.value : type.value;
  }
  if (type?.kind === "array") return type.items.map(textOf).join(" or ");
  const choices = entry(node, "anyOf") ?? entry(node, "oneOf");
  if (choices?.kind === "array") return choices.items.map(typeOf).join(" or ");
  const values = entry(node, "enum");
  if (values?.kind === "array") return values.items.map(oneLine).join(" or ");
  const reference = entry(node, "$ref");
  return reference?.kind === "string" ? reference.value.slice(reference.value.lastIndexOf("/") + 1) : "any";
}

function entry(node: Node | null | undefined, key: string): Node | null {
  if (node?.kind !== "object") return null;
  return node.entries.find(([name]) => name === key)?.[1] ?? null;
}

function textOf(node: Node): string {
  return node.kind === "string" ? node.value : oneLine(node);
}

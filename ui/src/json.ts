/** JSON as a tree that keeps what a browser's reader loses: big integers, exact decimals,
 * the order of keys, keys such as `__proto__`. */

export type Node =
  | { kind: "object"; entries: [string, Node][] }
  | { kind: "array"; items: Node[] }
  | { kind: "string"; value: string }
  | { kind: "number" | "literal"; text: string };

const DEPTH_MAX = 64;
const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\.)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|(\S))/y;

interface Token {
  text: string;
  kind: "mark" | "string" | "number" | "literal" | "end";
  at: number;
}

/** A text that is no JSON, and where that shows. */
export class JsonError extends Error {
  readonly at: number;

  constructor(at: number) {
    super(String(at));
    this.at = at;
  }
}

export function parseJson(text: string): Node {
  const reader = new Reader(text);
  const node = reader.value(0);
  reader.expect("end");
  return node;
}

/** Return the tree, or null if the text is none. */
export function readJson(text: string | null | undefined): Node | null {
  if (!text) return null;
  try {
    return parseJson(text);
  } catch {
    return null;
  }
}

/** Return a value on one line. */
export function oneLine(node: Node): string {
  switch (node.kind) {
    case "object":
      return `{${node.entries.map(([key, value]) => `${JSON.stringify(key)}: ${oneLine(value)}`).join(", ")}}`;
    case "array":
      return `[${node.items.map(oneLine).join(", ")}]`;
    case "string":
      return JSON.stringify(node.value);
    default:
      return node.text;
  }
}

/** Return a value on several lines, numbers as they were written. */
export function pretty(node: Node, indent = ""): string {
  const inner = `${indent}  `;
  if (node.kind === "object" && node.entries.length > 0) {
    const lines = node.entries.map(([key, value]) => `${inner}${JSON.stringify(key)}: ${pretty(value, inner)}`);
    return `{\n${lines.join(",\n")}\n${indent}}`;
  }
  if (node.kind === "array" && node.items.some((each) => each.kind === "object" || each.kind === "array")) {
    return `[\n${node.items.map((each) => inner + pretty(each, inner)).join(",\n")}\n${indent}]`;
  }
  return oneLine(node);
}

class Reader {
  private readonly text: string;
  private token: Token;
  private end = 0;

  constructor(text: string) {
    this.text = text;
    this.token = this.next();
  }

  value(depth: number): Node {
    const token = this.token;
    if (depth > DEPTH_MAX) throw new JsonError(token.at);
    if (token.kind === "mark" && token.text === "{") return this.object(depth);
    if (token.kind === "mark" && token.text === "[") return this.array(depth);
    this.token = this.next();
    if (token.kind === "string") return { kind: "string", value: unquoted(token) };
    if (token.kind === "number" || token.kind === "literal") return { kind: token.kind, text: token.text };
    throw new JsonError(token.at);
  }

  expect(kind: Token["kind"], text?: string): Token {
    const token = this.token;
    if (token.kind !== kind || (text !== undefined && token.text !== text)) throw new JsonError(token.at);
    if (kind !== "end") this.token = this.next();
    return token;
  }

  private object(depth: number): Node {
    this.expect("mark", "{");
    const entries: [string, Node][] = [];
    const keys = new Set<string>();
    while (!this.is("}")) {
      if (entries.length > 0) this.expect("mark", ",");
      const token = this.expect("string");
      const key = unquoted(token);
      if (keys.has(key)) throw new JsonError(token.at);
      keys.add(key);
      this.expect("mark", ":");
      entries.push([key, this.value(depth + 1)]);
    }
    this.expect("mark", "}");
    return { kind: "object", entries };
  }

  private array(depth: number): Node {
    this.expect("mark", "[");
    const items: Node[] = [];
    while (!this.is("]")) {
      if (items.length > 0) this.expect("mark", ",");
      items.push(this.value(depth + 1));
    }
    this.expect("mark", "]");
    return { kind: "array", items };
  }

  private is(mark: string): boolean {
    return this.token.kind === "mark" && this.token.text === mark;
  }

  private next(): Token {
    TOKEN.lastIndex = this.end;
    const found = TOKEN.exec(this.text);
    if (!found) return { text: "", kind: "end", at: this.text.length };
    this.end = TOKEN.lastIndex;
    const [, mark, string, number, literal, other] = found;
    const text = mark ?? string ?? number ?? literal ?? other ?? "";
    const at = this.end - text.length;
    if (other !== undefined) throw new JsonError(at);
    const kind = mark ? "mark" : string ? "string" : number ? "number" : "literal";
    return { text, kind, at };
  }
}

function unquoted(token: Token): string {
  try {
    return JSON.parse(token.text) as string;
  } catch {
    throw new JsonError(token.at);
  }
}

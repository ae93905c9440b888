/** The text of a query as the bar shows it; the server has the true parser. */

/** Return the terms of a query; what is in quotes stays together. */
export function terms(query: string): string[] {
  return query.match(/(?:"(?:[^"\\]|\\.)*"?|[^\s"])+/g) ?? [];
}

export interface Term {
  key: string;
  value: string;
  isNot: boolean;
}

/** Return key and value of a term; the key of a bare word is empty. */
export function splitTerm(term: string): Term {
  const isNot = term.startsWith("-");
  const text = isNot ? term.slice(1) : term;
  const at = text.search(/[:"]/);
  if (at <= 0 || text[at] !== ":") return { key: "", value: text, isNot };
  return { key: text.slice(0, at), value: text.slice(at + 1), isNot };
}

/** Return the query without the terms of a key. */
export function without(query: string, key: string): string {
  return terms(query)
    .filter((term) => splitTerm(term).key !== key)
    .join(" ");
}

/** Return the query with one value for a key; null takes the key away. */
export function withValue(query: string, key: string, value: string | null): string {
  const rest = without(query, key);
  return value === null ? rest : `${rest} ${key}:${quoted(value)}`.trim();
}

/** Return the values that the query asks for, for one key. */
export function valuesOf(query: string, key: string): string[] {
  return terms(query)
    .map(splitTerm)
    .filter((term) => term.key === key && !term.isNot)
    .flatMap((term) => term.value.split(","));
}

/** Return a value as a query takes it. */
export function quoted(value: string): string {
  if (/^[\w.@/+-]+$/.test(value) && !/^[<>]/.test(value)) return value;
  return `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** Names and texts that jobs bring: shown so that no character can hide or turn others. */

// Control characters, zero-width characters, marks that change the direction of a text,
// and line separators. A line feed and a tab are left to whoever shows a block of text.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\uffff]/gu;

/** Return a text on one line, with hidden characters written as `\u202e`. */
export function visible(text: string): string {
  return text.replace(HIDDEN, escaped);
}

/** Return a text of several lines, with hidden characters but line feeds and tabs written out. */
export function visibleBlock(text: string): string {
  return text.replace(HIDDEN, (found) => (found === "\n" || found === "\t" ? found : escaped(found)));
}

/** Return a text cut to `max` characters. */
export function short(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max - 1)}\u2026` : text;
}

function escaped(found: string): string {
  return `\\u${(found.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`;
}

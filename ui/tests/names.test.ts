import assert from "node:assert/strict";
import { test } from "node:test";

import { short, visible, visibleBlock } from "../src/names.ts";

test("hidden characters are written out", () => {
  assert.equal(visible("a\u202eb\u200bc\u0007d\u001b[31m"), "a\\u202eb\\u200bc\\u0007d\\u001b[31m");
  assert.equal(visible("x\ny\tz"), "x\\u000ay\\u0009z");
  assert.equal(visible("\ufeff\u2066\u00ad\u061c"), "\\ufeff\\u2066\\u00ad\\u061c");
});

test("letters of every language stay", () => {
  for (const text of ["mail", "Übergröße", "注文", "שלום", "e\u0301", "\u{1f600}"]) assert.equal(visible(text), text);
});

test("a block keeps its lines", () => {
  assert.equal(visibleBlock("a\n\tb\u202e"), "a\n\tb\\u202e");
});

test("a text is cut with a sign", () => {
  assert.equal(short("abcdef", 4), "abc\u2026");
  assert.equal(short("abcd", 4), "abcd");
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { quoted, splitTerm, terms, valuesOf, without, withValue } from "../src/query.ts";

test("terms are split at spaces, but not inside quotes", () => {
  const query = 'state:dead  error:"time out \\"x\\" y" -queue:mail word';
  assert.deepEqual(terms(query), ["state:dead", 'error:"time out \\"x\\" y"', "-queue:mail", "word"]);
  assert.deepEqual(terms(""), []);
  assert.deepEqual(terms('error:"open'), ['error:"open']);
});

test("a term has a key, a value and a sign", () => {
  assert.deepEqual(splitTerm("-queue:mail"), { key: "queue", value: "mail", isNot: true });
  assert.deepEqual(splitTerm("args.user:42"), { key: "args.user", value: "42", isNot: false });
  assert.deepEqual(splitTerm("word"), { key: "", value: "word", isNot: false });
  assert.deepEqual(splitTerm('"a:b"'), { key: "", value: '"a:b"', isNot: false });
});

test("one value of a key is replaced", () => {
  const query = "state:dead queue:mail state:ready";
  assert.equal(withValue(query, "state", "done"), "queue:mail state:done");
  assert.equal(withValue(query, "state", null), "queue:mail");
  assert.equal(without(query, "queue"), "state:dead state:ready");
  assert.deepEqual(valuesOf("state:dead,ready -state:done", "state"), ["dead", "ready"]);
});

test("values are quoted when the language needs it", () => {
  assert.equal(quoted("mail"), "mail");
  assert.equal(quoted("a b"), '"a b"');
  assert.equal(quoted('say "x"\\'), '"say \\"x\\"\\\\"');
  assert.equal(quoted(">1"), '">1"');
  assert.equal(terms(`queue:${quoted("a b")}`).length, 1);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { JsonError, oneLine, parseJson, pretty, readJson } from "../src/json.ts";

test("numbers keep every digit", () => {
  for (const text of ["9007199254740993123", "-0.10", "1E400", "129.900"]) {
    assert.equal(oneLine(parseJson(text)), text);
  }
});

test("keys keep their order, whatever they are named", () => {
  const text = '{"b": 1, "__proto__": {"x": [true, null]}, "a": "\\u202e"}';
  assert.equal(oneLine(parseJson(text)), '{"b": 1, "__proto__": {"x": [true, null]}, "a": "\u202e"}');
});

test("what is printed reads as the same", () => {
  const text = '{"a": [{"b": []}, 1, "x\\ny"], "c": {}, "d": [1, 2]}';
  const node = parseJson(text);
  assert.deepEqual(parseJson(pretty(node)), node);
  assert.deepEqual(JSON.parse(pretty(node)), JSON.parse(text));
});

test("what is no JSON is refused, with its place", () => {
  const wrong: [string, number][] = [
    ["", 0], ["{", 1], ["[1,]", 3], ['{"a": NaN}', 6], ['{"a": 1, "a": 2}', 9], ["[1] 2", 4], ["'a'", 0], ['{"a" 1}', 5], ["01", 1],
  ];
  for (const [text, at] of wrong) {
    assert.throws(() => parseJson(text), (error) => error instanceof JsonError && error.at === at, text);
    assert.equal(readJson(text), null);
  }
});

test("depth is bounded", () => {
  assert.throws(() => parseJson("[".repeat(66) + "]".repeat(66)), JsonError);
  assert.ok(parseJson("[".repeat(64) + "]".repeat(64)));
});

test("agrees with the browser's reader", () => {
  const samples = ["0", "-1.5e-7", '"\\u00e9\\n\\""', "[]", "{}", '[[],{},"",0,false]', ' { "k" : [ 1 , 2 ] } '];
  for (const text of samples) assert.deepEqual(JSON.parse(oneLine(parseJson(text))), JSON.parse(text));
});

// Checks of forms made from JSON schemas: fields, drafts of values, values of drafts, problems.
//
//     node check_schema.mjs FOLDER-OF-THE-PAGE
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { run } from "./run_checks.mjs";

const { draftOf, fieldOf, readDraft, resolved, schemaOf } = await import(pathToFileURL(`${process.argv[2]}/schema.js`).href);

const LINE = { type: "object", required: ["account"], properties: { account: { type: "string", pattern: "^\\d{4}$" }, cents: { type: "integer", minimum: 1, maximum: 9 }, memo: { anyOf: [{ type: "string" }, { type: "null" }], default: null } } };
const BATCH = {
  $defs: { Line: LINE, Loop: { type: "object", properties: { next: { $ref: "#/$defs/Loop" } }, required: ["next"] } },
  type: "object", required: ["kind", "lines"],
  properties: {
    kind: { enum: ["a", "b"], type: "string" }, lines: { type: "array", items: { $ref: "#/$defs/Line" }, minItems: 1 }, urgent: { type: "boolean", default: false },
    tags: { type: "object", additionalProperties: { type: "integer" } }, pair: { type: "array", prefixItems: [{ type: "integer" }] },
    either: { anyOf: [{ type: "integer" }, { type: "string" }] }, note: { type: "string", minLength: 1 },
  },
};
const around = (schema, value) => {
  const field = fieldOf(schema, schema), read = readDraft(draftOf(value, field, schema), field, schema);
  return [read.value, read.problems];
};
const kind = (schema) => fieldOf(schema, BATCH).kind;
const problems = (schema, draft) => readDraft(draft, fieldOf(schema, schema), schema).problems.map(({ path, text }) => `${path} ${text}`.trim());

const checks = {
  "each schema has its field"() {
    assert.deepEqual(Object.values(BATCH.properties).map(kind), ["choice", "list", "boolean", "map", "json", "json", "text"]);
    assert.deepEqual([{}, true, { type: "object" }, { type: ["integer", "null"] }, { const: 3 }, { $ref: "#/$defs/Line" }, { $ref: "#/gone" }].map(kind), ["json", "json", "json", "number", "choice", "object", "json"]);
    assert.ok(fieldOf({ type: ["string", "null"] }, {}).nullable && fieldOf(LINE.properties.memo, {}).nullable);
    assert.deepEqual(fieldOf({ oneOf: [{ const: "x" }, { enum: ["y", "z"] }, { type: "null" }] }, {}).choices, ["x", "y", "z"]);
  },
  "a reference keeps what stands beside it, and a circle ends"() {
    assert.equal(resolved({ $ref: "#/$defs/Line", description: "own" }, BATCH).description, "own");
    assert.equal(resolved({ allOf: [{ $ref: "#/$defs/Line" }] }, BATCH).type, "object");
    draftOf(undefined, fieldOf({ $ref: "#/$defs/Loop" }, BATCH), BATCH);
    assert.deepEqual(resolved({ $ref: "#/a" }, { a: { $ref: "#/a" } }), {});
  },
  "a value comes back as it was"() {
    for (const value of [
      { kind: "a", lines: [{ account: "6300", cents: 4 }, { account: "6855", memo: null }] },
      { kind: "b", lines: [{ account: "1", memo: "x" }].map((each) => ({ ...each, account: "1111" })), urgent: true, tags: { a: 1, b: 2 }, pair: [1, "x"], either: "x", note: "n" },
      { kind: "a", lines: [{ account: "6300" }], either: null },
    ]) assert.deepEqual(around(BATCH, value), [value, []]);
  },
  "a value that does not fit its field is edited as JSON"() {
    for (const value of [{ kind: "c", lines: "none" }, { kind: 3, lines: [{ account: 7, other: true }] }, { foreign: 1 }, [1], "x"])
      assert.deepEqual(around(BATCH, value)[0], value);
  },
  "a new value has what is required and nothing else"() {
    const field = fieldOf(BATCH, BATCH), draft = draftOf(undefined, field, BATCH);
    assert.deepEqual(draft, { kind: undefined, lines: [], urgent: undefined, tags: undefined, pair: undefined, either: undefined, note: undefined });
    assert.deepEqual(readDraft(draft, field, BATCH).problems, [{ path: "kind", text: "choose one" }, { path: "lines", text: "needs at least 1" }]);
  },
  "problems name their place"() {
    const lines = [{ account: "63", cents: "1.5", memo: null }, { account: "6300", cents: "12", memo: "" }, { account: "6300", cents: "x", memo: "" }, { account: "6300", cents: "", memo: "" }];
    assert.deepEqual(problems(BATCH, { kind: 0, lines, tags: [["", "1"], ["a", ""]], pair: { json: "[1" } }).map((text) => text.replace(/JSON:.*/, "JSON")), [
      "lines.0.account must match ^\\d{4}$", "lines.0.cents is not a whole number", "lines.1.cents must be at most 9", "lines.2.cents is not a number",
      "tags has a value without a name", "tags.1 is missing", "pair is not JSON",
    ]);
    assert.deepEqual(problems({ type: "integer" }, "9007199254740993"), ["is too large for this page"]);
    assert.equal(draftOf("9007199254740993", fieldOf({ type: "integer" }, {}), {}), "9007199254740993", "a long number is text, and is not sent rounded");
    assert.deepEqual(problems({ type: "number", exclusiveMinimum: 0 }, "0"), ["must be above 0"]);
    assert.deepEqual(problems({ type: "string", maxLength: 2 }, "abc"), ["takes at most 2 characters, and has 3"]);
    assert.deepEqual(problems({ type: "string", pattern: "(?P<x>a)" }, "b"), []);
  },
  "an optional text that must not be empty is left out when it is"() {
    const field = fieldOf(BATCH, BATCH), draft = { ...draftOf({ kind: "a", lines: [] }, field, BATCH), note: "" };
    assert.ok(!("note" in readDraft(draft, field, BATCH).value));
  },
  "names of prototypes are names like others"() {
    const schema = { type: "object", properties: { __proto__x: { type: "string" }, constructor: { type: "string" } }, required: ["constructor"] };
    assert.deepEqual(around(schema, { constructor: "c" })[0], { constructor: "c" });
    assert.deepEqual(Object.keys(draftOf({}, fieldOf(schema, schema), schema)), ["__proto__x", "constructor"]);
  },
  "a schema made from a value fits it"() {
    for (const value of [{ a: 1, b: "x", c: [1, 2], d: [1, "x"], e: null, f: { g: true } }, [], "x", 3]) assert.deepEqual(around(schemaOf(value), value), [value, []]);
  },
};

run(checks);

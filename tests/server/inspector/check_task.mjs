// Checks of the rules of the task's view: the verbs that a state takes, and the texts that a model is writing.
//
//     node check_task.mjs FOLDER-OF-THE-PAGE
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { run } from "./run_checks.mjs";

const page = (name) => import(pathToFileURL(`${process.argv[2]}/${name}`).href);
const { fold } = await page("fold.js");
const { isEditable, nextInput, offers, SCOPES } = await page("offers.js");
const { workTime } = await page("timeline.js");
const { withDelta } = await page("writing.js");

const ALL = ["read", "run", "control", "decide", "edit", "delete"];
const text = (words) => [{ type: "text", text: words }];
const CREATED = { seq: 1, time: 1, kind: "task_created", agent: "desk", thread: "t", input: text("hello"), parent: null, options: null };
const STARTED = { seq: 2, time: 2, kind: "step_started", step: "s1", index: 1, attempt: 1 };
const FAILED = { seq: 3, time: 3, kind: "step_failed", step: "s1", error: { kind: "unknown", message: "no", source: "model" } };
const ended = (seq, state) => ({ seq, time: seq, kind: "task_ended", state, error: null, reasons: [], output: null });
const taken = (events, word, more = {}) => [...offers({ state: fold(events), word, isPast: false, scopes: ALL, ...more })].sort().join(" ");

const checks = {
  "each state takes its verbs"() {
    assert.equal(taken([CREATED], "created"), "cancel fork run send step until words");
    assert.equal(taken([CREATED, STARTED], "running"), "cancel fork pause send stop undo");
    assert.equal(taken([CREATED, STARTED, FAILED, ended(4, "failed")], "failed"), "fork run send skip step undo until words");
    assert.equal(taken([CREATED, ended(2, "completed")], "completed"), "fork");
    assert.equal(taken([CREATED, STARTED, ended(3, "completed")], "completed"), "fork undo");
    assert.equal(taken([CREATED, STARTED, ended(3, "cancelled")], "cancelled"), "fork");
  },
  "an undo that has begun goes first"() {
    const undo = { seq: 3, time: 3, kind: "undo_requested", to: 0, calls: [], steps: [], by: "ann" };
    assert.equal(taken([CREATED, STARTED, undo], "waiting"), "cancel fork send undo");
    assert.equal(taken([CREATED, STARTED, undo], "interrupted"), "cancel fork send undo");
  },
  "a child runs only with its parent"() {
    assert.equal(taken([{ ...CREATED, parent: "above" }], "created"), "cancel fork send words");
  },
  "the past takes a fork alone"() {
    assert.equal(taken([CREATED, STARTED], "between steps", { isPast: true }), "fork");
  },
  "each verb needs its scope"() {
    for (const scope of ALL) {
      const verbs = offers({ state: fold([CREATED]), word: "created", isPast: false, scopes: [scope] });
      assert.ok([...verbs].every((verb) => SCOPES[verb] === scope), scope);
    }
    assert.equal(taken([CREATED], "created", { scopes: ["read"] }), "");
  },
  "the next input is what the next step would read"() {
    assert.deepEqual(nextInput(fold([CREATED])), text("hello"));
    assert.deepEqual(nextInput(fold([CREATED, STARTED])), text("hello"));
    const asked = { seq: 3, time: 3, kind: "model_started", step: "s1", model: "m", attempt: 1 };
    assert.equal(nextInput(fold([CREATED, STARTED, asked])), null);
  },
  "a call may be edited until it begins, and not while a driver has it"() {
    const asked = { seq: 3, time: 3, kind: "model_started", step: "s1", model: "m", attempt: 1 };
    const parts = [{ type: "tool_call", id: "s1-0", name: "pay", arguments: { cents: 1 } }];
    const usage = { input_tokens: 1, output_tokens: 1, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0 };
    const said = { seq: 4, time: 4, kind: "model_returned", step: "s1", message: { role: "assistant", parts }, usage, cost: "0", typed: null, also: [] };
    const began = { seq: 5, time: 5, kind: "tool_started", step: "s1", call: "s1-0", attempt: 1, effect: "write" };
    const before = fold([CREATED, STARTED, asked, said]), after = fold([CREATED, STARTED, asked, said, began]);
    assert.ok(isEditable(before, "paused", before.calls.get("s1-0")));
    assert.ok(!isEditable(before, "running", before.calls.get("s1-0")));
    assert.ok(!isEditable(after, "paused", after.calls.get("s1-0")));
  },
  "an undo that comes days later is no time of work"() {
    const day = 864e8, asked = { seq: 3, time: 10, kind: "model_started", step: "s1", model: "m", attempt: 1 };
    const parts = text("done"), usage = { input_tokens: 1, output_tokens: 1, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0 };
    const said = { seq: 4, time: 40, kind: "model_returned", step: "s1", message: { role: "assistant", parts }, usage, cost: "0", typed: null, also: [] };
    const undo = { seq: 6, time: day, kind: "undo_requested", to: 0, calls: [], steps: ["s1"], by: "ann" };
    const rewound = { seq: 7, time: day, kind: "rewound", to: 0, branch: 1, calls: [], steps: ["s1"] };
    assert.equal(workTime(fold([CREATED, STARTED, asked]), 25), 15);
    assert.equal(workTime(fold([CREATED, STARTED, asked, said, ended(5, "completed"), undo, rewound]), day), 30);
  },
  "deltas become texts by channel, each once"() {
    const delta = (channel, words, at, more = {}) => ({ step: "s1", channel, text: words, at, ...more });
    let texts = {};
    const first = delta("draft", "It is ", 0);
    for (const each of [delta("reasoning", "Hm.", 0), first, first, delta("draft", "fair.", 6)]) texts = withDelta(texts, each);
    for (const each of [delta("arguments", "{", 0, { tool: "pay" }), delta("arguments", "}", 1), delta("arguments", "{}", 0, { index: 1, tool: "mail" })])
      texts = withDelta(texts, each);
    assert.deepEqual([texts.s1.thinking, texts.s1.text, texts.s1.isLate], ["Hm.", "It is fair.", false]);
    assert.deepEqual(texts.s1.calls, [{ tool: "pay", text: "{}" }, { tool: "mail", text: "{}" }]);
    assert.ok(withDelta({}, delta("draft", "fair.", 6)).s1.isLate);
  },
};

run(checks);

// Checks of the pure modules behind the views of relatives, comparisons, costs and threads.
//
//     node check_views.mjs FOLDER-OF-THE-PAGE
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { run } from "./run_checks.mjs";

const page = (name) => import(pathToFileURL(`${process.argv[2]}/${name}`).href);
const { changedPart, compareRows, fieldWords, sharedSteps, skippedSteps } = await page("compare_rows.js");
const { conversation, threadRows } = await page("conversation.js");
const { branchesOf, callRows, familyRows } = await page("family_rows.js");
const { barsOf, groupOf, labelOf, periodOf, usageQuery } = await page("usage_query.js");

const NOW = Date.parse("2026-11-28T20:00:00Z");
const query = (text) => new URLSearchParams(text);
const pair = (index, shared, ...fields) => ({ index, a: `s${index}`, b: `s${index}`, shared, fields });

/** A family of tasks: each with its origin, the steps that it shares, its own last step, and its undone branches. */
function family(...members) {
  const known = members.map(([id, origin, from, steps, undone = []], at) => [id, { task: { task_id: id, forked_from: origin, created: at, steps }, from, undone }]);
  return { root: members[0][0], members: new Map(known) };
}

const checks = {
  "an undo is a branch from the event before it"() {
    const asked = { kind: "undo_requested", seq: 21, steps: ["s2", "s3"], by: "ann" };
    const rewound = { kind: "rewound", seq: 24, to: 1, steps: [], calls: [{ call: "s2-0", tool: "pay", verdict: "compensated" }] };
    assert.deepEqual(branchesOf([asked, rewound]), [{ seq: 20, from: 1, steps: ["s2", "s3"], by: "ann", calls: rewound.calls }]);
    assert.deepEqual(branchesOf([{ ...rewound, steps: ["s4"] }]).map((branch) => [branch.seq, branch.steps, branch.by]), [[23, ["s4"], null]]);
    assert.deepEqual(branchesOf([asked]), []);
  },
  "forks stand below their origin, ordered by the step at which they begin"() {
    const undone = { seq: 9, from: 1, steps: ["s2"], by: null, calls: [] };
    const rows = familyRows(family(["root", null, 0, 4, [undone]], ["late", "root", 3, 5], ["early", "root", 1, 2], ["of-early", "early", 2, 2]));
    assert.deepEqual(rows.map((row) => [row.key, row.depth, row.from, row.to, row.above]), [
      ["root", 0, 0, 4, -1], ["root/0", 1, 1, 2, 0], ["early", 1, 1, 2, 0], ["of-early", 2, 2, 2, 2], ["late", 1, 3, 5, 0],
    ]);
    assert.deepEqual(rows.map((row) => row.down), [[1, 1, 3], [], [2], [], []]);
    assert.deepEqual(rows.map((row) => row.through), [[], [1, 3], [3], [3], []]);
  },
  "a family without its root has no rows"() {
    assert.deepEqual(familyRows({ root: "gone", members: new Map() }), []);
    assert.deepEqual(callRows("gone", new Map()), []);
  },
  "agents stand below the agent that called them"() {
    const task = (task_id, parent, created) => [task_id, { task_id, parent, created }];
    const calls = new Map([task("top", null, 0), task("second", "top", 2), task("first", "top", 1), task("below", "first", 3)]);
    assert.deepEqual(callRows("top", calls).map((row) => [row.task.task_id, row.depth]), [["top", 0], ["first", 1], ["below", 2], ["second", 1]]);
  },
  "many shared steps are one row, and a shared step with another result is none of them"() {
    const pairs = Array.from({ length: 20 }, (_, at) => pair(at + 1, true));
    assert.equal(sharedSteps([...pairs, pair(21, false)]), 20);
    assert.equal(sharedSteps([pair(1, true), pair(2, true, "output of s2-0"), pair(3, true)]), 1);
    assert.equal(skippedSteps(pairs), 17);
    assert.equal(skippedSteps(pairs.slice(0, 12)), 0);
    const rows = compareRows([...pairs, pair(21, false), pair(22, false, "text")]);
    assert.deepEqual([rows[0].kind, rows[0].to, rows.length], ["fold", 17, 6]);
    assert.deepEqual(rows.slice(-3).map((row) => [row.kind, row.from]), [["same", 20], ["same", 21], ["differ", 22]]);
  },
  "the part of a text that differs is cut between words"() {
    assert.deepEqual(changedPart("Book it as prepaid now.", "Book it as an accrual now."), ["Book it as ", "prepaid", " now."]);
    assert.deepEqual(changedPart("a b", "a b"), ["a b", "", ""]);
    assert.deepEqual(changedPart("", "more"), ["", "", ""]);
    assert.deepEqual(changedPart("yes yes", "yes"), ["yes", " yes", ""]);
    assert.equal(changedPart("one two", "three").join(""), "one two");
  },
  "fields have names for people, each once"() {
    assert.equal(fieldWords(["input", "output of s1-0", "outcome of s1-0", "output of s1-1"]), "the input, the result of a call, the outcome of a call");
    assert.equal(fieldWords(["step"]), "step");
  },
  "an address has a period, a key and filters"() {
    assert.deepEqual(periodOf(query("period=7d"), NOW), { from: "2026-11-22", to: "" });
    assert.deepEqual(periodOf(query("period=today&from=2026-01-01"), NOW), { from: "2026-11-28", to: "" });
    assert.deepEqual(periodOf(query("from=2026-11-01&to=soon"), NOW), { from: "2026-11-01", to: "" });
    assert.deepEqual(["", "by=day", "by=label:team", "by=label:", "by=cost"].map((text) => groupOf(query(text))), ["agent", "day", "label:team", "agent", "agent"]);
    assert.deepEqual(labelOf(query("label=team%3Da%3Db")), ["team", "a=b"]);
    assert.equal(labelOf(query("label=team")), null);
    const asked = usageQuery(query("by=day&from=2026-11-01&to=2026-11-02&agent=desk&label=team%3Dshop"), NOW);
    assert.deepEqual([...asked], [["by", "day"], ["since", "2026-11-01T00:00:00Z"], ["until", "2026-11-03T00:00:00Z"], ["agent", "desk"], ["labels", "team=shop"]]);
  },
  "bars are parts of the cost, and of the tokens where nothing has a price"() {
    const line = (key, cost, tokens) => ({ key, cost, tokens, tasks: 1, unpriced: 0 });
    const bars = barsOf({ by: "agent", lines: [line("a", "0.3", 1), line("b", "0.1", 99)] });
    assert.deepEqual(bars.map(({ part, bar }) => [Math.round(part * 100), Math.round(bar * 100)]), [[75, 100], [25, 33]]);
    assert.deepEqual(barsOf({ by: "agent", lines: [line("a", "0", 30), line("b", "0", 10)] }).map(({ part }) => part), [0.75, 0.25]);
    assert.deepEqual(barsOf({ by: "agent", lines: [line("a", "0", 0)] }).map(({ part, bar }) => [part, bar]), [[0, 0]]);
    assert.deepEqual(barsOf({ by: "agent", lines: [] }), []);
    const days = barsOf({ by: "day", lines: [line("2026-02-27", "1", 1), line("2026-03-02", "1", 1)] });
    assert.deepEqual(days.map((day) => [day.line.key, day.bar]), [["2026-02-27", 1], ["2026-02-28", 0], ["2026-03-01", 0], ["2026-03-02", 1]]);
    assert.equal(barsOf({ by: "day", lines: [line("2020-01-01", "1", 1), line("2026-03-02", "1", 1)] }).length, 2);
  },
  "results stand in their calls"() {
    const text = (words) => ({ type: "text", text: words });
    const said = conversation([
      { role: "user", parts: [text("Hello"), { type: "image", data: "" }] },
      { role: "assistant", parts: [{ type: "reasoning", text: "Hm." }, { type: "tool_call", id: "t1-s1-0", name: "look", arguments: { a: 1 } }] },
      { role: "tool", parts: [{ type: "tool_result", call_id: "t1-s1-0", parts: [text("seen")], is_error: true }, { type: "tool_result", call_id: "lost", parts: [], is_error: false }] },
      { role: "assistant", parts: [text("Done.")] },
    ]);
    assert.deepEqual(said.map((item) => [item.role, item.text, item.others]), [["user", "Hello", ["image"]], ["assistant", "", []], ["assistant", "Done.", []]]);
    assert.deepEqual([said[1].thinking, said[1].calls], ["Hm.", [{ id: "t1-s1-0", name: "look", arguments: { a: 1 }, result: "seen", isError: true }]]);
  },
  "threads are ordered by their last change, with those that have no turn yet"() {
    const task = (task_id, thread_id, created, parent = null) => ({ task_id, thread_id, created, updated: created, parent });
    const rows = threadRows([{ thread_id: "old", turns: 2 }, { thread_id: "far", turns: 1 }], [task("b", "old", 3), task("a", "old", 1), task("n", "new", 9), task("c", "of-child", 10, "n")]);
    assert.deepEqual(rows.map((row) => [row.id, row.turns, row.tasks.map((each) => each.task_id)]), [["new", 0, ["n"]], ["old", 2, ["a", "b"]], ["far", 1, []]]);
  },
};

run(checks);

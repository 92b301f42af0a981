// Checks of the list of tasks: its filter in the address, its order, its trees, the places of its rows.
//
//     node check_rows.mjs FOLDER-OF-THE-PAGE
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { run } from "./run_checks.mjs";

const { filterLink, filterQuery, inOrderOf, offsetsOf, readFilter, rowAt, rowsOf, takes, treeRows } = await import(pathToFileURL(`${process.argv[2]}/task_rows.js`).href);

const filterOf = (link) => readFilter(new URLSearchParams(link.split("?")[1] || ""));
const task = (task_id, state_text = "completed", more = {}) => ({ task_id, state_text, agent: "a", labels: {}, parent: null, created: 1, updated: 1, input: "", outcome: "", ...more });
const mapOf = (...tasks) => new Map(tasks.map((each) => [each.task_id, each]));
const listOf = (tasks, { link = "#/", known = [], pages = {}, isWhole = true } = {}) =>
  rowsOf(tasks, { filter: filterOf(link), known: new Set(known), pages: new Map(Object.entries(pages)), isWhole }).map((row) => (row.kind === "head" ? `[${row.text}]` : "-".repeat(row.depth) + row.key));

const checks = {
  "a filter comes back from its address"() {
    for (const link of ["#/", "#/?state=failed,between+steps&agent=desk&label=team=shop&label=a=b=c&q=two+words", "#/?tree=a%2Fb"]) assert.equal(filterLink(filterOf(link)), link);
    assert.deepEqual(filterOf("#/?label=a=b=c&label=none").labels, [["a", "b=c"]]);
    assert.equal(filterQuery(filterOf("#/?state=x&label=a=b%26c&q=%20w%20"), ["waiting"]), "state=waiting&labels=a%3Db%26c&search=w");
  },
  "a filter takes what the server found, and ids"() {
    const found = (link, known = []) => takes(task("t-1", "failed", { input: "The Lamp", labels: { team: "shop" } }), filterOf(link), new Set(known));
    assert.ok(found("#/?q=lamp") && found("#/?q=T-1") && found("#/?state=failed,paused") && found("#/?label=team=shop") && found("#/?q=else", ["t-1"]));
    assert.ok(!found("#/?q=else") && !found("#/?state=paused") && !found("#/?label=team=x") && !found("#/?agent=b", ["t-1"]));
  },
  "what waits comes first, then what runs, then by the last change"() {
    const tasks = mapOf(task("old", "failed", { updated: 5 }), task("run", "running", { updated: 1 }), task("new", "created", { updated: 9 }), task("ask", "waiting", { updated: 2 }));
    assert.deepEqual(listOf(tasks), ["[Waiting]", "ask", "[Running]", "run", "[By last change]", "new", "old"]);
    assert.deepEqual(listOf(mapOf(task("b"), task("c", "paused", { updated: 3 }))), ["c", "b"]);
    assert.deepEqual(listOf(tasks, { link: "#/?state=failed,created" }), ["new", "old"]);
  },
  "a tree stands where its most urgent task belongs"() {
    const tasks = mapOf(task("p", "interrupted"), task("k2", "waiting", { parent: "p", created: 3 }), task("k1", "completed", { parent: "p", created: 2 }), task("g", "completed", { parent: "k1" }), task("x", "failed", { updated: 9 }));
    assert.deepEqual(listOf(tasks), ["[Waiting]", "p", "-k1", "--g", "-k2", "[By last change]", "x"]);
    assert.deepEqual(treeRows(tasks, ["p"]).map((row) => row.key), ["p", "k1", "g", "k2"]);
  },
  "a child waits for the page of its parent, unless it waits itself"() {
    const tasks = mapOf(task("c", "completed", { parent: "later" }), task("w", "waiting", { parent: "later" }), task("r"));
    assert.deepEqual(listOf(tasks, { isWhole: false }), ["[Waiting]", "w", "[By last change]", "r"]);
    assert.deepEqual(listOf(tasks), ["[Waiting]", "w", "[By last change]", "c", "r"]);
  },
  "a later page stays below an earlier one until a task changes"() {
    const pages = { a: { page: 0, changed: 1 }, b: { page: 1, changed: 5 } };
    assert.deepEqual(listOf(mapOf(task("a"), task("b", "failed", { updated: 5 })), { pages }), ["a", "b"]);
    assert.deepEqual(listOf(mapOf(task("a"), task("b", "failed", { updated: 6 })), { pages }), ["b", "a"]);
  },
  "rows under a pointer keep their order"() {
    const row = (key, depth = 0) => ({ kind: "task", key, task: key, depth });
    assert.deepEqual(inOrderOf([row("c"), row("b"), row("a")], [row("a", 1), row("gone"), row("b")]).map((each) => `${each.key}${each.depth}`), ["a1", "b0", "c0"]);
  },
  "a position has its row"() {
    const rows = [{ kind: "head" }, { kind: "task" }, { kind: "task" }], tops = offsetsOf(rows, 46, 32);
    assert.deepEqual([...tops], [0, 32, 78, 124]);
    assert.deepEqual([0, 31, 32, 77, 78, 500].map((y) => rowAt(tops, y)), [0, 0, 1, 1, 2, 2]);
    assert.equal(rowAt(offsetsOf([], 46, 32), 10), 0);
  },
};

run(checks);

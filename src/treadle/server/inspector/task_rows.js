// The list of tasks as rows: which tasks a filter takes, and their order. Pure.

/**
 * @typedef {{states: string[], agent: string, labels: [string, string][], words: string, tree: string}} Filter
 * @typedef {{kind: "task", key: string, task: any, depth: number} | {kind: "head", key: string, text: string}} Row
 */


/** Read a filter from the query of an address. @param {URLSearchParams} query @returns {Filter} */
export function readFilter(query) {
  const labels = query.getAll("label").map((text) => text.split(/=(.*)/s)).filter(([name, value]) => name && value !== undefined);
  return {
    states: query.getAll("state").flatMap((text) => text.split(",")).filter(Boolean), agent: query.get("agent") || "",
    labels: labels.map(([name, value]) => [name, value]), words: query.get("q") || "", tree: query.get("tree") || "",
  };
}

/** Return the address of a filtered list. @param {Filter} filter */
export function filterLink({ states, agent, labels, words, tree }) {
  const query = new URLSearchParams();
  for (const [name, value] of /** @type {[string, string][]} */ ([["state", states.join(",")], ["agent", agent], ...labels.map((label) => ["label", label.join("=")]), ["q", words], ["tree", tree]]))
    if (value) query.append(name, value);
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3D", "=");
  return text ? `#/?${text}` : "#/";
}


/** Whether a filter leaves tasks out. @param {Filter} filter */
export const isFiltered = (filter) => filterLink(filter) !== "#/";

/** Return a filter as the server takes it. @param {Filter} filter @param {string[]} [states] */
export function filterQuery({ agent, labels, words }, states = []) {
  const query = new URLSearchParams();
  for (const state of states) query.append("state", state);
  if (agent) query.set("agent", agent);
  for (const [name, value] of labels) query.append("labels", `${name}=${value}`);
  if (words.trim()) query.set("search", words.trim());
  return query.toString();
}

/** Whether a filter takes a task. `known` are the ids that the server found for its words. @param {any} task @param {Filter} filter @param {Set<string>} known */
export function takes(task, { states, agent, labels, words }, known) {
  if (states.length && !states.includes(task.state_text)) return false;
  if (agent && task.agent !== agent) return false;
  if (!labels.every(([name, value]) => task.labels[name] === value)) return false;
  const text = words.trim().toLowerCase();
  return !text || known.has(task.task_id) || task.task_id.toLowerCase().includes(text) || says(task, text);
}

/** Whether the shown texts of a task contain words. @param {any} task @param {string} words */
export function says(task, words) {
  const text = words.trim().toLowerCase();
  return [task.input, task.outcome].some((part) => (part || "").toLowerCase().includes(text));
}

const RANK = /** @type {Record<string, number>} */ ({ waiting: 0, running: 1 });
const HEADS = ["Waiting", "Running", "By last change"];
const rankOf = (/** @type {any} */ task) => RANK[task.state_text] ?? 2;
const changedOf = (/** @type {any} */ task) => task.updated || task.created;

/** Read tasks that came later stay below those that came earlier, unless they changed since. @typedef {Map<string, {page: number, changed: number}>} Pages */

/**
 * Return tasks in order: waiting, running, then by last change. Rows of a page stay below those of earlier pages.
 * @param {any[]} tasks @param {Pages} pages @param {(task: any) => number} rank
 */
function ordered(tasks, pages, rank) {
  const keyed = tasks.map((task) => {
    const read = pages.get(task.task_id), changed = changedOf(task), own = rank(task);
    return { task, rank: own, page: own > 1 && read && read.changed >= changed ? read.page : 0, changed };
  });
  keyed.sort((a, b) => a.rank - b.rank || a.page - b.page || b.changed - a.changed || b.task.created - a.task.created);
  return keyed.map((each) => each.task);
}

/**
 * Return the rows of a list.
 * @param {Map<string, any>} tasks
 * @param {{filter: Filter, known: Set<string>, pages: Pages, isWhole: boolean}} how  without `isWhole`, the parents of some children come later
 * @returns {Row[]}
 */
export function rowsOf(tasks, { filter, known, pages, isWhole }) {
  const all = [...tasks.values()];
  if (isFiltered({ ...filter, tree: "" })) {
    const found = all.filter((task) => takes(task, filter, known)), hasHeads = filter.states.length === 0;
    return withHeads(ordered(found, pages, hasHeads ? rankOf : () => 2).map((task) => rowOf(task, 0)), hasHeads ? (row) => rankOf(row.task) : null);
  }
  const below = /** @type {Map<string, any[]>} */ (new Map());
  for (const task of all) {
    if (!tasks.has(task.parent)) continue;
    const known = below.get(task.parent);
    if (known) known.push(task);
    else below.set(task.parent, [task]);
  }
  const ranks = /** @type {Map<string, number>} */ (new Map());
  /** @param {any} task @returns {number} */
  const best = (task) => {
    const children = below.get(task.task_id);
    if (!children) return rankOf(task);
    const rank = ranks.get(task.task_id) ?? Math.min(rankOf(task), ...children.map(best));
    ranks.set(task.task_id, rank);
    return rank;
  };
  const roots = ordered(all.filter((task) => !tasks.has(task.parent) && (isWhole || !task.parent || rankOf(task) < 2)), pages, best);
  const rows = /** @type {{kind: "task", key: string, task: any, depth: number, rank: number}[]} */ ([]);
  const put = (/** @type {any} */ task, /** @type {number} */ depth, /** @type {number} */ rank) => {
    rows.push({ kind: "task", key: task.task_id, task, depth, rank });
    const children = below.get(task.task_id);
    if (children) for (const child of children.sort((a, b) => a.created - b.created)) put(child, depth + 1, rank);
  };
  for (const task of roots) put(task, 0, best(task));
  return withHeads(rows, (row) => /** @type {any} */ (row).rank);
}

/** @param {any} task @param {number} depth @returns {{kind: "task", key: string, task: any, depth: number}} */
const rowOf = (task, depth) => ({ kind: "task", key: task.task_id, task, depth });

/** @param {any[]} rows @param {((row: any) => number) | null} rank @returns {Row[]} */
function withHeads(rows, rank) {
  if (!rank || !rows.length || rank(rows[0]) === 2) return rows;
  const out = [];
  let last = -1;
  for (const row of rows) {
    const here = rank(row);
    if (here !== last) out.push({ kind: "head", key: `head-${here}`, text: HEADS[here] });
    last = here;
    out.push(row);
  }
  return /** @type {Row[]} */ (out);
}

/** Return the rows of a tree: its uppermost task and the tasks below it, each below its parent. @param {Map<string, any>} tasks @param {string[]} ids @returns {Row[]} */
export function treeRows(tasks, ids) {
  const here = new Set(ids);
  for (let before = -1; before !== here.size; ) {
    before = here.size; // tasks that began since
    for (const task of tasks.values()) if (here.has(task.parent)) here.add(task.task_id);
  }
  const own = [...here].map((id) => tasks.get(id)).filter(Boolean);
  const rows = /** @type {Row[]} */ ([]);
  const put = (/** @type {any} */ task, /** @type {number} */ depth) => {
    rows.push(rowOf(task, depth));
    for (const child of own.filter((each) => each.parent === task.task_id).sort((a, b) => a.created - b.created)) put(child, depth + 1);
  };
  for (const root of own.filter((task) => !here.has(task.parent))) put(root, 0);
  return rows;
}

/** Return rows in an earlier order, with later ones at the end: the row under a pointer stays there. @param {Row[]} rows @param {Row[] | null} before @returns {Row[]} */
export function inOrderOf(rows, before) {
  if (!before) return rows;
  const now = new Map(rows.map((row) => [row.key, row])), shown = new Set(before.map((row) => row.key));
  const kept = before.map((row) => {
    const row_ = now.get(row.key);
    return row_?.kind === "task" && row.kind === "task" ? { ...row_, depth: row.depth } : row_;
  });
  const late = rows.filter((row) => row.kind === "task" && !shown.has(row.key));
  return /** @type {Row[]} */ ([...kept.filter(Boolean), ...late]);
}

/** The heights of rows, in pixels, and where each begins. @param {Row[]} rows @param {number} task @param {number} head */
export function offsetsOf(rows, task, head) {
  const tops = new Float64Array(rows.length + 1);
  rows.forEach((row, place) => (tops[place + 1] = tops[place] + (row.kind === "head" ? head : task)));
  return tops;
}

/** Return the last row that begins at or before a position. @param {Float64Array} tops @param {number} y */
export function rowAt(tops, y) {
  let low = 0, high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, Math.min(low, tops.length - 2));
}

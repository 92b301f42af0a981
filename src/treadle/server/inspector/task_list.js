// The data of the list of tasks: its filter, which stands in the address, and the pages of the server.
import { batch, computed, effect, signal } from "@preact/signals";
import { call, taskPath, token } from "./api.js";
import { go, place, rename } from "./place.js";
import { complain, reloads, tasks, totals, withPage } from "./store.js";
import { filterLink, filterQuery, inOrderOf, isFiltered, readFilter, rowsOf, says, takes, treeRows } from "./task_rows.js";
import { textOf } from "./fold_state.js";

const PAGE = 200;
/** The most pages that are read again after a lost connection. */
const MOST_AGAIN = 10;
/** The most tasks of a tree. */
const TREE = 500;

/** The query of the list that was shown last; it stays while another view is open. */
const query = signal("");
effect(() => {
  if (place.value.view === "") query.value = place.value.query.toString();
});

/** The filter of the list. */
export const filter = computed(() => readFilter(new URLSearchParams(query.value)));

/** Filter the list; the address changes. @param {Partial<import("./task_rows.js").Filter>} changes */
export const setFilter = (changes) => go(filterLink({ ...filter.value, tree: "", ...changes }));

/** Filter by words, without an entry in the history for each letter. @param {string} words */
export function setWords(words) {
  clearTimeout(typing);
  typing = window.setTimeout(() => rename(filterLink({ ...filter.value, tree: "", words })), 150);
}
let typing = 0;

/**
 * The answers for the filter: the pages with their tasks, the ids that the server found, the next page and the totals.
 * @type {import("@preact/signals").Signal<{pages: import("./task_rows.js").Pages, known: Set<string>, count: number, cursor: string | null,
 *   sums: any, shownSums: any, isReading: boolean, isRead: boolean, tree: string[], oldest: number}>}
 */
export const list = signal(fresh());

function fresh() {
  return { pages: new Map(), known: new Set(), count: 0, cursor: null, sums: null, shownSums: null, isReading: false, isRead: false, tree: [], oldest: 0 };
}

/** Remember in which page the server listed tasks. @param {any[]} items @param {number} page */
function note(items, page) {
  const { pages, known } = list.value;
  for (const task of items) {
    if (!pages.has(task.task_id)) pages.set(task.task_id, { page, changed: task.updated || task.created });
    known.add(task.task_id);
  }
}

/** Add tasks to those that are known. @param {any[]} items */
function keep(items) {
  const rows = new Map(tasks.value);
  for (const task of items) if ((rows.get(task.task_id)?.updated || 0) <= (task.updated || 0)) rows.set(task.task_id, task);
  tasks.value = rows;
}

/** Add tasks that the server found for the filter. @param {any[]} items */
function add(items) {
  keep(items);
  note(items, 0);
}

/** Add a page of the list to the tasks that are known. @param {any} read @param {number} page @param {boolean} isAll  whether the list leaves none out */
function takePage(read, page, isAll) {
  if (isAll) tasks.value = withPage(read.items, read.cursor === null, page ? list.value.oldest : undefined);
  else add(read.items);
  note(read.items, page);
  list.value = { ...list.value, count: page + 1, cursor: read.cursor, oldest: read.items.at(-1)?.created ?? 0, isReading: false, isRead: true };
}

let reading = 0;

/** Read the list from its first page on, at least as many pages as `pages`. @param {number} pages */
async function readList(pages) {
  const asked = filter.peek(), turn = ++reading;
  const wanted = asked.states.length ? filterQuery(asked, asked.states) : filterQuery(asked);
  const before = pages > 1 ? { sums: list.peek().sums, shownSums: list.peek().shownSums } : {};
  list.value = { ...fresh(), ...before, isReading: true };
  try {
    if (asked.tree) await readTree(asked.tree, turn);
    else {
      const first = asked.states.length ? null : call(`tasks?limit=${PAGE}&${filterQuery(asked, ["waiting", "running"])}`);
      const [page, lives, sums, named] = await Promise.all([call(`tasks?limit=${PAGE}&${wanted}`), first, readSums(asked), taskNamed(asked.words.trim())]);
      if (turn !== reading) return;
      batch(() => {
        takePage(page, 0, !isFiltered(asked));
        add(lives?.items || []);
        keep(named);
        list.value = { ...list.value, ...sums };
      });
      while (list.value.count < pages && turn === reading && (await more()));
    }
  } catch (error) {
    if (turn === reading) list.value = { ...list.value, isReading: false, isRead: true };
    complain(error);
  }
}

/** Read the totals of a filter: of all states, and of its own. @param {import("./task_rows.js").Filter} asked */
async function readSums(asked) {
  const { states } = asked, own = states.length ? call(`totals?${filterQuery(asked, states)}`) : null;
  const [sums, shownSums] = await Promise.all([call(`totals?${filterQuery(asked)}`), own]);
  return { sums, shownSums: shownSums || sums };
}

/** Read the next page; return whether there was one. */
export async function more() {
  const { cursor, isReading, count } = list.value, asked = filter.peek(), turn = reading;
  if (!cursor || isReading) return false;
  list.value = { ...list.value, isReading: true };
  try {
    const page = await call(`tasks?limit=${PAGE}&cursor=${encodeURIComponent(cursor)}&${filterQuery(asked, asked.states)}`);
    if (turn !== reading) return false;
    batch(() => takePage(page, count, !isFiltered(asked)));
    return true;
  } catch (error) {
    if (turn === reading) list.value = { ...list.value, isReading: false };
    complain(error);
    return false;
  }
}

/** Return the task whose id was searched, as in lists. @param {string} id */
async function taskNamed(id) {
  if (!id || /\s/.test(id)) return [];
  try {
    return [asRow(await call(taskPath(id)))];
  } catch {
    return []; // it is no id
  }
}

/** A task as in lists. @param {any} task */
function asRow(task) {
  const { usage } = task, known = tasks.peek().get(task.task_id);
  return known || { ...task, input: textOf(task.input), input_tokens: usage.input_tokens, output_tokens: usage.output_tokens, cost: usage.cost };
}

/** Read the tree around a task: the tasks above it, and all below the uppermost. @param {string} id @param {number} turn */
async function readTree(id, turn) {
  let root = asRow(await call(taskPath(id)));
  const found = [root];
  while (root.parent && found.length < TREE) {
    root = asRow(await call(taskPath(root.parent)));
    found.push(root);
  }
  for (let level = [root.task_id]; level.length && found.length < TREE; ) {
    const pages = await Promise.all(level.map((parent) => call(`tasks?limit=${PAGE}&parent=${encodeURIComponent(parent)}`)));
    const below = pages.flatMap((page) => page.items);
    found.push(...below);
    level = below.map((task) => task.task_id);
  }
  if (turn !== reading) return;
  batch(() => {
    add(found);
    list.value = { ...list.value, tree: [...new Set(found.map((task) => task.task_id))], isReading: false, isRead: true };
  });
}

// A change of the filter reads anew; a lost connection reads the same pages again.
effect(() => {
  const asked = filter.value;
  if (!token.value || place.value.view !== "" || !asked) return;
  queueMicrotask(() => void readList(1));
});
let seen = 0;
effect(() => {
  const turn = reloads.value;
  if (turn === seen) return;
  seen = turn;
  if (turn > 1 && place.peek().view === "") queueMicrotask(() => void readList(Math.min(MOST_AGAIN, list.peek().count)));
});

// The totals of a filter are read again when those of all tasks were.
effect(() => {
  const sums = totals.value, asked = filter.peek(), turn = reading;
  if (!sums || place.peek().view !== "" || asked.tree || !isFiltered(asked) || !list.peek().isRead) return;
  void readSums(asked).then((own) => turn === reading && (list.value = { ...list.peek(), ...own }), () => {});
});

// ---------------------------------------------------------------------------------------------- rows

/** Whether all tasks of the list have been read. */
const isWhole = computed(() => list.value.isRead && !list.value.cursor);

/** The rows of the list. */
export const listed = computed(() => {
  const { pages, known, tree } = list.value, asked = filter.value;
  return asked.tree ? treeRows(tasks.value, tree) : rowsOf(tasks.value, { filter: asked, known, pages, isWhole: isWhole.value });
});

/** The order of the rows stays while the pointer is over the list: nothing moves under it. */
export const held = signal(/** @type {import("./task_rows.js").Row[] | null} */ (null));
/** The rows as they are drawn. */
export const drawn = computed(() => inOrderOf(listed.value, held.value));

/** The number of tasks in the list, with those that have not been read. */
export const size = computed(() => {
  const shown = drawn.value.reduce((sum, row) => sum + (row.kind === "task" ? 1 : 0), 0);
  return isWhole.value || !list.value.sums ? shown : Math.max(shown, countOf(filter.value.states));
});

/** The tasks that match by their ids alone: the server counts those whose texts match. */
const byId = computed(() => {
  const asked = filter.value, { known } = list.value;
  if (!asked.words.trim()) return [];
  return [...tasks.value.values()].filter((task) => !known.has(task.task_id) && !says(task, asked.words) && takes(task, { ...asked, states: [] }, known));
});

/** The number of tasks by state: of the filter without its states. @type {import("@preact/signals").ReadonlySignal<Record<string, number>>} */
export const states = computed(() => {
  const sums = isFiltered({ ...filter.value, states: [] }) ? list.value.sums : totals.value || list.value.sums;
  if (!sums) return {};
  const { running = 0, ...rest } = sums.states, driven = Math.min(running, sums.driven);
  const found = { ...rest, running: driven, "between steps": running - driven };
  for (const task of byId.value) found[task.state_text] = (found[task.state_text] || 0) + 1;
  return found;
});

/** @param {string[]} wanted */
const countOf = (wanted) => Object.entries(states.value).reduce((sum, [state, number]) => sum + (!wanted.length || wanted.includes(state) ? number : 0), 0);
/** The number of tasks of the filter without its states. */
export const all = computed(() => countOf([]));
/** The number of tasks of the filter, and their totals: null where some match by their ids alone. */
export const shown = computed(() => {
  const { states: on } = filter.value, sums = isFiltered(filter.value) ? list.value.shownSums : totals.value || list.value.sums;
  return { number: countOf(on), sums: byId.value.some((task) => !on.length || on.includes(task.state_text)) ? null : sums };
});

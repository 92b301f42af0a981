// The data of this page: the tasks, the open requests, the principal, and the journal of the open task. Signals, kept up to date
// by one stream.
import { batch, computed, effect, signal } from "@preact/signals";
import { call, callExact, command, follow, Moved, Refused, taskPath, token } from "./api.js";
import { Journal } from "./fold.js";
import { awaitOwn, withOwn } from "./own_events.js";
import { taskShown, view } from "./place.js";
import { NOTHING, withDelta } from "./writing.js";

/** `connecting`, `live`, `reconnecting` or `hidden`. */
export const live = signal("connecting");
/** Tasks as in lists, by id. @type {import("@preact/signals").Signal<Map<string, any>>} */
export const tasks = signal(new Map());
export const totals = signal(/** @type {any} */ (null));
/** @type {import("@preact/signals").Signal<any[]>} */
export const pending = signal([]);
export const me = signal(/** @type {any} */ (null));
/** One sentence about the last act, for a moment, and its task. */
export const toast = signal(/** @type {{text: string, bad: boolean, about?: {tool: string, task: string}} | null} */ (null));
/** Whether the first list has been read. */
export const loaded = signal(false);
/** The time in milliseconds, for ages and for running calls; it ticks once a second. */
export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 1000);

/** The open task: its journal, and a number that changes with each of its events. */
export const opened = signal({ id: "", journal: new Journal(), version: 0, known: 0, loading: false, missing: "" });
/** The answers that models are writing, by step. @type {import("@preact/signals").Signal<Record<string, import("./writing.js").Writing>>} */
export const writing = signal({});
/** The reports of running calls, by call. @type {import("@preact/signals").Signal<Record<string, any>>} */
export const reports = signal({});
/** Whether a living process drives the open task. */
export const driven = signal(false);

/** Whether the principal has a scope. @param {string} scope */
export const may = (scope) => Boolean(me.value?.scopes.includes(scope));

/** Whether the server has the code of an agent, and so can run and undo its steps. @param {string} agent */
export const hasCode = (agent) => !agent || !me.value || me.value.agents.includes(agent);

/** Requests that this page has decided, with the events after which it did: they leave the inbox at once. */
export const decided = signal(/** @type {Map<string, number>} */ (new Map()));

/** The name of a request among those of all tasks. @param {any} item */
export const keyOf = (item) => `${item.task_id}/${item.request_id}`;

/** The kinds of requests that people decide. */
export const FOR_PEOPLE = ["approval", "question", "settlement", "undo"];
/** When a request was made; an undo has no time of its own. @param {any} item */
export const askedAt = (item) => item.asked || tasks.value.get(item.task_id)?.updated || 0;
/** The requests that people decide, oldest first. */
export const inbox = computed(() =>
  pending.value.filter((item) => FOR_PEOPLE.includes(item.kind) && !(item.head <= (decided.value.get(keyOf(item)) ?? -1))).sort((a, b) => askedAt(a) - askedAt(b)));

/**
 * Say something about an act.
 * @param {string} text @param {boolean} [bad] @param {{tool: string, task: string}} [about]  the call and the id of its task
 */
export function say(text, bad = false, about) {
  if (!text) return;
  if (toast.value?.bad && !bad) return; // a refusal stays until it is read
  toast.value = { text, bad, about };
  clearTimeout(saying);
  saying = window.setTimeout(() => (toast.value = null), bad || about ? 8000 : 4000);
}
let saying = 0;

const LIST = 200;

/** How often everything was read: other lists read their rows again. */
export const reloads = signal(0);

/**
 * Return known tasks with a page of the list, newest first. A task whose time is within the page and that is not in it
 * has been deleted.
 * @param {any[]} items @param {boolean} isLast  whether no page follows
 * @param {number} [newest]  the time of the last task of the page before
 */
export function withPage(items, isLast, newest = items[0]?.created ?? Infinity) {
  const oldest = isLast ? -1 : items.at(-1)?.created ?? Infinity, rows = new Map(tasks.value);
  for (const [id, task] of rows) if (task.created > oldest && task.created < newest) rows.delete(id);
  for (const task of items) {
    const before = tasks.value.get(task.task_id);
    rows.set(task.task_id, before && (before.updated || 0) > (task.updated || 0) ? before : task);
  }
  return rows;
}

/** The most requests of an inbox. */
const INBOX = 1000;

/** Read all that waits, up to a limit. */
async function readPending() {
  const items = [];
  for (let cursor = ""; ; ) {
    const page = await callExact(`pending?limit=${LIST}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    items.push(...page.items);
    cursor = page.cursor || "";
    if (!cursor || items.length >= INBOX) return items;
  }
}

/** Read the list, the totals and the open requests again. */
export async function load() {
  try {
    const [page, sums, waits, person] = await Promise.all([
      view.peek() === "" ? null : call(`tasks?limit=${LIST}`), call("totals"), readPending(), me.value || call("me"),
    ]);
    batch(() => {
      if (page) tasks.value = withPage(page.items, page.cursor === null);
      totals.value = sums;
      pending.value = waits;
      me.value = person;
      loaded.value = true;
      reloads.value += 1;
    });
  } catch (error) {
    complain(error);
  }
}

/** Say that a request was refused. @param {any} error */
export function complain(error) {
  if (!(error instanceof Refused && error.status === 401)) say(error.message, true);
}

/** Read the open requests, and the totals. */
export async function readWaits() {
  try {
    const [waits, sums] = await Promise.all([readPending(), call("totals")]);
    batch(() => {
      pending.value = waits;
      totals.value = sums;
    });
  } catch {
    // the stream tells when the server is there again
  }
}

let soon = 0;
/** Read the open requests in a moment: several changes at once are read once. */
function refreshPending() {
  soon ||= window.setTimeout(() => {
    soon = 0;
    void readWaits();
  }, 300);
}

/** The shortest time between two readings of the totals, in milliseconds. */
const TOTALS = 2000;
let sumsSoon = 0;
/** Read the totals again, soon. */
function refreshTotals() {
  if (sumsSoon) return;
  sumsSoon = window.setTimeout(async () => {
    sumsSoon = 0;
    try {
      totals.value = await call("totals");
    } catch {
      // the stream tells when the server is there again
    }
  }, TOTALS);
}

/**
 * Carry out a verb of a task, and say so. Return its result; undefined if it was refused.
 * @param {string} id @param {string} verb @param {any} body @param {string | ((result: any) => string)} done
 * @param {{head?: number, wait?: number, throws?: boolean}} [how]  the event after which the caller decided; whether a
 *   refusal is thrown
 */
export async function act(id, verb, body, done, { head = 0, wait = 5, throws = false } = {}) {
  const { journal } = opened.value, before = journal.head;
  const seen = head && opened.value.id === id ? await withOwn(journal, head) : head;
  const headers = { Prefer: `wait=${wait}`, ...(seen ? { "If-Match": `"${seen}"` } : {}) };
  try {
    const result = await command(`${taskPath(id)}/${verb}`, body, headers);
    if (opened.value.id === id) awaitOwn(journal, before);
    say(typeof done === "function" ? done(result) : done);
    return result ?? null;
  } catch (error) {
    const moved = error instanceof Refused && error.status === 412;
    const late = error instanceof Refused && error.status === 409 ? new Error(`Nothing changed: ${error.message}`) : error;
    if (moved) await readWaits(); // so the next decision is about the shown state
    const refusal = moved ? new Moved(error.problem?.head || 0) : late;
    if (throws) throw refusal;
    complain(refusal);
    return undefined;
  } finally {
    refreshPending();
  }
}

// ----------------------------------------------------------------------------------------- open task

/** Read the journal of a task in pages, and draw the first one at once. @param {string} id */
async function open(id) {
  const journal = new Journal();
  batch(() => {
    opened.value = { id, journal, version: 0, known: 0, loading: true, missing: "" };
    writing.value = {};
    reports.value = {};
  });
  try {
    for (let more = true; more; ) {
      const page = await call(`${taskPath(id)}/events?limit=500&cut=8192&after=${journal.head}`);
      if (opened.value.journal !== journal) return;
      for (const event of page.items) journal.add(event);
      more = page.cursor !== null && page.items.length > 0;
      opened.value = { ...opened.value, version: journal.head, known: page.head, loading: more };
    }
    connect();
  } catch (error) {
    if (opened.value.journal === journal) opened.value = { ...opened.value, loading: false, missing: /** @type {Error} */ (error).message };
  }
}

/** Take frames of the stream. @param {[string, any][]} frames */
function take(frames) {
  const { id, journal } = opened.value;
  let rows = /** @type {Map<string, any> | null} */ (null), waits = false, isOther = false, gone = false;
  let texts = writing.value, said = reports.value;
  const before = journal.head;
  for (const [name, data] of frames) {
    if (name === "task_changed") {
      rows ||= new Map(tasks.value);
      const before = tasks.value.get(data.task_id);
      waits ||= data.pending !== before?.pending;
      isOther ||= data.deleted || data.state_text !== before?.state_text;
      gone ||= data.deleted && data.task_id === id;
      if (data.deleted) rows.delete(data.task_id);
      else rows.set(data.task_id, data);
    } else if (name === "changes_missed") void load();
    else if (name === "child_event") said = data.event.kind === "delta" ? said : { ...said, [data.call]: data.event.description };
    else if (data.task_id !== id) continue;
    else if (name === "tool_progress") said = { ...said, [data.call]: data.value };
    else if (name === "task_stood") driven.value = data.driven;
    else if (data.kind === "delta") texts = withDelta(texts, data);
    else if (data.kind === "model_restarted") texts = { ...texts, [data.step]: NOTHING };
    else if (data.seq && journal.add(data) && /^model_(returned|failed|stopped)$/.test(data.kind)) texts = { ...texts, [data.step]: NOTHING };
  }
  batch(() => {
    if (rows) tasks.value = rows;
    if (texts !== writing.value) writing.value = texts;
    reports.value = said;
    if (gone) opened.value = { ...opened.value, missing: "The task was deleted." };
    if (journal.head !== before) opened.value = { ...opened.value, version: journal.head, known: Math.max(opened.value.known, journal.head) };
  });
  if (waits) refreshPending();
  if (isOther) refreshTotals();
}

let close = () => {};

/** Open the stream of the page, with the open task from its last event on. */
function connect() {
  close();
  close = () => {};
  if (document.hidden || !token.value) {
    live.value = "hidden";
    return;
  }
  const query = () => {
    const { id, journal, loading, missing } = opened.value;
    const task = id && !loading && !missing ? `&task=${encodeURIComponent(`${id}:${journal.head}`)}` : "";
    return `stream?changes=1&cut=8192${task}`;
  };
  let first = true;
  close = follow({
    query, take,
    tell(state) {
      if (state === "live" && !first) void load(); // changes are not repeated
      if (state === "live") first = false;
      live.value = state;
    },
  });
}

/** Begin to read and to follow. */
export function start() {
  document.addEventListener("visibilitychange", () => {
    connect();
    if (!document.hidden && token.value) void load();
  });
  effect(() => {
    if (!token.value) return;
    queueMicrotask(() => {
      me.value = null;
      void load();
      connect();
    });
  });
  effect(() => {
    const id = taskShown.value;
    if (id && token.value && opened.peek().id !== id) queueMicrotask(() => void open(id));
  });
}

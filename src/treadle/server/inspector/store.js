// What this page has read: the tasks, what waits, who I am, and the journal of the open task. Signals, kept up to date
// by one stream.
import { batch, computed, effect, signal } from "@preact/signals";
import { call, follow, Refused, taskPath, token } from "./api.js";
import { Journal } from "./fold.js";
import { taskShown } from "./place.js";
import { NOTHING, withDelta } from "./writing.js";

/** `connecting`, `live`, `reconnecting` or `hidden`. */
export const live = signal("connecting");
/** Tasks as in lists, by id. @type {import("@preact/signals").Signal<Map<string, any>>} */
export const tasks = signal(new Map());
export const totals = signal(/** @type {any} */ (null));
/** @type {import("@preact/signals").Signal<any[]>} */
export const pending = signal([]);
export const me = signal(/** @type {any} */ (null));
/** One sentence about the last act, for a moment. */
export const toast = signal(/** @type {{text: string, bad: boolean} | null} */ (null));
/** Whether the first list has been read. */
export const loaded = signal(false);
/** The time in milliseconds, for ages and for what runs; it ticks once a second. */
export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 1000);

/** The open task: its journal, and a number that changes with each of its events. */
export const opened = signal({ id: "", journal: new Journal(), version: 0, known: 0, loading: false, missing: "" });
/** What a model is writing now, by step. @type {import("@preact/signals").Signal<Record<string, import("./writing.js").Writing>>} */
export const writing = signal({});
/** Whether a living process drives the open task. */
export const driven = signal(false);

/** Whether I may do what needs a scope. @param {string} scope */
export const may = (scope) => Boolean(me.value?.scopes.includes(scope));

/** Whether the server has the code of an agent, and so can run and undo its steps. @param {string} agent */
export const hasCode = (agent) => !agent || !me.value || me.value.agents.includes(agent);

/** What people decide, oldest first. */
export const inbox = computed(() =>
  pending.value.filter((item) => ["approval", "question", "settlement"].includes(item.kind)).sort((a, b) => (a.asked || 0) - (b.asked || 0)));

/** Say something about an act. @param {string} text @param {boolean} [bad] */
export function say(text, bad = false) {
  if (toast.value?.bad && !bad) return; // a refusal stays until it is read
  toast.value = { text, bad };
  clearTimeout(saying);
  saying = window.setTimeout(() => (toast.value = null), bad ? 8000 : 4000);
}
let saying = 0;

const LIST = 200;

/** Read the list, the totals and what waits again. */
export async function load() {
  try {
    const [page, sums, waits, person] = await Promise.all([
      call(`tasks?limit=${LIST}`), call("totals"), call(`pending?limit=${LIST}`), me.value || call("me"),
    ]);
    batch(() => {
      tasks.value = new Map(page.items.map((/** @type {any} */ task) => [task.task_id, task]));
      totals.value = sums;
      pending.value = waits.items;
      me.value = person;
      loaded.value = true;
    });
  } catch (error) {
    complain(error);
  }
}

/** @param {any} error */
function complain(error) {
  if (!(error instanceof Refused && error.status === 401)) say(error.message, true);
}

let soon = 0;
/** Read what waits, and the totals, in a moment. */
function refreshPending() {
  if (soon) return;
  soon = window.setTimeout(async () => {
    soon = 0;
    try {
      const [waits, sums] = await Promise.all([call(`pending?limit=${LIST}`), call("totals")]);
      batch(() => {
        pending.value = waits.items;
        totals.value = sums;
      });
    } catch {
      // the stream tells when the server is there again
    }
  }, 300);
}

/**
 * Carry out a verb of a task, and say so. Return its result; undefined if it was refused.
 * @param {string} id @param {string} verb @param {any} body @param {string | ((result: any) => string)} done
 * @param {{head?: number, wait?: number, throws?: boolean}} [how]  the event after which the caller decided; whether a
 *   refusal is thrown
 */
export async function act(id, verb, body, done, { head = 0, wait = 5, throws = false } = {}) {
  const headers = { Prefer: `wait=${wait}`, ...(head ? { "If-Match": `"${head}"` } : {}) };
  try {
    const result = await call(`${taskPath(id)}/${verb}`, body, headers);
    say(typeof done === "function" ? done(result) : done);
    return result ?? null;
  } catch (error) {
    const moved = error instanceof Refused && error.status === 412;
    const refusal = moved ? new Error("The task went on meanwhile. Look at what changed, then decide again.") : error;
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
  let rows = /** @type {Map<string, any> | null} */ (null), texts = writing.value, waits = false;
  const before = journal.head;
  for (const [name, data] of frames) {
    if (name === "task_changed") {
      rows ||= new Map(tasks.value);
      waits ||= data.pending !== tasks.value.get(data.task_id)?.pending;
      if (data.deleted) rows.delete(data.task_id);
      else rows.set(data.task_id, data);
    } else if (name === "changes_missed") void load();
    else if (data.task_id !== id) continue;
    else if (name === "task_stood") driven.value = data.driven;
    else if (data.kind === "delta") texts = withDelta(texts, data);
    else if (data.kind === "model_restarted") texts = { ...texts, [data.step]: NOTHING };
    else if (data.seq && journal.add(data) && /^model_(returned|failed|stopped)$/.test(data.kind)) texts = { ...texts, [data.step]: NOTHING };
  }
  batch(() => {
    if (rows) tasks.value = rows;
    if (texts !== writing.value) writing.value = texts;
    if (journal.head !== before) opened.value = { ...opened.value, version: journal.head, known: Math.max(opened.value.known, journal.head) };
  });
  if (waits) refreshPending();
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

// The list of tasks: what waits first, then what runs, then by the last change. Children stand below their parents.
import { computed, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { NoAgents } from "./doors.js";
import { ago, count, money, safe } from "./format.js";
import { STATES } from "./icons.js";
import { go, taskLink } from "./place.js";
import { loaded, now, tasks, totals } from "./store.js";
import { Empty, html, Icon, State, toneOf } from "./ui.js";

/** The state that the list shows; "" shows all. */
export const chosen = signal("");
export const search = signal("");
/** The id of the selected task; it stays selected when rows move. */
export const cursor = signal("");

const RANK = /** @type {Record<string, number>} */ ({ waiting: 0, running: 1 });
const rankOf = (/** @type {any} */ task) => RANK[task.state_text] ?? 2;

/** @param {any} task @param {string} words */
function matches(task, words) {
  const labels = Object.entries(task.labels).map(([name, value]) => `${name}:${value} ${name} ${value}`);
  const text = [task.task_id, task.agent, task.input, task.outcome, ...labels].join(" ").toLowerCase();
  return words.split(/\s+/).every((word) => text.includes(word));
}

/** The rows of the list. */
export const listed = computed(() => {
  const all = [...tasks.value.values()], words = search.value.trim().toLowerCase(), state = chosen.value;
  if (words || state)
    return all.filter((task) => (!state || task.state_text === state) && (!words || matches(task, words))).sort(byChange).map((task) => ({ task, depth: 0 }));
  const below = new Map(), rows = /** @type {{task: any, depth: number}[]} */ ([]);
  for (const task of all) if (task.parent) below.set(task.parent, [...(below.get(task.parent) || []), task]);
  const put = (/** @type {any} */ task, /** @type {number} */ depth) => {
    rows.push({ task, depth });
    for (const child of (below.get(task.task_id) || []).sort((/** @type {any} */ a, /** @type {any} */ b) => a.created - b.created)) put(child, depth + 1);
  };
  for (const task of all.filter((each) => !tasks.value.has(each.parent)).sort((a, b) => rankOf(a) - rankOf(b) || byChange(a, b))) put(task, 0);
  return rows;
});

const byChange = (/** @type {any} */ a, /** @type {any} */ b) => (b.updated || b.created) - (a.updated || a.created) || b.created - a.created;

// The order of the rows stays while the pointer is over the list: nothing moves under it.
const held = signal(/** @type {string[] | null} */ (null));
export const drawn = computed(() => {
  const rows = listed.value, order = held.value;
  if (!order) return rows;
  const known = new Map(rows.map((row) => [row.task.task_id, row])), shown = new Set(order);
  return [...order.map((id) => known.get(id)).filter(Boolean), ...rows.filter((row) => !shown.has(row.task.task_id))].map((row) => /** @type {any} */ (row));
});

/** @param {number} by */
export function moveCursor(by) {
  const rows = drawn.value, here = rows.findIndex((row) => row.task.task_id === cursor.value);
  const row = rows[here < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, here + by))];
  if (!row) return;
  cursor.value = row.task.task_id;
  reveal(rows.indexOf(row));
}

export const openCursor = () => cursor.value && go(taskLink(cursor.value));

/** @type {(place: number) => void} */
let reveal = () => {};
const rowHeight = () => (innerWidth < 760 ? 60 : 46);
const SPARE = 10;

export function Tasks() {
  const counts = /** @type {Record<string, number>} */ ({});
  for (const task of tasks.value.values()) counts[task.state_text] = (counts[task.state_text] || 0) + 1;
  const sums = totals.value, typed = (/** @type {any} */ event) => (search.value = event.target.value);
  const pick = (/** @type {string} */ state) => () => (chosen.value = chosen.value === state ? "" : state);
  return html`<div class="head"><h1>Tasks</h1><span class="qq">${sums && `${count(sums.tasks)} · ${count(sums.tokens)} tokens · ${money(sums.cost)}${sums.unpriced ? ` and ${count(sums.unpriced)} without a price` : ""}`}</span><span class="fill"></span>
      <input id="search" class="field find" type="search" placeholder="Search words, ids, labels   /" aria-label="Search" aria-keyshortcuts="/" value=${search.value} onInput=${typed} /></div>
    <${NoAgents} />
    <div class="chips" role="group" aria-label="State"><button type="button" class="chip" aria-pressed=${!chosen.value} onClick=${pick("")}>All <b>${count(tasks.value.size)}</b></button>
      ${Object.keys(STATES).filter((state) => counts[state]).map((state) => html`<button type="button" key=${state} class=${`chip ${toneOf(state)}`} aria-pressed=${chosen.value === state} onClick=${pick(state)}><${Icon} name=${state} />${state} <b>${count(counts[state])}</b></button>`)}</div>
    ${drawn.value.length ? html`<${List} rows=${drawn.value} />` : loaded.value ? html`<${Nothing} />` : html`<${Empty} title="Reading…" />`}`;
}

function Nothing() {
  if (search.value || chosen.value) return html`<${Empty} title="No task matches">Clear the search, or choose another state.<//>`;
  return html`<${Empty} title="No tasks yet">A task appears here as soon as an agent is run on this store: with <code>runner.run</code>, <code>treadle run</code>, or over HTTP.<//>`;
}

/** @param {{rows: {task: any, depth: number}[]}} props */
function List({ rows }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), [seen, setSeen] = useState([0, 30]), height = rowHeight();
  const measure = () => {
    const e = box.current;
    if (!e) return;
    const first = Math.floor(e.scrollTop / height), last = Math.ceil((e.scrollTop + e.clientHeight) / height);
    setSeen((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  };
  reveal = (place) => {
    const e = box.current;
    if (!e) return;
    if (place * height < e.scrollTop) e.scrollTop = place * height;
    else if ((place + 1) * height > e.scrollTop + e.clientHeight) e.scrollTop = (place + 1) * height - e.clientHeight;
  };
  useLayoutEffect(() => {
    measure();
    const watcher = new ResizeObserver(measure);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => () => void (held.value = null), []);
  const hold = () => (held.value = listed.peek().map((row) => row.task.task_id)), release = () => (held.value = null);
  const first = Math.max(0, seen[0] - SPARE);
  return html`<div class="trow th cap" aria-hidden="true"><span>State</span><span>Task</span><span>Agent</span><span class="num">Steps</span><span class="num">Tokens</span><span class="num">Cost</span><span class="num">Changed</span></div>
    <div class="body list" ref=${box} onScroll=${measure} onPointerEnter=${hold} onPointerLeave=${release} role="listbox" tabindex="0" aria-label="Tasks" aria-activedescendant=${cursor.value ? `t-${cursor.value}` : undefined}>
      <div style=${{ height: `${rows.length * height}px` }} role="presentation"></div>
      ${rows.slice(first, seen[1] + SPARE).map(({ task, depth }, place) => html`<${Row} key=${task.task_id} task=${task} depth=${depth} place=${first + place} size=${rows.length} height=${height} />`)}</div>`;
}

/** @param {any} props */
function Row({ task, depth, place, size, height }) {
  const tokens = task.input_tokens === null ? null : task.input_tokens + task.output_tokens;
  const age = ago(task.updated || task.created, now.value), labels = Object.entries(task.labels);
  return html`<a class=${`trow ${depth ? "kid" : ""}`} id=${`t-${task.task_id}`} role="option" tabindex="-1" aria-selected=${cursor.value === task.task_id} aria-posinset=${place + 1} aria-setsize=${size} style=${{ top: `${place * height}px` }} href=${taskLink(task.task_id)} onClick=${() => (cursor.value = task.task_id)}>
    <${State} state=${task.state_text} />
    <span class="what"><span class="t cut">${safe(task.input || task.task_id)}</span><span class="s cut"><span class="ph">${task.state_text}</span><span class="mono">${safe(task.task_id)}</span>${task.forked_from ? html` · fork of ${safe(task.forked_from)}` : ""}${task.outcome ? html` · ${safe(task.outcome)}` : ""}</span></span>
    <span class="cut q wide" title=${labels.map(([name, value]) => `${name}: ${value}`).join(", ")}>${safe(task.agent)}</span><span class="num q wide">${count(task.steps)}</span><span class="num q wide">${count(tokens)}</span><span class="num q wide">${money(task.cost)}</span><span class="num qq">${age}</span></a>`;
}


// The list of tasks: waiting ones first, then running ones, then by the last change. Children are below their parents.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ask, BulkDialog, clearMarks, mark, marked, marking } from "./bulk.js";
import { NoAgents } from "./doors.js";
import { changeWords } from "./fork_changes.js";
import { ago, count, money, plural, safe } from "./format.js";
import { STATES } from "./icons.js";
import { go, rename, taskLink } from "./place.js";
import { loaded, may, now, pending, tasks, totals } from "./store.js";
import { all, drawn, filter, held, list, listed, more, setFilter, setWords, shown, size, states } from "./task_list.js";
import { filterLink, isFiltered, offsetsOf, rowAt } from "./task_rows.js";
import { Act, Empty, html, Icon, State, toneOf } from "./ui.js";

/** The id of the selected task; it stays selected when rows move. */
export const cursor = signal("");

// --------------------------------------------------------------------------------------------- keys

const taskRows = () => drawn.value.filter((row) => row.kind === "task");

/** Select the next or the last task; `marks` marks both. @param {number} by @param {boolean} [marks] */
export function moveCursor(by, marks = false) {
  const rows = taskRows(), here = rows.findIndex((row) => row.key === cursor.value);
  const row = rows[Math.max(0, Math.min(rows.length - 1, here < 0 ? by - 1 : here + by))];
  if (!row) return;
  if (marks && selected()) mark(cursor.value, true);
  if (marks) mark(row.key, true);
  cursor.value = row.key;
  reveal(row.key);
}

/** The id of the selected task, if the list shows it. */
const selected = () => taskRows().find((row) => row.key === cursor.value)?.key || "";
/** The tasks that a verb for several is about: the marked ones, else the selected one. */
const targets = () => (marked.value.size ? [...marked.value] : selected() ? [selected()] : []);
const cancelTasks = () => void (may("control") && ask("cancel", targets()));
const deleteTasks = () => void (may("delete") && ask("delete", targets()));

/** Take back one thing: the marks, then the tree, then the filter. */
function back() {
  if (marked.value.size || marking.value) clearMarks();
  else if (isFiltered(filter.value)) go("#/");
}

/** @type {Record<string, () => void>} */
export const TASK_KEYS = {
  Enter: () => selected() && go(taskLink(selected())), " ": () => selected() && mark(selected()), x: cancelTasks, Delete: deleteTasks, Backspace: deleteTasks,
  "*": () => (marked.value = new Set(taskRows().map((row) => row.key))), Escape: back, f: () => document.getElementById("agent-filter")?.focus(),
  ArrowRight: () => selected() && go(filterLink({ ...filter.value, tree: selected() })),
  ArrowLeft: () => filter.value.tree && go(filterLink({ ...filter.value, tree: "" })),
};

let shownFilter = "";
effect(() => {
  const link = filterLink(filter.value); // marks are of the tasks in view
  if (link !== shownFilter && marked.peek().size) clearMarks();
  shownFilter = link;
});
effect(() => {
  const known = tasks.value, gone = [...marked.peek()].filter((id) => !known.has(id)); // deleted elsewhere
  if (gone.length) marked.value = new Set([...marked.peek()].filter((id) => known.has(id)));
});

// --------------------------------------------------------------------------------------------- view

/** The open requests of each waiting task. */
const reasons = computed(() => new Map(pending.value.map((item) => [item.task_id, item.text])));

/** @type {(key: string) => void} */
let reveal = () => {};
const isPhone = () => innerWidth < 760;
const SPARE = 10;
/** How many rows before the end of the list the next page is read. */
const AHEAD = 60;

export function Tasks() {
  const rows = drawn.value, { isRead } = list.value;
  return html`<${Head} /><${NoAgents} /><${marked.value.size || marking.value ? Marked : Chips} />
    ${rows.length ? html`<${List} rows=${rows} />` : isRead && loaded.value ? html`<${Nothing} />` : html`<${Empty} title="Reading…" />`}<${BulkDialog} />`;
}

function Head() {
  const { tree, words, states: on } = filter.value, { number, sums } = shown.value, isCounted = !isFiltered(filter.value) || list.value.sums;
  const [typed, setTyped] = useState(words), written = useRef(words);
  useEffect(() => {
    if (words !== written.current.trim() && document.activeElement?.id !== "search") setTyped(words);
  }, [words]);
  const type = (/** @type {any} */ event) => {
    setTyped((written.current = event.target.value));
    setWords(event.target.value);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault();
    document.getElementById("task-list")?.focus();
    if (!taskRows().some((row) => row.key === cursor.value)) moveCursor(0);
  };
  const spent = sums && ` · ${count(sums.tokens)} tokens · ${money(sums.cost)}${sums.unpriced ? ` and ${count(sums.unpriced)} without a price` : ""}`;
  const facts = isCounted && (sums || number > 0) && `${plural(number, "task")}${spent || ""}`;
  return html`<div class="head"><h1>${tree ? "Tree of a task" : "Tasks"}</h1><span class="qq">${tree ? html`<span class="mono">${safe(tree)}</span>` : facts}</span><span class="fill"></span><${Filters} />
    <input id="search" class="field find" type="search" placeholder=${on.length ? `Search ${on.join(", ")}   /` : "Search words, ids   /"} aria-label="Search" aria-keyshortcuts="/" value=${typed} onInput=${type} onKeyDown=${press} />
    ${may("run") && html`<${Act} icon="play" label="New" keyName="n" href="#/agents" title="Start a task" />`}</div>`;
}

/** The filters: a chip for each state that exists, the agent, labels. */
function Chips() {
  const { states: on, tree } = filter.value, counts = states.value;
  if (tree) return html`<div class="chips"><${Act} icon="back" label="All tasks" keyName="←" onClick=${() => go(filterLink({ ...filter.value, tree: "" }))} /></div>`;
  const flip = (/** @type {string} */ state) => () => setFilter({ states: on.includes(state) ? on.filter((each) => each !== state) : [...on, state] });
  return html`<div class="chips" role="group" aria-label="States"><button type="button" class="chip" aria-pressed=${!on.length} onClick=${() => setFilter({ states: [] })}>All <b>${count(all.value)}</b></button>
    ${Object.keys(STATES).filter((state) => counts[state] || on.includes(state)).map((state) => html`<button type="button" key=${state} class=${`chip ${toneOf(state)}`} aria-pressed=${on.includes(state)} onClick=${flip(state)}><${Icon} name=${state} />${state} <b>${count(counts[state] || 0)}</b></button>`)}</div>`;
}

/** The agent, the labels, and the way back to all tasks. */
function Filters() {
  const { states: on, agent, labels, tree, words } = filter.value;
  const names = new Set([...tasks.value.values()].map((task) => task.agent)), pairs = new Set(labels.map((label) => label.join("=")));
  for (const task of tasks.value.values()) for (const [name, value] of Object.entries(task.labels)) pairs.add(`${name}=${value}`);
  if (agent) names.add(agent);
  // A select changes with each letter that is typed: the address is renamed, without an entry in the history.
  const pickAgent = (/** @type {any} */ change) => rename(filterLink({ ...filter.value, agent: change.target.value }));
  const pickLabel = (/** @type {number} */ at) => (/** @type {any} */ change) => {
    const next = labels.map((label) => label.join("="));
    next[at] = change.target.value;
    rename(filterLink({ ...filter.value, labels: next.filter(Boolean).map((text) => /** @type {[string, string]} */ (text.split(/=(.*)/s).slice(0, 2))) }));
  };
  const options = [...pairs].sort().slice(0, 200);
  if (tree) return null;
  return html`<span class="task-filters" role="group" aria-label="Filters">
    ${(agent || labels.length > 0 || words || on.length > 0) && html`<button type="button" class="link" aria-keyshortcuts="Escape" onClick=${() => go("#/")}>Clear <kbd aria-hidden="true">Esc</kbd></button>`}
    ${names.size > 1 && html`<select id="agent-filter" class=${`chip ${agent ? "on" : ""}`} aria-label="Agent" aria-keyshortcuts="f" value=${agent} onChange=${pickAgent}><option value="">any agent</option>${[...names].sort().map((name) => html`<option key=${name} value=${name}>${safe(name)}</option>`)}</select>`}
    ${options.length > 0 && [...labels, null].map((label, at) => html`<select key=${at} id=${`label-filter-${at}`} class=${`chip ${label ? "on" : ""}`} aria-label=${at ? "Another label" : "Label"} value=${label ? label.join("=") : ""} onChange=${pickLabel(at)}><option value="">${label ? "without it" : at ? "and label…" : "any label"}</option>
      ${options.map((pair) => html`<option key=${pair} value=${pair}>${safe(pair.replace("=", ": "))}</option>`)}</select>`)}
    <button type="button" class="chip only-s" onClick=${() => (marking.value = true)}>Select</button></span>`;
}

/** The actions for the marked tasks. */
function Marked() {
  const number = marked.value.size;
  return html`<div class="chips marked" role="group" aria-label="Marked tasks"><b role="status">${number ? `${plural(number, "task")} marked` : "Tap the tasks to mark"}</b>
    ${may("control") && html`<${Act} icon="stop" label="Cancel" keyName="x" disabled=${!number} onClick=${cancelTasks} />`}
    ${may("delete") && html`<${Act} icon="no" label="Delete" keyName="Del" disabled=${!number} onClick=${deleteTasks} />`}
    <span class="fill"></span><${Act} label="Done" keyName="Esc" onClick=${clearMarks} /></div>`;
}

function Nothing() {
  const { tree } = filter.value;
  if (tree) return html`<${Empty} title="This tree cannot be shown">There may be no task <span class="mono">${safe(tree)}</span> any more.<//>`;
  if (isFiltered(filter.value)) return html`<${NoMatch} />`;
  return html`<${Empty} title="No tasks yet">A task appears here as soon as an agent runs on this store: with <code>runner.run</code>, <code>treadle run</code>, over HTTP, or <a class="link" href="#/agents">started here</a>.<//>`;
}

/** Which filters hold while no task matches, and the way out of them. */
function NoMatch() {
  const { states: on, agent, labels, words } = filter.value, isOne = !agent && !labels.length && !words;
  const parts = [agent && `of the agent ${agent}`, ...labels.map((label) => `with the label ${label.join(": ")}`), words && `with the words “${words}”`];
  const title = on.length ? `No task that is ${on.join(" or ")} matches` : "No task matches";
  return html`<${Empty} title=${title}>The list shows tasks ${safe([on.length && `that are ${on.join(" or ")}`, ...parts].filter(Boolean).join(", "))}.${" "}
    ${on.length > 0 && !isOne && html`<a class="link" href=${filterLink({ ...filter.value, states: [] })}>Show all states${list.value.sums ? ` (${count(all.value)})` : ""}</a>, or${" "}`}<a class="link" href="#/">${on.length > 0 && !isOne ? "clear all filters" : "Clear all filters"}</a>.<//>`;
}

// --------------------------------------------------------------------------------------------- list

/** @param {{rows: import("./task_rows.js").Row[]}} props */
function List({ rows }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), [seen, setSeen] = useState([0, 900]), height = isPhone() ? 60 : 46;
  const tops = offsetsOf(rows, height, 32), whole = tops[rows.length];
  const measure = () => {
    const e = box.current;
    if (e) setSeen((before) => (before[0] === e.scrollTop && before[1] === e.clientHeight ? before : [e.scrollTop, e.clientHeight]));
  };
  reveal = (key) => {
    const e = box.current, place = drawn.value.findIndex((row) => row.key === key);
    if (!e || place < 0) return;
    const top = offsetsOf(drawn.value, height, 32)[place], above = drawn.value[place - 1]?.kind === "head" ? 32 : 0;
    if (top - above < e.scrollTop) e.scrollTop = top - above;
    else if (top + height > e.scrollTop + e.clientHeight) e.scrollTop = top + height - e.clientHeight;
  };
  useLayoutEffect(() => {
    measure();
    const watcher = new ResizeObserver(measure);
    if (box.current) watcher.observe(box.current);
    if (cursor.value) reveal(cursor.value);
    return () => watcher.disconnect();
  }, []);
  useAnchor(box, rows, tops, seen);
  useEffect(() => () => void (held.value = null), []);
  const first = Math.max(0, rowAt(tops, seen[0]) - SPARE), last = Math.min(rows.length, rowAt(tops, seen[0] + seen[1]) + SPARE);
  useEffect(() => {
    if (last + AHEAD > rows.length && list.value.cursor && !list.value.isReading) void more();
  }, [last, rows.length, list.value.cursor, list.value.isReading]);
  const hold = () => (held.value = listed.peek()), release = () => (held.value = null);
  const heads = rows.slice(0, first).filter((row) => row.kind === "head").length;
  let place = first - heads;
  return html`<div class="trow th cap" aria-hidden="true"><span>State</span><span>Task</span><span>Agent</span><span class="num">Steps</span><span class="num">Tokens</span><span class="num">Cost</span><span class="num">Changed</span></div>
    <div class=${`body list ${marked.value.size || marking.value ? "marks" : ""}`} id="task-list" ref=${box} onScroll=${measure} onPointerEnter=${hold} onPointerLeave=${release} role="listbox" tabindex="0" aria-label="Tasks"
      aria-multiselectable="true" aria-keyshortcuts="Space x Delete" aria-activedescendant=${cursor.value ? `t-${cursor.value}` : undefined}>
      <div style=${{ height: `${whole + (list.value.cursor ? 40 : 0)}px` }} role="presentation"></div>
      ${rows.slice(first, last).map((row, at) => (row.kind === "head"
        ? html`<div class="thead cap" key=${row.key} role="presentation" style=${{ top: `${tops[first + at]}px` }}>${row.text}</div>`
        : html`<${Row} key=${row.key} task=${row.task} depth=${row.depth} place=${place++} size=${size.value} top=${tops[first + at]} />`))}
      ${list.value.cursor && html`<div class="thead cap" role="presentation" style=${{ top: `${whole + 4}px` }}>Reading more…</div>`}</div>`;
}

/**
 * Keep the selected row, else the first row in view, where it is on the screen when rows above come or go.
 * @param {{current: HTMLElement | null}} box @param {import("./task_rows.js").Row[]} rows @param {Float64Array} tops @param {number[]} seen
 */
function useAnchor(box, rows, tops, seen) {
  const before = useRef({ key: "", top: 0 });
  useLayoutEffect(() => {
    const e = box.current, { key, top } = before.current, place = key ? rows.findIndex((row) => row.key === key) : -1;
    if (e && place >= 0 && e.scrollTop > 0 && tops[place] !== top) e.scrollTop += tops[place] - top;
  }, [rows]);
  useLayoutEffect(() => {
    const y = box.current?.scrollTop ?? 0, own = rows.findIndex((row) => row.key === cursor.value);
    const isSeen = own >= 0 && tops[own] >= y && tops[own] < y + seen[1], place = isSeen ? own : rowAt(tops, y);
    before.current = { key: rows[place]?.key || "", top: tops[place] || 0 };
  });
}

/** @param {any} props */
function Row({ task, depth, place, size, top }) {
  const id = task.task_id, tokens = task.input_tokens === null ? null : task.input_tokens + task.output_tokens, isMarked = marked.value.has(id);
  const isSelected = marked.value.size ? isMarked : cursor.value === id;
  const click = (/** @type {MouseEvent} */ event) => {
    cursor.value = id;
    const isBox = /** @type {HTMLElement} */ (event.target).closest(".mark");
    if (!(isBox || marking.value || event.metaKey || event.ctrlKey)) return;
    event.preventDefault();
    mark(id);
  };
  const why = task.state_text === "waiting" && reasons.value.get(id);
  const above = !depth && task.parent ? html` · below ${safe(task.parent)}` : "", changes = task.fork_changes || [];
  const fork = task.forked_from ? html` · fork of ${safe(task.forked_from)}${changes.length ? html`: ${changeWords(changes)}` : ""}` : "";
  return html`<a class=${`trow ${depth ? "kid" : ""} ${cursor.value === id ? "at" : ""}`} id=${`t-${id}`} role="option" tabindex="-1" aria-selected=${isSelected} aria-posinset=${place + 1} aria-setsize=${size}
    style=${{ top: `${top}px`, "--depth": Math.min(depth, 6) }} href=${taskLink(id)} onClick=${click}><${State} state=${task.state_text} />
    <span class="what"><span class="t cut">${safe(task.input || id)}</span><span class="s cut"><span class="ph">${task.state_text}</span><span class="mono">${safe(id)}</span>${above}${fork}${task.outcome ? html` · ${safe(task.outcome)}` : ""}${why ? html` · <span class="why">${safe(why)}</span>` : ""}</span></span>
    <span class="agent-cell wide"><span class="cut q">${safe(task.agent)}</span><span class="cut tags">${Object.entries(task.labels).map(([name, value]) => html`<span key=${name} title=${safe(`${name}: ${value}`)}>${safe(value)}</span>`)}</span></span>
    <span class="num q wide">${count(task.steps)}</span><span class="num q wide">${count(tokens)}</span><span class="num q wide">${money(task.cost)}</span><span class="num qq">${ago(task.updated || task.created, now.value)}</span><span class="mark" aria-hidden="true">${isMarked && html`<${Icon} name="done" />`}</span></a>`;
}

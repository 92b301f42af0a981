// The cost of tasks: one number, and bars by agent, day, model or label. Period and filters stand in the address.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "./api.js";
import { count, money, plural, safe } from "./format.js";
import { go, place } from "./place.js";
import { now, tasks } from "./store.js";
import { filterLink } from "./task_rows.js";
import { Empty, html, Icon, Note } from "./ui.js";
import { barsOf, groupOf, labelOf, PERIODS, periodOf, usageQuery } from "./usage_query.js";

/** How often the sums are read again while they are shown, in milliseconds. */
const AGAIN = 5000;

const read = signal({ asked: "", report: /** @type {any} */ (null), missing: "" });
const chosen = signal(0);

const query = computed(() => place.value.query);
const group = computed(() => groupOf(query.value));
const bars = computed(() => (read.value.report ? barsOf(read.value.report) : []));

/** The names of labels in the list of the page, and that of the address. */
const labels = computed(() => {
  const names = new Set(group.value.startsWith("label:") ? [group.value.slice(6)] : []);
  for (const task of tasks.value.values()) for (const name of Object.keys(task.labels)) names.add(name);
  return [...names].sort();
});

/** The keys of the sums: the word in the address, and its name. */
const groups = computed(() => {
  const ofLabels = labels.value.map((name) => [`label:${name}`, `label ${name}`]);
  return [["agent", "Agent"], ["day", "Day"], ["model", "Model"], ...ofLabels];
});

async function load() {
  const asked = usageQuery(query.value, Date.now()).toString();
  try {
    const report = await call(`usage?${asked}`);
    if (usageQuery(query.value, Date.now()).toString() !== asked) return;
    read.value = { asked, report, missing: "" };
    chosen.value = Math.min(chosen.value, Math.max(0, bars.value.length - 1));
  } catch (error) {
    read.value = { ...read.value, missing: /** @type {Error} */ (error).message };
  }
}

effect(() => {
  if (place.value.view !== "cost" || read.peek().asked === usageQuery(query.value, Date.now()).toString()) return;
  chosen.value = 0;
  queueMicrotask(() => void load());
});

/** Change fields of the address; null removes one. @param {Record<string, string | null>} changes */
function change(changes) {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  go(`#/cost${text ? `?${text}` : ""}`);
}

/** @param {number} by */
export function moveBar(by) {
  chosen.value = Math.max(0, Math.min(bars.value.length - 1, chosen.value + by));
}

/** Choose the next thing that the sums are made by. */
export function nextGroup() {
  const list = groups.value, here = list.findIndex(([word]) => word === group.value);
  change({ by: list[(here + 1) % list.length][0] });
}

/** Choose a shorter or a longer period with a name. @param {number} by */
export function movePeriod(by) {
  const order = ["today", "7d", "30d", ""], here = order.indexOf(query.value.get("period") || "");
  change({ period: order[Math.max(0, Math.min(order.length - 1, here + by))], from: null, to: null });
}

/** Take all filters back. */
export const clearFilters = () => change({ agent: null, label: null, from: null, to: null, period: null });

/** Show only the tasks of a line, by another key. @param {string | null} key */
function narrow(key) {
  const by = group.value;
  if (key === null || by === "model") return;
  if (by === "agent") change({ agent: key, by: "day" });
  else if (by === "day") change({ from: key, to: key, period: null, by: "agent" });
  else change({ label: `${by.slice(6)}=${key}`, by: "agent" });
}

export const narrowBar = () => bars.value[chosen.value] && narrow(bars.value[chosen.value].line.key);

export function Cost() {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || void load(), AGAIN);
    return () => clearInterval(timer);
  }, []);
  const { report, missing } = read.value;
  return html`<div class="head"><h1>Cost</h1></div><${Filters} />
    ${missing && html`<div class="cost"><${Note} tone="bad" icon="no">${safe(missing)}<//></div>`}
    ${report ? html`<${report.total.tasks ? Report : Nothing} report=${report} />` : !missing && html`<${Empty} title="Reading…" />`}`;
}

function Nothing() {
  const isFiltered = [...query.value.keys()].some((name) => name !== "by");
  if (isFiltered) {
    return html`<${Empty} title="No task in this period">Choose a longer period, or take the filters back with${" "}
      <kbd>Esc</kbd>.<//>`;
  }
  return html`<${Empty} title="No tasks yet">Tokens and cost of each task appear here as soon as an agent is run.<//>`;
}

/** Return the address of the tasks of a filter. @param {string | null} agent @param {[string, string] | null} label */
const tasksLink = (agent, label) =>
  filterLink({ states: [], agent: agent || "", labels: label ? [label] : [], words: "", tree: "" });

/** A button that is pressed or not. @param {{name: string, on: boolean, onClick: () => void}} props */
const Chip = ({ name, on, onClick }) =>
  html`<button type="button" class="chip" aria-pressed=${on} onClick=${onClick}>${safe(name)}</button>`;

/** A day of the period. @param {{name: "from" | "to", title: string, value: string}} props */
function Day({ name, title, value }) {
  const put = (/** @type {any} */ event) => change({ [name]: event.target.value, period: null });
  return html`<input class="field" type="date" aria-label=${title} value=${value} onChange=${put} />`;
}

function Filters() {
  const { from, to } = periodOf(query.value, now.value), named = query.value.get("period") || "";
  const isNamed = (/** @type {string} */ word) => word === named && (word !== "" || (!from && !to));
  const agent = query.value.get("agent"), label = labelOf(query.value);
  const period = (/** @type {string} */ word) => change({ period: word, from: null, to: null });
  return html`<div class="sums">
    <div class="row" role="group" aria-label="Sums by">
      <span class="cap">By <kbd aria-hidden="true" class="wide">b</kbd></span>
      <div class="chips" aria-keyshortcuts="b">${groups.value.map(([word, name]) =>
        html`<${Chip} key=${word} name=${name} on=${group.value === word} onClick=${() => change({ by: word })} />`)}</div></div>
    <div class="row" role="group" aria-label="Period">
      <span class="cap">Period <span class="wide"><kbd aria-hidden="true">[</kbd> <kbd aria-hidden="true">]</kbd></span></span>
      <div class="chips">${PERIODS.map(([word, name]) =>
        html`<${Chip} key=${word} name=${name} on=${isNamed(word)} onClick=${() => period(word)} />`)}</div>
      <${Day} name="from" title="First day, UTC" value=${named ? "" : from} /><span class="qq">to</span>
      <${Day} name="to" title="Last day, UTC" value=${named ? "" : to} /></div>
    ${(agent || label) && html`<div class="row" role="group" aria-label="Only"><span class="cap">Only</span>
      ${agent && html`<${Only} name="agent" text=${`agent ${agent}`} />`}
      ${label && html`<${Only} name="label" text=${label.join(" ")} />`}
      <a class="link" href=${tasksLink(agent, label)}>Show the tasks</a></div>`}</div>`;
}

/** A filter that a press takes back. @param {{name: string, text: string}} props */
function Only({ name, text }) {
  return html`<button type="button" class="chip" aria-pressed="true" onClick=${() => change({ [name]: null })}>
    ${safe(text)} <span class="sr">: take it back</span><${Icon} name="no" /></button>`;
}

/** The tasks that the sum lacks. @param {{count: number}} props */
function Unpriced({ count: number }) {
  const whose = number === 1 ? "its cost is" : "their cost is";
  return html`<p class="st c-wait wrap"><${Icon} name="degraded" />
    ${plural(number, "task")} used a model without a price, or has no figures yet: ${whose} missing here.</p>`;
}

/** @param {{report: any}} props */
function Report({ report }) {
  const { total, by } = report, list = bars.value, hasCost = Number(total.cost) > 0;
  const title = by.startsWith("label:") ? by.slice(6) : by;
  return html`<div class="body cost"><div class="big" id="cost-total">${money(total.cost)}</div>
    <p class="q">${count(total.tokens)} tokens in ${plural(total.tasks, "task")}${total.unpriced ? "" : ", all of them priced"}.</p>
    ${total.unpriced > 0 && html`<${Unpriced} count=${total.unpriced} />`}
    <div class="brow th cap" aria-hidden="true"><span>${safe(title)}</span>
      <span>${hasCost ? "" : "by tokens: nothing has a price"}</span><span class="num">Cost</span>
      <span class="num wide"></span><span class="num wide">Tokens</span><span class="num wide">Tasks</span></div>
    <div class="bars" id="cost-list" role="listbox" tabindex="0" aria-label=${`Cost by ${title}`}
      aria-activedescendant=${list.length ? `b-${chosen.value}` : undefined}>
      ${list.map((each, at) => html`<${Bar} key=${each.line.key ?? ""} each=${each} at=${at} />`)}</div>
    <p class="qq last">Days are those on which tasks were created, UTC. Steps that forks share count in each of them.</p></div>`;
}

/** Return a part of the whole as text. @param {number} part */
const percent = (part) => (part >= 0.005 ? `${Math.round(part * 100)} %` : part > 0 ? "<1 %" : "");

/** @param {{each: {line: any, part: number, bar: number}, at: number}} props */
function Bar({ each, at }) {
  const { line, part, bar } = each, none = group.value === "model" ? "no request" : "none";
  const box = useRef(/** @type {HTMLElement | null} */ (null)), isChosen = chosen.value === at;
  useEffect(() => {
    if (isChosen) box.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const pick = () => {
    chosen.value = at;
    narrow(line.key);
  };
  const unpriced = line.unpriced ? ` and ${plural(line.unpriced, "task")} without a price` : "";
  const mark = unpriced && html`<span class="st c-wait" title=${unpriced}>
    <span aria-hidden="true">+?</span><span class="sr">${unpriced}</span></span>`;
  return html`<button type="button" class="brow" ref=${box} id=${`b-${at}`} role="option" tabindex="-1" aria-selected=${isChosen}
    onClick=${pick}><span class=${`cut ${line.key === null ? "qq" : ""}`}>${safe(line.key ?? none)}</span>
    <span class="b">${bar > 0 && html`<i style=${{ width: `${bar * 100}%` }}></i>`}</span>
    <span class="num">${money(line.cost)} ${mark}</span><span class="num qq wide">${percent(part)}</span>
    <span class="num q wide">${count(line.tokens)}<span class="sr"> tokens</span></span>
    <span class="num q wide">${count(line.tasks)}<span class="sr"> tasks</span></span></button>`;
}

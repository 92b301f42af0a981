// Two tasks side by side, from their last shared step on: `#/diff/A/B`.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call, taskPath } from "./api.js";
import { changedPart, compareRows, fieldWords, sharedSteps, skippedSteps } from "./compare_rows.js";
import { asText, textOf } from "./fold_state.js";
import { changeWords } from "./fork_changes.js";
import { count, duration, line, money, plural, safe } from "./format.js";
import { comparison } from "./lineage.js";
import { go, place, taskLink } from "./place.js";
import { tasks } from "./store.js";
import { Act, Empty, html, Icon, State } from "./ui.js";

/** @typedef {import("./compare_rows.js").CompareRow} CompareRow */

/** The most steps of which a comparison reads the contents. */
const MOST = 400;
const PAGE = 100;
/** How long after a change both tasks are read again, in milliseconds. */
const AGAIN = 500;

const idle = {
  key: "", diff: /** @type {any} */ (null), tasks: /** @type {any[]} */ ([]), steps: [new Map(), new Map()], missing: "",
};
/** The comparison of the address. */
const read = signal(idle);
/** The selected row. */
const chosen = signal(0);

/** Read the steps of a task by their place. @param {string} id @param {number} after @param {number} upto */
async function stepsOf(id, after, upto) {
  /** @type {Map<number, any>} */
  const steps = new Map();
  for (let from = after; from < Math.min(upto, after + MOST); from += PAGE) {
    const page = await call(`${taskPath(id)}/steps?after=${from}&limit=${PAGE}`);
    page.items.forEach((/** @type {any} */ step, /** @type {number} */ at) => steps.set(from + at + 1, step));
    if (page.cursor === null) break;
  }
  return steps;
}

/** Read two tasks; with `again` the page keeps the old comparison meanwhile. @param {string} a @param {string} b */
async function load(a, b, again = false) {
  const key = `${a} ${b}`;
  if (!again) {
    read.value = { ...idle, key };
    chosen.value = 0;
  }
  try {
    const query = new URLSearchParams({ a, b });
    const [diff, ...both] = await Promise.all([call(`diff?${query}`), call(taskPath(a)), call(taskPath(b))]);
    const skipped = skippedSteps(diff.steps), shared = sharedSteps(diff.steps), upto = diff.steps.length;
    const steps = await Promise.all([stepsOf(a, skipped, upto), stepsOf(b, shared, upto)]);
    if (read.value.key === key) read.value = { key, diff, tasks: both, steps, missing: "" };
    const first = rows.peek().findIndex((row) => row.kind === "differ");
    if (!again && first > 0) chosen.value = first;
  } catch (error) {
    if (read.value.key === key) read.value = { ...read.value, missing: /** @type {Error} */ (error).message };
  }
}

effect(() => {
  const { view, task, part } = place.value;
  if (view === "diff" && task && part && read.peek().key !== `${task} ${part}`) void load(task, part);
});

/** When the two tasks have changed last, in the list of the page. */
const changed = computed(() => {
  const { view, task, part } = place.value;
  return view === "diff" ? `${tasks.value.get(task)?.updated} ${tasks.value.get(part)?.updated}` : "";
});

let soon = 0;
effect(() => {
  if (!changed.value || !read.peek().diff) return;
  clearTimeout(soon);
  soon = window.setTimeout(() => {
    const { view, task, part } = place.value;
    if (view === "diff" && read.value.key === `${task} ${part}`) void load(task, part, true);
  }, AGAIN);
});

const rows = computed(() => (read.value.diff ? compareRows(read.value.diff.steps) : []));

/** Go to another row that differs. @param {number} by */
export function moveDifference(by) {
  const differing = rows.value.flatMap((row, at) => (row.kind === "differ" ? [at] : []));
  if (!differing.length) return;
  const here = differing.indexOf(chosen.value), next = Math.max(0, Math.min(differing.length - 1, here + by));
  chosen.value = differing[next];
}

/** Open one of the two tasks at the selected step. @param {0 | 1} side */
export function openSide(side) {
  const { task, part } = place.value, pair = rows.value[chosen.value]?.pair;
  go(taskLink(side ? part : task, { sel: (side ? pair?.b : pair?.a) || "" }));
}

/** Swap the two tasks. */
export const swapSides = () => go(comparison(place.value.part, place.value.task));

const lineageOf = (/** @type {string} */ id) => `#/t/${encodeURIComponent(id)}/lineage`;
export const leaveComparison = () => go(lineageOf(place.value.part));

export function Compare() {
  const { task: a, part: b } = place.value, { diff, tasks, missing, key } = read.value;
  if (!a || !b) {
    const how = html`Choose two of a lineage, or write their ids into the address: <code>#/diff/A/B</code>.`;
    return html`<${Empty} whole title="Which two tasks?">${how}<//>`;
  }
  const isRead = diff && key === `${a} ${b}`;
  const head = html`<div class="head"><h1>Compare</h1>${isRead && html`<span class="q">${sentence(diff)}</span>`}<span class="fill"></span>
    <div class="acts"><${Act} icon="back" label="Lineage" keyName="Esc" href=${lineageOf(b)} />
      <${Act} label="Swap" icon="compare" keyName="x" onClick=${swapSides} /></div></div>`;
  if (!isRead) return [head, html`<${Empty} title=${missing ? "These tasks cannot be compared" : "Comparing…"}>${safe(missing)}<//>`];
  return [head, html`<div class="body compared" tabindex="0" role="region" aria-label="Steps of both tasks"><ol>
    <li class="two heads"><span class="at cap">Step</span>
      ${tasks.map((task, side) => html`<${Side} key=${side} task=${task} side=${side} />`)}</li>
    ${rows.value.map((row, at) => html`<${Row} key=${row.from} row=${row} at=${at} />`)}
    ${rows.value.length === 0 && html`<${Alike} at="">Neither has a step.<//>`}
    <${Ends} tasks=${tasks} diff=${diff} /></ol></div>`];
}

/** Say how much is shared, and name the differences. @param {any} diff */
function sentence(diff) {
  const shared = sharedSteps(diff.steps), differing = diff.steps.filter((/** @type {any} */ pair) => pair.fields.length);
  const none = diff.shared_events ? "They share their beginning. " : "They share nothing. ";
  const both = shared ? `${plural(shared, "step")} ran once, for both. ` : none;
  if (!differing.length) return `${both}No step differs${diff.field ? ", only the end" : ""}.`;
  const [first] = differing, isAlone = first.fields[0] === "step";
  const where = isAlone ? "which only one of them has" : "";
  const what = isAlone ? `step ${first.index}, ${where}` : `${fieldWords(first.fields.slice(0, 1))} of step ${first.index}`;
  return `${both}${plural(differing.length, "step")} ${differing.length === 1 ? "differs" : "differ"}, first in ${what}.`;
}

/** @param {{task: any, side: number}} props */
function Side({ task, side }) {
  const changes = task.fork_changes;
  return html`<div class="cell">
    <div class="row"><a class="mono" href=${taskLink(task.task_id)}>${safe(task.task_id)}</a>
      <kbd class="wide" aria-hidden="true">${side + 1}</kbd></div>
    <div class="row wrap"><${State} state=${task.state_text} />
      <span class="q">${plural(task.steps, "step")} · ${money(task.usage.cost)}</span></div>
    ${changes.length > 0 && html`<div class="q cut"><${Icon} name="fork" /> ${changeWords(changes)}</div>`}</div>`;
}

/** A line for both tasks. @param {{at: any, children: any}} props */
const Alike = ({ at, children }) => html`<li class="two same"><span class="at">${at}</span><div class="cell">${children}</div></li>`;

/** @param {{row: CompareRow, at: number}} props */
function Row({ row, at }) {
  const isChosen = chosen.value === at && row.kind === "differ", box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (isChosen) box.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  if (row.kind === "fold") return html`<${Alike} at=${`1–${row.to}`}>The same: ${count(row.to)} steps. They ran once.<//>`;
  if (row.kind === "same") return html`<${Same} row=${row} />`;
  const pair = /** @type {import("./compare_rows.js").Pair} */ (row.pair), { steps, tasks } = read.value;
  const a = pair.a === null ? null : steps[0].get(row.from), b = pair.b === null ? null : steps[1].get(row.from);
  const shared = { fields: pair.fields, first: a };
  return html`<li class="two differ" ref=${box} aria-current=${isChosen} onClick=${() => (chosen.value = at)}>
    <span class="at">${row.from}</span>
    <${Cell} ...${shared} step=${a} other=${b} has=${pair.a !== null} name=${tasks[0].task_id} />
    <${Cell} ...${shared} step=${b} other=${a} has=${pair.b !== null} name=${tasks[1].task_id} /></li>`;
}

/** A step that is the same in both. @param {{row: CompareRow}} props */
function Same({ row }) {
  const step = read.value.steps[0].get(row.from);
  const names = (step?.tool_executions || []).map((/** @type {any} */ each) => safe(each.name)).join(", ");
  const what = names ? html`<span class="mono">${names}</span>` : step ? "an answer" : "";
  return html`<${Alike} at=${row.from}>The same${what && ": "}${what}. It ran ${row.pair?.shared ? "once" : "in both"}.<//>`;
}

/** Return the text that the model wrote in a step. @param {any} step */
function saidIn(step) {
  const answers = step.messages.filter((/** @type {any} */ message) => message.role === "assistant");
  return answers.map((/** @type {any} */ message) => textOf(message.parts)).filter(Boolean).join("\n");
}

/**
 * The step of one task.
 * @param {{step: any, other: any, has: boolean, fields: string[], first: any, name: string}} props
 */
function Cell({ step, other, has, fields, first, name }) {
  const owner = html`<span class="sr">${safe(name)}</span>`;
  if (!step) return html`<div class="cell none">${owner}${has ? "This step is not read here: open the task." : "No such step."}</div>`;
  const differs = (/** @type {string} */ field) => fields.includes(field), marked = (/** @type {string} */ word) => html`<mark class="diff-m">${word}</mark>`;
  const said = saidIn(step), facts = [step.step.step_id, duration(step.duration * 1000), money(step.usage.cost), step.step.agent];
  const input = textOf(step.step.input) || "none", theirs = other ? textOf(other.step.input) || "none" : input;
  const showsOutput = differs("output") && !differs("text") && asText(step.output) !== said;
  return html`<div class="cell">${owner}
    <div class="cap mono"><span class="ph" aria-hidden="true">${safe(name)}</span>${safe(facts.filter(Boolean).join(" · "))}</div>
    ${differs("input") && html`<p class="words">${marked("input")} <${Changed} text=${input} other=${theirs} /></p>`}
    ${said && html`<p class="words"><${Changed} text=${said} other=${other && differs("text") ? saidIn(other) : said} /></p>`}
    ${step.tool_executions.map((/** @type {any} */ each, /** @type {number} */ at) =>
      html`<${Called} key=${at} each=${each} theirs=${other?.tool_executions[at]} id=${first?.tool_executions[at]?.call_id} fields=${fields} />`)}
    ${showsOutput && html`<p>${marked("output")} <span class="mono">${line(step.output)}</span></p>`}
    ${step.error && html`<p class="c-bad"><b>${safe(step.error.kind)}</b> ${safe(step.error.message)}</p>`}
    ${differs("status") && html`<p>${marked("status")} ${step.step.status}</p>`}</div>`;
}

/** A text, with the part that the other one does not have. @param {{text: string, other: string}} props */
function Changed({ text, other }) {
  const [before, changed, after] = changedPart(text, other);
  return html`${safe(before)}${changed && html`<ins class="diff-m">${safe(changed)}</ins>`}${safe(after)}`;
}

/** Return the end of a call on one line. @param {any} call */
function resultOf(call) {
  if (call.error) return `${call.outcome}: ${call.error.message}`;
  return call.outcome === "ok" ? line(call.output) || "nothing" : call.outcome || "not ended";
}

/** @param {{each: any, theirs: any, id: string | undefined, fields: string[]}} props */
function Called({ each, theirs, id, fields }) {
  const isOther = !theirs || theirs.name !== each.name || line(theirs.arguments) !== line(each.arguments);
  const name = safe(each.name), result = safe(resultOf(each));
  const ends = fields.includes(`output of ${id}`) || fields.includes(`outcome of ${id}`);
  return html`<div class="callline">
    ${isOther && fields.includes("calls") ? html`<mark class="diff-m">${name}</mark>` : name}(<span class="qq">${line(each.arguments)}</span>)${" "}
    <span class="out">→ ${ends ? html`<mark class="diff-m">${result}</mark>` : result}</span>
    ${fields.includes(`changes of ${id}`) && html` <span class="tag">changed the state in another way</span>`}</div>`;
}

/** How both stand at their end. @param {{tasks: any[], diff: any}} props */
function Ends({ tasks, diff }) {
  const [a, b] = tasks, isSame = a.state_text === b.state_text && a.outcome === b.outcome;
  const more = diff.steps.length > skippedSteps(diff.steps) + MOST;
  const ends = tasks.map((task) => html`<div class="cell" key=${task.task_id}><${State} state=${task.state_text} />
    ${task.outcome && html`<p class="q">${safe(task.outcome)}</p>`}</div>`);
  const states = [diff.value_a, diff.value_b].map((value, at) => html`<div class="cell mono" key=${at}>${line(value)}</div>`);
  return html`${more && html`<${Alike} at="">The contents of later steps are not read here.<//>`}
    ${isSame ? html`<${Alike} at="End">The same: ${a.state_text}.<//>` : html`<li class="two"><span class="at">End</span>${ends}</li>`}
    ${diff.field === "extra_state" && html`<li class="two differ"><span class="at">State</span>${states}</li>`}`;
}

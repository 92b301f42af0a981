// A call in the side panel: its open request, its arguments, its result, and a fork with another result.
import { approvedWith } from "./argument_changes.js";
import { duration, line, moment, safe } from "./format.js";
import { plain } from "./fold_state.js";
import { Asked } from "./asked.js";
import { isEditable } from "./offers.js";
import { taskLink } from "./place.js";
import { Recorded } from "./records.js";
import { Back } from "./side_parts.js";
import { may, now, reports, tasks } from "./store.js";
import { dialog, isLive, past, shown, word } from "./task_state.js";
import { busyTime, waiting } from "./timeline.js";
import { Act, html, Json, Note, State } from "./ui.js";

/** How a call may be repeated and undone. @param {any} call */
function effectOf(call) {
  const words = /** @type {Record<string, string>} */ ({ read: "reads", write: "writes", idempotent: "writes, may be repeated" });
  if (!call.runs.length && call.outcome === null) return "none yet";
  if (!call.runs.length && call.outcome !== "ok") return "none: it was not run";
  return `${words[call.effect] || "not known"}${call.undo ? ", can be undone" : ""}`;
}

/** Return a text with a capital. @param {string} text */
const sentence = (text) => text[0].toUpperCase() + text.slice(1);

/** Open the dialog that changes the arguments of a call. @param {any} call */
export function editCall(call) {
  if (may("edit") && !past.value && isEditable(shown.value.state, word.value, call)) dialog.value = { name: "call", call };
}

/** @param {{id: string, call: any, row: any}} props */
export function CallDetail({ id, call, row }) {
  const { permit } = call, settled = !waiting(call), isDenied = permit?.status === "denied";
  return html`<${Asked} step=${call.step} call=${call} /><${Waits} call=${call} />
    ${isDenied && html`<${Note} tone="bad" icon="no">Denied${permit.by ? ` by ${safe(permit.by)}` : ""}${permit.reason ? `: ${safe(permit.reason)}` : ""}<//>`}
    ${permit?.previous && html`<${Note} icon="edit">${sentence(approvedWith(permit.by, permit.previous, call.arguments))}<//>`}
    <section><h3 class="cap">Arguments${call.by ? `, edited by ${safe(call.by)}` : ""}</h3>
      <${Recorded} value=${call.arguments} id=${id} seq=${answerSeq(call)} pick=${argumentsOf(call)} /></section>
    ${call.rewritten && html`<section><h3 class="cap">Arguments as ${safe(call.rewrittenBy?.join(", ") || "middleware")} changed them</h3>
      <${Recorded} value=${call.rewritten} id=${id} seq=${call.seq} pick=${(/** @type {any} */ event) => event.arguments} /></section>`}
    ${settled && call.error && !isDenied && html`<section><h3 class="cap">Error</h3>
      <${Note} tone="bad" icon="failed">${call.error.kind !== "unknown" && html`<b>${safe(call.error.kind)}</b>`} ${safe(plain(call.error.message))}<//></section>`}
    ${settled && !call.error && call.outcome && html`<section><h3 class="cap">Result${call.replaced ? ", replaced in this fork" : ""}</h3>
      <${Recorded} value=${call.output} id=${id} seq=${call.lastSeq} pick=${(/** @type {any} */ event) => event.output} /></section>`}
    <${Figures} call=${call} />
    <${Acts} call=${call} row=${row} />`;
}

/** The wait of a call for anything but a person. @param {{call: any}} props */
function Waits({ call }) {
  const waits = waiting(call);
  if (waits === "sleeps") return html`<${Note} icon="timer">It sleeps, and goes on by itself.<//>`;
  if (waits === "stopped") return html`<${Note} icon="agent">The subagent's task has stopped.<//>`;
  if (waits !== "in background") return null;
  const progress = call.ticket?.progress;
  return html`<${Note} icon="timer">Its work goes on elsewhere. The process that does it brings the result.<//>
    ${progress !== undefined && progress !== null && html`<section><h3 class="cap">Progress</h3><${Json} value=${progress} /></section>`}`;
}

/** The event of the answer that asked for a call. @param {any} call */
const answerSeq = (call) => shown.value.state.steps.get(call.step)?.sends.at(-1)?.lastSeq || call.seq;

/** @param {any} call */
const argumentsOf = (call) => (/** @type {any} */ event) =>
  event.message?.parts.find((/** @type {any} */ part) => part.id === call.id)?.arguments ?? call.arguments;

/** @param {{call: any}} props */
function Figures({ call }) {
  const { permit } = call, waits = waiting(call), { time } = shown.value.state;
  const isOpen = call.runs.at(-1)?.ended === null, until = isLive.value ? Math.max(time, now.value * 1e3) : time;
  const took = call.runs.length ? `${duration(busyTime(call.runs, until) / 1e3)}${isOpen ? " until now" : ""}` : "–";
  const child = call.child && tasks.value.get(call.child);
  return html`<dl class="kv"><dt>Took</dt><dd>${waits === "unknown" ? "not known" : took}</dd>
    ${isOpen && reports.value[call.id] !== undefined && html`<dt>Reports</dt><dd>${line(reports.value[call.id])}</dd>`}
    <dt>Effect</dt><dd>${effectOf(call)}</dd>${call.attempt > 1 && html`<dt>Attempt</dt><dd>${call.attempt}</dd>`}
    ${permit?.rule && html`<dt>Rule</dt><dd>${safe(permit.rule)}${permit.by ? `, decided by ${safe(permit.by)}` : ""}</dd>`}
    ${call.child && html`<dt>Subagent</dt><dd><a class="mono" href=${taskLink(call.child)}>${safe(call.child)}</a> ${child && html`<${State} state=${child.state_text} />`}</dd>`}
    ${call.undoes && html`<dt>Takes back</dt><dd class="mono">${safe(call.undoes)}</dd>`}
    ${call.host && html`<dt>Ran on</dt><dd>${safe(typeof call.host === "string" ? call.host : call.host.name || "")}</dd>`}
    ${call.began > 0 && html`<dt>Began</dt><dd>${moment(call.began)}</dd>`}</dl>`;
}

/** @param {{call: any, row: any}} props */
function Acts({ call, row }) {
  if (!may("edit")) return html`<${Back} row=${row} />`;
  const mayEdit = !past.value && call.permit?.status !== "asked" && isEditable(shown.value.state, word.value, call);
  return html`<div class="answer"><${Back} row=${row} />
    ${mayEdit && html`<${Act} icon="edit" label="Change the arguments" keyName="e" onClick=${() => editCall(call)} />`}
    ${call.outcome && !call.undoes && html`<${Act} icon="fork" label="Fork with another result" onClick=${() => (dialog.value = { name: "fork", replace: call })} />`}</div>`;
}

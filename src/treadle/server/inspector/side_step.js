// A step in the side panel: the thinking and the words of the model, also while it writes, and the calls of the step.
import { count, duration, line, moment, money, plural, safe } from "./format.js";
import { plain, textOf } from "./fold_state.js";
import { Asked } from "./asked.js";
import { Recorded } from "./records.js";
import { now, writing } from "./store.js";
import { isLive, select, shown } from "./task_state.js";
import { Back, CallIcon } from "./side_parts.js";
import { busyTime } from "./timeline.js";
import { html, Note } from "./ui.js";
import { NOTHING } from "./writing.js";

/** @param {{id: string, step: any, row: any}} props */
export function StepDetail({ id, step, row }) {
  const send = step.sends.at(-1), parts = send?.message?.parts || [], text = textOf(parts);
  const isWriting = isLive.value && send?.ended === null;
  return html`
    ${step.error && html`<${Note} tone="bad" icon="failed">${safe(plain(step.error.message))}<//>`}
    <${Asked} step=${step.id} />
    ${step.input.length > 0 && html`<section class="msg user"><h3 class="cap">Input</h3><p class="words">${safe(textOf(step.input))}</p></section>`}
    ${isWriting ? html`<${Live} step=${step.id} />` : html`<${Answer} thought=${thinking(parts)} text=${text} />`}
    ${step.calls.length > 0 && html`<${Calls} ids=${step.calls} />`}
    ${step.given !== undefined && step.given !== null && html`<section><h3 class="cap">Given</h3><${Recorded} value=${step.given} id=${id} seq=${step.seq} pick=${given} /></section>`}
    ${step.output !== null && step.output !== text && html`<section><h3 class="cap">Output</h3>
      <${Recorded} value=${step.output} id=${id} seq=${step.endedSeq || step.lastSeq} pick=${output} /></section>`}
    <${Figures} step=${step} send=${send} /><${Back} row=${row} />`;
}

const given = (/** @type {any} */ event) => event.given;
const output = (/** @type {any} */ event) => event.output;

/** The reasoning in a message. @param {any[]} parts */
const thinking = (parts) => parts.filter((part) => part.type === "reasoning" && part.text).map((part) => plain(part.text)).join("\n");

/** @param {{thought: string, text: string, isLive?: boolean, isLate?: boolean}} props */
function Answer({ thought, text, isLive: lives = false, isLate = false }) {
  return html`
    ${thought && html`<section class="msg"><h3 class="cap">Thinking</h3><p class="think">${safe(thought)}</p></section>`}
    ${text && html`<section class="msg assistant"><h3 class="cap">${lives ? "Writing" : "Answer"}</h3><p class="words">${isLate ? "… " : ""}${safe(text)}</p></section>`}`;
}

/** The answer that the model is writing. Only this part reads the deltas. @param {{step: string}} props */
function Live({ step }) {
  const { text, thinking: thought, calls, isLate } = writing.value[step] || NOTHING;
  return html`<${Answer} thought=${thought} text=${text} isLive isLate=${isLate} />
    ${calls.map((call, place) => call && html`<p class="callline" key=${place}>${safe(call.tool)}(<span class="qq">${safe(call.text)}</span></p>`)}
    ${!text && !thought && !calls.length && html`<p class="qq">The model has not written anything yet.</p>`}`;
}

/** @param {{step: any, send: any}} props */
function Figures({ step, send }) {
  const usage = send?.usage, until = isLive.value ? Math.max(shown.value.state.time, now.value * 1e3) : shown.value.state.time;
  return html`<dl class="kv"><dt>Model</dt><dd>${send ? safe(send.answeredBy || send.model) : "none"}</dd>
    ${usage && html`<dt>Tokens</dt><dd>${count(usage.input_tokens)} in${usage.cached_tokens ? `, ${count(usage.cached_tokens)} of them cached` : ""}, ${count(usage.output_tokens)} out</dd>
      <dt>Cost</dt><dd>${send.cost === null ? "no price known" : money(send.cost)}</dd>`}
    ${send && html`<dt>Model took</dt><dd>${duration(((send.ended ?? until) - send.began) / 1e3)}${send.ended === null ? " until now" : ""}</dd>`}
    ${step.sends.length > 1 && html`<dt>Requests</dt><dd>${count(step.sends.length)}</dd>`}
    ${step.attempt > 1 && html`<dt>Attempt</dt><dd>${step.attempt}</dd>`}
    ${step.agent && html`<dt>Agent</dt><dd>${safe(step.agent)}</dd>`}
    ${step.skippedBy && html`<dt>Skipped by</dt><dd>${safe(step.skippedBy)}</dd>`}
    ${step.after?.length > 0 && html`<dt>After</dt><dd class="mono">${safe(step.after.join(", "))}</dd>`}
    <dt>Began</dt><dd>${moment(step.began)}</dd></dl>`;
}

/** @param {{ids: string[]}} props */
function Calls({ ids }) {
  const calls = ids.map((id) => /** @type {any} */ (shown.value.state.calls.get(id))).filter((call) => call && !call.answers);
  if (!calls.length) return null;
  return html`<section><h3 class="cap">${plural(calls.length, "call")}</h3>${calls.map((call) => html`<button type="button" class="ev call-line" key=${call.id} onClick=${() => select(call.id)}>
    <${CallIcon} call=${call} /><span class="mono cut">${safe(call.name)} <span class="qq">${line(call.arguments)}</span></span>
    <span class="num q">${call.outcome && call.runs.length ? duration(busyTime(call.runs, call.ended) / 1e3) : ""}</span></button>`)}</section>`;
}

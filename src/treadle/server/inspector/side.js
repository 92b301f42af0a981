// The side panel: what the selected row is about. For a step its answer, for a call its arguments and result.
import { clock, count, duration, line, moment, money, plural, safe } from "./format.js";
import { plain, textOf } from "./fold_state.js";
import { EventList, PastRequest } from "./records.js";
import { taskLink } from "./place.js";
import { may, writing } from "./store.js";
import { current, dialog, isLive, past, rewind, select, sheet, shown, tab } from "./task_state.js";
import { busyTime, isBad, waiting } from "./timeline.js";
import { Act, Empty, html, Icon, Json, Note } from "./ui.js";

/** @type {Record<string, [string, string][]>} */
const TABS = {
  step: [["detail", "Answer"], ["request", "Request"], ["events", "Events"]],
  call: [["detail", "Call"], ["request", "Request"], ["events", "Events"]],
  fold: [["detail", "About"], ["events", "Events"]],
  note: [["detail", "About"], ["events", "Events"]],
};

/** @param {{id: string}} props */
export function Side({ id }) {
  const row = current.value, shut = sheet.value ? "" : "shut";
  if (!row) return html`<aside class=${shut} aria-label="Details"><${Empty} title="Nothing has run yet">Step runs the model once, with its calls. Run goes on until something waits.<//></aside>`;
  const tabs = TABS[row.kind], open = tabs.some(([name]) => name === tab.value) ? tab.value : "detail";
  const title = row.kind === "call" ? row.call.name : row.kind === "fold" ? "Undone" : row.kind === "note" ? "What happened" : `Step ${row.step.index}`;
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    const next = tabs[(tabs.findIndex(([name]) => name === open) + by + tabs.length) % tabs.length][0];
    tab.value = next;
    queueMicrotask(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return html`<aside class=${shut} aria-label="Details"><div class="side-h"><h2 class=${`side-t cut ${row.kind === "call" ? "mono" : ""}`}>${safe(title)}</h2><span class="qq mono">${row.kind === "note" ? `event ${row.seq}` : safe(row.key)}</span>
      <button type="button" class="btn only-s" aria-label="Close the details" onClick=${() => (sheet.value = false)}><${Icon} name="no" /></button></div>
    <div class="tabs" role="tablist" onKeyDown=${onKey}>${tabs.map(([name, label]) => html`<button type="button" role="tab" key=${name} id=${`tab-${name}`} tabindex=${open === name ? 0 : -1} aria-selected=${open === name} aria-controls="side-b" onClick=${() => (tab.value = name)}>${label}</button>`)}</div>
    <div class="side-b" id="side-b" role="tabpanel" aria-labelledby=${`tab-${open}`} tabindex="0">${open === "events" ? html`<${EventList} row=${row} />` : open === "request" ? html`<${PastRequest} id=${id} step=${row.step.id} />` : html`<${Detail} row=${row} />`}</div></aside>`;
}

/** @param {{row: any}} props */
function Detail({ row }) {
  if (row.kind === "step") return html`<${StepDetail} step=${row.step} row=${row} />`;
  if (row.kind === "call") return html`<${CallDetail} call=${row.call} />`;
  if (row.kind === "fold") return html`<${FoldDetail} group=${row.group} />`;
  const { note } = row;
  return html`<p class="words">${safe(note.text)}</p><p class="qq">${note.by ? `by ${safe(note.by)}, ` : ""}${moment(note.time)}, event ${note.seq}</p><${Back} row=${row} />`;
}

/** @param {{row: any}} props */
function Back({ row }) {
  return row.lastSeq < shown.value.state.head || past.value ? html`<${Act} label="Rewind to here" keyName="g" onClick=${rewind} />` : null;
}

/** @param {{step: any, row: any}} props */
function StepDetail({ step, row }) {
  const send = step.sends.at(-1), live = writing.value[step.id], writes = isLive.value && send?.ended === null;
  const parts = send?.message?.parts || [], text = textOf(parts);
  const thinking = parts.filter((/** @type {any} */ part) => part.type === "reasoning" && part.text).map((/** @type {any} */ part) => plain(part.text)).join("\n");
  const said = writes ? live?.text : text, thought = writes ? live?.thinking : thinking;
  return html`
    ${step.error && html`<${Note} tone="bad" icon="failed">${safe(plain(step.error.message))}<//>`}
    ${step.input.length > 0 && html`<section class="msg user"><h3 class="cap">Input</h3><p class="words">${safe(textOf(step.input))}</p></section>`}
    ${thought && html`<section class="msg"><h3 class="cap">Thinking</h3><p class="think">${safe(thought)}</p></section>`}
    ${said && html`<section class="msg assistant"><h3 class="cap">${writes ? "Writing" : "Answer"}</h3><p class="words">${safe(said)}</p></section>`}
    ${step.calls.length > 0 && html`<${Calls} ids=${step.calls} />`}
    ${step.given !== undefined && step.given !== null && html`<section><h3 class="cap">Given</h3><${Json} value=${step.given} /></section>`}
    ${step.output !== null && step.output !== text && html`<section><h3 class="cap">Output</h3><${Json} value=${step.output} /></section>`}
    <dl class="kv"><dt>Model</dt><dd>${send ? safe(send.answeredBy || send.model) : "none"}</dd>
      ${send?.usage && html`<dt>Tokens</dt><dd>${count(send.usage.input_tokens)} in${send.usage.cached_tokens ? ` (${count(send.usage.cached_tokens)} cached)` : ""}, ${count(send.usage.output_tokens)} out</dd><dt>Cost</dt><dd>${send.cost === null ? "no price known" : money(send.cost)}</dd>`}
      ${send && html`<dt>Model took</dt><dd>${send.ended === null ? "still writing" : duration((send.ended - send.began) / 1e3)}</dd>`}
      ${step.sends.length > 1 && html`<dt>Requests</dt><dd>${count(step.sends.length)}</dd>`}
      ${step.agent && html`<dt>Agent</dt><dd>${safe(step.agent)}</dd>`}
      ${step.after?.length > 0 && html`<dt>After</dt><dd class="mono">${safe(step.after.join(", "))}</dd>`}
      <dt>Began</dt><dd>${moment(step.began)}</dd></dl>
    <${Back} row=${row} />`;
}

/** @param {{ids: string[]}} props */
function Calls({ ids }) {
  const calls = ids.map((id) => /** @type {any} */ (shown.value.state.calls.get(id))).filter((call) => call && !call.answers);
  if (!calls.length) return null;
  return html`<section><h3 class="cap">${plural(calls.length, "call")}</h3>${calls.map((call) => html`<button type="button" class="ev call-line" key=${call.id} onClick=${() => select(call.id)}><${CallIcon} call=${call} /><span class="mono cut">${safe(call.name)} <span class="qq">${line(call.arguments)}</span></span><span class="num q">${call.outcome && call.runs.length ? duration(busyTime(call.runs, call.ended) / 1e3) : ""}</span></button>`)}</section>`;
}

/** @param {{call: any}} props */
function CallIcon({ call }) {
  const waits = waiting(call);
  const [name, tone] = waits === "unknown" ? ["unknown", "odd"] : waits ? ["ask", "wait"] : isBad(call) ? ["failed", "bad"] : call.outcome ? ["done", "ok"] : ["play", "run"];
  return html`<${Icon} name=${name} tone=${tone} />`;
}

/** How a call may be repeated and undone. @param {any} call */
function effectOf(call) {
  const words = /** @type {Record<string, string>} */ ({ read: "reads", write: "writes", idempotent: "writes, may be repeated" });
  return `${words[call.effect] || "not known yet"}${call.undo ? ", can be undone" : ""}`;
}

/** @param {{call: any}} props */
function CallDetail({ call }) {
  const waits = waiting(call), permit = call.permit;
  return html`
    ${waits === "unknown" && html`<${Note} tone="odd" icon="unknown">It began, and its process ended before the outcome was recorded. Look it up where it would show, then say what happened. <a href="#/inbox">Settle</a><//>`}
    ${(waits === "asks" || waits === "needs approval") && html`<${Note} tone="wait" icon="ask">It waits for a person. <a href="#/inbox">Answer</a><//>`}
    ${permit?.status === "denied" && html`<${Note} icon="no">Denied${permit.by ? ` by ${safe(permit.by)}` : ""}${permit.reason ? `: ${safe(permit.reason)}` : ""}<//>`}
    <section><h3 class="cap">Arguments${call.by ? `, edited by ${safe(call.by)}` : ""}</h3><${Json} value=${call.arguments} /></section>
    ${call.rewritten && html`<section><h3 class="cap">Arguments as ${safe(call.rewrittenBy?.join(", ") || "middleware")} changed them</h3><${Json} value=${call.rewritten} /></section>`}
    ${!waits && call.error && html`<section><h3 class="cap">Error</h3><${Note} tone="bad" icon="failed"><b>${safe(call.error.kind)}</b> ${safe(plain(call.error.message))}<//></section>`}
    ${!waits && !call.error && call.outcome && html`<section><h3 class="cap">Result${call.replaced ? ", replaced in this fork" : ""}</h3><${Json} value=${call.output} /></section>`}
    <dl class="kv"><dt>Took</dt><dd>${waits === "unknown" ? "not known" : call.runs.length ? duration(busyTime(call.runs, shown.value.state.time) / 1e3) : "–"}</dd>
      <dt>Effect</dt><dd>${effectOf(call)}</dd>${call.attempt > 1 && html`<dt>Attempt</dt><dd>${call.attempt}</dd>`}
      ${permit?.rule && html`<dt>Rule</dt><dd>${safe(permit.rule)}${permit.by ? `, decided by ${safe(permit.by)}` : ""}</dd>`}
      ${call.child && html`<dt>Subagent</dt><dd><a class="mono" href=${taskLink(call.child)}>${safe(call.child)}</a></dd>`}
      ${call.undoes && html`<dt>Takes back</dt><dd class="mono">${safe(call.undoes)}</dd>`}
      ${call.began > 0 && html`<dt>Began</dt><dd>${moment(call.began)}</dd>`}</dl>
    <div class="answer">${call.outcome && !call.undoes && may("edit") && html`<${Act} icon="fork" label="Fork with another result" onClick=${() => (dialog.value = { replace: call })} />`}</div>`;
}

/** @param {{group: any}} props */
function FoldDetail({ group }) {
  return html`<p>${plural(group.steps.length, "step")} after step ${group.to} ${group.steps.length === 1 ? "was" : "were"} taken back${group.by ? ` by ${safe(group.by)}` : ""}. Nothing was deleted: what follows is branch ${group.branch}.</p>
    ${group.calls.length > 0 && html`<${Verdicts} calls=${group.calls} planned=${false} />`}
    <p class="qq">${clock(group.time)}, event ${group.seq}</p>`;
}

/** What an undo does to each call. @param {{calls: any[], planned: boolean}} props */
export function Verdicts({ calls, planned }) {
  const would = /** @type {Record<string, string>} */ ({ compensated: "would be compensated", not_compensated: "would stay", nothing_to_compensate: "changed nothing" });
  return html`<div class="args">${calls.map((call) => html`<div key=${call.call}><span class="mono cut">${safe(call.tool)}</span><${Verdict} verdict=${call.verdict} text=${(planned && would[call.verdict]) || call.verdict.replaceAll("_", " ")} why=${call.why} /></div>`)}</div>`;
}

/** @param {any} props */
function Verdict({ verdict, text, why }) {
  const good = verdict === "compensated" || verdict === "nothing_to_compensate";
  return html`<span class=${`st wrap ${good ? "c-ok" : verdict === "unknown" ? "c-odd" : "c-wait"}`}><${Icon} name=${good ? "done" : verdict === "unknown" ? "unknown" : "degraded"} />${text}${why ? `: ${safe(why)}` : ""}</span>`;
}

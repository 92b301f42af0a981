// Records: the request that a model saw, message by message, and whole events.
import { useEffect, useState } from "preact/hooks";
import { call, taskPath } from "./api.js";
import { count, line, plural, safe } from "./format.js";
import { plain } from "./fold_state.js";
import { shown } from "./task_state.js";
import { Act, html, Json, Note } from "./ui.js";

/** Answers of the server that never change, by their paths. @type {Map<string, any>} */
const read = new Map();

/** Read an unchanging resource once. @param {string} path */
async function readOnce(path) {
  if (!read.has(path)) read.set(path, await call(path));
  return read.get(path);
}

/** Read an event whole: pages and streams cut long texts. @param {string} id @param {number} seq */
export const wholeEvent = (id, seq) => readOnce(`${taskPath(id)}/events/${seq}`);

/**
 * A recorded value as JSON. If the stream has cut it, it is read whole on demand.
 * @param {{value: any, id: string, seq: number, pick: (event: any) => any}} props  `pick` finds it in its event
 */
export function Recorded({ value, id, seq, pick }) {
  const [whole, setWhole] = useState(/** @type {any} */ (undefined));
  const isCut = whole === undefined && JSON.stringify(value ?? null).includes('"$cut"');
  const show = () => wholeEvent(id, seq).then((event) => setWhole(pick(event) ?? null), () => {});
  return html`<${Json} value=${whole === undefined ? value : whole} />
    ${isCut && html`<button type="button" class="link" onClick=${show}>Show all of it</button>`}`;
}

/** Return the requests of a step, the newest of each call of a step function. @param {any} step @returns {any[]} */
function requestsOf(step) {
  const newest = new Map((step?.sends || []).map((/** @type {any} */ send) => [send.call, send]));
  return [...newest.values()];
}

/** The requests of a step as the model saw them. @param {{id: string, step: string}} props */
export function Messages({ id, step }) {
  const requests = requestsOf(shown.value.state.steps.get(step)), [chosen, choose] = useState("");
  if (!requests.length) return html`<p class="qq">No model was asked.</p>`;
  const send = requests.find((each) => each.call === chosen) || requests[0];
  return html`
    ${requests.length > 1 && html`<select class="field" aria-label="Request" value=${send.call} onChange=${(/** @type {any} */ change) => choose(change.target.value)}>
      ${requests.map((each, place) => html`<option key=${each.call} value=${each.call}>request ${place + 1}, ${safe(each.model)}</option>`)}</select>`}
    <${PastRequest} key=${`${step}/${send.call}`} id=${id} step=${step} send=${send} />`;
}

/** @param {{id: string, step: string, send: any}} props */
function PastRequest({ id, step, send }) {
  const path = `${taskPath(id)}/steps/${encodeURIComponent(step)}/request${send.call ? `?call=${encodeURIComponent(send.call)}` : ""}`;
  const key = `${path}#${send.seq}`, [got, set] = useState(/** @type {any} */ (read.get(key)));
  useEffect(() => {
    let isOpen = true;
    set(read.get(key));
    if (!read.has(key))
      call(path).then(
        (request) => {
          read.set(key, request);
          if (isOpen) set(request);
        },
        (error) => isOpen && set({ refused: error.message }),
      );
    return () => void (isOpen = false);
  }, [key]);
  if (!got) return html`<p class="qq" role="status">Reading…</p>`;
  if (got.refused) return html`<${Note} icon="no">${safe(got.refused)}<//>`;
  return html`<p class="qq">${got.exact ? "Exactly" : "About"} what ${safe(got.model)} saw, attempt ${got.attempt}:${" "}
      ${plural(got.messages.length, "message")}, ${plural(got.tools.length, "tool")}.</p>
    <${Folded} got=${got} /><${Conversation} messages=${got.messages} />
    ${send.message && html`<h3 class="cap">Then it answered</h3><${Message} message=${send.message} />`}`;
}

/** Instructions, tools and settings, folded. @param {{got: any}} props */
function Folded({ got }) {
  const { instructions, tools, settings, output_schema: schema } = got;
  const set = Object.fromEntries(Object.entries(settings || {}).filter(([, value]) => value !== null));
  return html`
    ${instructions && html`<details class="msg"><summary class="q">Instructions, ${count(instructions.length)} characters</summary>
      <${Framed} text=${instructions} /></details>`}
    ${tools.length > 0 && html`<details class="msg"><summary class="q">${plural(tools.length, "tool")}:${" "}
      ${tools.map((/** @type {any} */ tool) => safe(tool.name)).join(", ")}</summary>
      ${tools.map((/** @type {any} */ tool) => html`<${Offered} key=${tool.name} tool=${tool} />`)}</details>`}
    ${(Object.keys(set).length > 0 || schema) && html`<details class="msg"><summary class="q">Settings</summary>
      ${Object.keys(set).length > 0 && html`<${Json} value=${set} />`}${schema && html`<h3 class="cap">Schema of the answer</h3><${Json} value=${schema} />`}</details>`}`;
}

/** @param {{tool: any}} props */
function Offered({ tool }) {
  return html`<section><h3 class="mono">${safe(tool.name)}</h3><p class="q">${safe(tool.description)}</p>
    ${tool.parameters && html`<${Json} value=${tool.parameters} />`}</section>`;
}

/** How many messages a long conversation shows at first. */
const LAST = 40;

/** Messages, the newest ones first in the page if there are many. @param {{messages: any[]}} props */
export function Conversation({ messages }) {
  const [isWhole, setWhole] = useState(false), hidden = isWhole ? 0 : Math.max(0, messages.length - LAST);
  return html`${hidden > 0 && html`<${Act} label=${`Show ${plural(hidden, "earlier message")}`} onClick=${() => setWhole(true)} />`}
    ${messages.slice(hidden).map((message, place) => html`<${Message} key=${hidden + place} message=${message} />`)}`;
}

/** A message as the model saw it. @param {{message: any}} props */
export function Message({ message }) {
  return html`<section class=${`msg ${message.role}`}><h3 class="cap">${message.role}</h3>
    ${message.parts.map((/** @type {any} */ part, /** @type {number} */ place) => html`<${Part} key=${place} part=${part} />`)}</section>`;
}

/** @param {{part: any}} props */
function Part({ part }) {
  if (part.type === "text") return html`<${Framed} text=${plain(part.text)} />`;
  if (part.type === "reasoning") return part.text ? html`<p class="think">${safe(plain(part.text))}</p>` : null;
  if (part.type === "tool_call") return html`<p class="callline">${safe(part.name)}(<span class="qq">${line(part.arguments)}</span>)</p>`;
  if (part.type === "tool_result")
    return html`<p class="callline"><span class=${part.is_error ? "st c-bad" : "qq"}>${safe(part.name)} →</span></p>
      <div class="result">${(part.parts || []).map((/** @type {any} */ each, /** @type {number} */ place) => html`<${Part} key=${place} part=${each} />`)}</div>`;
  return html`<span class="tag">${safe(part.type)}${part.name ? ` ${safe(part.name)}` : ""}${part.media_type ? ` ${safe(part.media_type)}` : ""}</span>`;
}

const FRAME = /<untrusted-([\w]+) origin="([^"]*)"[^>]*>\n([\s\S]*?)\n<\/untrusted-\1>/g;

/** Text, with frames around untrusted content as a tag with its origin. @param {{text: string}} props */
export function Framed({ text }) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(FRAME)) {
    if (found.index > from) parts.push(html`<p class="words">${safe(text.slice(from, found.index).trim())}</p>`);
    parts.push(html`<div class="framed"><span class="tag">untrusted, ${safe(found[2])}</span><p class="words">${safe(found[3])}</p></div>`);
    from = found.index + found[0].length;
  }
  const rest = text.slice(from).trim();
  return html`${parts}${rest && html`<p class="words">${safe(rest)}</p>`}`;
}

// What was recorded: the request that a model saw, and the events of the journal.
import { useEffect, useState } from "preact/hooks";
import { call, taskPath } from "./api.js";
import { clock, count, line, plural, safe } from "./format.js";
import { plain } from "./fold_state.js";
import { opened } from "./store.js";
import { at, look, shown } from "./task_state.js";
import { html, Json, Note } from "./ui.js";

/** Requests that were read before; they never change once they have an answer. @type {Map<string, any>} */
const read = new Map();

/** @param {{id: string, step: string}} props */
export function PastRequest({ id, step }) {
  const sends = shown.value.state.steps.get(step)?.sends || [], key = `${id}/${step}/${sends.at(-1)?.seq}`;
  const [got, set] = useState(/** @type {any} */ (read.get(key)));
  useEffect(() => {
    let open = true;
    set(read.get(key));
    if (!read.has(key) && sends.length)
      call(`${taskPath(id)}/steps/${encodeURIComponent(step)}/request`).then(
        (request) => {
          read.set(key, request);
          if (open) set(request);
        },
        (error) => open && set({ refused: error.message }),
      );
    return () => void (open = false);
  }, [key]);
  if (!sends.length) return html`<p class="qq">No model was asked.</p>`;
  if (!got) return html`<p class="qq">Reading…</p>`;
  if (got.refused) return html`<${Note} icon="no">${safe(got.refused)}<//>`;
  return html`<p class="qq">${got.exact ? "Exactly" : "About"} what ${safe(got.model)} saw, attempt ${got.attempt}: ${plural(got.messages.length, "message")}, ${plural(got.tools.length, "tool")}.</p>
    ${got.instructions && html`<details class="msg"><summary class="q">Instructions, ${count(got.instructions.length)} characters</summary><p class="words">${safe(got.instructions)}</p></details>`}
    ${got.messages.map((/** @type {any} */ message, /** @type {number} */ place) => html`<${Message} key=${place} message=${message} />`)}
    ${got.tools.length > 0 && html`<details><summary class="q">${plural(got.tools.length, "tool")}: ${safe(got.tools.map((/** @type {any} */ tool) => tool.name).join(", "))}</summary>${got.tools.map((/** @type {any} */ tool) => html`<section key=${tool.name}><h3 class="mono">${safe(tool.name)}</h3><p class="q">${safe(tool.description)}</p>${tool.parameters && html`<${Json} value=${tool.parameters} />`}</section>`)}</details>`}`;
}

/** A message as the model saw it. @param {{message: any}} props */
export function Message({ message }) {
  return html`<section class=${`msg ${message.role}`}><h3 class="cap">${message.role}</h3>${message.parts.map((/** @type {any} */ part, /** @type {number} */ place) => html`<${Part} key=${place} part=${part} />`)}</section>`;
}

/** @param {{part: any}} props */
function Part({ part }) {
  if (part.type === "text") return html`<${Framed} text=${plain(part.text)} />`;
  if (part.type === "reasoning") return html`<p class="think">${safe(plain(part.text))}</p>`;
  if (part.type === "tool_call") return html`<p class="callline">${safe(part.name)}(<span class="qq">${line(part.arguments)}</span>)</p>`;
  if (part.type === "tool_result")
    return html`<p class="callline"><span class=${part.is_error ? "st c-bad" : "qq"}>${safe(part.name)} → </span></p><div class="result">${(part.parts || []).map((/** @type {any} */ each, /** @type {number} */ place) => html`<${Part} key=${place} part=${each} />`)}</div>`;
  return html`<span class="tag">${safe(part.type)}${part.name ? ` ${safe(part.name)}` : ""}${part.media_type ? ` ${safe(part.media_type)}` : ""}</span>`;
}

const FRAME = /<untrusted-([\w]+) origin="([^"]*)"[^>]*>\n([\s\S]*?)\n<\/untrusted-\1>/g;

/** Text, with frames around untrusted content as a tag with its origin. @param {{text: string}} props */
function Framed({ text }) {
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

const SHOWN = 300;

/** Events of a row, or of the whole task. @param {{row: any}} props */
export function EventList({ row }) {
  const [all, setAll] = useState(false), [raw, setRaw] = useState(0), [kind, setKind] = useState("");
  const { journal } = opened.value, here = at.value ?? Infinity, step = row.step?.id;
  const isOwn = (/** @type {any} */ event) =>
    row.kind === "step" ? event.step === step : row.kind === "call" ? event.call === row.call.id || (event.undoes && event.call === row.call.id) : event.seq === row.seq;
  const own = journal.events.filter((event) => (all || isOwn(event)) && event.kind.includes(kind.trim().replaceAll(" ", "_")));
  const list = own.slice(0, SHOWN);
  return html`<div class="row"><label class="q"><input type="checkbox" checked=${all} onChange=${(/** @type {any} */ change) => setAll(change.target.checked)} /> all events of the task</label>${all && html`<input class="field" type="search" aria-label="Kind" placeholder="Kind" value=${kind} onInput=${(/** @type {any} */ change) => setKind(change.target.value)} />`}</div>
    <div>${list.map((event) => html`<div key=${event.seq}><button type="button" class=${`ev ${event.seq === at.value ? "on" : ""} ${event.seq > here ? "later" : ""}`} aria-expanded=${raw === event.seq} onClick=${() => setRaw(raw === event.seq ? 0 : event.seq)}><span class="num qq">${event.seq}</span><span class="mono qq">${clock(event.time).slice(3)}</span><span class="cut">${safe(event.description)}</span></button>
      ${raw === event.seq && html`<div class="raw"><button type="button" class="link" onClick=${() => look(event.seq)}>Rewind to here</button><${Json} value=${event} /></div>`}</div>`)}</div>
    ${own.length > SHOWN && html`<p class="qq">${count(own.length - SHOWN)} more. Narrow them by a kind, or select a step.</p>`}`;
}

// The events of a task as the journal has them: by kind, for one row or for all, each with its raw JSON.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { clock, count, plural, safe } from "./format.js";
import { wholeEvent } from "./records.js";
import { opened } from "./store.js";
import { at, look } from "./task_state.js";
import { Act, html } from "./ui.js";
import { useWindow } from "./windowed.js";

/** The kind that the list shows; "" shows all. */
const kind = signal("");
/** Whether the list shows the events of the whole task. */
const isWhole = signal(false);
/** The event whose JSON is shown; 0 is none. */
const chosen = signal(0);

/** Whether an event is of a row of the timeline. @param {any} row @param {any} event */
function isOf(row, event) {
  if (row.kind === "step") return event.step === row.step.id;
  if (row.kind === "call") return event.call === row.call.id;
  return event.seq === row.seq;
}

/** @param {{row: any}} props */
export function EventsTab({ row }) {
  const { id, journal } = opened.value, whole = isWhole.value;
  const ofRow = whole ? journal.events : journal.events.filter((event) => isOf(row, event));
  /** @type {Map<string, number>} */
  const kinds = new Map();
  for (const event of ofRow) kinds.set(event.kind, (kinds.get(event.kind) || 0) + 1);
  const shown = kinds.has(kind.value) ? kind.value : "";
  const list = shown ? ofRow.filter((event) => event.kind === shown) : ofRow;
  const open = list.find((event) => event.seq === chosen.value);
  const pick = (/** @type {any} */ change) => (kind.value = change.target.value);
  const widen = (/** @type {any} */ change) => (isWhole.value = change.target.checked);
  return html`<div class="ev-tab">
    <div class="row"><select class="field" aria-label="Kind" value=${shown} onChange=${pick}>
        <option value="">all ${plural(ofRow.length, "event")}</option>
        ${[...kinds].sort().map(([name, number]) => html`<option key=${name} value=${name}>${name.replaceAll("_", " ")}, ${count(number)}</option>`)}
      </select><label class="check"><input type="checkbox" checked=${whole} onChange=${widen} /> whole task</label></div>
    <${List} list=${list} />
    ${open ? html`<${Raw} key=${`${id}/${open.seq}`} id=${id} event=${open} />` : html`<p class="qq">Choose an event to read it as JSON.</p>`}
  </div>`;
}

const rowHeight = () => (innerWidth < 760 ? 32 : 24);
const MOVES = /** @type {Record<string, number>} */ ({
  ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity,
});

/** @param {{list: any[]}} props */
function List({ list }) {
  const height = rowHeight(), { box, first, last, measure, reveal } = useWindow(height, list.length);
  const place = list.findIndex((event) => event.seq === chosen.value);
  useEffect(() => reveal(place), [chosen.value]); // the JSON below it takes room from the list
  const choose = (/** @type {number} */ next) => {
    const to = Math.max(0, Math.min(list.length - 1, next));
    if (!list[to]) return;
    chosen.value = list[to].seq;
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const by = MOVES[event.key];
    if (by) choose(place < 0 && Math.abs(by) < 11 ? (by > 0 ? 0 : list.length - 1) : place + by);
    else if (event.key === "g" && place >= 0) look(chosen.value);
    else return;
    event.preventDefault();
  };
  return html`<div class="ev-list" ref=${box} onScroll=${measure} onKeyDown=${onKey} tabindex="0" role="listbox" aria-label="Events"
    aria-activedescendant=${place < 0 ? undefined : `ev-${chosen.value}`}>
    <div role="presentation" style=${{ height: `${list.length * height}px` }}></div>
    ${list.slice(first, last).map((event, offset) => html`<${Line} key=${event.seq} event=${event} place=${first + offset} size=${list.length}
      height=${height} onClick=${() => choose(first + offset)} />`)}</div>`;
}

/** @param {any} props */
function Line({ event, place, size, height, onClick }) {
  const here = at.value, time = here !== null && event.seq > here ? "later" : event.seq === here ? "on" : "";
  return html`<div class=${`ev ${time}`} id=${`ev-${event.seq}`} role="option" aria-selected=${chosen.value === event.seq} aria-posinset=${place + 1}
    aria-setsize=${size} style=${{ top: `${place * height}px` }} onClick=${onClick}><span class="num qq">${event.seq}</span>
    <span class="mono qq">${clock(event.time).slice(3)}</span><span class="cut">${safe(event.description)}</span></div>`;
}

/** An event as JSON, whole also if the stream has cut it. @param {{id: string, event: any}} props */
function Raw({ id, event }) {
  const [whole, setWhole] = useState(/** @type {any} */ (null)), text = JSON.stringify(whole || event, null, 2);
  const isCut = !whole && text.includes('"$cut"');
  const read = () => wholeEvent(id, event.seq).then(setWhole, () => {});
  return html`<section class="ev-raw"><div class="row"><h3 class="cap fill">event ${event.seq}, ${event.kind.replaceAll("_", " ")}</h3>
      ${isCut && html`<${Act} label="Read it whole" onClick=${read} />`}
      <${Act} label="Rewind to here" onClick=${() => look(event.seq)} /></div>
    <pre class="box" tabindex="0" aria-label="JSON">${safe(text)}</pre></section>`;
}

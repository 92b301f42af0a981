// The side panel: the step or call of the selected row, the messages that its model saw, and its events.
import { useEffect, useRef } from "preact/hooks";
import { EventsTab } from "./events_tab.js";
import { clock, moment, plural, safe } from "./format.js";
import { Messages } from "./records.js";
import { CallDetail } from "./side_call.js";
import { Back, Verdicts } from "./side_parts.js";
import { StepDetail } from "./side_step.js";
import { current, held, openTab, sheet, tab } from "./task_state.js";
import { Empty, html, Icon } from "./ui.js";

/** @type {Record<string, [string, string][]>} */
const TABS = {
  step: [["detail", "Answer"], ["messages", "Messages"], ["events", "Events"]],
  call: [["detail", "Call"], ["messages", "Messages"], ["events", "Events"]],
  fold: [["detail", "About"], ["events", "Events"]],
  note: [["detail", "About"], ["events", "Events"]],
};

/** The title of a row. @param {any} row */
function titleOf(row) {
  if (row.kind === "call") return row.call.name;
  if (row.kind === "fold") return "Undone";
  return row.kind === "note" ? "What happened" : `Step ${row.step.index}`;
}

/** Go to the side panel from the timeline, and back. */
export function enterSide() {
  sheet.value = true;
  requestAnimationFrame(() => document.getElementById("side-b")?.focus());
}

/** Close the panel, and give the focus back to the timeline. */
export function leaveSide() {
  const isInside = document.activeElement?.closest("aside");
  sheet.value = false;
  if (isInside) document.querySelector(/** @type {"div"} */ (".rows"))?.focus();
}

// A running call changes often: nothing changes under the pointer or the focus.
const hold = () => void (held.value ||= current.value?.key || "");

/** @param {any} left  an event: the pointer or the focus left the panel */
function release({ type, currentTarget: panel, relatedTarget: to }) {
  const stays = type === "focusout" ? panel.contains(to) || panel.matches(":hover") : panel.contains(document.activeElement);
  if (!stays) held.value = "";
}

/** @param {{id: string}} props */
export function Side({ id }) {
  const row = current.value, shut = sheet.value ? "" : "shut", body = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => void body.current?.scrollTo(0, 0), [row?.key, tab.value]);
  if (!row) return html`<aside class=${shut} aria-label="Details"><${Empty} title="Nothing has run yet">Step runs the model once, with its calls.
    Run goes on until something waits.<//></aside>`;
  const tabs = TABS[row.kind], open = tabs.some(([name]) => name === tab.value) ? tab.value : "detail";
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    const next = tabs[(tabs.findIndex(([name]) => name === open) + by + tabs.length) % tabs.length][0];
    openTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  const holds = { onPointerEnter: hold, onPointerLeave: release, onFocusIn: hold, onFocusOut: release };
  return html`<aside class=${shut} aria-label="Details" ...${holds}>
    <div class="side-h"><h2 class=${`side-t cut ${row.kind === "call" ? "mono" : ""}`}>${safe(titleOf(row))}</h2>
      <span class="qq mono cut">${row.kind === "note" ? `event ${row.seq}` : safe(row.key)}</span>
      <button type="button" class="btn only-s" aria-label="Close the details" onClick=${leaveSide}><${Icon} name="no" /></button></div>
    <div class="tabs" role="tablist" onKeyDown=${onKey}>${tabs.map(([name, label]) => html`<button type="button" role="tab" key=${name} id=${`tab-${name}`}
      tabindex=${open === name ? 0 : -1} aria-selected=${open === name} aria-controls="side-b" onClick=${() => openTab(name)}>${label}</button>`)}</div>
    <div class=${`side-b ${open}`} id="side-b" ref=${body} role="tabpanel" aria-labelledby=${`tab-${open}`} tabindex="0">
      ${open === "events" ? html`<${EventsTab} row=${row} />`
        : open === "messages" ? html`<${Messages} key=${row.step.id} id=${id} step=${row.step.id} />` : html`<${Detail} key=${row.key} id=${id} row=${row} />`}
    </div></aside>`;
}

/** @param {{id: string, row: any}} props */
function Detail({ id, row }) {
  if (row.kind === "step") return html`<${StepDetail} id=${id} step=${row.step} row=${row} />`;
  if (row.kind === "call") return html`<${CallDetail} id=${id} call=${row.call} row=${row} />`;
  if (row.kind === "fold") return html`<${FoldDetail} group=${row.group} />`;
  const { note } = row;
  return html`<p class="words">${safe(note.text)}</p>
    <p class="qq">${note.by ? `by ${safe(note.by)}, ` : ""}${moment(note.time)}, event ${note.seq}</p><${Back} row=${row} />`;
}

/** @param {{group: any}} props */
function FoldDetail({ group }) {
  return html`<p>${plural(group.steps.length, "step")} after step ${group.to} ${group.steps.length === 1 ? "was" : "were"} taken back${group.by ? ` by ${safe(group.by)}` : ""}.
      Nothing was deleted: what follows is branch ${group.branch}.</p>
    ${group.calls.length > 0 && html`<${Verdicts} calls=${group.calls} planned=${false} />`}
    <p class="qq">${clock(group.time)}, event ${group.seq}</p>`;
}

// Several tasks at once: their marks, and dialogs that tell the effect of a cancellation or a deletion before it happens.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { command, Refused, remove, taskPath } from "./api.js";
import { count, plural, safe } from "./format.js";
import { say, tasks } from "./store.js";
import { html, Note, State } from "./ui.js";

/** The ids of the marked tasks. @type {import("@preact/signals").Signal<Set<string>>} */
export const marked = signal(new Set());
/** Whether a tap marks a task instead of opening it. */
export const marking = signal(false);
/** The open dialog: the action and its tasks. */
export const asked = signal(/** @type {{verb: "cancel" | "delete", ids: string[]} | null} */ (null));

/** Mark a task, or take the mark away. @param {string} id @param {boolean} [on] */
export function mark(id, on = !marked.value.has(id)) {
  const next = new Set(marked.value);
  if (on) next.add(id);
  else next.delete(id);
  marked.value = next;
}

/** Take all marks away. */
export function clearMarks() {
  marked.value = new Set();
  marking.value = false;
}

/** Ask before tasks are cancelled or deleted. @param {"cancel" | "delete"} verb @param {string[]} ids */
export const ask = (verb, ids) => void (ids.length && (asked.value = { verb, ids }));

const ENDED = ["completed", "degraded", "failed", "cancelled"];
const SHOWN = 6;
const AT_ONCE = 4;

/** Carry out a verb for tasks, some at a time. Return those that were refused, with the reason. @param {string[]} ids @param {(id: string) => Promise<any>} verb */
async function forAll(ids, verb) {
  const left = [...ids], refused = /** @type {[string, string][]} */ ([]);
  const work = async () => {
    for (let id = left.shift(); id !== undefined; id = left.shift()) {
      try {
        await verb(id);
      } catch (error) {
        const isGone = error instanceof Refused && error.status === 404; // it went with its parent
        if (!isGone) refused.push([id, /** @type {Error} */ (error).message]);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return refused;
}

const verbs = {
  cancel: (/** @type {string} */ id, /** @type {string} */ reason) => command(`${taskPath(id)}/cancel`, reason ? { reason } : {}, { Prefer: "wait=10" }),
  delete: async (/** @type {string} */ id) => {
    await remove(taskPath(id));
    const rows = new Map(tasks.value);
    rows.delete(id);
    tasks.value = rows;
  },
};

const shut = () => void (asked.value = null);

export function BulkDialog() {
  const open = asked.value, box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (open && !box.current?.open) box.current?.showModal();
  }, [open]);
  if (!open) return null;
  return html`<dialog ref=${box} aria-labelledby="bulk-t" onClose=${shut} onClick=${(/** @type {any} */ event) => event.target === box.current && shut()}><${Ask} ...${open} /></dialog>`;
}

/** @param {{verb: "cancel" | "delete", ids: string[]}} props */
function Ask({ verb, ids }) {
  const [reason, setReason] = useState(""), [busy, setBusy] = useState(false);
  const rows = ids.map((id) => tasks.value.get(id)).filter(Boolean), isCancel = verb === "cancel";
  const ended = rows.filter((task) => ENDED.includes(task.state) && !task.driven).length, driven = rows.filter((task) => task.driven).length;
  const them = ids.length === 1 ? "it" : "them", title = `${isCancel ? "Cancel" : "Delete"} ${plural(ids.length, "task")}`;
  const act = async () => {
    setBusy(true);
    const refused = await forAll(ids, (id) => verbs[verb](id, reason)), done = ids.length - refused.length;
    const past = isCancel ? "cancelled" : "deleted";
    if (refused.length) say(`${done ? `${plural(done, "task")} ${past}. ` : ""}${plural(refused.length, "task")} not ${past}: ${refused[0][1]}`, true);
    else say(`${plural(done, "task")} ${past}.`);
    marked.value = new Set(refused.map(([id]) => id));
    shut();
  };
  return html`<h2 class="dialog-t" id="bulk-t">${title}</h2>
    <p class="q">${isCancel ? `This ends ${them} for good, with the tasks below. Calls that run are stopped. What has been done stays done: nothing is compensated. The journals stay.`
      : `This deletes ${them} with the tasks below: journals, results and artifacts. Nothing brings them back. Messages stay in their threads, and forks keep what they share.`}</p>
    <div class="bulk-list">${rows.slice(0, SHOWN).map((task) => html`<div class="row" key=${task.task_id}><${State} state=${task.state_text} /><span class="cut">${safe(task.input || task.task_id)}</span></div>`)}
      ${ids.length > SHOWN && html`<p class="qq">and ${count(ids.length - SHOWN)} more</p>`}</div>
    ${isCancel && ended > 0 && html`<${Note} icon="done">${ended === ids.length ? "All of them have ended already: nothing changes." : `${plural(ended, "task")} of them ended already, and ${ended === 1 ? "stays as it is" : "stay as they are"}.`}<//>`}
    ${!isCancel && driven > 0 && html`<${Note} tone="wait" icon="degraded">${plural(driven, "task")} of them ${driven === 1 ? "runs" : "run"} now. The server refuses to delete ${driven === 1 ? "it" : "them"}: cancel first.<//>`}
    ${isCancel && html`<label><span class="cap">Reason, for the record</span><input class="field" value=${reason} onInput=${(/** @type {any} */ change) => setReason(change.target.value)} /></label>`}
    <div class="answer"><button type="button" class="btn main ${isCancel ? "" : "c-bad"}" autofocus=${isCancel} disabled=${busy} onClick=${act}>${title}</button><button type="button" class="btn" autofocus=${!isCancel} onClick=${shut}>Leave ${them}</button></div>`;
}

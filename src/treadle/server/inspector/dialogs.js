// Dialogs: an undo with its preview, a fork, and the list of keys. They say what an act means before it is done.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, taskPath } from "./api.js";
import { plural, safe } from "./format.js";
import { KEYS } from "./keys.js";
import { go, taskLink } from "./place.js";
import { Verdicts } from "./side.js";
import { act, me, opened } from "./store.js";
import { at, dialog } from "./task_state.js";
import { Act, html, Note } from "./ui.js";

const shut = () => void (dialog.value = null);

export function Dialog() {
  const asked = dialog.value, box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (asked && !box.current?.open) box.current?.showModal();
  }, [asked]);
  if (!asked) return null;
  const inside = asked === "keys" ? html`<${Keys} />` : asked === "undo" ? html`<${Undo} />` : html`<${Fork} replaced=${typeof asked === "object" ? asked.replace : null} />`;
  return html`<dialog ref=${box} aria-labelledby="dialog-t" onClose=${shut} onClick=${(/** @type {any} */ event) => event.target === box.current && shut()}>${inside}</dialog>`;
}

function Keys() {
  return html`<h2 class="dialog-t" id="dialog-t">Keys</h2><dl class="keys">${KEYS.map(([keys, what]) => html`<dt key=${what}>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd>`)}</dl>`;
}

function Undo() {
  const { id, journal } = opened.value, [plan, setPlan] = useState(/** @type {any} */ (null));
  const head = journal.head;
  useEffect(() => {
    call(`${taskPath(id)}/undo`, { dry_run: true }).then(setPlan, (error) => setPlan({ refused: error.message, steps: [], calls: [] }));
  }, [id]);
  const undo = () => {
    void act(id, "undo", {}, "The step is undone.", { head, wait: 10 });
    shut();
  };
  const leaves = plan?.calls.some((/** @type {any} */ each) => each.verdict === "not_compensated" || each.verdict === "unknown");
  return html`<h2 class="dialog-t" id="dialog-t">Undo the last step</h2>
    ${!plan && html`<p class="qq">Looking what it would take back…</p>`}
    ${plan?.refused && html`<${Note} icon="no">${safe(plan.refused)}<//>`}
    ${plan && !plan.refused && html`<p class="q">${plan.steps.length ? `Takes back ${plan.steps.join(", ")}. Nothing is deleted: the journal grows by one branch. Spent tokens stay spent.` : "There is nothing to take back."}</p>`}
    ${plan?.problem && html`<${Note} tone="wait" icon="degraded">${safe(plan.problem)}<//>`}
    ${plan?.calls.length > 0 && html`<${Verdicts} calls=${plan.calls} planned=${true} />`}
    ${leaves && html`<${Note} tone="wait" icon="degraded">What cannot be compensated stays as it is in the world.<//>`}
    <div class="answer"><${Act} main label=${plan?.steps.length > 1 ? `Undo ${plural(plan.steps.length, "step")}` : "Undo"} disabled=${!plan?.steps.length} onClick=${undo} /><${Act} label="Leave it" onClick=${shut} /></div>`;
}

/** @param {{replaced: any}} props */
function Fork({ replaced }) {
  const { id, journal } = opened.value, here = at.value;
  const first = { input: "", instructions: "", model: "", result: replaced ? JSON.stringify(replaced.output, null, 2) : "" };
  const [form, setForm] = useState(first), [busy, setBusy] = useState(false);
  const field = (/** @type {keyof typeof first} */ name) => ({ value: form[name], onInput: (/** @type {any} */ change) => setForm({ ...form, [name]: change.target.value }) });
  const fork = async () => {
    /** @type {Record<string, any>} */
    const body = {};
    for (const name of /** @type {const} */ (["input", "instructions", "model"])) if (form[name]) body[name] = form[name];
    if (here !== null && !replaced) body.at = here;
    if (replaced) body.replace = { [replaced.id]: jsonOf(form.result) };
    setBusy(true);
    const made = await act(id, "fork", body, "Forked.", { head: journal.head });
    setBusy(false);
    if (!made) return;
    shut();
    go(taskLink(made.task_id));
  };
  const models = me.value?.models || [];
  return html`<h2 class="dialog-t" id="dialog-t">${replaced ? html`Fork with another result of <span class="mono">${safe(replaced.name)}</span>` : here !== null ? `Fork at event ${here}` : "Fork after the last step"}</h2>
    <p class="q">The fork shares what came before by reference: nothing of it runs or is paid for again, and this task stays as it is.</p>
    ${replaced && html`<label><span class="cap">Result of ${safe(replaced.id)}</span><textarea class="field mono" rows="6" ...${field("result")}></textarea></label>`}
    <label><span class="cap">Next message</span><textarea class="field" rows="2" ...${field("input")} placeholder="none"></textarea></label>
    <label><span class="cap">Other instructions</span><textarea class="field" rows="2" ...${field("instructions")} placeholder="as they are"></textarea></label>
    ${models.length > 0 && html`<label><span class="cap">Other model</span><select class="field" ...${field("model")} onChange=${field("model").onInput}><option value="">as it is</option>${models.map((/** @type {string} */ model) => html`<option key=${model} value=${model}>${model}</option>`)}</select></label>`}
    <div class="answer"><${Act} main icon="fork" label="Fork" disabled=${busy} onClick=${fork} /><${Act} label="Leave it" onClick=${shut} /></div>`;
}

/** Return text as JSON if it is JSON, else as it is. @param {string} text */
export function jsonOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

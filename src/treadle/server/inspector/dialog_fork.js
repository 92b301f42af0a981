// The dialog of a fork: other words, instructions, another model, or another result of a call.
import { useEffect, useState } from "preact/hooks";
import { carryOut, Choice, Field, Form, readJson } from "./dialog_parts.js";
import { safe } from "./format.js";
import { stepsOf } from "./fold_view.js";
import { go, taskLink } from "./place.js";
import { wholeEvent } from "./records.js";
import { me, opened } from "./store.js";
import { at, current, selected, shown } from "./task_state.js";
import { html } from "./ui.js";

/** Return the ended steps, after which a fork may begin, the newest first. @param {any} state */
const endedSteps = (state) => stepsOf(state).filter((step) => step.ended).sort((a, b) => b.endedSeq - a.endedSeq);

/** Return the step that the person has selected; "" without one. */
function selectedStep() {
  const row = selected.value ? current.value : null;
  return row?.kind === "step" || row?.kind === "call" ? row.step.id : "";
}

/** Return where a fork may begin, each with its words. @param {any[]} steps @param {string} chosen @returns {[string, string][]} */
function places(steps, chosen) {
  return steps.map((step, place) => {
    const marks = [step.name, step.id === chosen && "which is selected", !place && "the last"].filter(Boolean);
    return [step.id, [`after step ${step.index}`, ...marks].join(", ")];
  });
}

/** Return where an event stands among the steps. @param {any} journal @param {number} seq */
function eventPlace(journal, seq) {
  const event = journal.events.find((/** @type {any} */ each) => each.seq === seq), steps = stepsOf(shown.value.state);
  const own = journal.state.steps.get(event?.step);
  if (own) return `${event.kind === "step_completed" ? "after" : "in"} step ${own.index}`;
  return steps.length ? `after step ${/** @type {any} */ (steps.at(-1)).index}` : "before the first step";
}

/** @param {{asked: any}} props */
export function Fork({ asked }) {
  const { id, journal } = opened.value, here = at.value, replaced = asked.replace || null;
  const steps = endedSteps(shown.value.state), [chosen] = useState(selectedStep), last = steps[0]?.id || "";
  const [from, setFrom] = useState(() => (steps.some((step) => step.id === chosen) ? chosen : last));
  const [input, setInput] = useState(""), [instructions, setInstructions] = useState(""), [model, setModel] = useState("");
  const [result, setResult] = useState(() => (replaced && !isCut(replaced.output) ? JSON.stringify(replaced.output, null, 2) : ""));
  useEffect(() => {
    if (!replaced || !isCut(replaced.output)) return;
    void wholeEvent(id, replaced.lastSeq).then((event) => setResult(JSON.stringify(event.output ?? null, null, 2)), () => {});
  }, []);
  const fork = async () => {
    /** @type {Record<string, any>} */
    const body = {};
    for (const [name, text] of Object.entries({ input, instructions, model })) if (text) body[name] = text;
    if (replaced) body.replace = { [replaced.id]: readJson(result, "The result") };
    else if (here !== null) body.at = here;
    else if (from !== last) body.at = from;
    const made = await carryOut("fork", body, "Forked. It has not run yet.", { isFree: "at" in body });
    if (made.task_id) go(taskLink(made.task_id));
    return true;
  };
  const models = me.value?.models || [];
  const title = replaced ? html`Fork with another result of <span class="mono">${safe(replaced.name)}</span>`
    : here !== null ? `Fork at event ${here}, ${eventPlace(journal, here)}` : "Fork";
  const isChosen = !replaced && here === null && steps.length > 0;
  return html`<${Form} title=${title} label="Fork" icon="fork" submit=${fork}>
    <p class="q">The fork shares what came before by reference: nothing of it runs or is paid for again. This task stays as it is.</p>
    ${isChosen && html`<${Choice} label="From where on" value=${from} set=${setFrom} of=${places(steps, chosen)} />`}
    ${replaced && html`<${Field} label=${`Result of ${safe(replaced.id)}, JSON`} value=${result} set=${setResult} rows=${6} mono focus />`}
    <${Field} label="Next message" value=${input} set=${setInput} rows=${2} placeholder="none" focus=${!replaced} />
    <${Field} label="Other instructions" value=${instructions} set=${setInstructions} rows=${2} placeholder="as they are" />
    ${models.length > 0 && html`<${Choice} label="Other model" value=${model} set=${setModel}
      of=${[["", "as it is"], ...models.map((/** @type {string} */ each) => [each, each])]} />`}
  <//>`;
}

/** Whether the server has cut a value. @param {any} value */
const isCut = (value) => JSON.stringify(value ?? null).includes('"$cut"');

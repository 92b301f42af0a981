// The dialog of a fork: other words, instructions, another model, or another result of a call.
import { useEffect, useState } from "preact/hooks";
import { carryOut, Choice, Field, Form, readJson } from "./dialog_parts.js";
import { safe } from "./format.js";
import { go, taskLink } from "./place.js";
import { wholeEvent } from "./records.js";
import { me, opened } from "./store.js";
import { at } from "./task_state.js";
import { html } from "./ui.js";

/** @param {{asked: any}} props */
export function Fork({ asked }) {
  const { id } = opened.value, here = at.value, replaced = asked.replace || null;
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
    const made = await carryOut("fork", body, "Forked. It has not run yet.", { isFree: here !== null });
    if (made.task_id) go(taskLink(made.task_id));
    return true;
  };
  const models = me.value?.models || [];
  const title = replaced ? html`Fork with another result of <span class="mono">${safe(replaced.name)}</span>`
    : here !== null ? `Fork at event ${here}` : "Fork after the last step";
  return html`<${Form} title=${title} label="Fork" icon="fork" submit=${fork}>
    <p class="q">The fork shares what came before by reference: nothing of it runs or is paid for again. This task stays as it is.</p>
    ${replaced && html`<${Field} label=${`Result of ${safe(replaced.id)}, JSON`} value=${result} set=${setResult} rows=${6} mono focus />`}
    <${Field} label="Next message" value=${input} set=${setInput} rows=${2} placeholder="none" focus=${!replaced} />
    <${Field} label="Other instructions" value=${instructions} set=${setInstructions} rows=${2} placeholder="as they are" />
    ${models.length > 0 && html`<${Choice} label="Other model" value=${model} set=${setModel}
      of=${[["", "as it is"], ...models.map((/** @type {string} */ each) => [each, each])]} />`}
  <//>`;
}

/** Whether the server has cut a value. @param {any} value */
const isCut = (value) => JSON.stringify(value ?? null).includes('"$cut"');

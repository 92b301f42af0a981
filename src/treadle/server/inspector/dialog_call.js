// The dialog of the arguments of a call, by the schema of its tool.
import { useEffect, useState } from "preact/hooks";
import { call as request } from "./api.js";
import { carryOut, Form } from "./dialog_parts.js";
import { safe } from "./format.js";
import { schemaOf } from "./schema.js";
import { complaint, flipForm, formOf, readForm, SchemaForm } from "./schema_form.js";
import { shown } from "./task_state.js";
import { Act, html } from "./ui.js";

/** Return the schema of a tool of an agent; null if this server does not know it. @param {string} agent @param {string} tool */
async function readSchema(agent, tool) {
  const { tools } = await request(`agents/${encodeURIComponent(agent)}`).catch(() => ({ tools: [] }));
  return tools.find((/** @type {any} */ each) => each.name === tool)?.parameters || null;
}

/** Other arguments of a call that has not begun. @param {{asked: {call: any}}} props */
export function CallArguments({ asked }) {
  const { call } = asked, agent = shown.value.state.steps.get(call.step)?.agent || "";
  const [first] = useState(() => formOf(schemaOf(call.arguments), call.arguments)), [form, setForm] = useState(first);
  useEffect(() => {
    let isOpen = true;
    void readSchema(agent, call.name).then((schema) => {
      if (isOpen && schema) setForm((now) => (now === first ? formOf(schema, call.arguments) : now)); // typed text stays
    });
    return () => void (isOpen = false);
  }, []);
  const submit = async () => {
    const { value, problems } = readForm(form);
    if (problems.length) {
      setForm({ ...form, shown: true });
      throw new Error(complaint(problems));
    }
    return carryOut("edit_call", { call_id: call.id, arguments: value }, "The call is changed.");
  };
  const title = html`Arguments of <span class="mono">${safe(call.name)}</span>`;
  return html`<${Form} title=${title} label="Change" icon="edit" submit=${submit}>
    <p class="q">The call has not begun. It will run with these, and rules decide about them anew. The journal keeps both.</p>
    <${SchemaForm} form=${form} onForm=${setForm} id="arguments" />
    <${Act} label=${form.text === null ? "As JSON" : "As a form"} onClick=${() => setForm(flipForm(form))} /><//>`;
}

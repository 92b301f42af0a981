// The parts of all dialogs: closing, forms, fields, and refusals of the server.
import { useState } from "preact/hooks";
import { Moved } from "./api.js";
import { safe } from "./format.js";
import { opened } from "./store.js";
import { send } from "./task_verbs.js";
import { Act, html, Note } from "./ui.js";

/** Close the dialog: the browser then gives the focus back, and its event forgets the dialog. */
export const shut = () => document.querySelector("dialog")?.close();

/** The event that the person saw when the dialog opened, or when they were told that the task went on. */
let seen = 0;
export const noteSeen = (head = 0) => void (seen = Math.max(head, opened.peek().journal.head));

/**
 * Send a verb of the open task from a form, which shows a refusal. Return its result.
 * @param {string} path @param {any} body @param {string | ((result: any) => string)} done
 * @param {{wait?: number, isFree?: boolean}} [how]  whether it is sent although the task goes on meanwhile
 */
export async function carryOut(path, body, done, { wait, isFree = false } = {}) {
  try {
    return (await send(path, body, done, { wait, head: isFree ? 0 : seen, throws: true })) ?? true;
  } catch (error) {
    if (error instanceof Moved) noteSeen(error.head);
    throw error;
  }
}

/**
 * A form: its title, its fields, and its two buttons. Ctrl and Enter send it from any field.
 * @param {{title: any, label: string, icon?: string, submit: () => Promise<boolean | void> | boolean | void,
 *   disabled?: boolean, leave?: string, children?: any}} props  `submit` returns whether the dialog closes
 */
export function Form({ title, label, icon, submit, disabled = false, leave = "Leave it", children }) {
  const [isBusy, setBusy] = useState(false), [wrong, setWrong] = useState("");
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (isBusy || disabled) return;
    setBusy(true);
    setWrong("");
    try {
      if (await submit()) shut();
    } catch (error) {
      setWrong(/** @type {Error} */ (error).message);
    }
    setBusy(false);
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void send(event);
  };
  return html`<form aria-busy=${isBusy} onSubmit=${send} onKeyDown=${onKey}>
    <h2 class="dialog-t" id="dialog-t">${title}</h2>
    ${children}
    ${wrong && html`<${Note} tone="bad" icon="failed">${safe(wrong)}<//>`}
    <div class="answer"><${Act} main submit icon=${icon} label=${label} disabled=${disabled} />
      <${Act} label=${leave} onClick=${shut} /></div>
  </form>`;
}

/**
 * A field with its name above.
 * @param {{label: any, value: string, set: (text: string) => void, rows?: number, mono?: boolean, focus?: boolean,
 *   placeholder?: string, type?: string}} props
 */
export function Field({ label, value, set, rows = 0, mono = false, focus = false, placeholder, type = "text" }) {
  const shared = {
    class: `field ${mono ? "mono" : ""}`, value, placeholder, autofocus: focus, spellcheck: mono ? "false" : undefined,
    onInput: (/** @type {any} */ change) => set(change.target.value),
  };
  const field = rows ? html`<textarea rows=${rows} ...${shared}></textarea>`
    : html`<input inputmode=${type === "number" ? "decimal" : undefined} autocomplete="off" ...${shared} />`;
  return html`<label><span class="cap">${label}</span>${field}</label>`;
}

/** A choice with its name above. @param {{label: string, value: string, set: (value: string) => void, of: [string, string][], focus?: boolean}} props */
export function Choice({ label, value, set, of, focus = false }) {
  return html`<label><span class="cap">${label}</span>
    <select class="field" value=${value} autofocus=${focus} onChange=${(/** @type {any} */ change) => set(change.target.value)}>
      ${of.map(([each, text]) => html`<option key=${each} value=${each} selected=${each === value}>${safe(text)}</option>`)}
    </select></label>`;
}

/**
 * Return the JSON value of a text.
 * @param {string} text @param {string} name  of the field, for the sentence of the error
 */
export function readJson(text, name) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} must be JSON: a text in quotes, a number, true, false, null, a list or an object.`);
  }
}

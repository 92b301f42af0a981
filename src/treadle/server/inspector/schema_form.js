// A form made from a JSON schema. Each part of it, and the whole, can also be written as JSON.
import { safe } from "./format.js";
import { draftOf, fieldOf, readDraft, resolved } from "./schema.js";
import { html, Icon } from "./ui.js";

/**
 * The content of a form: a draft by its schema, or the text of the whole as JSON.
 * @typedef {{schema: any, before: any, draft: any, text: string | null, shown: boolean}} Form
 * @typedef {{name: string, schema: any, draft: any, set: (draft: any) => void, path: string, required: boolean, form: Form,
 *   canDrop?: boolean, id: string, wrong: Record<string, string>}} Part
 */

/** Return a form with a value; undefined begins a new one. @param {any} schema @param {any} [value] @returns {Form} */
export const formOf = (schema, value) =>
  ({ schema, before: value, draft: draftOf(value, fieldOf(schema, schema), schema), text: null, shown: false });

/** Return the value of a form, and its problems. @param {Form} form @returns {{value: any, problems: import("./schema.js").Problem[]}} */
export function readForm({ schema, draft, text }) {
  return readDraft(text === null ? draft : { json: text }, text === null ? fieldOf(schema, schema) : JSON_FIELD, schema);
}

const JSON_FIELD = /** @type {import("./schema.js").Field} */ ({ kind: "json", schema: {}, nullable: false, choices: [], items: null });

/** Write the whole as JSON, or as a form again; text that is not JSON stays. @param {Form} form @returns {Form} */
export function flipForm(form) {
  const { value, problems } = readForm(form);
  if (form.text === null) return { ...form, text: JSON.stringify(value ?? {}, null, 2), shown: false };
  if (problems.length) return { ...form, shown: true };
  return { ...formOf(form.schema, value), before: form.before };
}

/** The first problem as a sentence. @param {import("./schema.js").Problem[]} problems */
export const complaint = ([{ path, text }]) => (path ? `${path} ${text}.` : `This ${text}.`);

/** The fields of a form. @param {{form: Form, onForm: (form: Form) => void, id: string, name?: string}} props */
export function SchemaForm({ form, onForm, id, name = "value" }) {
  const { problems } = form.shown ? readForm(form) : { problems: [] };
  const wrong = Object.fromEntries(problems.map(({ path, text }) => [path, text]).reverse());
  if (form.text !== null) {
    const type = (/** @type {any} */ change) => onForm({ ...form, text: change.target.value });
    return html`<div class="args form"><label class="f whole"><span class="sr">JSON</span><textarea id=${id} class="field mono"
      rows=${Math.min(16, form.text.split("\n").length + 1)} spellcheck=${false} value=${form.text} onInput=${type}></textarea>
      ${wrong[""] && html`<span class="f-bad" role="alert">It ${safe(wrong[""])}.</span>`}</label></div>`;
  }
  const set = (/** @type {any} */ draft) => onForm({ ...form, draft });
  const part = { schema: form.schema, draft: form.draft, set, path: "", required: true, form, id, wrong };
  const field = fieldOf(form.schema, form.schema);
  return html`<div class=${`args form ${form.before === undefined ? "new" : ""}`}>${field.kind === "object" && !isJson(form.draft)
    ? html`<${Fields} ...${part} schema=${field.schema} />` : html`<${Field} ...${part} name=${name} />`}</div>`;
}

const isJson = (/** @type {any} */ draft) => draft !== null && typeof draft === "object" && !Array.isArray(draft) && typeof draft.json === "string";

/** The fields of an object, and buttons that add those left out. @param {Omit<Part, "name">} props */
function Fields({ schema, draft, set, path, form, id, wrong }) {
  const all = Object.entries(schema.properties), needs = (/** @type {string} */ name) => (schema.required || []).includes(name);
  const isOut = (/** @type {string} */ name) => draft[name] === undefined && !needs(name) && !schema.open;
  const put = (/** @type {string} */ name) => (/** @type {any} */ value) => set({ ...draft, [name]: value });
  const add = (/** @type {string} */ name, /** @type {any} */ each) => () => {
    put(name)(draftOf(each.default ?? undefined, fieldOf(each, form.schema), form.schema, true));
    setTimeout(() => document.getElementById(`${id}-${name}`)?.focus(), 30);
  };
  const left = all.filter(([name]) => isOut(name));
  return html`${all.filter(([name]) => !isOut(name)).map(([name, each]) => html`<${Field} key=${name} name=${name} schema=${each} draft=${draft[name]}
      set=${put(name)} path=${path ? `${path}.${name}` : name} required=${needs(name)} canDrop=${!schema.open} form=${form} id=${`${id}-${name}`} wrong=${wrong} />`)}
    ${left.length > 0 && html`<div class="f f-left"><span class="qq">Optional</span><span class="answer">${left.map(([name, each]) => {
      const { description, title, default: fallback } = resolved(each, form.schema);
      const hint = [description, fallback === undefined || fallback === null ? "" : `It is ${JSON.stringify(fallback)} then`].filter(Boolean).join(". ");
      return html`<button type="button" class="btn" key=${name} id=${`${id}-${name}-add`} title=${safe(hint)} onClick=${add(name, each)}>Add ${safe(form.before === undefined && title ? title.toLowerCase() : name)}</button>`;
    })}</span></div>`}`;
}

/** @param {any} value @param {string} path */
const valueAt = (value, path) => path.split(".").reduce((found, name) => (found === null || found === undefined ? undefined : found[name]), value);

/** One field with its name, its hint and its problem. @param {Part} props */
function Field(props) {
  const { name, schema, draft, set, path, required, canDrop, form, id, wrong } = props;
  const field = fieldOf(schema, form.schema), { title, description } = field.schema, isNew = form.before === undefined;
  const was = isNew ? undefined : valueAt(form.before, path), now = readDraft(draft, field, form.schema, false).value;
  const isPlain = ["text", "number", "boolean", "choice", "json"].includes(field.kind) || isJson(draft);
  const before = typeof was === "string" ? was : JSON.stringify(was), isChanged = isPlain && was !== undefined && JSON.stringify(was) !== JSON.stringify(now);
  const about = `${id}-about`, more = { field, about, wrong: wrong[path] }, called = isNew && title ? title : name;
  const told = html`<span class="f-about" id=${about}>${safe(description)}
    ${isPlain && was !== undefined && html`<span class=${`f-was cut ${isChanged ? "" : "off"}`} title=${safe(before)}>was <span class="mono">${safe(before)}</span></span>`}
    ${wrong[path] && html`<span class="f-bad">It ${safe(wrong[path])}.</span>`}</span>`;
  const drop = !required && canDrop && html`<button type="button" class="btn only-icon" aria-label=${`Leave out ${safe(called)}`} title="Leave it out" onClick=${() => set(undefined)}><${Icon} name="no" /></button>`;
  if (isPlain) return html`<div class="f"><label class="f-name" for=${id}>${safe(called)}</label><span><span class="f-row"><${Control} ...${props} ...${more} />${drop}</span>${told}</span></div>`;
  return html`<fieldset class="f"><legend class="sr">${safe(called)}</legend><span class="f-name" aria-hidden="true">${safe(called)}</span><span class="f-in"><span class="f-row f-top">${told}<span class="fill"></span>${drop}</span><${Inside} ...${props} field=${field} /></span></fieldset>`;
}

/** The control of a field with one value. @param {Part & {field: import("./schema.js").Field, about: string, wrong: any}} props */
function Control({ draft, set, required, field, id, about, wrong }) {
  const { schema, choices, nullable } = field, hasChoice = field.kind === "choice" || field.kind === "boolean";
  const shared = { id, "aria-describedby": about, "aria-invalid": wrong ? "true" : undefined, "aria-required": required ? "true" : undefined };
  const typed = (/** @type {any} */ change) => {
    const text = change.target.value;
    set(text === "" && nullable ? null : text);
  };
  if (isJson(draft) || field.kind === "json") {
    const text = draft?.json ?? "", write = (/** @type {any} */ change) => set({ json: change.target.value });
    return html`<textarea class="field mono" rows=${Math.min(10, text.split("\n").length)} spellcheck=${false} placeholder="JSON" ...${shared} value=${text} onInput=${write}></textarea>`;
  }
  if (hasChoice) {
    const options = field.kind === "boolean" ? ["yes", "no"] : choices.map((each) => (typeof each === "string" ? each : JSON.stringify(each)));
    const place = draft === undefined ? "" : draft === null ? "null" : String(field.kind === "boolean" ? (draft ? 0 : 1) : draft);
    const pick = (/** @type {any} */ change) => {
      const text = change.target.value;
      set(text === "" ? undefined : text === "null" ? null : field.kind === "boolean" ? text === "0" : Number(text));
    };
    const isOpen = !required || draft === undefined;
    return html`<select class="field" ...${shared} value=${place} onChange=${pick}>${isOpen && html`<option value="">${required ? "choose…" : "left out"}</option>`}
      ${options.map((text, at) => html`<option key=${at} value=${String(at)}>${safe(text)}</option>`)}${nullable && html`<option value="null">none</option>`}</select>`;
  }
  const text = draft ?? "", isNumber = field.kind === "number";
  const hint = isNumber ? (schema.type === "integer" ? "a whole number" : "a number") : nullable ? "none" : schema.format || "";
  const place = schema.placeholder ?? hint;
  if (!isNumber && !schema.format && (schema.lines || text.length > 60 || text.includes("\n")))
    return html`<textarea class="field" rows=${Math.max(schema.lines || 2, Math.min(12, text.split("\n").length))} placeholder=${place} ...${shared} value=${text} onInput=${typed}></textarea>`;
  return html`<input class=${`field ${isNumber ? "tnum" : ""}`} inputmode=${isNumber ? "decimal" : undefined} placeholder=${place} autocomplete="off" ...${shared} value=${text} onInput=${typed} />`;
}

/** The fields below a field: of an object, a list or a map. @param {Part & {field: import("./schema.js").Field}} props */
function Inside(props) {
  const { draft, set, path, form, id, wrong, field, name } = props;
  if (draft === null) return html`<button type="button" class="btn" onClick=${() => set(draftOf(undefined, field, form.schema, true))}>None. Add ${safe(name)}</button>`;
  if (field.kind === "object") return html`<span class="args"><${Fields} ...${props} schema=${field.schema} /></span>`;
  const isMap = field.kind === "map", inner = fieldOf(field.items, form.schema);
  const put = (/** @type {number} */ at, /** @type {any} */ value) => set(draft.map((/** @type {any} */ each, /** @type {number} */ place) => (place === at ? value : each)));
  const add = () => {
    const fresh = draftOf(undefined, inner, form.schema, true);
    set([...draft, isMap ? ["", fresh] : fresh]);
    setTimeout(() => document.getElementById(`${id}-${draft.length}${isMap ? "-name" : ""}`)?.focus(), 30);
  };
  return html`${draft.map((/** @type {any} */ each, /** @type {number} */ at) => html`<span class="f-item" key=${at}>
    ${isMap && html`<input class="field" id=${`${id}-${at}-name`} aria-label=${`Name ${at + 1}`} placeholder="name" value=${each[0]} onInput=${(/** @type {any} */ change) => put(at, [change.target.value, each[1]])} />`}
    <span class="args"><${Field} name=${isMap ? each[0] || "value" : String(at + 1)} schema=${field.items} draft=${isMap ? each[1] : each} set=${(/** @type {any} */ value) => put(at, isMap ? [each[0], value] : value)}
      path=${path ? `${path}.${at}` : String(at)} required=${true} form=${form} id=${`${id}-${at}`} wrong=${wrong} /></span>
    <button type="button" class="btn only-icon" title="Remove" aria-label=${`Remove ${safe(name)} ${at + 1}`} onClick=${() => set(draft.filter((/** @type {any} */ _, /** @type {number} */ place) => place !== at))}><${Icon} name="no" /></button></span>`)}
    <span><button type="button" class="btn" id=${id} onClick=${add}>Add ${draft.length ? "another" : "one"}</button></span>`;
}

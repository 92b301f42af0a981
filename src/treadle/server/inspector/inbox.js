// The inbox: approvals, questions and unknown outcomes of all tasks, oldest first, each with one key for each answer.
import { computed, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ago, duration, line, plural, safe } from "./format.js";
import { asText } from "./fold_state.js";
import { taskLink } from "./place.js";
import { act, inbox, loaded, may, me, now, say, tasks } from "./store.js";
import { Act, Empty, html, Icon, Note, Table } from "./ui.js";

/** Icon, colour and name of each kind. @type {Record<string, [string, string, string]>} */
const KINDS = { approval: ["ask", "wait", "Approval"], question: ["say", "wait", "Question"], settlement: ["unknown", "odd", "Unknown outcome"] };

const keyOf = (/** @type {any} */ item) => `${item.task_id}/${item.request_id}`;

/** The key of the selected item, and its position: when it has gone, the next one takes its position. */
const chosen = signal({ key: "", position: 0 });
const position = computed(() => {
  const found = inbox.value.findIndex((item) => keyOf(item) === chosen.value.key);
  return found < 0 ? Math.min(chosen.value.position, inbox.value.length - 1) : found;
});
/** What a person decides now. */
export const item = computed(() => inbox.value[position.value]);
/** Changed arguments of the selected approval; null as long as they are as asked. @type {import("@preact/signals").Signal<Record<string, string> | null>} */
const edited = signal(null);
const reason = signal("");

/** @param {number} at */
function choose(at) {
  const next = inbox.value[Math.max(0, Math.min(inbox.value.length - 1, at))];
  if (!next) return;
  chosen.value = { key: keyOf(next), position: inbox.value.indexOf(next) };
  edited.value = null;
  reason.value = "";
}

/** @param {number} by */
export const moveItem = (by) => choose(position.value + by);

/** Whether I may decide an item. @param {any} item */
const isMine = (item) => may("decide") && item.may_decide !== false;

/** Change the arguments of the selected approval, or take the changes back. */
export function editItem() {
  const open = item.value;
  if (open?.kind !== "approval" || !isMine(open)) return;
  const texts = Object.entries(open.arguments).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  edited.value = edited.value ? null : Object.fromEntries(texts);
}

/** Read the changed arguments with the types that they had. @param {any} before @param {Record<string, string>} texts */
function readArguments(before, texts) {
  const entries = Object.entries(texts).map(([name, text]) => [name, typeof before[name] === "string" ? text : JSON.parse(text)]);
  return Object.fromEntries(entries);
}

/** The verbs that decide, by their keys. @type {Record<string, (item: any) => [string, string, any, string]>} */
const VERBS = {
  approve: (open) => ["approval", "approve", edited.value ? { arguments: readArguments(open.arguments, edited.value) } : {}, "Approved."],
  deny: () => ["approval", "deny", reason.value ? { reason: reason.value } : {}, "Denied."],
  happened: () => ["settlement", "settle", { verdict: { type: "happened", output: null } }, "Settled: it happened."],
  not: () => ["settlement", "settle", { verdict: { type: "not_happened" } }, "Settled: it did not happen."],
};

/** Decide the selected item. @param {string} verb */
export async function decide(verb) {
  const open = item.value;
  if (!open || !isMine(open)) return;
  try {
    const [kind, path, body, done] = VERBS[verb](open);
    if (kind === open.kind) await send(open, path, body, done);
  } catch (error) {
    say(`These arguments cannot be read: ${/** @type {Error} */ (error).message}`, true);
  }
}

/** @param {any} open @param {string} path @param {any} body @param {string} done */
async function send(open, path, body, done) {
  const here = position.value;
  // Approvals, denials and answers name a request that is asked once; a settlement must see the newest event.
  const sent = await act(open.task_id, path, { request_id: open.request_id, ...body }, done, { head: path === "settle" ? open.head : 0 });
  if (sent === undefined) return;
  chosen.value = { key: "", position: here };
  edited.value = null;
  reason.value = "";
}

export function Inbox() {
  const list = inbox.value, open = item.value;
  return html`<div class="head"><h1>Inbox</h1><span class="qq">${list.length ? `${plural(list.length, "request")} for a person` : ""}</span></div>
    ${!open ? html`<${Empty} title=${loaded.value ? "Nothing waits for you" : "Reading…"}>Approvals, questions and unknown outcomes of all tasks appear here.<//>`
      : html`<div class="inbox"><div class="ilist" role="listbox" tabindex="0" aria-label="Inbox" aria-activedescendant=${`i-${keyOf(open)}`}>${list.map((each, at) => html`<${Item} key=${keyOf(each)} each=${each} at=${at} isOpen=${each === open} />`)}</div><${Case} key=${keyOf(open)} open=${open} /></div>`}`;
}

/** @param {any} props */
function Item({ each, at, isOpen }) {
  const [icon, tone, kind] = KINDS[each.kind], box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (isOpen) box.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [isOpen]);
  return html`<div class="item" ref=${box} id=${`i-${keyOf(each)}`} role="option" aria-selected=${isOpen} onClick=${() => choose(at)}><${Icon} name=${icon} tone=${tone} /><span class="t cut">${kind}</span><span class="qq">${ago(each.asked, now.value)}</span>
    <span class="s cut mono">${each.tool ? `${safe(each.tool)}(${line(each.arguments)})` : safe(each.text)}</span><span class="s cut qq">${safe(each.task_id)}</span></div>`;
}

/** The question as a person reads it. @param {any} open */
function leadOf(open) {
  if (open.kind === "settlement") return `Did ${open.tool} happen?`;
  if (open.kind === "question") return open.text;
  if (typeof open.preview === "string" && open.preview) return open.preview;
  return open.tool.startsWith("the ") ? `Let ${open.tool} pass?` : `Run ${open.tool}?`;
}

/** @param {{open: any}} props */
function Case({ open }) {
  const [icon, tone, kind] = KINDS[open.kind], task = tasks.value.get(open.task_id);
  const why = open.kind === "settlement" ? "The call began, and its process ended before the outcome was recorded. Look it up where it would show, under the key below." : open.reason;
  const labels = Object.entries(open.labels);
  return html`<article class="case"><p class=${`st c-${tone}`}><${Icon} name=${icon} tone=${tone} />${kind}${open.asked ? html`<span class="qq">asked ${ago(open.asked, now.value) === "now" ? "now" : `${ago(open.asked, now.value)} ago`}</span>` : ""}</p>
    <h2 class="lead">${safe(leadOf(open))}</h2>
    ${(why || open.rule) && html`<p class="q">${safe(why)}${open.rule ? html` <span class="tag">rule ${safe(open.rule)}</span>` : ""}</p>`}
    ${open.preview && typeof open.preview !== "string" ? html`<${Table} of=${open.preview} />` : ""}
    ${open.tool && html`<section><h3 class="cap">${safe(open.tool)}, ${edited.value ? "changed" : "exact"} arguments</h3>${edited.value ? html`<${Edit} open=${open} />` : Object.keys(open.arguments).length ? html`<${Table} of=${open.arguments} />` : html`<p class="qq">It has none.</p>`}</section>`}
    ${open.untrusted.length > 0 && html`<${Note} tone="wait" icon="degraded">The model had read content from outside before it asked: ${safe(open.untrusted.join(", "))}.<//>`}
    ${isMine(open) ? html`<${Answers} open=${open} />` : html`<${NotMine} open=${open} />`}
    <dl class="kv"><dt>Task</dt><dd><a href=${taskLink(open.task_id)}>${safe(task?.input || open.task_id)}</a></dd><dt>Agent</dt><dd>${safe(open.path.join(" → ") || open.agent)}</dd>
      ${labels.length > 0 && html`<dt>Labels</dt><dd>${labels.map(([name, value]) => html`<span class="tag" key=${name}>${safe(name)} ${safe(value)}</span> `)}</dd>`}
      ${open.expires && html`<dt>Expires</dt><dd>in ${duration(Math.max(0, open.expires / 1e3 - now.value))}${open.has_default ? html`, then the answer is <span class="mono">${safe(asText(open.default))}</span>` : open.kind === "approval" ? ", then it is denied" : ""}</dd>`}
      ${open.approvers.length > 0 && html`<dt>Approvers</dt><dd>${safe(open.approvers.join(", "))}</dd>`}
      ${open.idempotency_key && html`<dt>Key</dt><dd class="mono">${safe(open.idempotency_key)}</dd>`}</dl></article>`;
}

/** Why I may not decide. @param {{open: any}} props */
function NotMine({ open }) {
  if (!may("decide")) return html`<${Note} icon="no">Your token may read, and not decide.<//>`;
  const excluded = open.excluded.includes(me.value?.name);
  return html`<${Note} icon="no">${excluded ? `You (${safe(me.value.name)}) may not decide this: the rule wants another person.` : `Only ${safe(open.approvers.join(", "))} may decide this.`}<//>`;
}

/** @param {{open: any}} props */
function Edit({ open }) {
  const texts = /** @type {Record<string, string>} */ (edited.value);
  const type = (/** @type {string} */ name) => (/** @type {any} */ change) => (edited.value = { ...texts, [name]: change.target.value });
  return html`<div class="args">${Object.entries(texts).map(([name, text]) => {
    const isNumber = typeof open.arguments[name] === "number";
    return html`<label key=${name}><span class="qq">${safe(name)}</span>${text.length > 60 || text.includes("\n") ? html`<textarea class="field mono" rows="3" value=${text} onInput=${type(name)}></textarea>` : html`<input class="field mono" inputmode=${isNumber ? "decimal" : undefined} value=${text} onInput=${type(name)} />`}</label>`;
  })}</div>`;
}

/** @param {{open: any}} props */
function Answers({ open }) {
  if (open.kind === "question") return html`<${AnswerForm} open=${open} />`;
  if (open.kind === "settlement") return html`<div class="answer"><${Act} main label="It happened" keyName="h" onClick=${() => decide("happened")} /><${Act} label="It did not" keyName="n" onClick=${() => decide("not")} /></div>`;
  return html`<label><span class="cap">Reason, if you deny it: the model reads it</span><input class="field" value=${reason.value} onInput=${(/** @type {any} */ change) => (reason.value = change.target.value)} /></label>
    <div class="answer"><${Act} main label=${edited.value ? "Approve as changed" : "Approve"} keyName="a" onClick=${() => decide("approve")} /><${Act} label="Deny" keyName="d" onClick=${() => decide("deny")} /><${Act} label=${edited.value ? "As asked" : "Change arguments"} keyName="e" onClick=${editItem} /></div>`;
}

/** An answer by its schema: a choice, yes or no, a number, text, or JSON. @param {{open: any}} props */
function AnswerForm({ open }) {
  const schema = open.schema || {}, type = schema.type || "string", choices = schema.enum || (type === "boolean" ? [true, false] : null);
  const [text, setText] = useState("");
  const answer = (/** @type {any} */ value) => void send(open, "answer", { value }, "Answered.");
  if (choices) return html`<div class="answer">${choices.map((/** @type {any} */ choice, /** @type {number} */ at) => html`<${Act} key=${at} main=${at === 0} label=${type === "boolean" ? (choice ? "Yes" : "No") : safe(asText(choice))} onClick=${() => answer(choice)} />`)}</div>`;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      answer(type === "string" ? text : JSON.parse(text));
    } catch {
      say(`This answer is not ${type === "integer" ? "a whole number" : type === "number" ? "a number" : "JSON"}.`, true);
    }
  };
  const isLong = type === "object" || type === "array";
  const shared = { class: `field ${isLong ? "mono" : ""}`, id: "answer", "aria-label": "Answer", value: text, onInput: (/** @type {any} */ change) => setText(change.target.value) };
  return html`<form class="answer" onSubmit=${submit}>${isLong ? html`<textarea rows="4" ...${shared} placeholder="JSON"></textarea>` : html`<input ...${shared} inputmode=${/integer|number/.test(type) ? "decimal" : "text"} placeholder=${{ integer: "A whole number", number: "A number" }[/** @type {"integer"} */ (type)] || "Text"} />`}<button class="btn main">Answer <kbd>↵</kbd></button></form>`;
}

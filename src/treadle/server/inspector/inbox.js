// The inbox: approvals, questions, unknown outcomes and stopped undos of all tasks, oldest first, with a key for each answer.
import { useEffect, useRef } from "preact/hooks";
import { ago, duration, line, moment, plural, safe } from "./format.js";
import { asText } from "./fold_state.js";
import { answer, askerOf, choicesOf, choose, decide, draft, editItem, flip, isMine, item, position, put } from "./inbox_state.js";
import { taskLink } from "./place.js";
import { SchemaForm } from "./schema_form.js";
import { askedAt, hasCode, inbox, keyOf, loaded, may, me, now, tasks } from "./store.js";
import { Act, Empty, html, Icon, Json, Note, Table } from "./ui.js";

/** Icon, colour and name of each kind. @type {Record<string, [string, string, string]>} */
const KINDS = {
  approval: ["ask", "wait", "Approval"], question: ["say", "wait", "Question"], settlement: ["unknown", "odd", "Unknown outcome"], undo: ["undo", "bad", "Stopped undo"],
};

export function Inbox() {
  const list = inbox.value, open = item.value;
  if (!open) {
    return html`<div class="head"><h1>Inbox</h1></div><${Empty} title=${loaded.value ? "Nothing waits for you" : "Reading…"}>Approvals, questions, unknown outcomes and stopped undos of all tasks appear here, as soon as a task needs a person.<//>`;
  }
  return html`<div class="head"><h1>Inbox</h1><span class="qq">${plural(list.length, "request")} for a person, the oldest first</span></div>
    <div class="inbox"><div class="ilist" id="inbox-list" role="listbox" tabindex="0" aria-label="Inbox" aria-activedescendant=${`i-${keyOf(open)}`}>
      ${list.map((each, at) => html`<${Item} key=${keyOf(each)} each=${each} at=${at} isOpen=${each === open} />`)}</div><${Case} key=${keyOf(open)} open=${open} /></div>`;
}

/** @param {any} props */
function Item({ each, at, isOpen }) {
  const [icon, tone, kind] = KINDS[each.kind], box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (isOpen) box.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [isOpen]);
  const text = each.kind === "question" ? safe(each.text) : html`<span class="mono">${safe(each.tool)}(${line(each.arguments)})</span>`;
  return html`<div class=${`item ${isMine(each) ? "" : "not-mine"}`} ref=${box} id=${`i-${keyOf(each)}`} role="option" aria-selected=${isOpen} onClick=${() => choose(at)}><${Icon} name=${icon} tone=${tone} /><span class="t cut">${kind}</span><span class="qq">${ago(askedAt(each), now.value)}</span>
    <span class="s cut">${text}</span><span class="s cut qq">${safe(askerOf(each))} · ${safe(tasks.value.get(each.task_id)?.input || each.task_id)}</span></div>`;
}

/** The question as a person reads it. @param {any} open @param {boolean} [isEdited]  whether a person changes the arguments */
export function leadOf(open, isEdited = false) {
  if (open.kind === "settlement") return `Did ${open.tool} happen?`;
  if (open.kind === "undo") return `The compensation of ${open.tool} failed`;
  if (open.kind === "question") return open.text;
  if (typeof open.preview === "string" && open.preview) return isEdited ? `As asked: ${open.preview}` : open.preview;
  return open.tool.startsWith("the ") ? `Let ${open.tool} pass?` : `Run ${open.tool}?`;
}

/** Why it is asked. @param {any} open */
export function whyOf(open) {
  if (open.kind === "settlement") return "The call began, and its process ended before the outcome was recorded. Look it up where it would show, under the key below.";
  if (open.kind === "undo") return open.text;
  return open.reason;
}

/** @param {{open: any}} props */
function Case({ open }) {
  const [icon, tone, kind] = KINDS[open.kind], age = ago(askedAt(open), now.value), isEdited = open.kind === "approval" && draft.value.form !== null;
  return html`<article class="case" aria-labelledby="case-lead"><p class=${`st c-${tone}`}><${Icon} name=${icon} tone=${tone} />${kind}<span class="qq">${safe(askerOf(open))}${open.kind === "undo" || open.kind === "settlement" ? "," : " asked"} ${age === "now" || !age ? "now" : `${age} ago`}</span></p>
    <h2 class="lead" id="case-lead">${safe(leadOf(open, isEdited))}</h2>
    ${(whyOf(open) || open.rule) && html`<p class="q">${safe(whyOf(open))}${open.rule ? html` <span class="tag">rule ${safe(open.rule)}</span>` : ""}</p>`}
    ${open.preview && typeof open.preview !== "string" && html`${isEdited && html`<p class="cap">As asked</p>`}<${Table} of=${open.preview} />`}
    ${open.tool && html`<${Arguments} open=${open} />`}
    ${open.untrusted.length > 0 && html`<${Note} tone="wait" icon="degraded">These arguments follow untrusted content: the model had read ${safe(open.untrusted.join(", "))} before it asked.<//>`}
    ${isMine(open) ? html`<${Answers} open=${open} />` : html`<${Note} icon="no">${notMine(open)}<//>`}
    <${Facts} open=${open} /></article>`;
}

/** The exact arguments, or a form that changes them. @param {{open: any}} props */
function Arguments({ open }) {
  const { form } = draft.value, entries = Object.entries(open.arguments), isEdited = open.kind === "approval" && form !== null;
  const head = html`<h3 class="cap">${safe(open.tool)}, ${isEdited ? "changed arguments" : open.kind === "question" ? "arguments of the call that asks" : "exact arguments"}</h3>`;
  if (isEdited) return html`<section>${head}<${SchemaForm} form=${form} onForm=${(/** @type {any} */ next) => put({ form: next })} id="edit" /></section>`;
  if (open.kind === "question" && !entries.length) return null;
  if (!entries.length) return html`<section>${head}<p class="qq">It has none.</p></section>`;
  return html`<section>${head}<div class="args">${entries.map(([name, value]) => html`<div key=${name}><span class="qq">${safe(name)}</span><span class="v">${typeof value === "string" ? safe(value) : value !== null && typeof value === "object" ? html`<${Json} value=${value} />` : String(value)}</span></div>`)}</div></section>`;
}

/** Why I may not decide. @param {any} open */
export function notMine(open) {
  if (open.kind === "undo") return "Your token may not undo.";
  if (!may("decide")) return "Your token may read, and not decide.";
  if (open.excluded.includes(me.value?.name)) return `You (${safe(me.value.name)}) may not decide this: the rule wants another person.`;
  return `Only ${safe(open.approvers.join(", "))} may decide this.`;
}

/** @param {{open: any}} props */
function Facts({ open }) {
  const task = tasks.value.get(open.task_id), labels = Object.entries(open.labels);
  const end = open.has_default ? html`, then the answer is <span class="mono">${safe(asText(open.default))}</span>` : open.kind === "approval" ? ", then it is denied" : "";
  return html`<dl class="kv"><dt>Task</dt><dd><a href=${taskLink(open.task_id)}>${safe(task?.input || open.task_id)}</a></dd><dt>Agent</dt><dd>${safe(open.path.join(" → ") || open.agent)}</dd>
    ${labels.length > 0 && html`<dt>Labels</dt><dd>${labels.map(([name, value]) => html`<span class="tag" key=${name}>${safe(name)} ${safe(value)}</span> `)}</dd>`}
    ${open.asked && html`<dt>Asked</dt><dd>${moment(open.asked)}</dd>`}
    ${open.expires && html`<dt>Expires</dt><dd>in ${duration(Math.max(0, open.expires / 1e3 - now.value))}${end}</dd>`}
    ${open.approvers.length > 0 && html`<dt>Approvers</dt><dd>${safe(open.approvers.join(", "))}</dd>`}
    ${open.excluded.length > 0 && html`<dt>Excluded</dt><dd>${safe(open.excluded.join(", "))}</dd>`}
    ${open.idempotency_key && html`<dt>Key</dt><dd class="mono">${safe(open.idempotency_key)}</dd>`}</dl>`;
}

// ------------------------------------------------------------------------------------------- answers

/** How far an approval may hold: value and words. @type {[string, string][]} */
const SCOPES = [["once", "this call"], ["task", "this task: later calls of the tool too"], ["thread", "this thread: later calls of the tool too"], ["always", "all tasks: later calls of the tool too"]];

/** @param {{open: any}} props */
export function Answers({ open }) {
  const { text, form, scope } = draft.value, write = (/** @type {any} */ change) => put({ text: change.target.value });
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.isComposing || event.ctrlKey || event.metaKey || !text.trim()) return;
    event.preventDefault();
    void decide("deny");
  };
  if (open.kind === "question") return html`<${Answer} open=${open} />`;
  if (open.kind === "undo") {
    return html`${!hasCode(open.agent) && html`<${Note} icon="eye">This server lacks the code of <b>${safe(open.agent)}</b>, which compensates the call.<//>`}
      <div class="answer sticky"><${Act} main label="Try again" keyName="r" onClick=${() => decide("again")} /><${Act} label="Undo without it" keyName="S" onClick=${() => decide("skip")} /></div>
      <p class="qq">Without it, the undo goes on and records that this call was not compensated.</p>`;
  }
  if (open.kind === "settlement") {
    return html`<label><span class="cap">Its result as JSON, if it happened</span><input class="field mono" id="answer" autocomplete="off" placeholder="null" value=${text} onInput=${write} /></label>
      <div class="answer sticky"><${Act} main label="It happened" keyName="h" onClick=${() => decide("happened")} /><${Act} label="It did not" keyName="n" onClick=${() => decide("not")} /></div>
      <p class="qq">If it did not, the call runs when the task goes on.</p>`;
  }
  return html`${open.argument && html`<p class="q">Fill in <span class="mono">${safe(open.argument)}</span>: the rule asks for it.</p>`}
    <div class="pairs"><label><span class="cap">Reason, if you deny it: the model reads it</span><input class="field" id="answer" autocomplete="off" aria-describedby="answer-about" value=${text} onInput=${write} onKeyDown=${press} /><span class="f-about" id="answer-about">Enter denies with this reason</span></label>
      ${!open.every_call && html`<label><span class="cap">An approval holds for</span><select class="field" value=${scope} onChange=${(/** @type {any} */ change) => put({ scope: change.target.value })}>${SCOPES.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></label>`}</div>
    ${scope === "task" && open.same.length > 0 && html`<p class="qq">Later calls need the same ${safe(open.same.join(", "))}.</p>`}
    <div class="answer sticky"><${Act} main label=${form ? "Approve as changed" : "Approve"} keyName="a" onClick=${() => decide("approve")} /><${Act} label="Deny" keyName="d" onClick=${() => decide("deny")} /><${Act} label=${form ? "As asked" : "Change arguments"} keyName="e" onClick=${editItem} />
      ${form && html`<${Act} label=${form.text === null ? "As JSON" : "As a form"} onClick=${flip} />`}</div>`;
}

/** An answer by its schema: a choice by its key, or a form. @param {{open: any}} props */
function Answer({ open }) {
  const choices = choicesOf(open), { form } = draft.value;
  if (choices) return html`<div class="answer sticky">${choices.map(({ value, label, key }, at) => html`<${Act} key=${key} main=${at === 0} label=${safe(label)} keyName=${key} onClick=${() => answer(value)} />`)}</div>`;
  if (!form) return null;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void decide("answer");
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  return html`<form onSubmit=${submit} onKeyDown=${press} aria-label="Answer"><${SchemaForm} form=${form} onForm=${(/** @type {any} */ next) => put({ form: next })} id="answer" name="Answer" />
    <div class="answer sticky"><button class="btn main" aria-keyshortcuts="Enter">Answer <kbd aria-hidden="true">↵</kbd></button>${isPlain(form) ? null : html`<${Act} label=${form.text === null ? "As JSON" : "As a form"} onClick=${flip} />`}</div></form>`;
}

/** Whether the form is one field. @param {import("./schema_form.js").Form} form */
const isPlain = (form) => form.text === null && (typeof form.draft === "string" || form.draft === null);

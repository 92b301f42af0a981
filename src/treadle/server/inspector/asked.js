// What the open task asks a person, decided in the task itself: approvals, questions and unknown outcomes.
import { computed, effect, signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { call as request, taskPath } from "./api.js";
import { readJson } from "./dialog_parts.js";
import { duration, safe } from "./format.js";
import { asText } from "./fold_state.js";
import { pendingOf } from "./fold_view.js";
import { taskLink } from "./place.js";
import { flipForm, formOf, readForm, SchemaForm } from "./schema_form.js";
import { act, may, me, now, opened, pending, say, tasks } from "./store.js";
import { current, dialog, past, select, sheet } from "./task_state.js";
import { send } from "./task_verbs.js";
import { Act, html, Note, Table } from "./ui.js";

const DECIDED = new Set(["approval", "question", "settlement"]);

/** The requests of the open task and of those below it, as the server lists them. @type {import("@preact/signals").Signal<any[]>} */
const items = signal([]);

/** The ids of what the journal says that the task waits for: another list asks the server again. */
const waits = computed(() => {
  const { id, journal, loading } = opened.value;
  return !id || loading ? "" : pendingOf(journal.state).map((item) => `${id}/${item.id}`).join(" ");
});

effect(() => {
  const asks = waits.value, { id } = opened.peek();
  void pending.value; // also when something below the task waits
  if (!asks) {
    items.value = [];
    return;
  }
  request(`${taskPath(id)}/pending?limit=100`).then(
    (page) => {
      if (opened.peek().id === id && waits.peek() === asks) items.value = page.items.filter((/** @type {any} */ item) => DECIDED.has(item.kind));
    },
    () => {},
  );
});

/** Whether a task is another one or below it. @param {string} id @param {string} above */
function isBelow(id, above) {
  for (let at = id, depth = 0; at && depth < 20; at = tasks.value.get(at)?.parent || "", depth += 1) if (at === above) return true;
  return false;
}

/**
 * Return the requests of a step, or of one of its calls.
 * @param {string} step @param {any} [call]
 */
export function askedOf(step, call = null) {
  if (past.value) return [];
  const { id, journal } = opened.value;
  const calls = call ? [call] : (journal.state.steps.get(step)?.calls || []).map((each) => journal.state.calls.get(each));
  const isOwn = (/** @type {string} */ name, /** @type {string} */ of) => name === of || name.startsWith(`${of}-`);
  return items.value.filter((item) => {
    if (item.task_id !== id) return calls.some((each) => each?.child && isBelow(item.task_id, each.child));
    if (calls.some((each) => each && isOwn(item.request_id, each.id))) return true;
    return !call && new RegExp(`^${step}-q\\d+$`).test(item.request_id);
  });
}

/** The request that the keys decide: the first one of the selected row. */
const asked = computed(() => {
  const row = current.value;
  if (row?.kind !== "call" && row?.kind !== "step") return null;
  return askedOf(row.step.id, row.kind === "call" ? row.call : null)[0] || null;
});

/** Whether something of the open task waits for a person, and whether the panel shows it. */
export const hasAsked = computed(() => !past.value && items.value.length > 0);
export const isAskedShown = computed(() => asked.value !== null);

/** Whether I may decide a request. @param {any} item */
const isMine = (item) => may("decide") && item.may_decide !== false;

/** Select what waits, and go to its answer. */
export function goToAsked() {
  const item = items.value[0], { id, journal } = opened.value;
  if (!item) return;
  const found = pendingOf(journal.state).find((each) => each.id === item.request_id || isBelow(item.task_id, each.id));
  if (found && item.task_id !== id) select([...journal.state.calls.values()].find((each) => each.child === found.id)?.id || found.step);
  else if (found) select(found.call || found.step);
  sheet.value = true;
  setTimeout(() => /** @type {HTMLElement | null} */ (document.querySelector(".asked input, .asked button"))?.focus(), 50);
}

// ------------------------------------------------------------------------------------------ decisions

/** The reason of a denial, or the result of a settled call, as the person writes it. */
const written = signal({ key: "", text: "" });
const writtenFor = (/** @type {any} */ item) => (written.value.key === item.request_id ? written.value.text : "");

/** Send a decision. A settlement must see the newest event. @param {any} item @param {string} verb @param {any} body @param {string} done */
function decide(item, verb, body, done) {
  const whole = { request_id: item.request_id, ...body }, how = { head: verb === "settle" ? item.head : 0 };
  return item.task_id === opened.value.id ? send(verb, whole, done, how) : act(item.task_id, verb, whole, done, how);
}

/** Decisions by their keys: for which kind, and what they send. @type {Record<string, [string, (item: any) => any]>} */
const DECISIONS = {
  a: ["approval", (item) => decide(item, "approve", {}, "Approved.")],
  d: ["approval", (item) => decide(item, "deny", writtenFor(item) ? { reason: writtenFor(item) } : {}, "Denied.")],
  e: ["approval", (item) => (dialog.value = { name: "call", call: { id: item.request_id, name: item.tool, arguments: item.arguments }, item })],
  h: ["settlement", (item) => decide(item, "settle", { verdict: { type: "happened", output: settledOutput(item) } }, "Settled: it happened.")],
  n: ["settlement", (item) => decide(item, "settle", { verdict: { type: "not_happened" } }, "Settled: it did not happen.")],
};

/** @param {any} item */
const settledOutput = (item) => (writtenFor(item).trim() ? readJson(writtenFor(item), "The result") : null);

/** Decide the request of the selected row by a key; return whether there is one. @param {string} key */
export function decideByKey(key) {
  const item = asked.value, [kind, carryOut] = DECISIONS[key] || [];
  if (!item || !carryOut || kind !== item.kind || !isMine(item)) return false;
  try {
    void carryOut(item);
  } catch (error) {
    say(/** @type {Error} */ (error).message, true);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------- view

/** What waits in a step, or in one of its calls. @param {{step: string, call?: any}} props */
export function Asked({ step, call }) {
  return html`${askedOf(step, call).map((item) => html`<${Request} key=${`${item.task_id}/${item.request_id}`} item=${item} />`)}`;
}

/** The question, as a person reads it. @param {any} item */
function leadOf(item) {
  if (item.kind === "settlement") return `Did ${item.tool} happen?`;
  if (item.kind === "question") return item.text;
  if (typeof item.preview === "string" && item.preview) return item.preview;
  return item.tool.startsWith("the ") ? `Let ${item.tool} pass?` : `Run ${item.tool}?`;
}

const LOST = "The call began, and its process ended before the outcome was recorded. Look it up where it would show.";

/** @param {{item: any}} props */
function Request({ item }) {
  const tone = item.kind === "settlement" ? "odd" : "wait", why = item.kind === "settlement" ? LOST : item.reason;
  const end = item.has_default ? `, then the answer is ${asText(item.default)}` : item.kind === "approval" ? ", then it is denied" : "";
  return html`<section class=${`asked c-${tone}`} aria-label="It waits for you"><p class="lead">${safe(leadOf(item))}</p>
    ${(why || item.rule) && html`<p class="q">${safe(why)}${item.rule && html` <span class="tag">rule ${safe(item.rule)}</span>`}</p>`}
    ${item.preview && typeof item.preview !== "string" && html`<${Table} of=${item.preview} />`}
    ${item.task_id !== opened.value.id && html`<p class="q">In <a class="mono" href=${taskLink(item.task_id)}>${safe(item.task_id)}</a></p>`}
    ${item.task_id !== opened.value.id && item.tool && html`<${Table} of=${item.arguments} />`}
    ${item.idempotency_key && html`<p class="q">Key <span class="mono">${safe(item.idempotency_key)}</span></p>`}
    ${item.untrusted.length > 0 && html`<${Note} tone="wait" icon="degraded">The model had read content from outside before it asked: ${safe(item.untrusted.join(", "))}.<//>`}
    ${item.expires && html`<p class="q">Expires in ${duration(Math.max(0, item.expires / 1e3 - now.value))}${safe(end)}.</p>`}
    ${isMine(item) ? html`<${Answers} item=${item} />` : html`<p class="q">${notMine(item)}</p>`}</section>`;
}

/** Why I may not decide. @param {any} item */
function notMine(item) {
  if (!may("decide")) return "Your token may read, and not decide.";
  if (item.excluded.includes(me.value?.name)) return "You may not decide this: the rule wants another person.";
  return `Only ${safe(item.approvers.join(", "))} may decide this.`;
}

/** @param {{item: any}} props */
function Answers({ item }) {
  if (item.kind === "question") return html`<${Answer} item=${item} />`;
  const isSettled = item.kind === "settlement", text = writtenFor(item);
  const write = (/** @type {any} */ change) => (written.value = { key: item.request_id, text: change.target.value });
  const by = (/** @type {string} */ key) => () => decideByKey(key);
  return html`<label><span class="cap">${isSettled ? "Its result as JSON, if it happened" : "Reason, if you deny it: the model reads it"}</span>
      <input class=${`field ${isSettled ? "mono" : ""}`} autocomplete="off" value=${text} onInput=${write} /></label>
    <div class="answer">${isSettled
      ? html`<${Act} main label="It happened" keyName="h" onClick=${by("h")} /><${Act} label="It did not" keyName="n" onClick=${by("n")} />`
      : html`<${Act} main label="Approve" keyName="a" onClick=${by("a")} /><${Act} label="Deny" keyName="d" onClick=${by("d")} />
        <${Act} label="Change arguments" keyName="e" onClick=${by("e")} />`}</div>`;
}

/** An answer by its schema: a choice, yes or no, or fields. @param {{item: any}} props */
function Answer({ item }) {
  const schema = item.schema || { type: "string" }, choices = schema.enum || (schema.type === "boolean" ? [true, false] : null);
  const [form, setForm] = useState(() => formOf({ title: "Answer", ...schema }));
  const answer = (/** @type {any} */ value) => void decide(item, "answer", { value }, "Answered.");
  if (choices) return html`<div class="answer">${choices.map((/** @type {any} */ value, /** @type {number} */ place) =>
    html`<${Act} key=${place} main=${place === 0} label=${value === true ? "Yes" : value === false ? "No" : safe(asText(value))} onClick=${() => answer(value)} />`)}</div>`;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const { value, problems } = readForm(form);
    if (problems.length) setForm({ ...form, shown: true });
    else answer(value);
  };
  return html`<form class=${/^(object|array)$/.test(schema.type) ? "" : "one"} onSubmit=${submit}><${SchemaForm} form=${form} onForm=${setForm} id=${`answer-${item.request_id}`} />
    <div class="answer"><${Act} main submit label="Answer" keyName="↵" />
      ${/^(object|array)$/.test(schema.type) && html`<${Act} label=${form.text === null ? "As JSON" : "As a form"} onClick=${() => setForm(flipForm(form))} />`}</div></form>`;
}

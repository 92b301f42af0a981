// The inbox: the selected request, its arguments as a person changes them, and the decisions. A decision names its request,
// which is asked once. A settlement and an undo also name the last event that the person saw.
import { computed, effect, signal } from "@preact/signals";
import { agents, loadAgents } from "./agents.js";
import { call, taskPath } from "./api.js";
import { asText } from "./fold_state.js";
import { safe } from "./format.js";
import { place, rename, view } from "./place.js";
import { fieldOf, schemaOf } from "./schema.js";
import { complaint, flipForm, formOf, readForm } from "./schema_form.js";
import { act, decided, inbox, keyOf, may, readWaits, say, toast } from "./store.js";

// ----------------------------------------------------------------------------------------- selection

/** The key of the selected request, and its position: when it has gone, the next one takes its position. */
const chosen = signal({ key: "", position: 0 });
/** The position of the selected request. */
export const position = computed(() => {
  const own = inbox.value.findIndex((each) => keyOf(each) === chosen.value.key);
  return own < 0 ? Math.min(chosen.value.position, inbox.value.length - 1) : own;
});
/** The request of the selected row in the view of a task. @type {import("@preact/signals").Signal<any>} */
export const inTask = signal(undefined);
/** The selected request. */
export const item = computed(() => (view.value === "t" ? inTask.value : inbox.value[position.value]));

const linkOf = (/** @type {any} */ each) => `#/inbox?request=${encodeURIComponent(keyOf(each))}`;

// The address names the selected request, so a link to it can be shared.
effect(() => {
  const key = place.value.view === "inbox" && place.value.query.get("request");
  if (key) chosen.value = { key, position: chosen.peek().position };
});
effect(() => {
  const open = item.value;
  if (view.value === "inbox" && open && location.hash !== linkOf(open)) queueMicrotask(() => place.peek().view === "inbox" && rename(linkOf(open)));
});

/** @param {number} at */
export function choose(at) {
  const to = Math.max(0, Math.min(inbox.value.length - 1, at)), next = inbox.value[to];
  if (next) chosen.value = { key: keyOf(next), position: to };
}

/** Select the next or the last request. @param {number} by */
export const moveItem = (by) => choose(position.value + by);

// -------------------------------------------------------------------------------------- the request

/** Whether I may decide a request. @param {any} open */
export const isMine = (open) => may(open.kind === "undo" ? "edit" : "decide") && open.may_decide !== false;

/** The agent that asks. @param {any} open */
export const askerOf = (open) => open.path.at(-1) || open.agent;

/** The text of a person: changed arguments or an answer, the reason or result, how far an approval holds. */
const EMPTY = { key: "", form: /** @type {import("./schema_form.js").Form | null} */ (null), text: "", scope: "once" };
const written = signal(EMPTY);
/** The text for the selected request. */
export const draft = computed(() => (item.value && written.value.key === keyOf(item.value) ? written.value : EMPTY));

/** @param {Partial<typeof EMPTY>} changes */
export const put = (changes) => void (item.value && (written.value = { ...draft.value, ...changes, key: keyOf(item.value) }));

// A question with several fields has its form at once; an approval that needs an argument too.
effect(() => {
  const open = item.value;
  if (!open || draft.peek().form || !isMine(open)) return;
  if (open.kind === "question" && !choicesOf(open)) queueMicrotask(() => put({ form: formOf(open.schema || { type: "string" }) }));
  if (open.kind === "approval" && open.argument) queueMicrotask(() => void editItem());
});

/** The answers to choose from, if the schema names few. @param {any} open @returns {{value: any, label: string, key: string}[] | null} */
export function choicesOf(open) {
  if (open?.kind !== "question") return null;
  const { kind, choices, nullable } = fieldOf(open.schema || {}, open.schema);
  if (kind === "boolean" && !nullable) return [{ value: true, label: "Yes", key: "y" }, { value: false, label: "No", key: "n" }];
  if (kind !== "choice" || choices.length > 9) return null;
  return [...choices, ...(nullable ? [null] : [])].map((value, at) => ({ value, label: value === null ? "None" : asText(value), key: String(at + 1) }));
}

/** The schema of the arguments of a call: of the agent's tool, else as the model saw it, else one that fits them. @param {any} open */
async function schemaFor(open) {
  if (!agents.value) await loadAgents();
  const named = (/** @type {any[]} */ tools) => tools.find((tool) => tool.name === open.tool)?.parameters;
  const own = named(agents.value?.find((agent) => agent.name === askerOf(open))?.tools || []);
  if (own) return own;
  const asked = open.request_id.replace(/-ask\d+$/, "").replace(/-[^-]*$/, ""), step = asked.split("-")[0];
  try {
    const request = await call(`${taskPath(open.task_id)}/steps/${step}/request${asked === step ? "" : `?call=${asked}`}`);
    return named(request.tools) || schemaOf(open.arguments);
  } catch {
    return schemaOf(open.arguments);
  }
}

/** Change the arguments of the selected approval, or take the changes back. */
export async function editItem() {
  const open = item.value;
  if (open?.kind !== "approval" || !isMine(open)) return;
  if (draft.value.form) return put({ form: null });
  const schema = await schemaFor(open);
  if (item.value !== open && (!item.value || keyOf(item.value) !== keyOf(open))) return;
  put({ form: formOf(schema, open.arguments) });
  const first = open.argument ? `#edit-${CSS.escape(open.argument)}` : ":is(.case, .asked) .form :is(input, textarea, select)";
  setTimeout(() => /** @type {HTMLElement | null} */ (document.querySelector(first))?.focus(), 30);
}

/** Write the arguments or the answer as JSON, or as a form again. */
export const flip = () => draft.value.form && put({ form: flipForm(draft.value.form) });

// ----------------------------------------------------------------------------------------- decisions

/** A sentence about a field that cannot be sent. */
class Unclear extends Error {}

/** Return the value of the form of the selected request. */
function readDraft() {
  const form = /** @type {import("./schema_form.js").Form} */ (draft.value.form), { value, problems } = readForm(form);
  if (!problems.length) return value;
  put({ form: { ...form, shown: true } });
  throw new Unclear(complaint(problems));
}

/** The result of a call that happened, as the person wrote it. */
function readResult() {
  const text = draft.value.text.trim();
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new Unclear('The result is not JSON: write a text in quotes, such as "sent".');
  }
}

/** @param {any} open */
function approval(open) {
  const { form, scope } = draft.value;
  if (open.argument && !form) throw new Unclear(`Fill in ${open.argument} first.`);
  return { ...(form ? { arguments: readDraft() } : {}), ...(scope === "once" ? {} : { scope }) };
}

/** The decisions: for which kind, the verb, its body, and the message. @type {Record<string, [string, string, (open: any) => any, string]>} */
const VERBS = {
  approve: ["approval", "approve", approval, "Approved."],
  deny: ["approval", "deny", () => (draft.value.text ? { reason: draft.value.text } : {}), "Denied."],
  answer: ["question", "answer", () => ({ value: readDraft() }), "Answered."],
  happened: ["settlement", "settle", () => ({ verdict: { type: "happened", output: readResult() } }), "Settled: it happened."],
  not: ["settlement", "settle", () => ({ verdict: { type: "not_happened" } }), "Settled: it did not happen."],
  again: ["undo", "undo", () => ({}), "The undo is complete."],
  skip: ["undo", "undo", () => ({ force: true }), "The undo is complete. It recorded what stays."],
};

/** Decide the selected request. @param {string} verb */
export async function decide(verb) {
  const open = item.value, [kind, path, bodyOf, done] = VERBS[verb];
  if (!open || kind !== open.kind || !isMine(open)) return;
  try {
    await send(open, path, bodyOf(open), done);
  } catch (error) {
    if (!(error instanceof Unclear)) throw error;
    say(error.message, true);
  }
}

/** Answer the selected question. @param {any} value */
export const answer = (value) => send(item.value, "answer", { value }, "Answered.");

let sending = "";
/** @param {any} open @param {string} path @param {any} body @param {string} done */
async function send(open, path, body, done) {
  const key = keyOf(open), here = position.value, isUndo = path === "undo";
  if (sending === key) return;
  sending = key;
  toast.value = null; // the message of an earlier attempt
  const whole = isUndo ? body : { request_id: open.request_id, ...body };
  const sent = await act(open.task_id, path, whole, "", { head: isUndo || path === "settle" ? open.head : 0, wait: isUndo ? 20 : 5 });
  if (isUndo && !sent?.complete) await readWaits();
  sending = "";
  if (sent === undefined) return;
  if (isUndo && !tellUndo(sent)) return;
  say(done, false, { tool: open.tool || "the question", task: open.task_id });
  if (keyOf(item.value || {}) === key) chosen.value = { key: "", position: here };
  decided.value = new Map(decided.value).set(key, open.head);
  if (document.activeElement?.closest(".case")) document.getElementById("inbox-list")?.focus();
}

/** Return whether an undo is complete; say so if not. @param {any} report  of the undo, or the task while it goes on */
function tellUndo(report) {
  if (report?.complete === undefined) say("The undo goes on.");
  else if (!report.complete) say(`The undo has stopped again: ${safe(report.problem || "its task says why")}`, true);
  return Boolean(report?.complete);
}

/** Answer by a key of a choice; return whether there is one. @param {string} key */
export function answerByKey(key) {
  const open = item.value, choice = isMine(open || { may_decide: false }) ? choicesOf(open)?.find((each) => each.key === key) : undefined;
  if (choice) void answer(choice.value);
  return Boolean(choice);
}

/** Whether a key is one of the inbox now: `n` is about an unknown outcome. @param {string} key */
export const isInboxKey = (key) => key !== "n" || (item.value?.kind === "settlement" && isMine(item.value));

/** Go to the answer, or to the reason. */
export function goToAnswer() {
  const field = document.querySelector(":is(.case, .asked) :is(.form :is(input, textarea, select, button), #answer, .answer button)");
  /** @type {HTMLElement | null} */ (field)?.focus();
}

/** @type {Record<string, () => void>} */
export const INBOX_KEYS = {
  a: () => void decide("approve"), d: () => void decide("deny"), e: () => void editItem(), h: () => void decide("happened"), n: () => void decide("not"),
  r: () => void decide("again"), S: () => void decide("skip"), Enter: goToAnswer, Escape: () => void (item.value?.kind === "approval" && put({ form: null })),
};

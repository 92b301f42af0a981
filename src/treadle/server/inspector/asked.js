// The requests of the open task to a person, decided in the task itself, as in the inbox.
import { computed, effect, signal } from "@preact/signals";
import { callExact, taskPath } from "./api.js";
import { duration, safe } from "./format.js";
import { asText } from "./fold_state.js";
import { pendingOf } from "./fold_view.js";
import { Answers, leadOf, notMine, whyOf } from "./inbox.js";
import { answerByKey, draft, INBOX_KEYS, inTask, isMine, put } from "./inbox_state.js";
import { taskLink } from "./place.js";
import { SchemaForm } from "./schema_form.js";
import { decided, FOR_PEOPLE, keyOf, now, opened, pending, tasks } from "./store.js";
import { current, past, select, sheet } from "./task_state.js";
import { html, Note, Table } from "./ui.js";

/** The requests of the open task and of those below it. @type {import("@preact/signals").Signal<any[]>} */
const listed = signal([]);
/** Those that people decide, and that this page has not decided yet. */
const items = computed(() =>
  listed.value.filter((item) => FOR_PEOPLE.includes(item.kind) && !(item.head <= (decided.value.get(keyOf(item)) ?? -1))));

/** The ids of the open requests by the journal: another list asks the server again. */
const waits = computed(() => {
  const { id, journal, loading } = opened.value;
  if (!id || loading) return "";
  const undo = journal.state.undo ? `${id}/undo ${journal.head}` : "";
  return pendingOf(journal.state).map((item) => `${id}/${item.id}`).join(" ") + undo;
});

effect(() => {
  const asks = waits.value, { id } = opened.peek();
  void pending.value; // also when something below the task waits
  if (!asks) {
    listed.value = [];
    return;
  }
  callExact(`${taskPath(id)}/pending?limit=100`).then(
    (page) => {
      if (opened.peek().id === id && waits.peek() === asks) listed.value = page.items;
    },
    () => {},
  );
});

/** Whether a task is another one or below it. @param {string} id @param {string} above */
function isBelow(id, above) {
  for (let at = id, depth = 0; at && depth < 20; depth += 1) {
    if (at === above) return true;
    at = tasks.value.get(at)?.parent || "";
  }
  return false;
}

/**
 * Return the requests of a step, or of one of its calls.
 * @param {string} step @param {any} [call]
 */
export function askedOf(step, call = null) {
  if (past.value) return [];
  const { id, journal } = opened.value;
  const inStep = journal.state.steps.get(step)?.calls || [];
  const calls = call ? [call] : inStep.map((each) => journal.state.calls.get(each));
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

effect(() => void (inTask.value = asked.value || undefined));

/** Whether something of the open task waits for a person, and whether the panel shows it. */
export const hasAsked = computed(() => !past.value && items.value.length > 0);
export const isAskedShown = computed(() => asked.value !== null);

/** Select the row of the open request, and go to its answer. */
export function goToAsked() {
  const item = items.value[0], { id, journal } = opened.value;
  if (!item) return;
  const found = pendingOf(journal.state).find((each) => each.id === item.request_id || isBelow(item.task_id, each.id));
  if (found && item.task_id !== id) select([...journal.state.calls.values()].find((each) => each.child === found.id)?.id || found.step);
  else if (found) select(found.call || found.step);
  sheet.value = true;
  setTimeout(INBOX_KEYS.Enter, 50);
}

/** The keys that decide, and the kinds whose requests they decide. @type {Record<string, string[]>} */
const KEYS = {
  a: ["approval"], d: ["approval"], e: ["approval"], h: ["settlement"], n: ["settlement"], r: ["undo"], S: ["undo"],
};

/** Decide the request of the selected row by a key; return whether it takes one. @param {string} key */
export function decideByKey(key) {
  const item = asked.value;
  if (!item || !isMine(item)) return false;
  if (!KEYS[key]?.includes(item.kind)) return answerByKey(key);
  INBOX_KEYS[key]();
  return true;
}

// ---------------------------------------------------------------------------------------------- view

/** The first open request of a step, or of one of its calls, with its answers. @param {{step: string, call?: any}} props */
export function Asked({ step, call }) {
  const [first, ...more] = askedOf(step, call);
  if (!first) return null;
  return html`<${Request} key=${keyOf(first)} item=${first} />
    ${more.map((item) => html`<p class="q" key=${keyOf(item)}>Then: ${safe(leadOf(item))}</p>`)}`;
}

/** @param {{item: any}} props */
function Request({ item }) {
  const tone = { settlement: "odd", undo: "bad" }[/** @type {string} */ (item.kind)] || "wait", { form } = draft.value;
  const isElsewhere = item.task_id !== opened.value.id, isEdited = item.kind === "approval" && form !== null;
  const then = item.has_default ? `, then the answer is ${asText(item.default)}` : item.kind === "approval" ? ", then it is denied" : "";
  return html`<section class=${`asked c-${tone}`} aria-label="It waits for you"><p class="lead">${safe(leadOf(item, isEdited))}</p>
    ${(whyOf(item) || item.rule) && html`<p class="q">${safe(whyOf(item))}
      ${item.rule && html`<span> <span class="tag">rule ${safe(item.rule)}</span></span>`}</p>`}
    ${item.preview && typeof item.preview !== "string" && html`${isEdited && html`<p class="cap">As asked</p>`}<${Table} of=${item.preview} />`}
    ${isElsewhere && html`<p class="q">In <a class="mono" href=${taskLink(item.task_id)}>${safe(item.task_id)}</a></p>`}
    ${isElsewhere && item.tool && !isEdited && html`<${Table} of=${item.arguments} />`}
    ${item.idempotency_key && html`<p class="q">Key <span class="mono">${safe(item.idempotency_key)}</span></p>`}
    ${item.untrusted.length > 0 && html`<${Note} tone="wait" icon="degraded">The model had read untrusted content before it asked:
      ${" "}${safe(item.untrusted.join(", "))}.<//>`}
    ${item.expires && html`<p class="q">Expires in ${duration(Math.max(0, item.expires / 1e3 - now.value))}${safe(then)}.</p>`}
    ${isEdited && html`<${SchemaForm} form=${form} onForm=${(/** @type {any} */ next) => put({ form: next })} id="edit" />`}
    ${isMine(item) ? html`<${Answers} open=${item} />` : html`<p class="q">${notMine(item)}</p>`}</section>`;
}

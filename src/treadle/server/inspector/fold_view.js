// The facts that the views draw from a state: its word, its open requests and its figures.
import { inOrder } from "./fold_graph.js";
import { openRequests } from "./fold_requests.js";
import { underWay } from "./fold_state.js";
import { dollars, pico } from "./money.js";

/** @typedef {import("./fold_state.js").State} State */

/** @param {State} state */
function openCalls(state) {
  return underWay(state).flatMap((step) => step.open.map((id) => /** @type {any} */ (state.calls.get(id))));
}

const isUnsettled = (/** @type {any} */ call) => (call.status === "lost" || call.status === "unresolved") && call.outcome === null;
const isParked = (/** @type {any} */ call) => call.status === "parked" && call.stopped;

/** Return the state of a task at rest, by the word that the server uses. @param {State} state @returns {string} */
export function stateWord(state) {
  if (state.ended) return state.ended;
  if (state.pausing) return "paused";
  if (state.interrupting) return "interrupted";
  const calls = openCalls(state);
  if (state.undo || calls.some(isUnsettled)) return "waiting";
  const hasTimer = openRequests(state).some(({ request }) => request.retryAt !== null) || state.sleeps.size;
  if (hasTimer || state.approvals.size || state.questions.size) return "waiting";
  if (state.deferred.size && (state.answered || state.graph)) return "waiting";
  if (calls.some(isParked)) return "waiting";
  if (state.answered) return "answered";
  return state.began ? "running" : "created";
}

/**
 * Return the open requests of a task, in the order of the server.
 * @param {State} state
 * @returns {{id: string, kind: string, tool: string, arguments: any, call: string, step: string, due: number | null, event: any}[]}
 */
export function pendingOf(state) {
  if (state.ended === "completed" && !state.deferred.size) return [];
  const calls = openCalls(state), found = /** @type {any[]} */ ([]);
  const add = (/** @type {string} */ id, /** @type {string} */ kind, /** @type {any} */ call, more = {}) =>
    found.push({ id, kind, tool: call?.name || "", arguments: call?.arguments || {}, call: call?.id || "", step: call?.step || "", due: null, event: null, ...more });
  if (!state.undo) {
    for (const call of [...calls, ...state.checks.values()])
      if (state.approvals.has(call.id)) add(`${call.id}-ask${call.permit.request.number}`, "approval", call, { event: call.permit.request });
    if (!state.ended)
      for (const [id, event] of state.questions) {
        const call = event.call ? calls.find((each) => each.id === event.call) : null;
        add(id, isCallers(state, call) ? "call" : "question", call, { event, step: event.step });
      }
  }
  for (const call of calls.filter(isUnsettled)) add(call.id, "settlement", call);
  if (!state.undo) for (const call of calls.filter(isParked)) add(call.child, "subagent", call);
  for (const id of state.undo?.queue || []) {
    const call = state.calls.get(id);
    if (/** @type {any} */ (call)?.undoStatus === "lost") add(`${id}-undo`, "settlement", call);
  }
  if (state.pausing && !state.ended)
    for (const { step, key, request } of openRequests(state)) if (request.permit === "ask") add(key || step, "request", null, { step });
  if (!state.ended && !state.undo) addTimers(state, add);
  for (const id of state.deferred.keys()) add(id, "background", state.calls.get(id), { due: /** @type {any} */ (state.calls.get(id))?.ticket.expires });
  return found;
}

/** @param {State} state @param {(id: string, kind: string, call: any, more?: any) => any} add */
function addTimers(state, add) {
  for (const { step, key, request } of openRequests(state))
    if (request.retryAt !== null) add(key || step, "timer", null, { step, due: request.retryAt });
  for (const sleep of state.sleeps.values())
    add(sleep.call || sleep.step, "timer", sleep.call ? state.calls.get(sleep.call) : null, { step: sleep.step, due: sleep.until });
}

/** Whether the caller of the task runs the tool of a call. @param {State} state @param {any} call */
function isCallers(state, call) {
  const tools = state.options?.caller_tools || [];
  return Boolean(call) && tools.some((/** @type {any} */ tool) => tool.name === call.name);
}

/** Kinds of requests that people, callers and holders of tickets decide. */
const OUTSIDE = new Set(["approval", "question", "settlement", "call", "background"]);

/** Return the number of requests that others must decide; background work of an ended task does not count. @param {State} state */
export function pendingCount(state) {
  const mayWait = state.approvals.size || state.questions.size || state.undo || state.graph || (state.deferred.size && !state.ended);
  if (!mayWait && (state.ended || !openCalls(state).some(isUnsettled))) return 0;
  return pendingOf(state).filter((item) => OUTSIDE.has(item.kind)).length;
}

/** Return the spending of a task with all tasks below it. @param {State} state */
export function spending(state) {
  const total = {
    tokensIn: state.tokensIn, tokensOut: state.tokensOut, cached: state.cached, cacheWrites: state.cacheWrites,
    reasoning: state.reasoning, modelCalls: state.modelCalls, toolCalls: state.toolCalls, unpriced: [...state.unpriced],
  };
  let cost = state.pico;
  for (const part of [...state.children.values()].flat()) {
    total.tokensIn += part.usage.input_tokens;
    total.tokensOut += part.usage.output_tokens;
    total.cached += part.usage.cached_tokens;
    total.cacheWrites += part.usage.cache_write_tokens;
    total.reasoning += part.usage.reasoning_tokens;
    total.modelCalls += part.model_calls;
    total.toolCalls += part.tool_calls;
    cost += pico(part.cost);
    total.unpriced.push(...part.unpriced.filter((/** @type {string} */ name) => !total.unpriced.includes(name)));
  }
  return { ...total, cost: total.unpriced.length ? null : dollars(cost), known: dollars(cost) };
}

/** Return the steps of the present branch that have begun, in order. @param {State} state */
export function stepsOf(state) {
  const ids = [...state.order, ...underWay(state).map((step) => step.id)];
  return (state.graph ? inOrder(state, ids) : ids).map((id) => /** @type {any} */ (state.steps.get(id)));
}

/** Return the calls of the present branch, in order. @param {State} state */
export function callsOf(state) {
  const calls = stepsOf(state).flatMap((step) => step.calls.map((/** @type {string} */ id) => ({ call: state.calls.get(id), step })));
  return calls.filter(({ call }) => call && !(/** @type {any} */ (call).answers));
}

/** Return the answer and its text, if there is one. @param {State} state */
export function answerOf(state) {
  const has = state.ended === "completed" || state.ended === "degraded" || (state.answered && !state.ended);
  return { output: has ? state.output : null, text: has ? state.text : "" };
}

/** Return why a task was paused or interrupted. @param {State} state */
export function stopReason(state) {
  return ["paused", "interrupted"].includes(stateWord(state)) ? state.stopReason || state.limitDetail : "";
}

/** Return the reasons why a task is degraded. @param {State} state */
export const reasonsOf = (state) => (state.ended ? state.endReasons : state.reasons);

// Rules of the requests that step functions make, and of their repetition. They follow `core/rules/schedule.py`.
import { addCall, ownCall, ownStep, request } from "./fold_state.js";
import { ownNode } from "./fold_asking.js";
import { baseId, isFailed, repeatCall } from "./fold_calls.js";
import { answered, failed } from "./fold_requests.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** @param {State} state @param {Event} event */
function modelRequested(state, event) {
  const node = ownNode(state, event.step), step = ownStep(state, event.step);
  if (!node || !step) return;
  const inConversation = event.messages === null;
  if (inConversation || event.after_conversation) node.owesResults = false;
  node.requests += 1;
  node.memo = { ...node.memo, [event.key]: { request: event.call } };
  step.requests = { ...step.requests, [event.call]: { ...request(), inConversation } };
}

/** @param {State} state @param {Event} event */
function modelReturned(state, event) {
  const found = answered(state, event);
  if (!found) return;
  const { step, key, request: open } = found, node = ownNode(state, step.id);
  removeRequest(step, key);
  if (!open.inConversation) return;
  step.text = event.message.parts;
  const calls = event.message.parts.filter((/** @type {any} */ part) => part.type === "tool_call");
  node.newestCalls = calls.map((/** @type {any} */ part) => part.id);
  node.owesResults = calls.length > 0;
}

/** @param {any} step @param {string} key */
function removeRequest(step, key) {
  const { [key]: _, ...others } = step.requests;
  step.requests = others;
}

/** @param {State} state @param {Event} event */
function modelFailed(state, event) {
  const found = failed(state, event);
  if (!found || found.request.status !== "failed") return;
  removeRequest(found.step, found.key);
  const node = ownNode(state, found.step.id);
  const entries = Object.entries(node.memo).map(([key, entry]) => [key, entry.request === found.key ? { ...entry, failed: true } : entry]);
  node.memo = Object.fromEntries(entries);
}

/** @param {State} state @param {Event} event */
function callRequested(state, event) {
  const node = ownNode(state, event.step), step = ownStep(state, event.step);
  if (!node || !step) return;
  if (event.asked && !node.owesResults) node.owesResults = true;
  node.requests += 1;
  addCall(state, step, { id: event.call, name: event.name, arguments: event.arguments, problem: event.problem, fromModel: event.asked });
  node.memo = { ...node.memo, [event.key]: { call: event.call } };
  countCall(state, node);
}

/** Propose the failed calls of a failed step again, and drop its failed requests. @param {State} state @param {any} node @param {any} step */
export function tryAgain(state, node, step) {
  const own = step.calls.map((/** @type {string} */ id) => state.calls.get(id)).filter((/** @type {any} */ call) => call.fromModel);
  const seen = new Set(own.map((/** @type {any} */ call) => baseId(call.id)));
  for (const id of node.newestCalls) seen.delete(id);
  const memo = { ...node.memo };
  for (const [key, entry] of Object.entries(memo)) {
    const call = entry.call && state.calls.get(entry.call);
    if (entry.failed || (entry.question && !entry.answered)) delete memo[key];
    else if (call && (isFailed(call) || wasRefused(call)) && !seen.has(baseId(call.id)))
      memo[key] = { call: callAgain(state, node, step, ownCall(state, call.id)) };
  }
  node.memo = memo;
}

const wasRefused = (/** @type {any} */ call) => call.outcome === "refused" || call.error?.kind === "refused";

/** @param {State} state @param {any} node @param {any} step @param {any} call */
function callAgain(state, node, step, call) {
  if (node.newestCalls.includes(baseId(call.id))) node.owesResults = true;
  const again = repeatCall(state, step, call);
  if (call.outcome !== "refused") countCall(state, node);
  return again.id;
}

/** @param {State} state @param {any} node */
function countCall(state, node) {
  state.toolCalls += 1;
  node.calls += 1;
}

/** Propose calls again that a limit refused at the end of the task. @param {State} state */
export function reopenGraph(state) {
  for (const id of state.graph.running) {
    const node = ownNode(state, id), memo = { ...node.memo };
    for (const [key, entry] of Object.entries(memo)) {
      const call = entry.call && state.calls.get(entry.call);
      if (call && wasRefused(call)) memo[key] = { call: callAgain(state, node, ownStep(state, id), ownCall(state, call.id)) };
    }
    node.memo = memo;
  }
}

/** @type {Record<string, (state: State, event: Event) => void>} */
export const FUNCTION_RULES = {
  model_requested: modelRequested, model_returned: modelReturned, model_failed: modelFailed, call_requested: callRequested,
};

// Rules of events of requests to models, and the spending of a task. They follow `core/rules/model_calls.py`.
import { pico } from "./money.js";
import { endOf, ownStep } from "./fold_state.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** Failures of a request that was never sent. */
const UNSENT = new Set(["not_sent", "denied"]);

/**
 * Return the step of an event and its open request, both for changes.
 * @param {State} state
 * @param {Event} event
 */
export function requestOf(state, event) {
  const step = ownStep(state, event.step);
  const key = state.graph ? event.call || "" : "";
  if (!step?.requests[key]) return null;
  const request = { ...step.requests[key] };
  step.requests = { ...step.requests, [key]: request };
  return { step, request, key };
}

/** Change the newest send of a request. @param {any} step @param {string} key @param {any} changes */
function changeSend(step, key, changes) {
  const place = step.sends.findLastIndex((/** @type {any} */ send) => send.call === key);
  if (place >= 0) step.sends = step.sends.with(place, { ...step.sends[place], ...changes });
}

/** Drop the answer of a request whose input has changed. @param {any} request */
export function voidRequest(request) {
  if (request.status === "held") Object.assign(request, { status: "proposed", void: false, final: false });
  else request.void = request.status === "begun";
}

/** @param {State} state @param {string} model */
function noteUnpriced(state, model) {
  const name = model || state.model;
  if (!state.unpriced.includes(name)) state.unpriced = [...state.unpriced, name];
}

/** @param {State} state @param {any} usage */
function addTokens(state, usage) {
  state.tokensIn += usage.input_tokens;
  state.tokensOut += usage.output_tokens;
  state.cached += usage.cached_tokens || 0;
  state.cacheWrites += usage.cache_write_tokens || 0;
  state.reasoning += usage.reasoning_tokens || 0;
}

/** Whether a request used anything. @param {any} usage */
const isUsed = (usage) => Boolean(usage && Object.values(usage).some(Boolean));

/** Add the spending of a request; without usage there is no cost either. @param {State} state @param {any} spent */
function spend(state, spent) {
  if (!isUsed(spent.usage)) return;
  addTokens(state, spent.usage);
  if (spent.cost === null || spent.cost === undefined) noteUnpriced(state, spent.model || "");
  else state.pico += pico(spent.cost);
}

/** @param {State} state @param {any[]} also */
function countSideCalls(state, also) {
  state.modelCalls += also?.length || 0;
  for (const side of also || []) spend(state, side);
}

/**
 * Record the answer to a request, and its cost unless an `answer_held` event had it.
 * @param {State} state
 * @param {Event} event
 */
export function finish(state, event) {
  const found = requestOf(state, event);
  if (!found) return null;
  const { step, request, key } = found;
  if (request.status === "begun") {
    addTokens(state, event.usage);
    if (event.cost === null) noteUnpriced(state, event.model);
    else state.pico += pico(event.cost);
    countSideCalls(state, event.also);
    endSend(state, step, key, event, { usage: event.usage, cost: event.cost });
  }
  return found;
}

/** @param {State} state @param {any} step @param {string} key @param {Event} event @param {any} changes */
function endSend(state, step, key, event, changes) {
  const send = step.sends.findLast((/** @type {any} */ each) => each.call === key);
  if (!send || send.ended !== null) return;
  const ended = endOf(state, event, send.began);
  state.openSends -= 1;
  if (!state.openSends) state.modelTime += ended - state.sendsSince;
  changeSend(step, key, { ended, lastSeq: event.seq, ...changes });
}

/** @param {State} state @param {Event} event */
function requestJudged(state, event) {
  const found = requestOf(state, event);
  if (found) found.request.permit = event.verdict;
}

/** @param {State} state @param {Event} event */
function modelStarted(state, event) {
  const found = requestOf(state, event);
  if (!found) return;
  const { step, request, key } = found;
  Object.assign(request, { status: "begun", attempt: event.attempt, final: event.final });
  step.error = null;
  step.paused = false;
  state.model = event.model;
  state.modelCalls += 1;
  const send = {
    call: key, model: event.model, attempt: event.attempt, began: event.time, ended: null, seq: event.seq,
    lastSeq: event.seq, message: null, usage: null, cost: null, error: null, stopped: "", final: event.final,
  };
  step.sends = [...step.sends, send];
  if (!state.openSends) state.sendsSince = event.time;
  state.openSends += 1;
}

/** Record the answer in its send and return it. @param {State} state @param {Event} event */
export function answered(state, event) {
  const found = finish(state, event);
  if (!found) return null;
  const { step, request, key } = found;
  Object.assign(request, { status: "answered", retryAt: null, permit: null });
  changeSend(step, key, { message: event.message, finish: event.finish, lastSeq: event.seq, answeredBy: event.model });
  return found;
}

/** Record a failed request; return its step and the request. @param {State} state @param {Event} event */
export function failed(state, event) {
  const found = requestOf(state, event);
  if (!found) return null;
  const { step, request, key } = found;
  if (UNSENT.has(event.error.kind)) state.modelCalls -= 1;
  spend(state, event);
  countSideCalls(state, event.also);
  endSend(state, step, key, event, { error: event.error });
  Object.assign(request, { final: false, void: false, retryAt: event.retry_at, why: event.error.message });
  if (event.retry_at === null || event.next_route !== event.route) request.permit = null;
  request.status = event.retry_at === null ? "failed" : "proposed";
  return found;
}

/** @param {State} state @param {Event} event */
function modelStopped(state, event) {
  const found = requestOf(state, event);
  if (!found) return;
  spend(state, { ...event, model: "" });
  endSend(state, found.step, found.key, event, { stopped: event.reason });
  Object.assign(found.request, { status: "proposed", final: false, void: false });
}

/** @param {State} state @param {Event} event */
function timerFired(state, event) {
  const found = requestOf(state, event);
  if (found) found.request.retryAt = null;
}

/** Return the open requests to models: of a plain step its own, of running step functions all. @param {State} state */
export function openRequests(state) {
  const ids = state.step ? [state.step] : state.graph ? [...state.graph.running] : [];
  const found = [];
  for (const id of ids)
    for (const [key, request] of Object.entries(state.steps.get(id)?.requests || {})) found.push({ step: id, key, request });
  return found;
}

/** Change each open request. @param {State} state @param {(request: any) => void} change */
export function changeRequests(state, change) {
  for (const { step, key } of openRequests(state)) {
    const found = requestOf(state, { step, call: key });
    if (found) change(found.request);
  }
}

export const REQUEST_RULES = {
  request_judged: requestJudged, model_started: modelStarted, model_stopped: modelStopped,
  timer_fired: timerFired,
};

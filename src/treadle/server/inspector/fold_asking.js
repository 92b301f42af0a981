// Rules of the waits of a task before and during a call: approvals, questions, sleeps and tickets.
// They follow `core/rules/approvals.py`, `answers.py`, `sleeps.py` and `deferring.py`.
import { approvedWith } from "./argument_changes.js";
import { asText, endOf, ownCall, ownStep, takeBack, underWay } from "./fold_state.js";
import { setCheck, settleCheck } from "./fold_checks.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** @param {State} state @param {Event} event @param {string} icon @param {string} text @param {string} [by] */
export function note(state, event, icon, text, by = event.by || "") {
  state.rows.push({ kind: "note", icon, seq: event.seq, time: event.time, text, by, step: event.step, call: event.call });
}

// ------------------------------------------------------------------------------------------ approvals

/** Change the call or the content of an event. @param {State} state @param {string} id @param {any} changes */
function decide(state, id, changes) {
  if (state.checks.has(id)) return setCheck(state, id, changes);
  const call = ownCall(state, id);
  return call && Object.assign(call, changes);
}

/** @param {State} state @param {string} id */
const subject = (state, id) => state.checks.get(id) || state.calls.get(id);

/** @param {State} state @param {Event} event */
function callJudged(state, event) {
  const call = subject(state, event.call);
  if (!call) return;
  if (event.verdict === "replace") decide(state, event.call, { arguments: event.arguments || {}, permit: null, replacedBy: event.rule });
  else if (event.verdict === "deny") decide(state, event.call, { permit: { status: "denied", rule: event.rule, reason: event.reason } });
  else if (call.permit) decide(state, event.call, { permit: { ...call.permit, status: "approved" } });
  else decide(state, event.call, { permit: { status: "allowed", rule: event.rule, grant: event.grant } });
}

/** @param {State} state @param {Event} event */
function approvalRequested(state, event) {
  decide(state, event.call, { permit: { status: "asked", rule: event.rule, request: event }, requests: event.number });
  state.approvals.set(event.call, true);
  note(state, event, "ask", event.description);
}

/** @param {State} state @param {Event} event @param {any} changes */
function decided(state, event, changes) {
  const call = subject(state, event.call);
  state.approvals.delete(event.call);
  if (!call?.permit) return;
  const permit = { ...call.permit, by: event.by, decided: event.seq, ...changes.permit };
  const now = decide(state, event.call, { ...changes, permit });
  if (state.checks.has(event.call)) settleCheck(state, now);
  const { status, previous } = changes.permit;
  if (status === "edited") note(state, event, "edit", `${event.tool || now.name} was ${approvedWith(event.by, previous, event.arguments)}`, "");
  else note(state, event, status === "denied" ? "no" : "done", event.description + (event.reason ? `: ${event.reason}` : ""));
}

/** @param {State} state @param {Event} event */
function approvalGiven(state, event) {
  const edited = event.arguments !== null;
  decided(state, event, {
    permit: edited ? { status: "edited", previous: event.previous } : { status: "approved" },
    ...(edited ? { arguments: event.arguments, previous: event.previous } : {}),
  });
}

/** Drop all decisions, since a fork inherits none. @param {State} state */
export function forgetApprovals(state) {
  for (const step of underWay(state)) for (const id of step.open) clearPermit(state, id);
}

/** @param {State} state @param {string} id */
export function clearPermit(state, id) {
  const call = ownCall(state, id);
  if (call) call.permit = null;
  state.approvals.delete(id);
}

// ------------------------------------------------------------------------------------------ questions

/** @param {Event} event */
const questionId = (event) => `${event.call || event.step}-q${event.number}`;

/** @param {State} state @param {Event} event */
function questionAsked(state, event) {
  const id = questionId(event);
  state.questions.set(id, event);
  if (event.call) {
    const call = ownCall(state, event.call);
    if (!call) return;
    endRun(state, call, event, "asked");
    Object.assign(call, { status: "asking", questions: [...call.questions.slice(0, event.place - 1), { id, status: "open", event }] });
  } else {
    const node = state.graph && ownNode(state, event.step);
    if (node) Object.assign(node, { requests: node.requests + 1, memo: { ...node.memo, [event.key]: { question: id } }, questions: [...node.questions, id] });
  }
  note(state, event, "ask", event.question);
}

/** @param {State} state @param {Event} event */
function questionSettled(state, event) {
  const id = questionId(event), question = state.questions.get(id);
  state.questions.delete(id);
  const status = event.kind === "question_answered" ? "answered" : "expired";
  const text = status === "answered" ? `answered: ${asText(event.value)}` : event.description;
  note(state, event, status === "answered" ? "done" : "limit", text);
  if (!question) return;
  if (!question.call) {
    const node = ownNode(state, question.step);
    if (!node) return;
    node.questions = node.questions.filter((/** @type {string} */ each) => each !== id);
    node.memo = { ...node.memo, [question.key]: { question: id, answered: status === "answered" || question.has_default } };
    return;
  }
  const call = ownCall(state, question.call);
  if (!call) return;
  call.questions = call.questions.map((/** @type {any} */ each) => (each.id === id ? { ...each, status, value: event.value, by: event.by } : each));
  if (call.questions.every((/** @type {any} */ each) => each.status !== "open")) call.status = "proposed";
}

/** Drop the open questions of a call that has ended. @param {State} state @param {any} call */
export function closeQuestions(state, call) {
  for (const question of call.questions) state.questions.delete(question.id);
}

/** Drop the open questions and sleeps of a step function that stopped. @param {State} state @param {any} node */
export function closeNode(state, node) {
  const memo = { ...node.memo };
  for (const [key, entry] of Object.entries(memo))
    if (entry.question && !entry.answered) { state.questions.delete(entry.question); delete memo[key]; }
  for (const id of node.questions) state.questions.delete(id);
  for (const [id, sleep] of [...state.sleeps]) if (!sleep.call && sleep.step === node.id) state.sleeps.delete(id);
  Object.assign(node, { memo, questions: [] });
}

/** Drop questions and sleeps; a fork asks and sleeps again. @param {State} state */
export function forgetAsking(state) {
  if (state.graph) for (const id of state.graph.running) closeNode(state, ownNode(state, id));
  for (const step of underWay(state))
    for (const id of step.open) {
      const call = ownCall(state, id);
      if (call.status === "asking" || call.status === "sleeping") call.status = "proposed";
      call.questions = [];
    }
  state.questions.clear();
  state.sleeps.clear();
}

/** Return a planned step for changes. @param {State} state @param {string} id */
export function ownNode(state, id) {
  const node = state.graph?.nodes.get(id);
  if (!node || node.era === state.era) return node;
  const clone = { ...node, era: state.era };
  state.graph.nodes.set(id, clone);
  return clone;
}

// -------------------------------------------------------------------------------------------- sleeps

/** @param {State} state @param {Event} event */
function sleepStarted(state, event) {
  state.sleeps.set(`${event.call || event.step}-sleep${event.place}`, event);
  const call = event.call && ownCall(state, event.call);
  if (call) {
    endRun(state, call, event, "slept");
    call.status = "sleeping";
  }
  note(state, event, "timer", event.description);
}

/** @param {State} state @param {Event} event */
function sleepEnded(state, event) {
  state.sleeps.delete(`${event.call || event.step}-sleep${event.place}`);
  const call = event.call && ownCall(state, event.call);
  if (call) call.status = "proposed";
}

// ------------------------------------------------------------------------------------------- tickets

/** @param {State} state @param {Event} event */
function callDeferred(state, event) {
  const call = ownCall(state, event.call);
  if (!call) return;
  endRun(state, call, event, "deferred");
  call.ticket = { ...call.ticket, seq: event.seq, expires: event.expires, details: event.details };
  Object.assign(call, { status: "deferred", output: event.details, cutOff: 0 });
  state.deferred.set(call.id, true);
  if (!state.graph) closeCall(ownStep(state, call.step), call.id);
}

/** Remove a call from the open calls of its step. @param {any} step @param {string} id */
export function closeCall(step, id) {
  step.open = step.open.filter((/** @type {string} */ each) => each !== id);
}

/** @param {State} state @param {Event} event */
function ticketEnded(state, event) {
  const call = ownCall(state, event.call);
  if (!call) return;
  call.ticket = { ...call.ticket, completion: event };
  state.completed.add(call.id);
}

/** @param {State} state @param {Event} event @param {any} changes */
function changeTicket(state, event, changes) {
  const call = ownCall(state, event.call);
  if (call) call.ticket = { ...call.ticket, ...changes };
}

/**
 * End a call with a ticket. Return whether the results of its step do not wait for it.
 * @param {State} state @param {any} step @param {any} call @param {Event} event
 */
export function endTicket(state, step, call, event) {
  state.completed.delete(call.id);
  if (!state.deferred.delete(call.id) || state.graph) return false;
  if (call.ticket.completion && !(step.id === state.step && step.open.length)) {
    const arrival = { seq: event.seq, time: event.time, parts: [], role: "user", arrival: call.id };
    call.ticket = { ...call.ticket, arrival };
    state.arrived.push(call.id);
    state.unread.push(arrival);
    if (!state.ended && state.answered && !state.deferred.size) takeBack(state);
  }
  return true;
}

/** Return the results of kept steps that no step up to an event has read. @param {State} state @param {number} after */
export function returnedResults(state, after) {
  const kept = new Set([...state.order, ...underWay(state).map((step) => step.id)]);
  state.arrived = state.arrived.filter((id) => kept.has(state.calls.get(id)?.step || ""));
  const again = [];
  for (const id of state.arrived) {
    const call = ownCall(state, id);
    const { arrival, read } = call.ticket;
    if (!arrival || (read && read <= after)) continue;
    call.ticket = { ...call.ticket, read: 0 };
    again.push(arrival);
  }
  return again;
}

/** End the present attempt of a call, as the timeline draws it. @param {State} state @param {any} call @param {Event} event @param {string} how */
export function endRun(state, call, event, how) {
  const run = call.runs.at(-1);
  if (!run || run.ended !== null) return;
  const ended = endOf(state, event, run.began);
  call.runs = [...call.runs.slice(0, -1), { ...run, ended, how }];
  state.openRuns -= 1;
  if (!state.openRuns) state.toolTime += ended - state.runsSince;
}

/** @type {Record<string, (state: State, event: Event) => void>} */
export const ASKING_RULES = {
  call_judged: callJudged, approval_requested: approvalRequested, approval_given: approvalGiven,
  approval_denied: (state, event) => decided(state, event, { permit: { status: "denied", reason: event.reason } }),
  approval_expired: (state, event) => decided(state, event, { permit: { status: "denied", reason: "it expired" } }),
  approval_voided: (state, event) => void decide(state, event.call, { permit: null }),
  question_asked: questionAsked, question_answered: questionSettled, question_expired: questionSettled,
  sleep_started: sleepStarted, sleep_ended: sleepEnded, call_deferred: callDeferred,
  ticket_issued: (state, event) => changeTicket(state, event, {}),
  ticket_progressed: (state, event) => changeTicket(state, event, { progress: event.value }),
  ticket_completed: ticketEnded, ticket_failed: ticketEnded, ticket_expired: ticketEnded,
};

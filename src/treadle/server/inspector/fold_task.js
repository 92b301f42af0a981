// Rules of events of a task, its steps and its commands. They follow `core/rules/fold.py`.
import { addCall, asText, checkpoint, ownCall, ownStep, startStep, takeBack, textOf, underWay } from "./fold_state.js";
import { forgetApprovals, forgetAsking, note, returnedResults } from "./fold_asking.js";
import { isFailed, repeatCall } from "./fold_calls.js";
import { consumeRefusals, dropOpenChecks, forgetChecks } from "./fold_checks.js";
import { reopenGraph } from "./fold_functions.js";
import { beginAgain } from "./fold_graph.js";
import { stepsPlanned } from "./fold_graph_rules.js";
import { answered, changeRequests, failed, voidRequest } from "./fold_requests.js";
import { rewound, setCheckpoint, undoRequested } from "./fold_undo.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** @param {State} state @param {Event} event */
function taskCreated(state, event) {
  const { agent, thread, options, parent, input } = event;
  Object.assign(state, { created: event.time, agent, createdFor: agent, thread, options, parent, input });
  state.unread.push({ seq: event.seq, time: event.time, parts: input, role: "user" });
  state.origin = checkpoint(state);
}

/** @param {State} state @param {Event} event */
function taskForked(state, event) {
  Object.assign(state, {
    created: event.time, forkedFrom: event.parent, forkedAt: event.seq - 1, parent: null, createdFor: event.agent,
    thread: event.thread, override: event.override, options: event.options ?? state.options, pausing: false,
    interrupting: false, cancelling: false, ended: null, endedAt: null, undo: null, attempt: 1, began: false, endReasons: [],
  });
  if (event.fingerprint || !state.team) Object.assign(state, { agent: event.agent, team: null });
  state.floor = state.order.length + (state.step ? 1 : 0);
  if (!state.answered) takeBack(state);
  forgetApprovals(state);
  forgetAsking(state);
  changeRequests(state, (request) => {
    request.permit = null;
    voidRequest(request);
  });
  forgetChecks(state);
  state.origin = checkpoint(state);
  const model = event.override?.model ? `, model ${event.override.model}` : "";
  const instructions = event.override?.instructions ? ", other instructions" : "";
  note(state, event, "fork", `forked from ${event.parent}${model}${instructions}`);
}

/** @param {State} state @param {Event} event */
function agentChanged(state, event) {
  state.team = { agent: event.agent, next: null };
  state.agent = event.agent;
  const last = ownStep(state, /** @type {string} */ (state.order.at(-1)));
  if (last) {
    last.endedSeq = event.seq;
    setCheckpoint(state, last);
  }
  note(state, event, "hand", `${event.previous} handed over to ${event.agent}`);
}

/** @param {State} state @param {Event} event */
function inputReceived(state, event) {
  const received = { seq: event.seq, time: event.time, parts: event.parts, role: event.role, by: event.by };
  state.unread.push(received);
  if (state.answered) {
    takeBack(state);
    if (state.graph) beginAgain(state);
  }
  if (!state.began && !underWay(state).length && state.order.length === state.floor)
    state.origin = { ...state.origin, unread: [...state.origin.unread, received] };
  note(state, event, "say", textOf(event.parts), event.by || event.role);
}

/** @param {State} state @param {Event} event */
function inputEdited(state, event) {
  const step = state.step ? ownStep(state, state.step) : null;
  if (step && isUnasked(step) && !step.calls.length) {
    Object.assign(step, { input: [], read: [] });
    if (state.arrived.length) state.unread = returnedResults(state, step.seq - 1);
  }
  const arrivals = state.unread.filter((received) => received.arrival);
  state.unread = [{ seq: event.seq, time: event.time, parts: event.parts, role: "user" }, ...arrivals];
  note(state, event, "edit", `next input: ${textOf(event.parts)}`);
}

/** @param {any} step */
function isUnasked(step) {
  const { status } = step.requests[""] || {};
  return (status === "proposed" || status === "failed") && step.calls.length === step.answeredCalls;
}

// -------------------------------------------------------------------------------------------- steps

/** @param {State} state @param {Event} event */
function stepStarted(state, event) {
  let step = state.step === event.step ? ownStep(state, event.step) : null;
  let hasAnswer = false;
  if (step) {
    const { error } = step, inCall = error?.source === "tool" || error?.source === "subagent";
    if (inCall && error.kind !== "unknown") proposeAgain(state, step);
    hasAnswer = inCall || (error?.source === "guardrail" && step.requests[""].status === "answered");
    if (error?.kind === "invalid_output") askAgain(step);
    Object.assign(step, { attempt: event.attempt, status: "running", error: null });
  } else {
    step = startStep(state, event);
    state.step = step.id;
  }
  state.error = null;
  state.began = true;
  if (step.open.length || hasAnswer) return;
  for (const id of state.unread.length ? state.arrived : []) {
    const call = ownCall(state, id);
    if (!call.ticket.read) call.ticket = { ...call.ticket, read: event.seq };
  }
  for (const received of state.unread) step.input = [...step.input, ...received.parts];
  step.read = [...step.read, ...state.unread];
  state.unread = [];
}

/** Ask the model for another answer, after one that does not fit the output type. @param {any} step */
function askAgain(step) {
  step.requests = { "": { ...step.requests[""], status: "proposed" } };
  Object.assign(step, { typed: null, answeredCalls: step.calls.length });
}

/** Replace each failed call of a step by a new one. @param {State} state @param {any} step */
function proposeAgain(state, step) {
  const calls = step.calls.map((/** @type {string} */ id) => state.calls.get(id));
  const again = calls.filter((/** @type {any} */ call) => call.status === "ended" && isFailed(call));
  if (step.open.length) return;
  for (const call of again) {
    const { arrival, read } = call.ticket || {};
    if (arrival && !read) {
      state.unread = state.unread.filter((received) => received.arrival !== call.id);
      state.arrived = state.arrived.filter((id) => id !== call.id);
    }
    repeatCall(state, step, call);
    state.toolCalls += 1;
  }
}

/** @param {State} state @param {Event} event */
function modelReturned(state, event) {
  const found = answered(state, event);
  if (!found) return;
  const { step, request } = found;
  takeAnswer(state, step, event.message);
  step.typed = event.typed;
  if (!event.typed?.call) return;
  const giving = state.calls.get(event.typed.call);
  for (const id of giving ? step.open : []) {
    const call = ownCall(state, id);
    call.answers = call.name === giving?.name;
    state.toolCalls -= Number(call.answers);
  }
  if (request.final) step.final = true;
}

/** @param {State} state @param {any} step @param {any} message */
function takeAnswer(state, step, message) {
  step.answeredCalls = step.calls.length;
  for (const part of message.parts) {
    if (part.type !== "tool_call") continue;
    addCall(state, step, { id: part.id, name: part.name, arguments: part.arguments, problem: part.problem });
    state.toolCalls += 1;
  }
}

/** @param {State} state @param {Event} event */
function routeChosen(state, event) {
  const step = ownStep(state, event.step);
  step.routed = true;
  if (!event.message) return;
  step.requests = { "": { ...step.requests[""], status: "answered" } };
  takeAnswer(state, step, event.message);
}

/** @param {State} state @param {Event} event */
function modelFailed(state, event) {
  const found = failed(state, event);
  if (found?.request.status === "failed") found.step.error = event.error;
}

/** @param {State} state @param {Event} event */
function stepCompleted(state, event) {
  const step = ownStep(state, event.step);
  Object.assign(step, { status: "completed", last: event.last, output: event.output });
  if (event.reason !== null) state.reasons.push(event.reason);
  if (event.last) Object.assign(state, { answered: true, output: event.output, text: asText(event.output) });
  else if (event.next_agent) state.team = { agent: state.team?.agent ?? state.agent, next: event.next_agent };
  closeStep(state, step, event);
}

/** @param {State} state @param {any} step @param {Event} event */
function closeStep(state, step, event) {
  Object.assign(step, { ended: event.time, endedSeq: event.seq });
  const before = checkpoint(state);
  state.order.push(step.id);
  Object.assign(state, { step: null, began: true });
  step.checkpoint = before;
  if (state.order.length === state.floor) state.origin = before;
}

/** @param {State} state @param {Event} event */
function stepFailed(state, event) {
  const step = ownStep(state, event.step);
  Object.assign(step, { status: "failed", error: event.error });
  state.error = event.error;
  consumeRefusals(state, step.id);
}

/** @param {State} state @param {Event} event */
function stepSkipped(state, event) {
  const step = ownStep(state, event.step);
  Object.assign(step, { status: "skipped", skippedBy: event.by, reason: event.reason });
  state.error = null;
  closeStep(state, step, event);
}

// ------------------------------------------------------------------------------------------ control

/** @param {State} state @param {Event} event */
function taskEnded(state, event) {
  Object.assign(state, {
    ended: event.state, endedAt: event.time, error: event.error, endReasons: event.reasons, pausing: false, interrupting: false,
  });
  dropOpenChecks(state);
  if (event.state === "completed" || event.state === "degraded") Object.assign(state, { output: event.output, text: asText(event.output) });
}

/** @param {State} state @param {Event} event */
function taskReopened(state, event) {
  Object.assign(state, { ended: null, endedAt: null, attempt: event.attempt, limitDetail: "", error: null });
  const step = state.step ? ownStep(state, state.step) : null;
  if (step?.status === "running") {
    step.error = null;
    if (step.typed?.problem && !step.open.length) askAgain(step);
  }
  const last = state.order.length ? ownStep(state, /** @type {string} */ (state.order.at(-1))) : null;
  if (state.answered && last?.requests[""]?.final) {
    takeBack(state);
    last.last = false;
    state.reasons.pop();
    setCheckpoint(state, last);
  } else if (state.answered && state.unread.length && state.arrived.length) takeBack(state);
  else if (!state.answered) takeBack(state);
  if (state.graph) reopenGraph(state);
  note(state, event, "again", `attempt ${event.attempt}: ${event.reason}`);
}

/** @param {State} state @param {Event} event */
function resumed(state, event) {
  if (state.pausing) changeRequests(state, (request) => (request.permit = request.permit === "ask" ? "allow" : request.permit));
  Object.assign(state, { pausing: false, interrupting: false, stopReason: "" });
  note(state, event, "play", "resumed");
}

/** @param {"pausing" | "interrupting" | "cancelling"} field @param {string} icon */
const stopRequested = (field, icon) => (/** @type {State} */ state, /** @type {Event} */ event) => {
  state[field] = true;
  state.stopReason = event.reason || "";
  note(state, event, icon, `${event.description}${event.reason ? `: ${event.reason}` : ""}`);
};

/** @param {State} state @param {Event} event */
function limitReached(state, event) {
  state.limitDetail = event.detail || "";
  note(state, event, "limit", event.description);
}

/** @param {State} state @param {Event} event */
function answerFinalized(state, event) {
  if (event.output !== null) Object.assign(state, { output: event.output, text: asText(event.output) });
  if (event.by || event.inbox) note(state, event, "edit", event.description);
}

/** @type {Record<string, (state: State, event: Event) => void>} */
export const TASK_RULES = {
  task_created: taskCreated, task_forked: taskForked, agent_changed: agentChanged, input_received: inputReceived,
  input_edited: inputEdited, instructions_set: (state, event) => void state.instructions.set(state.agent, event.text),
  options_changed: (state, event) => { state.options = event.options; note(state, event, "edit", event.description); },
  messages_imported: (state) => { Object.assign(state, { unread: [], began: true }); state.origin = checkpoint(state); },
  steps_planned: stepsPlanned, step_started: stepStarted, route_chosen: routeChosen, model_returned: modelReturned,
  model_failed: modelFailed, step_completed: stepCompleted, step_failed: stepFailed, step_skipped: stepSkipped,
  worker_failed: (state, event) => void (state.error = event.error), answer_finalized: answerFinalized,
  limit_reached: limitReached, pause_requested: stopRequested("pausing", "pause"),
  interrupt_requested: stopRequested("interrupting", "stop"), cancel_requested: stopRequested("cancelling", "stop"),
  resumed, undo_requested: undoRequested, rewound, task_ended: taskEnded, task_reopened: taskReopened,
};

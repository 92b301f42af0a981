// Rules of events of calls of tools and of agents. They follow `core/rules/fold.py`.
import { addCall, ownCall, ownStep } from "./fold_state.js";
import { clearPermit, closeCall, closeQuestions, endRun, endTicket, note, ownNode } from "./fold_asking.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

const isUndo = (/** @type {string} */ id) => id.endsWith("-undo");

/** Return the id of a call in the first attempt of its step. @param {string} id */
export const baseId = (id) => id.split("r")[0];

/** @param {any} call @param {State} state @param {Event} event */
function beginRun(call, state, event) {
  call.runs = [...call.runs, { began: event.time, ended: null, how: "" }];
  if (!state.openRuns) state.runsSince = event.time;
  state.openRuns += 1;
}

/** @param {State} state @param {Event} event */
function toolStarted(state, event) {
  if (event.undoes) {
    compensationStarted(state, event);
    return;
  }
  const call = ownCall(state, event.call);
  if (!call) return;
  if (call.permit) call.permit = { ...call.permit, status: "used" };
  if (!event.child || event.child !== call.child) call.rewritten = null;
  Object.assign(call, { status: "begun", attempt: event.attempt, effect: event.effect, undo: event.undo, host: event.host });
  call.seq = call.began ? call.seq : event.seq;
  call.began ||= event.time;
  beginRun(call, state, event);
  if (event.child) {
    call.child ??= event.child;
    if (!state.children.has(event.child)) state.children.set(event.child, []);
  }
}

/** @param {State} state @param {Event} event */
function compensationStarted(state, event) {
  const undone = ownCall(state, event.undoes);
  if (!undone) return;
  undone.undoStatus = "begun";
  const step = ownStep(state, undone.step);
  let call = ownCall(state, event.call);
  if (!call) {
    call = addCall(state, step, { id: event.call, name: event.tool, arguments: undone.arguments, undoes: undone.id, began: event.time, seq: event.seq });
    step.calls = step.calls.filter((/** @type {string} */ id) => id !== call.id);
    closeCall(step, call.id);
    step.compensations = [...(step.compensations || []), call.id];
  }
  Object.assign(call, { status: "begun", attempt: event.attempt, effect: event.effect });
  beginRun(call, state, event);
}

/** Return the compensation and the call that it takes back, if an event is of one. @param {State} state @param {Event} event */
function compensation(state, event) {
  if (!state.undo || !isUndo(event.call)) return null;
  return { call: ownCall(state, event.call), undone: ownCall(state, event.call.slice(0, -"-undo".length)) };
}

/** @param {State} state @param {Event} event */
function toolStopped(state, event) {
  const undo = compensation(state, event);
  if (undo) {
    if (undo.undone) Object.assign(undo.undone, { undoStatus: "lost", doubted: event.time });
    if (undo.call) {
      endRun(state, undo.call, event, event.reason);
      undo.call.status = "lost";
    }
    return;
  }
  const call = ownCall(state, event.call);
  if (!call) return;
  endRun(state, call, event, event.reason);
  Object.assign(call, { stoppedBefore: call.stopped, stopped: event.error, stopReason: event.reason });
  if (call.child) {
    childStopped(state, call, event);
    return;
  }
  if (event.reason === "error") call.halfway = false;
  else call.cutOff += 1;
  Object.assign(call, { status: event.unknown ? "lost" : "proposed", doubted: event.time });
}

/** @param {State} state @param {any} call @param {Event} event */
function childStopped(state, call, event) {
  if (event.spent?.length) state.children.set(call.child, event.spent);
  if (!event.failed) {
    call.status = "parked";
    return;
  }
  call.failedChildren = [...call.failedChildren, { task: call.child, error: event.error }];
  Object.assign(call, { status: "proposed", child: null });
}

/** @param {State} state @param {Event} event */
function outcomeSettled(state, event) {
  note(state, event, "done", event.description);
  const undo = compensation(state, event);
  const happened = event.verdict === "happened";
  if (undo) {
    if (undo.undone) undo.undone.undoStatus = happened ? "done" : "not_happened";
    return;
  }
  const call = ownCall(state, event.call);
  if (!call) return;
  Object.assign(call, { status: "proposed", stopped: event.by === "runner" ? call.stoppedBefore : null, by: event.by });
  call.cutOff = Math.max(0, call.cutOff - 1);
  if (happened) Object.assign(call, { status: "unresolved", output: event.output, outcome: "ok" });
}

/** @param {State} state @param {Event} event */
function outcomeUnresolved(state, event) {
  const call = ownCall(state, event.call);
  if (call) Object.assign(call, { status: "unresolved", stopped: event.error || call.stopped });
}

/** @param {State} state @param {Event} event */
function toolEnded(state, event) {
  const undo = compensation(state, event);
  if (undo) {
    if (undo.undone) undo.undone.undoStatus = event.outcome === "ok" ? "done" : "failed";
    if (undo.call) endCall(state, undo.call, event);
    return;
  }
  const call = ownCall(state, event.call);
  if (!call) return;
  const step = ownStep(state, call.step);
  if (call.status === "sleeping")
    for (const [id, sleep] of [...state.sleeps]) if (sleep.call === call.id) state.sleeps.delete(id);
  endCall(state, call, event);
  if (event.outcome === "ok") call.cutOff = 0;
  else if (["timeout", "abandoned", "unknown"].includes(event.outcome)) call.cutOff += 1;
  if (call.child && event.spent?.length) state.children.set(call.child, event.spent);
  if (call.child && event.harmless) call.effect = "read";
  if (call.ticket && endTicket(state, step, call, event)) return;
  closeCall(step, call.id);
  state.approvals.delete(call.id);
  closeQuestions(state, call);
  if (state.graph) callEnded(state, step);
}

/** Note that the calls of the newest answer of a step function have ended. @param {State} state @param {any} step */
function callEnded(state, step) {
  const node = ownNode(state, step.id);
  const calls = step.calls.map((/** @type {string} */ id) => state.calls.get(id));
  const ended = new Set(calls.filter((/** @type {any} */ c) => c.fromModel && c.status === "ended").map((/** @type {any} */ c) => baseId(c.id)));
  if (node?.newestCalls.every((/** @type {string} */ id) => ended.has(id))) node.owesResults = false;
}

/** @param {State} state @param {any} call @param {Event} event */
function endCall(state, call, event) {
  endRun(state, call, event, event.outcome);
  const { outcome, output, error, display, sources, artifacts, report, cut } = event;
  Object.assign(call, { status: "ended", ended: event.time, outcome, output, error, display, sources, artifacts, cut });
  if (report) call.report = report;
  if (report && !report.ran) call.host = null;
}

/** @param {State} state @param {Event} event */
function callEdited(state, event) {
  const call = ownCall(state, event.call);
  if (!call) return;
  Object.assign(call, { arguments: event.arguments, previous: event.previous, by: event.by });
  clearPermit(state, call.id);
  note(state, event, "edit", event.description);
}

/** @param {State} state @param {Event} event */
function argumentsRewritten(state, event) {
  const call = ownCall(state, event.call);
  if (call) Object.assign(call, { rewritten: event.arguments, rewrittenBy: event.by });
}

/** @param {State} state @param {Event} event */
function resultReplaced(state, event) {
  const call = ownCall(state, event.call);
  if (!call) return;
  Object.assign(call, {
    output: event.output, previousOutput: event.previous, outcome: "ok", error: null, display: null, guarded: false,
    replaced: true, cut: false,
  });
  note(state, event, "edit", event.description);
}

/** Replace an ended call of a step by a new one that repeats it. @param {State} state @param {any} step @param {any} call */
export function repeatCall(state, step, call) {
  const attempt = Number(call.id.split("r")[1] || 1) + 1;
  const place = step.calls.indexOf(call.id);
  const again = addCall(state, step, {
    id: `${baseId(call.id)}r${attempt}`, name: call.name, arguments: call.arguments, problem: call.problem,
  });
  const questions = call.questions.slice();
  const unanswered = questions.findIndex((/** @type {any} */ each) => !(each.status === "answered" || (each.status === "expired" && each.event.has_default)));
  Object.assign(again, {
    effect: call.effect, fromModel: call.fromModel, key: call.key, repeats: call.id,
    cutOff: call.cutOff || Number(Boolean(call.failedChildren.length || (call.child && call.effect !== "read"))),
    questions: unanswered < 0 ? questions : questions.slice(0, unanswered),
  });
  if (call.ticket && !["ticket_completed", "ticket_failed"].includes(call.ticket.completion?.kind)) again.ticket = {};
  step.calls = step.calls.slice(0, -1).with(place, again.id);
  step.repeated = [...step.repeated, call.id];
  return again;
}

/** Whether a new attempt of its step repeats a call. @param {any} call */
export function isFailed(call) {
  if (call.outcome === "unknown") return call.effect === "idempotent" && ["error", "timeout", "abandoned"].includes(call.error?.kind);
  return call.outcome === "error" || call.outcome === "timeout";
}

export const CALL_RULES = {
  tool_started: toolStarted, tool_stopped: toolStopped, outcome_settled: outcomeSettled,
  outcome_unresolved: outcomeUnresolved, tool_ended: toolEnded, call_edited: callEdited,
  arguments_rewritten: argumentsRewritten, result_replaced: resultReplaced,
};

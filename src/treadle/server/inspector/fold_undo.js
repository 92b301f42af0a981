// The undo of steps: the end of a branch and the beginning of the next. It follows `core/rules/undo.py` and `fold.py`.
import { asText, checkpoint, ownCall, ownStep } from "./fold_state.js";
import { returnedResults } from "./fold_asking.js";
import { takeBackChecks } from "./fold_checks.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** @param {State} state @param {Event} event */
export function undoRequested(state, event) {
  const queue = event.calls.filter((/** @type {string} */ id) => state.calls.has(id));
  for (const id of queue) {
    const call = ownCall(state, id);
    if (call.undoStatus === "failed") call.undoStatus = event.forced ? "skipped" : "none";
  }
  state.undo = { to: event.to, queue, since: state.undo?.since ?? event.seq, by: event.by, steps: event.steps };
}

/** Rewind a task whose steps follow each other. @param {State} state @param {Event} event */
export function rewound(state, event) {
  const gone = [];
  while (state.order.length && (state.steps.get(/** @type {string} */ (state.order.at(-1)))?.index ?? 0) > event.to) gone.unshift(state.order.pop());
  if (state.step && (state.steps.get(state.step)?.index ?? 0) > event.to) {
    gone.push(state.step);
    state.step = null;
  }
  const last = state.order.length ? state.steps.get(/** @type {string} */ (state.order.at(-1))) : null;
  const back = last && state.order.length > state.floor ? last.checkpoint : state.origin;
  const since = state.undo?.since ?? event.seq;
  state.team = back.team;
  state.agent = back.team ? back.team.agent : state.createdFor;
  state.toolCalls = back.toolCalls;
  state.unread = [...back.unread, ...state.unread.filter((received) => received.seq > since)];
  if (state.arrived.length) {
    const others = state.unread.filter((received) => !received.arrival);
    const after = Math.max(last?.endedSeq || 0, state.forkedAt);
    state.unread = [...others, ...returnedResults(state, after)].sort((a, b) => a.seq - b.seq);
  }
  state.reasons.length = Math.min(state.reasons.length, back.reasons);
  endUndo(state, event, /** @type {string[]} */ (gone), last || null);
}

/**
 * Begin the branch after an undo, and fold its steps away in the timeline.
 * @param {State} state @param {Event} event @param {string[]} gone  the undone steps @param {any} last  the last step that stays
 */
export function endUndo(state, event, gone, last) {
  const away = new Set(gone);
  takeBackChecks(state, away);
  const group = {
    branch: event.branch, by: state.undo?.by || "", steps: gone, calls: event.calls, seq: event.seq, time: event.time, to: event.to,
  };
  for (const id of gone) {
    const step = ownStep(state, id);
    for (const call of step.open) for (const waiting of [state.approvals, state.deferred]) waiting.delete(call);
    for (const call of step.calls) state.deferred.delete(call);
    step.undone = event.branch;
    for (const [key, sleep] of [...state.sleeps]) if (sleep.step === id) state.sleeps.delete(key);
    for (const [key, question] of [...state.questions]) if (question.step === id) state.questions.delete(key);
  }
  state.rows = state.rows.filter((row) => !(row.kind === "step" && away.has(row.step)));
  state.rows.push({ kind: "fold", group, seq: event.seq });
  state.undone.push(group);
  Object.assign(state, { branch: event.branch, undo: null, error: null, limitDetail: "" });
  state.answered = Boolean(last?.last && !state.unread.length);
  state.output = state.answered ? last.output : null;
  state.text = asText(state.output);
}

/** Set the checkpoint of a step that ended. @param {State} state @param {any} step */
export function setCheckpoint(state, step) {
  step.checkpoint = checkpoint(state);
  if (state.order.length === state.floor) state.origin = step.checkpoint;
}

// The verbs that a task takes now, by its state and by the scopes of the person who looks at it. Pure.
import { underWay } from "./fold_state.js";

/** @typedef {import("./fold_state.js").State} State */

/**
 * @typedef {"run" | "step" | "until" | "finalize" | "pause" | "stop" | "send" | "words" | "skip" | "undo" | "fork"
 *   | "cancel"} Verb
 */

/** States of tasks that do not go on, except as a fork or after an undo. */
const OVER = new Set(["completed", "degraded", "cancelled"]);

/** States in which a step may begin, and those in which the task may run on. */
const MAY_STEP = new Set(["created", "between steps", "interrupted", "failed"]);
const MAY_RUN = new Set([...MAY_STEP, "paused"]);

/** The scope that each verb needs. @type {Record<Verb, string>} */
export const SCOPES = {
  run: "run", step: "run", until: "run", send: "run", pause: "control", stop: "control", cancel: "control",
  finalize: "edit", words: "edit", skip: "edit", undo: "edit", fork: "edit",
};

/** Return the failed steps, which may be skipped. @param {State} state */
export const failedSteps = (state) => underWay(state).filter((step) => step.status === "failed");

/** Return the input of the next step; null if its model was asked already. @param {State} state */
export function nextInput(state) {
  const unread = state.unread.filter((received) => !received.arrival);
  if (unread.length) return unread.flatMap((received) => received.parts);
  const step = /** @type {any} */ (state.step && state.steps.get(state.step));
  const request = step?.requests[""];
  const isUnasked = request && (request.status === "proposed" || request.status === "failed") && !step.calls.length;
  return isUnasked && step.input.length ? step.input : null;
}

/** Whether there is anything to take back. @param {State} state */
const hasSteps = (state) => state.order.length > state.floor || underWay(state).length > 0 || Boolean(state.undo);

/**
 * Return the verbs that a task takes.
 * @param {{state: State, word: string, isPast: boolean, scopes: string[]}} task  `word` is the state that people read
 * @returns {Set<Verb>}
 */
export function offers({ state, word, isPast, scopes }) {
  const isDriven = word === "running", isOver = OVER.has(word);
  const mayGo = state.parent === null && !state.undo; // an undo that has begun goes first
  /** @type {Record<Verb, boolean>} */
  const fits = {
    step: mayGo && MAY_STEP.has(word),
    run: mayGo && MAY_RUN.has(word),
    until: mayGo && MAY_RUN.has(word),
    finalize: mayGo && word === "answered",
    pause: isDriven && !state.pausing,
    stop: isDriven,
    send: !isOver,
    words: !isOver && !isDriven && !state.answered && !state.undo && nextInput(state) !== null,
    skip: !isDriven && !state.undo && failedSteps(state).length > 0,
    undo: word !== "cancelled" && hasSteps(state),
    cancel: !isOver && word !== "failed",
    fork: true,
  };
  const verbs = /** @type {Verb[]} */ (Object.keys(fits));
  return new Set(verbs.filter((verb) => (fits[verb] && !isPast || verb === "fork") && scopes.includes(SCOPES[verb])));
}

/**
 * Whether the arguments of a call may be changed: it has not begun, and no driver is about to begin it.
 * @param {State} state @param {string} word @param {any} call
 */
export function isEditable(state, word, call) {
  if (word === "running" || OVER.has(word) || state.undo) return false;
  const isOpen = state.steps.get(call.step)?.open.includes(call.id);
  return Boolean(isOpen) && call.status === "proposed" && !call.runs.length && !call.questions.length && !call.answers;
}

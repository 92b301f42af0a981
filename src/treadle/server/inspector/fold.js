// The page's own fold: the events of a task -> the state that every view draws. Pure, and tested against the server's state.
//
// `Journal` takes events as they come, and keeps copies of the state. The state at any event then costs few rules, so
// the slider can rewind the whole page.
import { ASKING_RULES } from "./fold_asking.js";
import { CALL_RULES } from "./fold_calls.js";
import { CHECK_RULES } from "./fold_checks.js";
import { GRAPH_RULES } from "./fold_graph_rules.js";
import { REQUEST_RULES } from "./fold_requests.js";
import { TASK_RULES } from "./fold_task.js";
import { begin, copy, ownCall, ownStep } from "./fold_state.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** How many events lie between two copies of the state, in a journal of up to `EVERY * COPIES` events. */
export const EVERY = 256;

/** The most copies. A copy has a pointer for each step and call, so their number may not grow with the journal. */
export const COPIES = 32;

/** @type {Record<string, (state: State, event: Event) => void>} */
const RULES = { ...TASK_RULES, ...REQUEST_RULES, ...CALL_RULES, ...CHECK_RULES, ...ASKING_RULES };

/**
 * Change a state by its next event. An event of an unknown kind changes nothing.
 * @param {State} state
 * @param {Event} event
 */
export function apply(state, event) {
  Object.assign(state, { head: event.seq, before: state.time, time: event.time, last: event });
  const rule = (state.graph && GRAPH_RULES[event.kind]) || RULES[event.kind];
  rule?.(state, event);
  const step = event.step && ownStep(state, event.step);
  if (step) step.lastSeq = event.seq;
  const call = event.call && ownCall(state, event.call);
  if (call) call.lastSeq = event.seq;
}

/** Fold events into a new state. @param {Event[]} events @param {number} [at]  the last event that counts */
export function fold(events, at = Infinity) {
  const state = begin();
  for (const event of events) {
    if (event.seq > at) break;
    apply(state, event);
  }
  return state;
}

/** The events of a task, and its state after any of them. */
export class Journal {
  constructor() {
    /** @type {Event[]} */
    this.events = [];
    this.state = begin();
    /** @type {State[]} */
    this.copies = [];
    /** How many events lie between two copies. */
    this.every = EVERY;
    /** @type {State | null} */
    this.past = null;
  }

  /** The number of the last event. */
  get head() {
    return this.state.head;
  }

  /** Add the next event; one that is known already, or that leaves a gap, is refused. @param {Event} event */
  add(event) {
    if (event.seq !== this.state.head + 1) return false;
    this.events.push(event);
    apply(this.state, event);
    if (event.seq % this.every === 0) this.keep();
    return true;
  }

  /** Keep a copy of the newest state. If there are too many, drop every second one. */
  keep() {
    this.copies.push(copy(this.state));
    if (this.copies.length <= COPIES) return;
    this.every *= 2;
    this.copies = this.copies.filter((each) => each.head % this.every === 0);
  }

  /** Return the state after an event; null is the newest. @param {number | null} seq */
  at(seq) {
    if (seq === null || seq >= this.head) return this.state;
    if (!this.past || this.past.head > seq || seq - this.past.head > this.every)
      this.past = copy(this.copies[Math.floor(seq / this.every) - 1] || begin());
    for (const event of this.events.slice(this.past.head, seq)) apply(this.past, event);
    return this.past;
  }
}

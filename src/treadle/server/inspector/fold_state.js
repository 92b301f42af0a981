// The state of a task as the page draws it, and copies of it that share unchanged parts.
//
// A state is changed in place by the rules. `copy` costs one pointer for each step and call: a step or call is cloned
// only when a rule changes it after the copy (`era`). So snapshots of a long task are cheap, and the slider can go back.

/** @typedef {Record<string, any>} Event  an event in its JSON form, as the server sends it */

/**
 * @typedef {object} Send  one request to a model, from its start to its end
 * @property {string} call  the id of a step function's request, else ""
 * @property {string} model
 * @property {number} attempt
 * @property {number} began  microseconds since 1970, UTC, as all times
 * @property {number | null} ended
 * @property {number} seq  its first event
 * @property {number} lastSeq  its last event
 * @property {any} message  the answer
 * @property {any} usage
 * @property {string | null} cost  in US dollars, decimal text
 * @property {any} error
 * @property {string} stopped  why it was stopped
 */

/**
 * @typedef {object} Step
 * @property {number} era
 * @property {string} id
 * @property {number} index
 * @property {number} attempt
 * @property {string} agent
 * @property {"running" | "completed" | "failed" | "skipped"} status
 * @property {number} began
 * @property {number | null} ended
 * @property {number} seq  its first event
 * @property {number} lastSeq  the last event that named it
 * @property {Send[]} sends
 * @property {Record<string, any>} requests  open requests to models, by the id of a function's request, else ""
 * @property {string[]} calls  the calls of its present attempt
 * @property {string[]} repeated  calls of earlier attempts, which later calls repeat
 * @property {string[]} open  the calls that have not ended
 * @property {number} answeredCalls
 * @property {any[]} input
 * @property {any[]} read
 * @property {boolean} last  whether its output is the task's answer
 * @property {any} output
 * @property {any} error
 * @property {number} undone  the branch that an undo of it began; 0 if it was not undone
 * @property {any} checkpoint
 * @property {number} [endedSeq]  the event of its end
 */

/**
 * @typedef {object} Call
 * @property {number} era
 * @property {string} id
 * @property {string} step
 * @property {string} name
 * @property {any} arguments
 * @property {string} status  proposed, begun, ended, lost, unresolved, parked, asking, sleeping or deferred
 * @property {number} attempt
 * @property {string} effect  read, write or idempotent; "" until it began
 * @property {boolean} undo
 * @property {number} began
 * @property {number | null} ended
 * @property {number} seq
 * @property {number} lastSeq
 * @property {{began: number, ended: number | null, how: string}[]} runs  its attempts
 * @property {string | null} outcome
 * @property {any} output
 * @property {any} error
 * @property {string | null} child  the task of an agent's call
 * @property {string | null} undoes  the call that this compensation takes back
 * @property {any} permit  the decision on its start
 * @property {any} problem  why its arguments do not fit
 * @property {any} ticket  the status of its work in the background
 * @property {boolean} fromModel  of a step function's call, whether an answer asked for it
 */

let eras = 0;

/** The collections of a state, which a copy must not share. */
const COLLECTIONS = [
  "steps", "calls", "order", "rows", "undone", "unread", "reasons", "approvals", "checks", "questions", "sleeps",
  "deferred", "completed", "arrived", "children", "instructions", "grants",
];

/** Return the state of a task before its first event. */
export function begin() {
  return {
    era: ++eras,
    head: 0, time: 0, before: 0, created: 0, last: /** @type {Event | null} */ (null),
    agent: "", createdFor: "", team: /** @type {any} */ (null), thread: "", parent: /** @type {string | null} */ (null),
    forkedFrom: /** @type {string | null} */ (null), forkedAt: 0, override: /** @type {any} */ (null),
    input: /** @type {any[]} */ ([]), options: /** @type {any} */ (null), attempt: 1, branch: 0,
    /** Steps of all branches, by id. @type {Map<string, Step>} */ steps: new Map(),
    /** Calls of all branches, by id. @type {Map<string, Call>} */ calls: new Map(),
    /** Ids of the steps of the present branch that have ended. @type {string[]} */ order: [],
    /** The step under way, in a task whose steps follow each other. @type {string | null} */ step: null,
    graph: /** @type {any} */ (null),
    /** The rows of the timeline, in order. @type {any[]} */ rows: [],
    /** Undone branches. @type {any[]} */ undone: [],
    floor: 0, began: false, answered: false, ended: /** @type {string | null} */ (null),
    endedAt: /** @type {number | null} */ (null), output: /** @type {any} */ (null), text: "",
    error: /** @type {any} */ (null), reasons: /** @type {string[]} */ ([]), endReasons: /** @type {string[]} */ ([]),
    pausing: false, interrupting: false, cancelling: false, stopReason: "", limitDetail: "",
    unread: /** @type {any[]} */ ([]), undo: /** @type {any} */ (null),
    origin: /** @type {any} */ (null), model: "", closed: 0,
    tokensIn: 0, tokensOut: 0, cached: 0, cacheWrites: 0, reasoning: 0, pico: 0n, unpriced: /** @type {string[]} */ ([]),
    modelCalls: 0, toolCalls: 0, /** Time in which any request or any tool ran, in microseconds. */ modelTime: 0, toolTime: 0,
    openSends: 0, sendsSince: 0, openRuns: 0, runsSince: 0, started: 0,
    approvals: new Map(), checks: new Map(), questions: new Map(), sleeps: new Map(), deferred: new Map(),
    completed: new Set(), arrived: /** @type {any[]} */ ([]), children: new Map(),
    /** Instructions by agent. */ instructions: new Map(), grants: /** @type {any[]} */ ([]),
  };
}

/** @typedef {ReturnType<typeof begin>} State */

/**
 * Return a copy of a state. Neither of the two sees later changes of the other.
 * @param {State} state
 * @returns {State}
 */
export function copy(state) {
  const other = /** @type {any} */ ({ ...state, era: ++eras });
  for (const name of COLLECTIONS) other[name] = copied(other[name]);
  if (state.graph) {
    other.graph = { ...state.graph };
    for (const name of ["nodes", "ready", "running", "failed", "unneeded", "unmerged", "merged"])
      other.graph[name] = copied(other.graph[name]);
  }
  if (state.undo) other.undo = { ...state.undo };
  state.era = ++eras;
  return other;
}

/** @param {any} value */
function copied(value) {
  return Array.isArray(value) ? value.slice() : new value.constructor(value);
}

/**
 * Return the object of an id for a change, cloned if a copy of the state shares it.
 * @template {{era: number}} T
 * @param {State} state
 * @param {Map<string, T>} objects
 * @param {string} id
 * @returns {T | undefined}
 */
export function own(state, objects, id) {
  const object = objects.get(id);
  if (!object || object.era === state.era) return object;
  const clone = { ...object, era: state.era };
  objects.set(id, clone);
  return clone;
}

/** @param {State} state @param {string} id @returns {any} */
export const ownStep = (state, id) => own(state, state.steps, id);

/** @param {State} state @param {string} id @returns {any} */
export const ownCall = (state, id) => own(state, state.calls, id);

/**
 * Return the steps under way, and the failed ones that are next.
 * @param {State} state
 * @returns {Step[]}
 */
export function underWay(state) {
  const ids = state.step ? [state.step] : state.graph ? [...state.graph.running, ...state.graph.failed] : [];
  return ids.map((id) => /** @type {Step} */ (state.steps.get(id))).filter(Boolean);
}

/** @param {State} state @param {Event} event */
export function startStep(state, event) {
  const step = {
    era: state.era, id: event.step, index: event.index || 0, attempt: event.attempt || 1,
    agent: state.team ? state.team.agent : state.createdFor, status: "running", began: event.time, ended: null,
    seq: event.seq, lastSeq: event.seq, sends: [], requests: state.graph ? {} : { "": request() }, calls: [],
    repeated: [], open: [], answeredCalls: 0, input: [], read: [], last: false, output: null, error: null, undone: 0,
    checkpoint: null, routed: false, typed: null, paused: false, text: "",
  };
  state.steps.set(event.step, /** @type {any} */ (step));
  state.rows.push({ kind: "step", step: event.step, seq: event.seq });
  return step;
}

/** Return an open request to a model. @param {number} attempt */
export const request = (attempt = 0) => ({ status: "proposed", attempt, retryAt: null, why: "", permit: null, final: false, void: false });

/**
 * Add a call to its step.
 * @param {State} state
 * @param {any} step
 * @param {Partial<Call> & {id: string, name: string}} known
 * @returns {Call}
 */
export function addCall(state, step, known) {
  const call = /** @type {any} */ ({
    era: state.era, step: step.id, arguments: {}, status: "proposed", attempt: 0, effect: "", undo: false, began: 0,
    ended: null, seq: state.head, lastSeq: state.head, runs: [], outcome: null, output: null, error: null, child: null,
    failedChildren: [], undoes: null, permit: null, requests: 0, questions: [], answers: false, fromModel: false,
    stopped: null, stoppedBefore: null, cutOff: 0, doubted: 0, ticket: null, undoStatus: "none", replaced: false,
    by: null, previous: null, rewritten: null, guarded: false, problem: null, key: "", halfway: false, took: null,
    ...known,
  });
  state.calls.set(call.id, call);
  step.calls = [...step.calls, call.id];
  step.open = [...step.open, call.id];
  return call;
}

/** Return the position of the task, for an undo. @param {State} state */
export const checkpoint = (state) => ({
  toolCalls: state.toolCalls, unread: state.unread.slice(), reasons: state.reasons.length, team: state.team,
});

/**
 * Return when something ended. A crash is noticed late, so it ended after the event before, at the latest known time.
 * @param {State} state
 * @param {Event} event
 * @param {number} began
 */
export const endOf = (state, event, began) => (event.reason === "crash" ? Math.max(began, state.before) : event.time);

/** Take the answer back, since unread input arrived. @param {State} state */
export function takeBack(state) {
  state.answered = false;
  state.output = null;
  state.text = "";
}

/** Return a JSON value as text for people and models. @param {any} value */
export function asText(value) {
  return typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value);
}

/** Return the text of message parts; parts of other kinds are left out. @param {any[]} parts */
export function textOf(parts) {
  return (parts || []).filter((part) => part.type === "text").map((part) => plain(part.text)).join("\n");
}

/** Return a text that the server may have cut. @param {any} text @returns {string} */
export function plain(text) {
  if (text && typeof text === "object" && "$cut" in text) return `${text.$cut.head}…`;
  return typeof text === "string" ? text : asText(text);
}

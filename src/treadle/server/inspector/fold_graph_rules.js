// Rules of tasks of step functions, whose steps depend on each other. They follow `core/rules/schedule.py`.
import { asText, ownStep, startStep } from "./fold_state.js";
import { closeNode, ownNode } from "./fold_asking.js";
import { consumeRefusals } from "./fold_checks.js";
import {
  addEnded, addNode, beginAgain, comparePaths, countSkipped, ended, insert, isPossible, join, makeReady, markOvertaken,
  markUnneeded, merge, need, newGraph, plan, setView, startsEarly, stepIdOf,
} from "./fold_graph.js";
import { FUNCTION_RULES, tryAgain } from "./fold_functions.js";
import { endUndo } from "./fold_undo.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** @param {State} state @param {Event} event */
export function stepsPlanned(state, event) {
  state.graph ||= newGraph();
  plan(state, event.steps, null);
}

/** @param {State} state @param {Event} event */
function stepStarted(state, event) {
  const { graph } = state, node = ownNode(state, event.step);
  if (!node) return;
  if (graph.failed.delete(node.id)) {
    const step = ownStep(state, node.id);
    tryAgain(state, node, step);
    Object.assign(step, { attempt: event.attempt, status: "running", error: null, paused: false, ended: null });
    if (!node.owesResults) read(state, node, step);
  } else {
    graph.ready = graph.ready.filter((/** @type {string} */ id) => id !== node.id);
    const step = startStep(state, event);
    Object.assign(step, { agent: state.createdFor, name: node.plan.name, after: node.after, given: node.plan.input });
    setView(state, node);
    read(state, node, step);
  }
  node.status = "running";
  graph.running.add(node.id);
  state.error = null;
  state.began = true;
}

/** @param {State} state @param {any} node @param {any} step */
function read(state, node, step) {
  node.read = [...node.read, ...state.unread];
  for (const received of state.unread) step.input = [...step.input, ...received.parts];
  step.read = node.read;
  state.unread = [];
}

/** @param {State} state @param {Event} event */
function stepCompleted(state, event) {
  const { graph } = state, node = ownNode(state, event.step);
  if (!node) return;
  const step = ended(state, node, event);
  Object.assign(step, { status: "completed", last: event.last, output: event.output });
  Object.assign(node, { status: "completed", reason: event.reason });
  if (event.reason !== null) state.reasons.push(event.reason);
  addEnded(state, node);
  for (const id of node.neededBy) {
    const waiting = ownNode(state, id);
    waiting.won += 1;
    waiting.waits -= 1;
    makeReady(state, id);
  }
  if (event.next?.length) plan(state, event.next, node);
  if (!event.last || state.answered) return;
  for (const id of graph.running) markUnneeded(state, id, node.id);
  for (const id of [...graph.running, ...graph.failed]) if (!graph.nodes.get(id).merged) insert(graph, graph.unmerged, id);
  merge(state);
  if (state.unread.length) beginAgain(state);
  else Object.assign(state, { answered: true, output: event.output, error: null, text: asText(event.output) });
}

/** @param {any} state @param {any} node @param {any} step */
function hasRetries(state, node, step) {
  if (!step.error || step.attempt > node.plan.retries || step.error.source === "guardrail" || node.unneededFor !== null) return false;
  const writes = step.calls.map((/** @type {string} */ id) => state.calls.get(id)).filter((/** @type {any} */ call) => call.effect === "write" && call.began);
  return writes.every((/** @type {any} */ call) => call.outcome === "ok");
}

/** @param {State} state @param {Event} event */
function stepFailed(state, event) {
  const { graph } = state, node = ownNode(state, event.step);
  if (!node) return;
  const step = ended(state, node, event);
  Object.assign(step, { status: "failed", error: event.error });
  node.status = "failed";
  consumeRefusals(state, step.id);
  const waiting = hasRetries(state, node, step) ? [] : node.neededBy.map((/** @type {string} */ id) => ownNode(state, id));
  for (const other of waiting) other.waits -= 1;
  if (waiting.length && waiting.every((/** @type {any} */ other) => other.status !== "planned" || isPossible(other))) {
    addEnded(state, node);
    if (event.degrades) degrade(state, node, event.error);
    for (const other of waiting) makeReady(state, other.id);
    return;
  }
  for (const other of waiting) other.waits += 1;
  graph.failed.add(node.id);
  state.error = event.error;
}

/** @param {State} state @param {any} node @param {any} error */
function degrade(state, node, error) {
  const waiting = node.neededBy.map((/** @type {string} */ id) => state.graph.nodes.get(id));
  if (waiting.length && waiting.every((/** @type {any} */ other) => startsEarly(other) && other.won + other.waits >= need(other))) return;
  node.reason = `step '${node.plan.name}' failed: ${error.message}`;
  state.reasons.push(node.reason);
}

/** @param {State} state @param {Event} event */
function stepSkipped(state, event) {
  const { graph } = state, node = ownNode(state, event.step);
  if (!node) return;
  if (node.status === "failed") state.error = null;
  if (!state.steps.has(node.id)) {
    const step = startStep(state, { ...event, index: node.index });
    Object.assign(step, { agent: state.createdFor, name: node.plan.name, after: node.after, given: node.plan.input });
    if (node.status === "ready") graph.ready = graph.ready.filter((/** @type {string} */ id) => id !== node.id);
    else graph.planned -= 1;
  }
  const step = ended(state, node, event);
  Object.assign(step, { status: "skipped", error: event.error || step.error, skippedBy: event.by, reason: event.reason });
  Object.assign(node, { status: "skipped", skippedBy: event.by });
  addEnded(state, node);
  for (const id of node.neededBy) {
    const waiting = ownNode(state, id);
    waiting.waits -= 1;
    countSkipped(waiting, node);
    makeReady(state, id);
  }
  if (event.degrades && event.error) degrade(state, node, event.error);
}

// --------------------------------------------------------------------------------------------- undo

/** @param {any} graph @param {string[]} steps @returns {Set<string>} */
function dependents(graph, steps) {
  const below = new Map();
  for (const node of graph.nodes.values()) {
    const winner = node.status === "skipped" || graph.unneeded.has(node.id) ? node.unneededFor : null;
    for (const above of [...node.after, node.by, winner]) if (above) below.set(above, [...(below.get(above) || []), node.id]);
  }
  const reached = new Set(steps), open = [...steps];
  while (open.length) for (const id of below.get(open.pop()) || []) if (!reached.has(id)) { reached.add(id); open.push(id); }
  return reached;
}

/** @param {State} state @param {Event} event */
function rewound(state, event) {
  const { graph } = state;
  const ids = dependents(graph, event.steps.filter((/** @type {string} */ id) => graph.nodes.has(id)));
  const gone = [...ids].map((id) => graph.nodes.get(id)).sort((a, b) => comparePaths(a.path, b.path));
  const since = Math.min(...gone.filter((node) => node.merged).map((node) => node.since));
  for (const node of gone) {
    closeNode(state, ownNode(state, node.id));
    state.unread = [...state.unread, ...node.read].sort((a, b) => a.seq - b.seq);
    state.toolCalls -= node.calls;
    if (node.reason !== null && state.reasons.includes(node.reason)) state.reasons.splice(state.reasons.indexOf(node.reason), 1);
    graph.nodes.delete(node.id);
    for (const index of [graph.running, graph.failed, graph.unneeded]) index.delete(node.id);
  }
  state.order = state.order.filter((id) => !ids.has(id));
  graph.unmerged = graph.unmerged.filter((/** @type {string} */ id) => !ids.has(id));
  graph.ready = graph.ready.filter((/** @type {string} */ id) => !ids.has(id));
  for (const id of [...graph.nodes.keys()]) {
    const node = ownNode(state, id);
    node.neededBy = node.neededBy.filter((/** @type {string} */ other) => !ids.has(other));
    if (node.merged && node.since >= since) unmerge(state, node);
  }
  const nodes = [...graph.nodes.values()];
  graph.top = Math.max(0, ...nodes.map((node) => node.path[0]));
  graph.highest = Math.max(0, ...nodes.map((node) => node.index));
  const stay = nodes.filter((node) => node.merged && (node.alone || node.status === "completed")).sort((a, b) => comparePaths(a.path, b.path));
  graph.merged = new Map(stay.map((node) => [node.plan.name, node.id]));
  const last = state.order.map((id) => state.steps.get(id)).find((step) => step?.last);
  endUndo(state, event, [...ids].filter((id) => state.steps.has(id)), last || null);
  planAgain(state, gone);
  if (last && state.unread.length) beginAgain(state);
  else markOvertaken(state);
}

/** @param {State} state @param {any} node */
function unmerge(state, node) {
  node.merged = false;
  const { graph } = state;
  if (!graph.running.has(node.id) && !graph.failed.has(node.id)) insert(graph, graph.unmerged, node.id);
  else node.alone = false;
}

/** Plan the undone steps again whose planner stays. @param {State} state @param {any[]} gone */
function planAgain(state, gone) {
  const { graph } = state, rounds = (/** @type {any[]} */ nodes) => new Set(nodes.map((node) => node.overtaken).filter((round) => round !== null));
  let again = gone.filter((node) => node.by === null || graph.nodes.has(node.by));
  const left = rounds([...graph.nodes.values()]);
  const first = Math.min(...[...rounds(gone)].filter((round) => !left.has(round)));
  if (Number.isFinite(first) && [...graph.nodes.values()].every((node) => node.round <= first)) again = again.filter((node) => node.round <= first);
  const renamed = new Map(again.map((node) => [node.id, stepIdOf(state.branch, node.path)]));
  for (const { id, index, path, plan: planned, after, by, round } of again) {
    addNode(state, { id: renamed.get(id), index, path, plan: planned, after: after.map((/** @type {string} */ each) => renamed.get(each) || each), by, round });
    graph.top = Math.max(graph.top, path[0]);
    graph.highest = Math.max(graph.highest, index);
  }
  join(state, [...renamed.values()]);
  graph.planned = [...graph.nodes.values()].filter((node) => node.status === "planned").length;
}

/** @type {Record<string, (state: State, event: Event) => void>} */
export const GRAPH_RULES = {
  ...FUNCTION_RULES, step_started: stepStarted, step_completed: stepCompleted, step_failed: stepFailed,
  step_skipped: stepSkipped, rewound,
};

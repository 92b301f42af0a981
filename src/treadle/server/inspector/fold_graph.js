// The plan of steps that depend on each other: planned, ready and running steps. It follows `core/graph.py` and
// `core/rules/schedule.py`, without the conversation, which the page reads from the server.
import { ownStep } from "./fold_state.js";
import { closeNode, ownNode } from "./fold_asking.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** Return a graph without steps. */
export const newGraph = () => ({
  nodes: new Map(), planned: 0, ready: /** @type {string[]} */ ([]), running: new Set(), failed: new Set(),
  unneeded: new Set(), unmerged: /** @type {string[]} */ ([]), merged: new Map(), top: 0, highest: 0, round: 0,
  merges: 0,
});

/** Compare two paths. @param {number[]} a @param {number[]} b */
export function comparePaths(a, b) {
  for (let place = 0; place < Math.min(a.length, b.length); place += 1) if (a[place] !== b[place]) return a[place] - b[place];
  return a.length - b.length;
}

/** @param {any} graph @param {string[]} ids @param {string} id */
export function insert(graph, ids, id) {
  const { path } = graph.nodes.get(id);
  const place = ids.findIndex((other) => comparePaths(graph.nodes.get(other).path, path) > 0);
  ids.splice(place < 0 ? ids.length : place, 0, id);
}

/** Return steps in the order of their paths. @param {State} state @param {string[]} ids */
export const inOrder = (state, ids) =>
  [...ids].sort((a, b) => comparePaths(state.graph.nodes.get(a).path, state.graph.nodes.get(b).path));

export const need = (/** @type {any} */ node) =>
  typeof node.plan.join === "number" ? node.plan.join : { all: node.after.length, any: Math.min(1, node.after.length), optional: 0 }[/** @type {"all"} */ (node.plan.join)];
export const startsEarly = (/** @type {any} */ node) => node.plan.join === "any" || typeof node.plan.join === "number";
export const isPossible = (/** @type {any} */ node) => node.won + node.passed + node.waits >= need(node);

export const stepIdOf = (/** @type {number} */ branch, /** @type {number[]} */ path) => `s${path.join(".")}${branch ? `b${branch}` : ""}`;

// -------------------------------------------------------------------------------------------- plans

/** Add planned steps. @param {State} state @param {any[]} steps @param {any} by  the step that planned them */
export function plan(state, steps, by) {
  const { graph } = state;
  const paths = newPaths(graph, by, steps.length);
  const ids = new Map(steps.map((step, place) => [step.name, stepIdOf(state.branch, paths[place])]));
  const above = namesBefore(graph, by);
  const planned = steps.map((step, place) => {
    graph.highest += 1;
    const after = step.after.map((/** @type {string} */ name) => ids.get(name) || above.get(name));
    return addNode(state, { id: ids.get(step.name), index: graph.highest, path: paths[place], plan: step, after, by: by?.id ?? null, round: by ? by.round : graph.round });
  });
  join(state, planned);
}

/** @param {State} state @param {any} known */
export function addNode(state, known) {
  const node = {
    era: state.era, status: "planned", skippedBy: null, unneededFor: null, waits: 0, won: 0, passed: 0, neededBy: [],
    alone: false, merged: false, since: 0, reason: null, calls: 0, memo: {}, requests: 0, questions: [], overtaken: null, read: [],
    newestCalls: [], owesResults: false, ...known,
  };
  state.graph.nodes.set(node.id, node);
  return node.id;
}

/** @param {any} graph @param {any} by @param {number} count @returns {number[][]} */
function newPaths(graph, by, count) {
  if (!by || by.alone) {
    const first = graph.top + 1;
    graph.top += count;
    return Array.from({ length: count }, (_, place) => [first + place]);
  }
  if (count === 1) return [by.path.length > 1 ? [...by.path.slice(0, -1), by.path.at(-1) + 1] : [...by.path, 1]];
  return Array.from({ length: count }, (_, place) => [...by.path, place + 1, 1]);
}

/** @param {any} graph @param {any} by @returns {Map<string, string>} */
function namesBefore(graph, by) {
  if (!by) return new Map();
  const names = new Map(graph.merged);
  const before = [...ancestors(graph, by)].map((id) => graph.nodes.get(id)).filter((node) => node.status === "completed");
  for (const node of [...before.sort((a, b) => comparePaths(a.path, b.path)), by]) names.set(node.plan.name, node.id);
  return names;
}

/** @param {any} graph @param {any} node @returns {Set<string>} */
function ancestors(graph, node) {
  const unmerged = new Set(graph.unmerged), reached = new Set(), open = [...node.after, ...(node.by ? [node.by] : [])];
  while (open.length) {
    const id = open.pop();
    if (!unmerged.has(id) || reached.has(id)) continue;
    reached.add(id);
    const other = graph.nodes.get(id);
    open.push(...other.after, ...(other.by ? [other.by] : []));
  }
  return reached;
}

/** @param {State} state @param {string[]} planned */
export function join(state, planned) {
  const { graph } = state;
  for (const id of planned) {
    const node = ownNode(state, id);
    for (const otherId of node.after) {
      const other = ownNode(state, otherId);
      if (!other) continue;
      if (other.status === "completed") node.won += 1;
      else if (other.status === "skipped") countSkipped(node, other);
      else if (other.status !== "failed" || graph.failed.has(otherId)) {
        node.waits += 1;
        other.neededBy = [...other.neededBy, id];
      }
    }
    graph.planned += 1;
  }
  for (const id of planned) makeReady(state, id);
}

/** @param {any} node @param {any} other */
export function countSkipped(node, other) {
  node.won += Number(other.skippedBy !== "join" && other.skippedBy !== "step");
  node.passed += Number(other.skippedBy === "step");
}

/** @param {State} state @param {string} id */
export function makeReady(state, id) {
  const { graph } = state, node = ownNode(state, id);
  if (node.status !== "planned") return;
  if (node.waits && !(startsEarly(node) && node.won >= need(node))) return;
  if (!isPossible(node)) return;
  node.status = "ready";
  graph.planned -= 1;
  insert(graph, graph.ready, id);
  if (startsEarly(node)) for (const other of node.after) release(state, other, id);
}

/** @param {State} state @param {string} id @param {string} winner */
function release(state, id, winner) {
  const { graph } = state, node = graph.nodes.get(id);
  if (!node || !["planned", "ready", "running"].includes(node.status) || graph.unneeded.has(id)) return;
  const waiting = node.neededBy.filter((/** @type {string} */ other) => !graph.unneeded.has(other));
  if (waiting.some((/** @type {string} */ other) => graph.nodes.get(other).status === "planned")) return;
  markUnneeded(state, id, winner);
  for (const other of node.after) release(state, other, winner);
}

/** @param {State} state @param {string} id @param {string | null} winner */
export function markUnneeded(state, id, winner) {
  state.graph.unneeded.add(id);
  ownNode(state, id).unneededFor = winner;
}

// -------------------------------------------------------------------------------------------- steps

/** @param {State} state @param {any} node */
export function setView(state, node) {
  const { graph } = state, before = ancestors(graph, node);
  node.alone = !graph.running.size && !graph.ready.length && !plannedBeside(graph, node);
  node.alone = node.alone && graph.unmerged.every((/** @type {string} */ id) => before.has(id));
  if (!node.alone) return;
  merge(state);
  graph.merges += 1;
  Object.assign(node, { merged: true, since: graph.merges });
  graph.merged.set(node.plan.name, node.id);
}

/** @param {any} graph @param {any} node */
function plannedBeside(graph, node) {
  if (!graph.planned) return false;
  const reached = new Set(), waiting = [...node.neededBy];
  while (waiting.length) {
    const id = waiting.pop();
    if (reached.has(id) || graph.nodes.get(id).status !== "planned") continue;
    reached.add(id);
    waiting.push(...graph.nodes.get(id).neededBy);
  }
  return reached.size < graph.planned;
}

/** @param {State} state */
export function merge(state) {
  const { graph } = state;
  graph.merges += 1;
  for (const id of graph.unmerged) {
    const node = ownNode(state, id);
    Object.assign(node, { merged: true, since: graph.merges });
    if (node.status === "completed") graph.merged.set(node.plan.name, id);
  }
  graph.unmerged = [];
}

/** @param {State} state @param {any} node @param {Event} event */
export function ended(state, node, event) {
  const { graph } = state, step = ownStep(state, node.id);
  for (const ids of [graph.running, graph.failed, graph.unneeded]) ids.delete(node.id);
  Object.assign(step, { ended: event.time, endedSeq: event.seq });
  closeNode(state, node);
  node.owesResults = false;
  return step;
}

/** @param {State} state @param {any} node */
export function addEnded(state, node) {
  insert(state.graph, state.order, node.id);
  if (!node.merged) insert(state.graph, state.graph.unmerged, node.id);
}

/** Restart the task with its first steps, since unread input followed its answer. @param {State} state */
export function beginAgain(state) {
  for (const id of state.order) {
    if (!state.steps.get(id)?.last) continue;
    ownStep(state, id).last = false;
    ownNode(state, id).overtaken = state.graph.round;
  }
  state.graph.round += 1;
  markOvertaken(state);
}

/** @param {State} state */
export function markOvertaken(state) {
  const { graph } = state, nodes = [...graph.nodes.values()];
  const overtaken = new Map(nodes.filter((node) => node.overtaken !== null).map((node) => [node.overtaken, node]));
  if (!overtaken.size) return;
  const newest = Math.max(...overtaken.keys());
  for (const node of nodes) {
    if (!(["planned", "ready", "running"].includes(node.status) || graph.failed.has(node.id)) || node.round > newest) continue;
    if (!node.merged && !graph.unmerged.includes(node.id)) insert(graph, graph.unmerged, node.id);
    markUnneeded(state, node.id, overtaken.get(newest).id);
  }
  merge(state);
}

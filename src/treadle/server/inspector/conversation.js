// The messages of a thread as a conversation: who said it, and calls with their results. Pure.
import { textOf } from "./fold_state.js";

/**
 * @typedef {object} Said
 * @property {"user" | "assistant"} role
 * @property {string} text
 * @property {string} thinking
 * @property {{id: string, name: string, arguments: any, result: string | null, isError: boolean}[]} calls
 * @property {string[]} others  the kinds of its other parts, such as images
 */

/** Return the messages of a thread, with the results of calls in their calls. @param {any[]} messages @returns {Said[]} */
export function conversation(messages) {
  /** @type {Said[]} */
  const said = [];
  const calls = new Map();
  for (const message of messages) {
    if (message.role === "tool") {
      for (const part of message.parts) {
        const call = calls.get(part.call_id);
        if (call) Object.assign(call, { result: textOf(part.parts), isError: part.is_error });
      }
      continue;
    }
    /** @param {...string} types @returns {any[]} */
    const partsOf = (...types) => message.parts.filter((/** @type {any} */ part) => types.includes(part.type));
    const item = {
      role: message.role, text: textOf(message.parts),
      thinking: partsOf("reasoning").map((part) => part.text || "").join("\n"),
      calls: partsOf("tool_call").map(({ id, name, arguments: given }) => ({ id, name, arguments: given, result: null, isError: false })),
      others: partsOf("image", "file").map((part) => part.type),
    };
    for (const call of item.calls) calls.set(call.id, call);
    said.push(item);
  }
  return said;
}

/**
 * Return the threads of a page: those in the list of the server, and those whose first task has not ended; the one that
 * changed last is the first.
 * @param {any[]} threads @param {Iterable<any>} tasks
 */
export function threadRows(threads, tasks) {
  const rowOf = (/** @type {string} */ id, turns = 0) => ({ id, turns, tasks: /** @type {any[]} */ ([]), changed: 0 });
  const rows = new Map(threads.map((thread) => [thread.thread_id, rowOf(thread.thread_id, thread.turns)]));
  for (const task of tasks) {
    if (task.parent) continue;
    const row = rows.get(task.thread_id) || rowOf(task.thread_id);
    rows.set(task.thread_id, row);
    row.tasks.push(task);
    row.changed = Math.max(row.changed, task.updated || task.created);
  }
  for (const row of rows.values()) row.tasks.sort((a, b) => a.created - b.created);
  return [...rows.values()].sort((a, b) => b.changed - a.changed || (a.id < b.id ? -1 : 1));
}

// Reads the family of a task: the task that all its forks come from, those forks over all levels, undone branches, and
// the tree of calls of agents.
import { call, taskPath } from "./api.js";
import { branchesOf } from "./family_rows.js";

/** The most tasks of a family, and of a tree of calls. */
const MOST = 120;
/** How many requests run at the same time. */
const AT_ONCE = 6;

/** @typedef {import("./family_rows.js").Family} Family */
/** @typedef {import("./family_rows.js").Member} Member */

/**
 * Call a function with each item, some at the same time.
 * @template T @param {T[]} items @param {(item: T) => Promise<void>} work
 */
async function each(items, work) {
  const left = [...items];
  const next = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
}

const lineageOf = (/** @type {string} */ id) => call(`${taskPath(id)}/lineage?limit=${MOST}`);

/** Read the family of a task. @param {string} id @returns {Promise<Family>} */
export async function readFamily(id) {
  const own = await lineageOf(id);
  const known = new Map([[id, own]]);
  /** @param {"forked_from" | "parent"} name */
  const highest = async (name) => {
    let at = own;
    while (at[name] && known.size < MOST) {
      const above = at[name].task_id;
      if (!known.has(above)) known.set(above, await lineageOf(above));
      at = known.get(above);
    }
    return at.task.task_id;
  };
  const root = await highest("forked_from"), top = await highest("parent");
  const forks = await below(root, "forks", known), calls = await below(top, "children", known);
  const members = /** @type {Map<string, Member>} */ (new Map());
  for (const task of forks.tasks.values()) members.set(task.task_id, { task, from: 0, undone: [] });
  await each([...members.values()], async (member) => {
    const path = taskPath(member.task.task_id), at = member.task.forked_at;
    const [events, there] = await Promise.all([
      call(`${path}/events?kinds=rewound&kinds=undo_requested&limit=500&cut=1024&after=${at || 0}`),
      at === null ? null : call(`${path}?at=${at}`),
    ]);
    member.undone = branchesOf(events.items);
    if (there) member.from = there.steps;
  });
  return { root, members, top, calls: calls.tasks, more: forks.more || calls.more };
}

/**
 * Read a task and all tasks below it, level by level.
 * @param {string} root @param {"forks" | "children"} name @param {Map<string, any>} known
 */
async function below(root, name, known) {
  /** @type {Map<string, any>} */
  const tasks = new Map();
  let level = [root], more = false;
  while (level.length) {
    /** @type {any[]} */
    const next = [];
    await each(level, async (id) => {
      if (!known.has(id)) known.set(id, await lineageOf(id));
      const found = known.get(id);
      tasks.set(id, found.task);
      next.push(...found[name].items);
      more ||= found[name].cursor !== null;
    });
    const left = next.filter((task) => !tasks.has(task.task_id)).sort((a, b) => a.created - b.created);
    more ||= left.length > MOST - tasks.size;
    level = left.slice(0, Math.max(0, MOST - tasks.size)).map((task) => task.task_id);
  }
  return { tasks, more };
}

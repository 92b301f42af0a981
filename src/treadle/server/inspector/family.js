// Reads the family of a task: the task that all its forks come from, those forks over all levels, undone branches, and
// the tree of calls of agents.
import { call, Refused, taskPath } from "./api.js";
import { branchesOf } from "./family_rows.js";

/** The most tasks of a family, and of a tree of calls. */
const MOST = 120;
/** How many requests run at the same time. */
const AT_ONCE = 4;
/** How long a request waits after the server has refused one too many, in milliseconds; and how often it does. */
const PAUSE = 400, TRIES = 40;

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

/** Send a request, later again if the server has too many now. @param {string} path @returns {Promise<any>} */
async function patiently(path) {
  for (let left = TRIES; ; left -= 1) {
    try {
      return await call(path);
    } catch (error) {
      if (!(error instanceof Refused && error.status === 429 && left)) throw error;
    }
    await new Promise((done) => setTimeout(done, PAUSE * (0.5 + Math.random())));
  }
}

const lineageOf = (/** @type {string} */ id) => patiently(`${taskPath(id)}/lineage?limit=${MOST}`);

/** Read the undone branches of a task. @param {any} task */
async function undoneOf(task) {
  if (!task.undos) return [];
  const after = task.forked_at || 0;
  const page = await patiently(`${taskPath(task.task_id)}/events?kinds=rewound&kinds=undo_requested&limit=500&cut=1024&after=${after}`);
  return branchesOf(page.items);
}

/**
 * Read the family of a task. Known tasks are told while the others are read.
 * @param {string} id @param {(family: Family) => void} tell
 */
export async function readFamily(id, tell) {
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
  const members = /** @type {Map<string, Member>} */ (new Map());
  /** @param {any} task */
  const join = async (task) => {
    const member = { task, from: task.shared_steps, undone: /** @type {import("./family_rows.js").Branch[]} */ ([]) };
    members.set(task.task_id, member);
    member.undone = await undoneOf(task);
  };
  let forked = false, called = false, calls = new Map();
  const say = () => tell({ root, members: new Map(members), top, calls, more: forked || called });
  forked = await below(root, "forks", known, async (tasks) => {
    await each(tasks, join);
    say();
  });
  called = await below(top, "children", known, async (tasks) => {
    for (const task of tasks) calls = new Map(calls).set(task.task_id, task);
  });
  say();
}

/**
 * Read a task and all tasks below it, level by level. Return whether there are more than are read.
 * @param {string} root @param {"forks" | "children"} name @param {Map<string, any>} known
 * @param {(tasks: any[]) => Promise<void>} take  gets the tasks of a level
 */
async function below(root, name, known, take) {
  if (!known.has(root)) known.set(root, await lineageOf(root));
  let level = [known.get(root).task], more = false;
  const seen = new Set([root]);
  while (level.length) {
    await take(level);
    /** @type {any[]} */
    const next = [];
    await each(level, async ({ task_id: id }) => {
      if (!known.has(id)) known.set(id, await lineageOf(id));
      next.push(...known.get(id)[name].items);
      more ||= known.get(id)[name].cursor !== null;
    });
    const found = next.filter((task) => !seen.has(task.task_id)).sort((a, b) => a.created - b.created);
    level = found.slice(0, MOST - seen.size);
    more ||= level.length < found.length;
    for (const task of level) seen.add(task.task_id);
  }
  return more;
}

// The rows of a family of tasks: forks, undone branches and calls of agents. Pure.

/**
 * @typedef {object} Branch  steps that an undo took back
 * @property {number} seq  the event before the undo
 * @property {number} from  how many steps stayed
 * @property {string[]} steps
 * @property {string | null} by
 * @property {{call: string, tool: string, verdict: string}[]} calls
 */

/**
 * @typedef {object} Member  a task of a family of forks
 * @property {any} task  as in lists
 * @property {number} from  how many steps it shares with the task that it was forked from
 * @property {Branch[]} undone
 */

/**
 * @typedef {object} Family
 * @property {string} root
 * @property {Map<string, Member>} members  by id, those of the same origin by the time of their creation
 * @property {string} top  the task that called all others
 * @property {Map<string, any>} calls  the tasks of the tree of calls, as in lists
 * @property {boolean} more  whether there are more than are read
 */

/** Return the undone branches in the events of a task. @param {any[]} events @returns {Branch[]} */
export function branchesOf(events) {
  const branches = [];
  let asked = null;
  for (const event of events) {
    if (event.kind === "undo_requested") asked = event;
    else if (event.kind === "rewound") {
      const steps = asked?.steps.length ? asked.steps : event.steps;
      branches.push({ seq: (asked || event).seq - 1, from: event.to, steps, by: asked?.by ?? null, calls: event.calls });
      asked = null;
    }
  }
  return branches;
}

/**
 * @typedef {object} FamilyRow
 * @property {string} key
 * @property {any} task  the task, or that of an undone branch
 * @property {Branch | null} branch
 * @property {number} depth
 * @property {number} from  the step after which it begins
 * @property {number} to  its last step
 * @property {number} above  the row that it begins at; -1 for none
 * @property {number[]} through  the steps at which lines of other rows pass
 * @property {number[]} down  the steps at which other rows begin
 */

/**
 * Return the rows of a family: each task with its undone branches and forks below it, ordered by their first step.
 * @param {Family} family @returns {FamilyRow[]}
 */
export function familyRows({ root, members }) {
  /** @type {FamilyRow[]} */
  const rows = [];
  const all = [...members.values()];
  const put = (/** @type {Member} */ member, /** @type {number} */ depth, /** @type {number} */ above) => {
    const { task, undone } = member, place = rows.length;
    const from = above < 0 ? 0 : member.from;
    rows.push({
      key: task.task_id, task, branch: null, depth, from, to: Math.max(from, task.steps || 0), above, through: [], down: [],
    });
    const branches = undone.map((branch, index) => ({ at: branch.from, time: 0, branch, index, fork: null }));
    const forks = all.filter((other) => other.task.forked_from === task.task_id && other !== member)
      .map((fork) => ({ at: fork.from, time: fork.task.created, branch: null, index: 0, fork }));
    for (const { branch, index, fork } of [...branches, ...forks].sort((a, b) => a.at - b.at || a.time - b.time)) {
      if (fork) put(fork, depth + 1, place);
      else if (branch)
        rows.push({
          key: `${task.task_id}/${index}`, task, branch, depth: depth + 1, from: branch.from,
          to: branch.from + branch.steps.length, above: place, through: [], down: [],
        });
    }
  };
  const first = members.get(root);
  if (first) put(first, 0, -1);
  rows.forEach((row, place) => {
    if (row.above < 0) return;
    rows[row.above].down.push(row.from);
    for (const between of rows.slice(row.above + 1, place)) between.through.push(row.from);
  });
  return rows;
}

/**
 * Return the rows of a tree of calls, each with its depth, the first called first.
 * @param {string} top @param {Map<string, any>} calls @returns {{task: any, depth: number}[]}
 */
export function callRows(top, calls) {
  /** @type {{task: any, depth: number}[]} */
  const rows = [];
  const put = (/** @type {any} */ task, /** @type {number} */ depth) => {
    rows.push({ task, depth });
    const called = [...calls.values()].filter((other) => other.parent === task.task_id);
    for (const child of called.sort((a, b) => a.created - b.created)) put(child, depth + 1);
  };
  const first = calls.get(top);
  if (first) put(first, 0);
  return rows;
}

// The rows of the timeline, and its scale of time without the gaps in which nothing ran.

/** @typedef {import("./fold_state.js").State} State */

/**
 * @typedef {object} Row
 * @property {string} key  an id for the page's address and focus
 * @property {"step" | "call" | "fold" | "note"} kind
 * @property {any} [step]
 * @property {any} [call]
 * @property {any} [group]  an undone branch
 * @property {any} [note]
 * @property {boolean} [open]
 * @property {boolean} undone
 * @property {number} began
 * @property {number | null} ended  null while it runs
 * @property {number} seq
 * @property {number} lastSeq
 */

/** The words for a call that waits for a person or an event outside of the task. @type {Record<string, string>} */
const WAITING = {
  lost: "unknown", unresolved: "unknown", asking: "asks", sleeping: "sleeps", deferred: "in background", parked: "stopped",
};

/** Return the word for the wait of a call; empty if it does not wait. @param {any} call */
export function waiting(call) {
  if (call.outcome !== null) return "";
  if (call.permit?.status === "asked") return "needs approval";
  return WAITING[call.status] || "";
}

/** Whether a call failed. @param {any} call */
export const isBad = (call) => Boolean(call.error) || (call.outcome !== null && call.outcome !== "ok");

/**
 * Return how long any of some parts ran, in microseconds: waits between them do not count.
 * @param {{began: number, ended: number | null}[]} parts
 * @param {number} until  the end of rows that still run
 */
export function busyTime(parts, until) {
  let busy = 0, last = 0;
  for (const { began, ended } of [...parts].sort((a, b) => a.began - b.began)) {
    const end = ended ?? until;
    busy += Math.max(0, end - Math.max(began, last));
    last = Math.max(last, end);
  }
  return busy;
}

/** Return the requests of a step and the attempts of its calls. @param {State} state @param {any} step */
export function partsOf(state, step) {
  const calls = step.calls.map((/** @type {string} */ id) => state.calls.get(id)).filter(Boolean);
  return [...step.sends, ...calls.flatMap((/** @type {any} */ call) => call.runs)];
}

/** Return how long any request or call of a task ran, in microseconds. @param {State} state @param {number} until */
export function workTime(state, until) {
  const sends = [...state.steps.values()].flatMap((step) => step.sends);
  return busyTime([...sends, ...[...state.calls.values()].flatMap((call) => call.runs)], until);
}

/** When the newest part of something ended; null while it runs. @param {{began: number, ended: number | null}[]} runs */
const lastEnd = (runs) => (runs.length ? /** @type {any} */ (runs.at(-1)).ended : null);

/**
 * Return when a step ended. While it waits, that is when its last part ended; null while something of it runs.
 * @param {State} state
 * @param {any} step
 * @returns {number | null}
 */
export function stepEnd(state, step) {
  if (step.ended) return step.ended;
  const parts = partsOf(state, step);
  if (parts.some((part) => part.ended === null)) return null;
  return Math.max(step.began, ...parts.map((part) => part.ended));
}

/**
 * Return the rows of the timeline.
 * @param {State} state
 * @param {Set<number>} open  the undone branches that are unfolded
 * @returns {Row[]}
 */
export function timelineRows(state, open) {
  /** @type {Row[]} */
  const rows = [];
  for (const row of state.rows) {
    if (row.kind === "step") addStep(state, rows, row.step);
    else if (row.kind === "fold") {
      const { group } = row, isOpen = open.has(group.branch), steps = group.steps.map((/** @type {string} */ id) => state.steps.get(id));
      const ends = steps.map((/** @type {any} */ step) => stepEnd(state, step) ?? group.time);
      rows.push({
        key: `undo-${group.branch}`, kind: "fold", group, open: isOpen, undone: true, began: steps[0]?.began ?? group.time,
        ended: Math.max(...ends, group.time), seq: group.seq, lastSeq: group.seq,
      });
      if (isOpen) for (const id of group.steps) addStep(state, rows, id);
    } else rows.push({ key: `event-${row.seq}`, kind: "note", note: row, undone: false, began: row.time, ended: row.time, seq: row.seq, lastSeq: row.seq });
  }
  return rows;
}

/** @param {State} state @param {Row[]} rows @param {string} id */
function addStep(state, rows, id) {
  const step = /** @type {any} */ (state.steps.get(id));
  if (!step) return;
  const undone = step.undone > 0;
  rows.push({ key: id, kind: "step", step, undone, began: step.began, ended: stepEnd(state, step), seq: step.seq, lastSeq: step.endedSeq || step.lastSeq });
  const order = step.calls.flatMap((/** @type {string} */ call) => [...attemptsBefore(state, call), call]);
  for (const call of [...order, ...(step.compensations || [])]) {
    const shown = /** @type {any} */ (state.calls.get(call));
    if (!shown || shown.answers) continue;
    const began = shown.began || step.sends.at(-1)?.ended || step.began;
    const ended = shown.runs.length ? lastEnd(shown.runs) : began;
    rows.push({ key: call, kind: "call", step, call: shown, undone, began, ended, seq: shown.seq, lastSeq: shown.lastSeq });
  }
}

/** Return the earlier calls that a call repeats, the first one first. @param {State} state @param {string} id @returns {string[]} */
function attemptsBefore(state, id) {
  const before = /** @type {any} */ (state.calls.get(id))?.repeats;
  return before ? [...attemptsBefore(state, before), before] : [];
}

// --------------------------------------------------------------------------------------------- scale

/** Gaps of at most this many microseconds stay: shorter ones are no waits. */
const SHORTEST_GAP = 20_000;

/** The widest drawn gap, and the width of all gaps together, as parts of the axis. */
const GAP = 0.02, ALL_GAPS = 0.25;

/**
 * Return a scale of time over rows, from 0 to 1, without the gaps in which nothing ran.
 * @param {Row[]} rows
 * @param {number} now  the end of rows that still run
 */
export function scale(rows, now) {
  const merged = busyTimes(rows, now);
  const busy = merged.reduce((sum, [began, ended]) => sum + ended - began, 0);
  const gap = merged.length > 1 ? Math.min(GAP, ALL_GAPS / (merged.length - 1)) : 0;
  const room = 1 - gap * (merged.length - 1);
  /** @type {[number, number, number, number][]} */
  const pieces = [];
  /** @type {{x: number, time: number}[]} */
  const breaks = [];
  let x = 0;
  for (const [place, [began, ended]] of merged.entries()) {
    if (place) {
      breaks.push({ x: x + gap / 2, time: began - merged[place - 1][1] });
      x += gap;
    }
    const width = ((ended - began) / busy) * room;
    pieces.push([began, ended, x, x + width]);
    x += width;
  }
  return { pieces, breaks, busy, x: (/** @type {number} */ time) => place(pieces, time) };
}

/** @param {Row[]} rows @param {number} now @returns {[number, number][]} */
function busyTimes(rows, now) {
  const spans = rows.flatMap((row) => spansOf(row, now)).sort((a, b) => a[0] - b[0]);
  /** @type {[number, number][]} */
  const merged = [];
  for (const [began, ended] of spans) {
    const last = merged.at(-1);
    if (last && began <= last[1] + SHORTEST_GAP) last[1] = Math.max(last[1], ended);
    else merged.push([began, Math.max(ended, began + 1)]);
  }
  return merged;
}

/** Return when something of a row ran. @param {Row} row @param {number} now @returns {[number, number][]} */
function spansOf(row, now) {
  const parts = row.kind === "step" ? row.step.sends : row.kind === "call" ? row.call.runs : [];
  const spans = parts.map((/** @type {any} */ part) => [part.began, part.ended ?? now]);
  return spans.length || row.kind === "note" || row.kind === "fold" ? spans : [[row.began, row.began]];
}

/** @param {[number, number, number, number][]} pieces @param {number} time */
function place(pieces, time) {
  for (const [began, ended, from, to] of pieces) {
    if (time < began) return from;
    if (time <= ended) return from + ((time - began) / (ended - began)) * (to - from);
  }
  return pieces.length ? 1 : 0;
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 18e5, 36e5, 108e5, 432e5, 864e5];

/**
 * Return the marks of a scale: their times in milliseconds of busy time, and their places.
 * @param {ReturnType<typeof scale>} axis
 * @param {number} [most]  how many marks have room
 */
export function ticks(axis, most = 7) {
  const total = axis.busy / 1e3;
  if (!total) return [];
  const step = STEPS.find((each) => total / each <= most) || total / most;
  const marks = [];
  for (let time = 0; time <= total; time += step) marks.push({ time, x: along(axis.pieces, time * 1e3) });
  return marks;
}

/** @param {[number, number, number, number][]} pieces @param {number} busy */
function along(pieces, busy) {
  let left = busy;
  for (const [began, ended, from, to] of pieces) {
    if (left <= ended - began) return from + (left / (ended - began)) * (to - from);
    left -= ended - began;
  }
  return 1;
}

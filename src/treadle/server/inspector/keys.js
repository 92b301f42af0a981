// Keys. Letters are off in fields; no key decides anything outside of its view; a final act asks first.
import { isReading, moveAgent, writeMessage } from "./agents.js";
import { decideByKey } from "./asked.js";
import { leaveComparison, moveDifference, openSide, swapSides } from "./compare.js";
import { clearFilters, moveBar, movePeriod, narrowBar, nextGroup } from "./cost.js";
import { answerByKey, INBOX_KEYS, isInboxKey, moveItem } from "./inbox_state.js";
import { compareRelative, leaveLineage, markRelative, moveRelative, openRelative } from "./lineage.js";
import { focusSoon, isAwaited } from "./focus.js";
import { go, ownOf, place, taskShown } from "./place.js";
import { enterSide, leaveSide } from "./side.js";
import { editCall } from "./side_call.js";
import { current, dialog, follow, look, move, rewind, seek, seekStep, toggle } from "./task_state.js";
import { actByKey, offered } from "./task_verbs.js";
import { moveCursor, TASK_KEYS } from "./tasks.js";
import { moveThread, openTurn, writeTurn } from "./threads.js";
import { may, me } from "./store.js";
import { reveal } from "./timeline_view.js";

/** The list of keys by views, as `?` shows it. @type {[string, [string, string][]][]} */
export const KEYS = [
  ["Everywhere", [
    ["t i v", "tasks, inbox, threads"], ["n c", "new task, cost"], ["/", "search"], ["↑ ↓ j k", "next row"], ["↵", "open, unfold, answer"],
    ["Esc", "close"], ["?", "this list"],
  ]],
  ["A task", [
    [", .", "one event back, one on"], ["< >", "one step back, one on"], ["g 0", "rewind to the selection, back to now"],
    ["s r p", "step, run or try again, pause"], ["b P", "run to a place, stop now"], ["m w", "message, next input"],
    ["u f", "undo with its preview, fork here"], ["S z x", "skip the failed step, finalize, cancel"], ["o", "all actions"],
    ["l d", "lineage, compare"],
  ]],
  ["A decision", [
    ["a d e", "approve, deny, change the arguments"], ["h n", "it happened, it did not"], ["1 y", "choose an answer"],
    ["r S", "try a stopped undo again, or without the call"],
  ]],
  ["Lists", [
    ["f", "filter"], ["Space *", "mark a task, mark all"], ["x Del", "cancel or delete the marked tasks"],
    ["→ ←", "the tree of a task, and back"],
  ]],
  ["Compare, cost", [["x", "swap the sides"], ["1 2", "open a side"], ["b [ ]", "other sums, other periods"]]],
];

/** Open a view, with the focus in its list or its field. @param {string} hash @param {string} id */
function open(hash, id) {
  go(hash);
  focusSoon(id);
}

/** @type {Record<string, () => void>} */
const EVERYWHERE = {
  "?": () => (dialog.value = "keys"), t: () => open("#/", "task-list"), i: () => open("#/inbox", "inbox-list"),
  n: () => open("#/agents", me.value && !may("run") ? "agent-list" : "start-input"),
  v: () => open("#/threads", "thread-list"), c: () => open("#/cost", "cost-list"),
  "/": () => {
    if (place.value.view !== "") go("#/");
    focusSoon("search");
  },
};

/** @type {Record<string, () => void>} */
const IN_TASK = {
  ",": () => seek(-1), ".": () => seek(1), "<": () => seekStep(-1), ">": () => seekStep(1), 0: follow, g: rewind,
  Enter: openRow, Escape: leaveSide, o: () => void (offered.value.size && (dialog.value = "more")),
  l: () => go(`#/t/${encodeURIComponent(taskShown.value)}/lineage`),
};

/** Unfold the selected branch, or go to the panel about the selected row. */
function openRow() {
  if (current.value?.kind === "fold") toggle();
  else if (current.value) enterSide();
}

/** Keys whose meaning is that of the task: a decision about the selected call, or a verb. @param {string} key */
function actInTask(key) {
  if (decideByKey(key) || actByKey(key)) return true;
  const row = current.value;
  if (key !== "e" || row?.kind !== "call") return false;
  editCall(row.call);
  return true;
}

/** @type {Record<string, {keys: Record<string, () => void>, move: (by: number, marks: boolean) => void, act?: (key: string) => boolean,
 *   isOwn?: (key: string) => boolean}>} */
const VIEWS = {
  "": { keys: TASK_KEYS, move: moveCursor },
  inbox: { keys: INBOX_KEYS, move: moveItem, act: answerByKey, isOwn: isInboxKey },
  agents: { keys: { Enter: writeMessage }, move: moveAgent },
  threads: { keys: { Enter: writeTurn, o: openTurn }, move: moveThread },
  cost: { keys: { Enter: narrowBar, b: nextGroup, "[": () => movePeriod(-1), "]": () => movePeriod(1), Escape: clearFilters }, move: moveBar },
  diff: { keys: { 1: () => openSide(0), 2: () => openSide(1), x: swapSides, l: leaveComparison, Escape: leaveComparison }, move: moveDifference },
  t: { keys: IN_TASK, move: (by) => reveal(move(by)), act: actInTask },
  lineage: { keys: { Enter: openRelative, d: compareRelative, " ": markRelative, l: leaveLineage, Escape: leaveLineage }, move: moveRelative },
};

const MOVES = /** @type {Record<string, number>} */ ({ ArrowDown: 1, j: 1, J: 1, ArrowUp: -1, k: -1, K: -1 });
const LEAPS = /** @type {Record<string, number>} */ ({ PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity });

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (dialog.value || document.querySelector("dialog[open]")) return;
  const target = /** @type {HTMLElement} */ (event.target), { key } = event;
  const isField = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(range|checkbox)$/.test(/** @type {any} */ (target).type);
  if (isField) {
    if (key === "Escape") target.blur();
    return;
  }
  if (key === " " && target.closest("button, summary")) return;
  if (key === "Enter" && target.closest("button, a, summary, [role=tabpanel]")) return;
  if (key.length === 1 && isAwaited("start-input") && isReading()) return; // it is a letter of the message
  const { view, part } = place.value, here = ownOf(VIEWS, view === "t" && part === "lineage" ? part : view);
  const by = MOVES[key] || LEAPS[key] || 0;
  const isRange = /** @type {any} */ (target).type === "range";
  const act = (here?.isOwn?.(key) !== false && here?.keys[key]) || EVERYWHERE[key];
  if (by && here && !isRange && !target.closest("[role=tabpanel]")) {
    event.preventDefault();
    here.move(by, event.shiftKey);
  } else if (here?.act?.(key)) event.preventDefault();
  else if (act) {
    event.preventDefault();
    act();
  }
}

export const listen = () => addEventListener("keydown", pressed);

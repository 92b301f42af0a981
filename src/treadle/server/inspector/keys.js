// Keys. Letters are off in fields; no key decides anything outside of its view; `u` and `f` open a dialog.
import { moveAgent, writeMessage } from "./agents.js";
import { decide, editItem, moveItem } from "./inbox.js";
import { go, place, taskShown } from "./place.js";
import { may } from "./store.js";
import { dialog, look, mayRun, maySteps, move, past, rewind, seek, seekStep, sheet, toggle, word } from "./task_state.js";
import { pause, run, step } from "./task.js";
import { moveCursor, openCursor } from "./tasks.js";
import { reveal } from "./timeline_view.js";

/** The list of keys, as `?` shows it. @type {[string, string][]} */
export const KEYS = [
  ["↑ ↓ j k", "next row"], ["↵", "open, unfold, or go to the answer"], [", .", "one event back, one on"], ["< >", "one step back, one on"],
  ["g", "rewind to what is selected"], ["0", "back to now"], ["s r p", "step, run or try again, pause"], ["u", "undo, with its preview"],
  ["f", "fork here"], ["a d e", "approve, deny, change the arguments"], ["h n", "it happened, it did not"], ["/", "search"],
  ["t i n", "tasks, inbox, a new task"], ["Esc", "close"], ["?", "this list"],
];

/** @type {Record<string, () => void>} */
const EVERYWHERE = {
  "?": () => (dialog.value = "keys"), t: () => go("#/"), i: () => go("#/inbox"), n: () => go("#/agents"),
  "/": () => {
    go("#/");
    setTimeout(() => document.getElementById("search")?.focus(), 50);
  },
};

/** @type {Record<string, () => void>} */
const IN_INBOX = {
  a: () => void decide("approve"), d: () => void decide("deny"), e: editItem, h: () => void decide("happened"), n: () => void decide("not"),
  Enter: () => document.getElementById("answer")?.focus(),
};

/** @type {Record<string, () => void>} */
const IN_TASK = {
  ",": () => seek(-1), ".": () => seek(1), "<": () => seekStep(-1), ">": () => seekStep(1), 0: () => look(null), g: rewind, Enter: toggle,
  f: () => void (may("edit") && (dialog.value = "fork")), u: () => void (may("edit") && !past.value && (dialog.value = "undo")),
  s: () => void (may("run") && maySteps.value && step(taskShown.value)), r: () => void (may("run") && mayRun.value && run(taskShown.value)),
  p: () => void (may("control") && !past.value && word.value === "running" && pause(taskShown.value)), Escape: () => (sheet.value = false),
};

/** @type {Record<string, {keys: Record<string, () => void>, move: (by: number) => void}>} */
const VIEWS = {
  "": { keys: { Enter: openCursor }, move: moveCursor },
  inbox: { keys: IN_INBOX, move: moveItem },
  agents: { keys: { Enter: writeMessage }, move: moveAgent },
  t: { keys: IN_TASK, move: (by) => reveal(move(by)) },
};

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialog.value) return;
  const target = /** @type {HTMLElement} */ (event.target), { key } = event;
  const isField = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(range|checkbox)$/.test(/** @type {any} */ (target).type);
  if (isField) {
    if (key === "Escape") target.blur();
    return;
  }
  if (key === "Enter" && target.closest("button, a, summary")) return;
  const here = VIEWS[place.value.view];
  const by = key === "ArrowDown" || key === "j" ? 1 : key === "ArrowUp" || key === "k" ? -1 : 0;
  const isRange = /** @type {any} */ (target).type === "range";
  const act = here?.keys[key] || EVERYWHERE[key];
  if (by && here && !isRange && !target.closest("[role=tabpanel]")) {
    event.preventDefault();
    here.move(by);
  } else if (act) {
    event.preventDefault();
    act();
  }
}

export const listen = () => addEventListener("keydown", pressed);

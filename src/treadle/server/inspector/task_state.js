// The place in the open task: the event the page looks at, the selected row, the unfolded branches. All of it stands in
// the address.
import { computed, effect, signal } from "@preact/signals";
import { stateWord } from "./fold_view.js";
import { place, rename, taskLink, taskShown } from "./place.js";
import { driven, hasCode, opened, tasks } from "./store.js";
import { timelineRows, waiting } from "./timeline.js";

/** The event that the page looks at; null is now. @type {import("@preact/signals").Signal<number | null>} */
export const at = signal(null);
/** The key of the selected row; "" selects the running row, else the last step. */
export const selected = signal("");
/** The key of the row that stays in the side panel as long as the pointer or the focus is there. */
export const held = signal("");
/** The undone branches that are unfolded. @type {import("@preact/signals").Signal<Set<number>>} */
export const unfolded = signal(new Set());
/** The tab of the side panel. */
export const tab = signal("detail");
/** Whether the side panel is open, on the phone. */
export const sheet = signal(false);
/** The name of the open dialog, or an object with its name and its subject. */
export const dialog = signal(/** @type {any} */ (null));

/** The state of the open task at that event. It is changed in place, so it is wrapped for each change. */
export const shown = computed(() => {
  const { journal, version } = opened.value;
  return { state: journal.at(at.value), version };
});

/** Whether the page looks at the past. */
export const past = computed(() => at.value !== null);
export const rows = computed(() => timelineRows(shown.value.state, unfolded.value));
/** The task as in lists, if it is there. */
export const summary = computed(() => tasks.value.get(opened.value.id));
const lives = computed(() => driven.value || Boolean(summary.value?.driven));

/** The word of the state that people read. */
export const word = computed(() => {
  const found = stateWord(shown.value.state);
  if (opened.value.loading && !past.value) return summary.value?.state_text || found;
  if (past.value) return found === "running" ? "between steps" : found;
  if (shown.value.state.ended) return found;
  if (lives.value) return "running"; // a driver works on it, also after a request to pause
  if (summary.value?.state === "interrupted") return "interrupted";
  return found === "running" ? "between steps" : found;
});

/** Whether the server has the code of the task's agent. */
export const hasAgent = computed(() => hasCode(shown.value.state.agent));

/** Whether the task is driven now and the page looks at now. */
export const isLive = computed(() => !past.value && lives.value && word.value === "running");

/** The statuses of a call that waits for a person. */
const ASKS = new Set(["needs approval", "asks", "unknown", "stopped"]);

/** The row that the side panel is about: the selected one, else the waiting one, the running one, or the last step. */
export const current = computed(() => {
  const list = rows.value;
  const steps = list.filter((row) => row.kind === "step" && !row.undone);
  const chosen = list.find((row) => row.key === (selected.value || held.value));
  if (chosen || opened.value.loading) return chosen || steps[0];
  const asks = word.value !== "running" && list.find((row) => row.kind === "call" && !row.undone && ASKS.has(waiting(row.call)));
  return asks || steps.find((row) => row.ended === null) || steps.at(-1);
});

// ------------------------------------------------------------------------------------------- address

let shownTask = "", shownView = "";
effect(() => {
  const { task, view, query } = place.value;
  if (view !== shownView || task !== shownTask) dialog.value = null;
  shownView = view;
  if (view !== "t") return;
  const seq = Number(query.get("at")), isNew = task !== shownTask;
  shownTask = task;
  at.value = Number.isInteger(seq) && seq > 0 ? seq : null;
  selected.value = query.get("sel") || "";
  tab.value = query.get("tab") || "detail";
  if (isNew) {
    unfolded.value = new Set();
    sheet.value = false;
    held.value = "";
  }
});

let naming = 0;
/** Put the place into the address, soon: a slider moves often. */
function name() {
  clearTimeout(naming);
  naming = window.setTimeout(() => {
    if (place.value.view === "t" && !place.value.part && taskShown.value === shownTask) {
      rename(taskLink(shownTask, { at: at.value, sel: selected.value, tab: tab.value === "detail" ? "" : tab.value }));
    }
  }, 200);
}

// --------------------------------------------------------------------------------------------- moves

/** Look at an event; at the newest one the page follows again. @param {number | null} seq */
export function look(seq) {
  const { head } = opened.value.journal;
  at.value = seq === null || seq >= head ? null : Math.max(1, seq);
  name();
}

/** Look at now; there already, select nothing, so that the page follows the running row. */
export function follow() {
  if (!past.value) selected.value = "";
  look(null);
}

/** Go back or on by events. @param {number} by */
export const seek = (by) => look((at.value ?? opened.value.journal.head) + by);

/** Go to the beginning of the step before or after. @param {number} by */
export function seekStep(by) {
  const { journal } = opened.value, here = at.value ?? journal.head;
  const starts = journal.events.filter((event) => event.kind === "step_started").map((event) => event.seq);
  look(by < 0 ? starts.filter((seq) => seq < here).at(-1) ?? 1 : starts.find((seq) => seq > here) ?? null);
}

/** Select a row. @param {string} key */
export function select(key) {
  selected.value = key;
  name();
}

/** Open a tab of the side panel. @param {string} to */
export function openTab(to) {
  tab.value = to;
  name();
}

/** Select the next or the last row. @param {number} by */
export function move(by) {
  const list = rows.value, here = list.findIndex((row) => row.key === current.value?.key);
  const row = list[Math.max(0, Math.min(list.length - 1, here < 0 ? 0 : here + by))];
  if (row) select(row.key);
  return row ? list.indexOf(row) : -1;
}

/** Look at the end of the selected row. */
export function rewind() {
  const row = current.value;
  if (row) look(row.lastSeq);
}

/** Fold or unfold the selected branch. */
export function toggle() {
  const row = current.value;
  if (row?.kind === "fold") flip(row.group.branch);
}

/** @param {number} branch */
export function flip(branch) {
  const open = new Set(unfolded.value);
  if (!open.delete(branch)) open.add(branch);
  unfolded.value = open;
}

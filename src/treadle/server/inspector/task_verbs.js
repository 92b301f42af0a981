// The verbs of the open task: the key, the meaning and the request of each. A verb that the task does not take now, or the
// person may not do, is neither shown nor bound to its key.
import { computed, effect } from "@preact/signals";
import { offers } from "./offers.js";
import { act, me, opened, toast } from "./store.js";
import { dialog, hasAgent, past, shown, word } from "./task_state.js";

/** @typedef {import("./offers.js").Verb} Verb */

/** The verbs that the open task takes now. */
export const offered = computed(() => {
  if (opened.value.loading) return new Set();
  const verbs = offers({ state: shown.value.state, word: word.value, isPast: past.value, scopes: me.value?.scopes || [] });
  if (!hasAgent.value) verbs.delete("step"); // another process may run it on, but a step runs here
  return verbs;
});

/** The event after which the person decides; the server refuses the verb if the task went on since. */
export const seen = () => ({ head: opened.value.journal.head });

/** Verbs of which a request is under way: a second press sends no second one. @type {Set<string>} */
const sending = new Set();

/**
 * Send a verb of the open task. Return its result; undefined if it was refused.
 * @param {string} path  of the operation, below the task
 * @param {any} body
 * @param {string | ((result: any) => string)} done  the message
 * @param {{head?: number, wait?: number, throws?: boolean}} [how]
 */
export async function send(path, body, done, how = {}) {
  const { id } = opened.value, key = `${id}/${path}`;
  if (sending.has(key)) return undefined;
  sending.add(key);
  try {
    return await act(id, path, body, done, how);
  } finally {
    sending.delete(key);
  }
}

const RUNS = "The task runs.";

/** The messages for a task that has stopped soon after it began to run. @type {Record<string, string>} */
const AT_REST = {
  waiting: "The task waits.", paused: "The task has paused.", answered: "The task has answered.",
  failed: "The task has failed.", completed: "The task has ended.", degraded: "The task has ended, degraded.",
  cancelled: "The task is cancelled.",
};

/** Return the message for a task that is to run. @param {any} result  the task, or its result if it is at rest by now */
function saidOfRun(result) {
  if (!hasAgent.value) return "The task waits for a process that has its agent.";
  return (!result?.driven && AT_REST[result?.state]) || RUNS;
}

let ran = false;
// Nothing says that a task runs after it has stopped.
effect(() => {
  const runs = word.value === "running";
  if (ran && !runs && toast.peek()?.text === RUNS) toast.value = null;
  ran = runs;
});

/** Return the message for a step. @param {any} result */
function saidOfStep(result) {
  const status = result?.step?.status;
  if (result?.state === "waiting") return AT_REST.waiting;
  if (status === "failed") return "The step failed.";
  return status ? "One step ran." : "The step runs.";
}

/** @type {(name: string) => () => void} */
const ask = (name) => () => void (dialog.value = name);

/**
 * @typedef {object} Act
 * @property {Verb} name
 * @property {string} key
 * @property {string} icon
 * @property {string} label
 * @property {string} says  its meaning
 * @property {() => void} act
 */

/** The verbs, as the list of them shows them. @type {Act[]} */
export const VERBS = [
  {
    name: "run", key: "r", icon: "play", label: "Run", says: "Goes on until the task ends, waits or is paused.",
    act: () => void send("resume", {}, saidOfRun, { ...seen(), wait: hasAgent.value ? 1 : 0 }),
  },
  {
    name: "step", key: "s", icon: "next", label: "Step", says: "Asks the model once, and runs its calls.",
    act: () => void send("steps", {}, saidOfStep, seen()),
  },
  { name: "until", key: "b", icon: "until", label: "Run to…", says: "Runs to a step, a tool or an amount.", act: ask("until") },
  {
    name: "finalize", key: "z", icon: "done", label: "Finalize", says: "Ends the task with the answer it has given.",
    act: () => void send("finalize", {}, "The task has ended.", seen()),
  },
  {
    name: "pause", key: "p", icon: "pause", label: "Pause", says: "Lets running calls end, and begins nothing new.",
    act: () => void send("pause", {}, "The task pauses after the calls that run."),
  },
  {
    name: "stop", key: "P", icon: "stop", label: "Stop now", says: "Stops running calls. The task can run on later.",
    act: () => void send("interrupt", {}, "The task stops."),
  },
  { name: "send", key: "m", icon: "say", label: "Message", says: "The model reads it before its next answer.", act: ask("send") },
  { name: "words", key: "w", icon: "edit", label: "Edit next input", says: "Changes the input of the next step.", act: ask("words") },
  { name: "skip", key: "S", icon: "skip", label: "Skip step", says: "Leaves the failed step out, and goes on.", act: ask("skip") },
  { name: "undo", key: "u", icon: "undo", label: "Undo", says: "Takes steps back, after a preview.", act: ask("undo") },
  { name: "fork", key: "f", icon: "fork", label: "Fork", says: "Tries something else in a task of its own.", act: ask("fork") },
  { name: "cancel", key: "x", icon: "cancelled", label: "Cancel", says: "Ends the task for good.", act: ask("cancel") },
];

/** The verbs beside the title in each state, the main one first; all of them are in the list. @type {Record<string, Verb[]>} */
const BESIDE = {
  running: ["pause", "send", "fork"],
  waiting: ["send", "undo", "fork"],
  failed: ["run", "skip", "undo", "fork"],
  answered: ["finalize", "send", "undo", "fork"],
  paused: ["run", "send", "undo", "fork"],
};

/** Verbs that may be the one main button. */
const MAIN = new Set(["run", "finalize"]);

/** The verbs beside the title, with their words for this state. */
export const beside = computed(() => {
  const names = past.value ? ["fork"] : shown.value.state.undo ? ["undo", "fork"] : BESIDE[word.value] || ["run", "step", "send", "undo", "fork"];
  return names.map((name) => VERBS.find((verb) => verb.name === name)).filter((verb) => verb && offered.value.has(verb.name))
    .map((verb) => worded(/** @type {Act} */ (verb)));
});

/** Return a verb as the state words it. @param {Act} verb */
export function worded(verb) {
  const isMain = MAIN.has(verb.name) || past.value;
  if (verb.name === "run" && word.value === "failed") return { ...verb, icon: "again", label: "Try again", isMain };
  if (verb.name === "fork" && past.value) return { ...verb, label: "Fork here", isMain };
  if (verb.name === "undo" && shown.value.state.undo) return { ...verb, label: "Finish the undo", isMain: true };
  if (verb.name === "pause" && shown.value.state.pausing) return { ...verb, label: "Pausing", isMain };
  return { ...verb, isMain };
}

/** Carry out the verb of a key; return whether the task takes one. @param {string} key */
export function actByKey(key) {
  const verb = VERBS.find((each) => each.key === key && offered.value.has(each.name));
  verb?.act();
  return Boolean(verb);
}

// The threads: conversations over several tasks, their messages, and the next turn.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call, Refused } from "./api.js";
import { conversation, threadRows } from "./conversation.js";
import { ago, line, plural, safe } from "./format.js";
import { go, place, taskLink } from "./place.js";
import { may, now, say, tasks } from "./store.js";
import { Act, Empty, html, Icon, Note, State } from "./ui.js";

/** How many threads a page of the list has, and how many the view reads. */
const PAGE = 200, MOST = 1000;
const ENDED = ["completed", "degraded", "failed", "cancelled"];

/** The threads of the server; null until they are read. @type {import("@preact/signals").Signal<any[] | null>} */
const threads = signal(null);
const missing = signal("");
/** The messages of a thread. */
const read = signal({
  id: "", messages: /** @type {any[] | null} */ (null), damaged: /** @type {any[]} */ ([]), tasks: /** @type {any[]} */ ([]),
  missing: "",
});
/** The names of the agents that this server drives. @type {import("@preact/signals").Signal<string[]>} */
const agents = signal([]);
/** The next turn; `key` makes a repeated request one task. */
const turn = signal({ thread: "", text: "", agent: "", key: "", busy: false });

const rows = computed(() => threadRows(threads.value || [], tasks.value.values()));
const position = computed(() => Math.max(0, rows.value.findIndex((row) => row.id === place.value.task)));
/** The open thread; one that is in no list may be in the address. */
const shown = computed(() => {
  const id = place.value.task;
  return id ? rows.value.find((row) => row.id === id) || { id, turns: 0, tasks: [], changed: 0 } : rows.value[0];
});
const shownId = computed(() => (place.value.view === "threads" ? shown.value?.id || "" : ""));

/** The tasks of the open thread, the oldest first: those that were read, as the page knows them now. */
const turns = computed(() => {
  const known = new Map(), { id, tasks: own } = read.value;
  for (const task of id === shownId.value ? own : []) known.set(task.task_id, task);
  for (const task of shown.value?.tasks || []) known.set(task.task_id, task);
  return [...known.values()].sort((a, b) => a.created - b.created);
});

/** The states of those tasks: when it changes, the messages have changed. */
const stamp = computed(() => {
  const ended = turns.value.filter((task) => ENDED.includes(task.state));
  return [shownId.value, ...ended.map((task) => `${task.task_id}=${task.updated}`)].join(" ");
});

async function loadThreads() {
  try {
    /** @type {any[]} */
    const found = [];
    for (let cursor = ""; found.length < MOST; ) {
      const page = await call(`threads?limit=${PAGE}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
      found.push(...page.items);
      if (page.cursor === null) break;
      cursor = page.cursor;
    }
    threads.value = found;
    missing.value = "";
    agents.value = (await call("agents")).map((/** @type {any} */ agent) => agent.name);
  } catch (error) {
    missing.value = /** @type {Error} */ (error).message;
  }
}

/** Read the messages of a thread, and its tasks. @param {string} id */
async function loadMessages(id) {
  const path = `threads/${encodeURIComponent(id)}/messages`;
  try {
    const [found, page] = await Promise.all([
      call(path).catch((error) => {
        if (error instanceof Refused && error.status === 404) return { items: [], damaged: [] }; // no turn has ended
        throw error;
      }),
      call(`tasks?limit=${PAGE}&thread_id=${encodeURIComponent(id)}`),
    ]);
    if (shownId.value !== id) return;
    const own = page.items.filter((/** @type {any} */ task) => !task.parent);
    read.value = { id, messages: found.items, damaged: found.damaged, tasks: own, missing: "" };
  } catch (error) {
    if (shownId.value === id) read.value = { ...read.value, id, missing: /** @type {Error} */ (error).message };
  }
}

let stamped = "";
effect(() => {
  const id = shownId.value, mark = stamp.value;
  if (!id || mark === stamped) return;
  stamped = mark;
  if (turn.peek().thread !== id) turn.value = { thread: id, text: "", agent: "", key: "", busy: false };
  if (read.peek().id !== id) read.value = { id, messages: null, damaged: [], tasks: [], missing: "" };
  queueMicrotask(() => void loadMessages(id));
});

const linkOf = (/** @type {string} */ id) => `#/threads/${encodeURIComponent(id)}`;

/** Select the next or the last thread. @param {number} by */
export function moveThread(by) {
  const row = rows.value[Math.max(0, Math.min(rows.value.length - 1, position.value + by))];
  if (row) go(linkOf(row.id));
}

/** Go to the message of the next turn. */
export const writeTurn = () => document.getElementById("turn")?.focus();
/** Open the newest task of the thread. */
export const openTurn = () => turns.value.length > 0 && go(taskLink(turns.value[turns.value.length - 1].task_id));

/** The agent of the next turn: the chosen one, else that of the newest task. */
const speaker = computed(() => {
  const last = turns.value.at(-1)?.agent;
  return turn.value.agent || (agents.value.includes(last) ? last : agents.value[0]) || "";
});

/** Start the next turn. */
async function send() {
  const { thread, text, key, busy } = turn.value;
  if (busy) return;
  if (!text.trim()) return say("Write a message first.", true);
  const once = key || `${Date.now()}-${Math.random().toString(36).slice(2)}`;
  turn.value = { ...turn.value, busy: true, key: once };
  try {
    const body = { agent: speaker.value, input: text, thread_id: thread, run: true };
    const made = await call("tasks", body, { "Idempotency-Key": once });
    tasks.value = new Map(tasks.value).set(made.task_id, { ...tasks.value.get(made.task_id), ...rowOf(made) });
    turn.value = { ...turn.value, text: "", key: "", busy: false };
    say("The next turn runs.");
  } catch (error) {
    turn.value = { ...turn.value, busy: false, key: error instanceof Refused ? "" : once };
    say(/** @type {Error} */ (error).message, true);
  }
}

/** Return a new task as lists have it; the stream of the page brings the rest. @param {any} task */
const rowOf = (task) => ({
  task_id: task.task_id, agent: task.agent, thread_id: task.thread_id, state: task.state, state_text: task.state_text,
  driven: task.driven, created: task.created, updated: task.updated, forked_from: null, parent: null, labels: task.labels,
  steps: 0, input_tokens: 0, output_tokens: 0, cost: "0", input: turn.value.text, outcome: "", pending: 0, fork_changes: [],
});

export function Threads() {
  useEffect(() => void loadThreads(), []);
  const list = rows.value, open = shown.value;
  if (missing.value) return html`<${Empty} whole title="The threads cannot be read">${safe(missing.value)}<//>`;
  if (!threads.value) return html`<${Empty} whole title="Reading…" />`;
  const head = html`<div class="head"><h1>Threads</h1>
    <span class="qq">${list.length ? plural(list.length, "conversation") : ""}</span></div>`;
  if (!open) {
    return [head, html`<${Empty} title="No threads yet">A thread joins tasks that read each other's messages. Each task has
      one: <code>runner.run(agent, "And then?", thread_id="maya")</code> continues it.<//>`];
  }
  return [head, html`<div class="inbox">
    <div class="ilist" id="thread-list" role="listbox" tabindex="0" aria-label="Threads"
      aria-activedescendant=${list.some((row) => row.id === open.id) ? `h-${open.id}` : undefined}>
      ${list.map((row) => html`<${Item} key=${row.id} row=${row} isOpen=${row.id === open.id} />`)}</div>
    <${Thread} key=${open.id} row=${open} /></div>`];
}

/** Return the icon of a thread, and its tone: waiting tasks, running tasks and forks are marked. @param {any[]} own */
function iconOf(own) {
  if (own.some((task) => task.state === "waiting")) return ["waiting", "wait"];
  if (own.some((task) => task.driven)) return ["running", "run"];
  return [own[0]?.forked_from ? "fork" : "say", ""];
}

/** @param {{row: any, isOpen: boolean}} props */
function Item({ row, isOpen }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), first = row.tasks[0], last = row.tasks.at(-1);
  useEffect(() => {
    if (isOpen) box.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [isOpen]);
  const [icon, tone] = iconOf(row.tasks), more = last && last !== first ? ` · ${safe(last.input)}` : "";
  return html`<a class="item" ref=${box} id=${`h-${row.id}`} role="option" tabindex="-1" aria-selected=${isOpen} href=${linkOf(row.id)}>
    <${Icon} name=${icon} tone=${tone} /><span class="t cut">${safe(first?.input || row.id)}</span>
    <span class="qq">${ago(row.changed, now.value)}</span>
    <span class="s qq cut">${row.turns ? plural(row.turns, "turn") : "no turn yet"} ·${" "}
      <span class="mono">${safe(row.id)}</span>${more}</span></a>`;
}

/** @param {{row: any}} props */
function Thread({ row }) {
  const { messages, damaged, missing: problem, id } = read.value, isRead = id === row.id && messages !== null;
  const end = useRef(/** @type {HTMLElement | null} */ (null)), said = isRead ? conversation(messages) : [];
  const going = turns.value.filter((task) => !ENDED.includes(task.state)), mayWrite = may("run") && agents.value.length > 0;
  useEffect(() => end.current?.scrollIntoView({ block: "end" }), [said.length, going.length, mayWrite]);
  return html`<article class="case thread"><div class="thread-h"><h2 class="mono cut">${safe(row.id)}</h2></div>
    ${turns.value.length > 0 && html`<${Turns} />`}
    <div class="said-all" tabindex="0" role="log" aria-label="Messages">
      ${problem && html`<${Note} tone="bad" icon="no">${safe(problem)}<//>`}
      ${damaged.map((each) => html`<${Damaged} key=${each.task_id} each=${each} />`)}
      ${!isRead && !problem && html`<p class="qq">Reading…</p>`}
      ${said.map((item, at) => html`<${Message} key=${at} item=${item} isOn=${at > 0 && said[at - 1].role === item.role} />`)}
      ${isRead && !said.length && !going.length && html`<p class="qq">No task of this thread has ended with an answer, so there
        is nothing to continue from.</p>`}
      ${going.map((task) => html`<${Going} key=${task.task_id} task=${task} />`)}
      <span ref=${end}></span></div>
    ${mayWrite && html`<${NextTurn} going=${going} />`}</article>`;
}

/** The tasks of the thread. */
function Turns() {
  return html`<div class="turns" role="group" aria-label="Tasks of this thread">${turns.value.map((task, at) =>
    html`<a key=${task.task_id} href=${taskLink(task.task_id)} title=${safe(task.task_id)}><span class="qq">${at + 1}</span>
      <${State} state=${task.state_text} /><span class="cut">${safe(task.agent)}</span></a>`)}</div>`;
}

/** A task whose messages cannot be read. @param {{each: any}} props */
function Damaged({ each }) {
  return html`<${Note} tone="bad" icon="failed">The messages of${" "}
    <a class="mono" href=${taskLink(each.task_id)}>${safe(each.task_id)}</a> cannot be read: ${safe(each.reason)}<//>`;
}

/** A task that has not ended: its messages come then. @param {{task: any}} props */
function Going({ task }) {
  const waits = task.state === "waiting";
  return html`<div class="turn now"><div class="who cap"><${Icon} name="agent" /> ${safe(task.agent)}</div>
    <div class="row"><${State} state=${task.state_text} />
      <a class="link" href=${waits ? "#/inbox" : taskLink(task.task_id)}>${waits ? "Answer in the inbox" : "Watch it"}</a></div>
    <p class="q cut">${safe(task.input)}</p></div>`;
}

/** A message; one that goes on with the last one has no head. @param {{item: import("./conversation.js").Said, isOn: boolean}} props */
function Message({ item, isOn }) {
  const isUser = item.role === "user";
  return html`<div class=${`turn ${item.role} ${isOn ? "on" : ""}`}>
    ${!isOn && html`<div class="who cap"><${Icon} name=${isUser ? "say" : "agent"} /> ${isUser ? "message" : "answer"}</div>`}
    ${item.thinking && html`<details><summary class="cap">Thinking</summary><p class="think">${safe(item.thinking)}</p></details>`}
    ${item.text && html`<p class="words">${safe(item.text)}</p>`}
    ${item.others.map((kind, at) => html`<span class="tag" key=${at}>${kind}</span> `)}
    ${item.calls.map((each) => html`<${Called} key=${each.id} each=${each} />`)}</div>`;
}

/** A call, with its result folded. @param {{each: import("./conversation.js").Said["calls"][0]}} props */
function Called({ each }) {
  const result = each.result === null ? "no result in this thread" : safe(each.result) || "nothing";
  return html`<details><summary class="callline"><span class=${each.isError ? "c-bad" : ""}>${safe(each.name)}</span>(<span class="qq">${line(each.arguments)}</span>)</summary>
    <pre class="box">${result}</pre></details>`;
}

/** @param {{going: any[]}} props */
function NextTurn({ going }) {
  const { text, busy } = turn.value, others = going.length === 1 ? safe(going[0].task_id) : "the open tasks";
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void send();
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };
  const put = (/** @type {any} */ event) => (turn.value = { ...turn.value, text: event.target.value, key: "" });
  const choose = (/** @type {any} */ event) => (turn.value = { ...turn.value, agent: event.target.value });
  return html`<form class="next-turn" onSubmit=${submit} onKeyDown=${press} aria-label="Next turn">
    <label><span class="cap">Next turn${going.length ? `. It begins when ${others} has ended.` : ""}</span>
      <textarea class="field" id="turn" rows="2" placeholder="Write a message" value=${text} onInput=${put}></textarea></label>
    <div class="row">
      <select class="field" aria-label="Agent" value=${speaker.value} onChange=${choose}>
        ${agents.value.map((name) => html`<option key=${name} value=${name}>${safe(name)}</option>`)}</select>
      <button class="btn main" disabled=${busy} aria-keyshortcuts="Control+Enter"><${Icon} name="play" />Send${" "}
        <kbd aria-hidden="true">Ctrl ↵</kbd></button>
      ${turns.value.length > 0 && html`<${Act} label="Open the newest task" keyName="o" onClick=${openTurn} />`}</div></form>`;
}

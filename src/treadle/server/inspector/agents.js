// The agents that this server drives: model, tools, instructions, limits, and a form that starts a task.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call, command, randomKey, Refused } from "./api.js";
import { count, money, plural, safe } from "./format.js";
import { go, place, taskLink } from "./place.js";
import { resolved } from "./schema.js";
import { complaint, flipForm, formOf, readForm, SchemaForm } from "./schema_form.js";
import { may, say } from "./store.js";
import { Act, Empty, html, Icon, Json, Note } from "./ui.js";

/** The agents; null until they are read. @type {import("@preact/signals").Signal<any[] | null>} */
export const agents = signal(null);
const missing = signal("");

/** Read the agents again. */
export async function loadAgents() {
  try {
    agents.value = await call("agents");
    missing.value = "";
  } catch (error) {
    missing.value = /** @type {Error} */ (error).message;
  }
}

const linkOf = (/** @type {string} */ name) => `#/agents/${encodeURIComponent(name)}`;
const position = computed(() => Math.max(0, (agents.value || []).findIndex((agent) => agent.name === place.value.task)));
/** The selected agent. */
const shown = computed(() => agents.value?.[position.value]);

/** Whether the agents are not here yet, and so no form. */
export const isReading = () => agents.value === null && !missing.value;

/** Select the next or the last agent. @param {number} by */
export function moveAgent(by) {
  const list = agents.value || [], agent = list[Math.max(0, Math.min(list.length - 1, position.value + by))];
  if (agent) go(linkOf(agent.name));
}

/** Go to the message of the form. */
export const writeMessage = () => document.getElementById("start-input")?.focus();

// ------------------------------------------------------------------------------------------ the form

/** The limits that the form offers: name, title, hint. @type {[string, string, string][]} */
const LIMITS = [
  ["steps", "Steps", "Turns of the decision cycle"], ["model_calls", "Model requests", "Attempts included"], ["tool_calls", "Calls", ""],
  ["tokens", "Tokens", "Input and output together"], ["cost", "Cost", "US dollars. It needs a price for each model"],
  ["seconds", "Seconds", "The time during which the task is driven"],
];

const limitText = (/** @type {any} */ value) => (value === null || value === undefined ? "no limit" : `agent: ${value}`);

/** Return the schema of a request that starts a task of an agent. @param {any} agent */
function startSchema(agent) {
  const text = (/** @type {string} */ title, /** @type {string} */ description, more = {}) => ({ type: "string", title, description, minLength: 1, ...more });
  const limit = (/** @type {[string, string, string]} */ [name, title, description]) =>
    [name, { type: name === "cost" || name === "seconds" ? "number" : "integer", minimum: 0, title, description, placeholder: limitText(agent.limits[name]) }];
  return {
    type: "object", required: ["input"],
    properties: {
      input: text("Message", "", { lines: 3, placeholder: "What shall it do?" }),
      thread_id: text("Thread", "The conversation to continue", { placeholder: "a new one" }),
      task_id: text("Id", "An id of your own: a task with this id starts once", { placeholder: "a new one" }),
      labels: { type: "object", title: "Labels", description: "Short texts to find the task by; rules may need them", additionalProperties: { type: "string", title: "Value" } },
      limits: { type: "object", title: "Limits", open: true, description: "Of several limits the smallest counts", properties: Object.fromEntries(LIMITS.map(limit)) },
      extra_state: { type: "object", title: "State", description: "Data by name for its tools and instructions, as JSON" },
    },
  };
}

/** The form, for one agent at a time; `key` makes a repeated request one task. */
const start = signal({ agent: "", form: formOf({}, null), key: "", busy: false });

effect(() => {
  const agent = shown.value;
  if (agent && start.peek().agent !== agent.name) start.value = { agent: agent.name, form: formOf(startSchema(agent)), key: randomKey(), busy: false };
});

/** Create a task by the form, start it with `run`, and go to it. @param {boolean} run */
async function begin(run) {
  const { agent, form, key, busy } = start.value, { value, problems } = readForm(form);
  if (busy) return;
  if (problems.length) {
    start.value = { ...start.value, form: { ...form, shown: true } };
    const at = problems[0].path.replaceAll(".", "-");
    document.getElementById(at ? `start-${at}` : "start")?.focus();
    return say(problems[0].path === "input" ? "Write a message first." : complaint(problems), true);
  }
  const { limits, ...rest } = value, options = limits && Object.keys(limits).length ? { options: { limits } } : {};
  start.value = { ...start.value, busy: true };
  try {
    const made = await command("tasks", { agent, run, ...rest, ...options }, { "Idempotency-Key": key });
    start.value = { agent: "", form: formOf({}, null), key: "", busy: false };
    say(run ? "The task is started." : "The task is created. It runs when you let it.");
    go(taskLink(made.task_id));
  } catch (error) {
    const isNew = error instanceof Refused; // it was read and refused: the next request is another one
    start.value = { ...start.value, busy: false, key: isNew ? randomKey() : key };
    say(/** @type {Error} */ (error).message, true);
  }
}

/** @param {{agent: any}} props */
function Start({ agent }) {
  const { form, busy } = start.value;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void begin(true);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void begin(true);
  };
  const put = (/** @type {any} */ next) => (start.value = { ...start.value, form: next });
  return html`<form onSubmit=${submit} onKeyDown=${press} aria-label=${`Start ${safe(agent.name)}`}><h3 class="cap">Start a task</h3>
    <${SchemaForm} form=${form} onForm=${put} id="start" />
    <div class="answer"><button class="btn main" aria-keyshortcuts="Control+Enter" disabled=${busy}><${Icon} name="play" />Start <kbd aria-hidden="true">Ctrl ↵</kbd></button>
      <${Act} label="Create only" title="The task waits until you step it or let it run" disabled=${busy} onClick=${() => begin(false)} />
      <${Act} label=${form.text === null ? "As JSON" : "As a form"} onClick=${() => put(flipForm(form))} /></div></form>`;
}

// ----------------------------------------------------------------------------------------- the view

export function Agents() {
  useEffect(() => void loadAgents(), []);
  const list = agents.value;
  if (missing.value) return html`<${Empty} whole title="The agents cannot be read">${safe(missing.value)}<//>`;
  if (!list) return html`<${Empty} whole title="Reading…" />`;
  return html`<div class="head"><h1>Agents</h1><span class="qq">${list.length ? `${plural(list.length, "agent")} of this server` : ""}</span></div>
    ${!shown.value ? html`<${Empty} title="This server drives no agent">Agents appear here when the server is started with them: <code>treadle serve shop:agent</code>. Other processes may drive agents on the same store.<//>`
      : html`<div class="inbox"><div class="ilist" id="agent-list" role="listbox" tabindex="0" aria-label="Agents" aria-activedescendant=${`a-${position.value}`}>
          ${list.map((agent, at) => html`<${Item} key=${agent.name} agent=${agent} at=${at} />`)}</div><${Card} key=${shown.value.name} agent=${shown.value} /></div>`}`;
}

/** @param {{agent: any, at: number}} props */
function Item({ agent, at }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), isOpen = at === position.value;
  useEffect(() => {
    if (isOpen) box.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [isOpen]);
  return html`<div class="item" ref=${box} id=${`a-${at}`} role="option" aria-selected=${isOpen} onClick=${() => go(linkOf(agent.name))}><${Icon} name="agent" />
    <span class="t cut">${safe(agent.name)}</span><span></span><span class="s cut">${safe(agent.description || agent.instructions || "")}</span>
    <span class="s cut qq">${safe([agent.model || agent.worker, ...has(agent)].join(" · "))}</span></div>`;
}

/** The numbers of an agent's tools, toolsets, subagents and handoffs. @param {any} agent */
function has(agent) {
  const parts = /** @type {[any[], string][]} */ ([[agent.tools, "tool"], [agent.toolsets, "toolset"], [agent.subagents, "subagent"], [agent.handoffs, "handoff"]]);
  return parts.filter(([list]) => list.length).map(([list, noun]) => plural(list.length, noun));
}

/** @param {{agent: any}} props */
function Card({ agent }) {
  const limits = Object.entries(agent.limits).filter(([, value]) => value !== null);
  const lists = /** @type {[string, string[]][]} */ ([["Subagents", agent.subagents], ["Hands over to", agent.handoffs], ["Toolsets", agent.toolsets]]);
  return html`<article class="case agent"><p class="row"><span class="tag mono">${safe(agent.model || "no model")}</span><span class="tag">${safe(agent.worker)}</span><span class="fill"></span>
      <a class="link" href=${`#/?agent=${encodeURIComponent(agent.name)}`}>Its tasks</a></p>
    <h2 class="lead">${safe(agent.name)}</h2>${agent.description && html`<p class="q">${safe(agent.description)}</p>`}
    ${may("run") ? html`<${Start} agent=${agent} />` : html`<${Note} icon="no">Your token may read, and not start tasks.<//>`}
    ${agent.tools.length > 0 && html`<section><h3 class="cap">${plural(agent.tools.length, "tool")}</h3><div class="tools">${agent.tools.map((/** @type {any} */ tool) => html`<${Tool} key=${tool.name} tool=${tool} />`)}</div></section>`}
    ${agent.instructions !== null ? agent.instructions && html`<section><h3 class="cap">Instructions</h3><pre class="box words" tabindex="0">${safe(agent.instructions)}</pre></section>`
      : html`<section><h3 class="cap">Instructions</h3><p class="qq">A function writes them for each task.</p></section>`}
    ${agent.output_schema && html`<section><h3 class="cap">Schema of its answer</h3><${Json} value=${agent.output_schema} /></section>`}
    <dl class="kv">${lists.map(([name, names]) => names.length > 0 && html`<dt key=${name}>${name}</dt><dd>${names.map((each) => html`<span class="tag" key=${each}>${safe(each)}</span> `)}</dd>`)}
      ${limits.length > 0 && html`<dt>Limits</dt><dd>${limits.map(([name, value]) => html`<span class="tag" key=${name}>${name.replace("_", " ")} ${name === "cost" ? money(/** @type {any} */ (value)) : count(/** @type {any} */ (value))}</span> `)}</dd>`}
      <dt>Version</dt><dd class="mono">${safe(agent.fingerprint)}</dd></dl></article>`;
}

/** The facts that people ask of a tool first. @param {any} tool @returns {[string, string, string][]} icon, colour, words */
function factsOf(tool) {
  /** @type {[any, [string, string, string]][]} */
  const all = [
    [tool.undoable, ["undo", "ok", "can be undone"]], [!tool.read_only && !tool.idempotent, ["edit", "wait", "writes"]], [tool.read_only, ["tasks", "", "reads"]],
    [tool.idempotent && !tool.read_only, ["again", "", "may repeat"]], [tool.needs_approval, ["ask", "wait", "asks first"]], [tool.destructive, ["no", "bad", "destroys"]],
    [tool.spends, ["limit", "", "spends"]], [tool.sends, ["hand", "", "sends"]], [tool.executes, ["play", "", "runs code"]], [tool.background, ["timer", "", "in the background"]],
  ];
  return all.filter(([has]) => has).map(([, fact]) => fact);
}

/** @param {any} schema */
const typeText = (schema) => (schema.enum ? schema.enum.map((/** @type {any} */ each) => JSON.stringify(each)).join(" | ") : [schema.type].flat().filter(Boolean).join(" | ") || "any");

/** @param {{tool: any}} props */
function Tool({ tool }) {
  const schema = resolved(tool.parameters, tool.parameters), names = Object.entries(schema.properties || {});
  const text = names.map(([name, each]) => `${name}${(schema.required || []).includes(name) ? "" : "?"}: ${typeText(resolved(each, tool.parameters))}`).join(", ");
  return html`<details><summary><span class="mono n">${safe(tool.name)}<span class="qq">(${safe(text)})</span></span><span class="facts-of">${factsOf(tool).map(([icon, tone, words]) => html`<span class=${`st ${tone && `c-${tone}`}`} key=${words}><${Icon} name=${icon} tone=${tone} />${words}</span>`)}</span>
    ${tool.description && html`<span class="q about">${safe(tool.description.split("\n")[0])}</span>`}</summary><${Json} value=${tool.parameters} /></details>`;
}

// One task: its header, its facts, and the split into timeline, slider and side panel.
import { count, duration, money, plural, safe } from "./format.js";
import { reasonsOf, spending, stepsOf } from "./fold_view.js";
import { textOf } from "./fold_state.js";
import { taskLink } from "./place.js";
import { Side } from "./side.js";
import { Slider } from "./slider.js";
import { act, driven, may, now, opened } from "./store.js";
import { dialog, isLive, mayRun, maySteps, past, shown, summary, word } from "./task_state.js";
import { Timeline } from "./timeline_view.js";
import { Act, Empty, html, Note, State } from "./ui.js";

/** @param {{id: string}} props */
export function TaskPage({ id }) {
  const { journal, loading, missing, id: open } = opened.value;
  if (missing) return html`<${Empty} title="This task cannot be shown">${safe(missing)}<//>`;
  if (open !== id || (loading && !journal.head)) return html`<${Empty} title="Reading the journal…" />`;
  return html`<${Header} id=${id} /><div class="split"><div class="tl"><${Timeline} /><${Slider} /></div><${Side} id=${id} /></div>`;
}

/** @param {{id: string}} props */
function Header({ id }) {
  const { state } = shown.value, above = state.parent || summary.value?.parent;
  const title = summary.value?.input || textOf(state.input) || id;
  return html`<header class="task-head">
    <div class="crumb"><a href="#/">Tasks</a><span>/</span>${above && html`<a class="mono cut" href=${taskLink(above)}>${safe(above)}</a><span>/</span>`}<span class="mono cut">${safe(id)}</span>${state.forkedFrom && html`<span class="qq cut">fork of <a class="mono" href=${taskLink(state.forkedFrom, { at: state.forkedAt })}>${safe(state.forkedFrom)}</a> at event ${state.forkedAt}</span>`}</div>
    <div class="titlebar"><h1 class="cut" title=${safe(title)}>${safe(title)}</h1><${State} state=${word.value} pill /><${Actions} id=${id} /></div>
    <${Facts} state=${state} />
    ${state.error && html`<${Note} tone="bad" icon="failed"><b>${safe(state.error.kind)}</b> ${safe(state.error.message)}<//>`}
    ${reasonsOf(state).length > 0 && html`<${Note} tone="wait" icon="degraded">${safe([...new Set(reasonsOf(state))].join("; "))}<//>`}
    ${state.stopReason && (word.value === "paused" || word.value === "interrupted" || word.value === "cancelled") && html`<${Note} icon=${word.value}>${safe(state.stopReason)}<//>`}
  </header>`;
}

/** The figures of the task at the event that the page looks at. @param {{state: any}} props */
function Facts({ state }) {
  const spent = spending(state), undone = state.undone.reduce((/** @type {number} */ sum, /** @type {any} */ group) => sum + group.steps.length, 0);
  const until = isLive.value ? Math.max(state.time, now.value * 1e3) : state.time;
  const begins = stepsOf(state)[0]?.began || state.created;
  const driver = !past.value && driven.value && summary.value?.driver;
  /** @type {[string, string, string][]} */
  const facts = [
    ["Steps", count(state.order.length), undone ? `+ ${count(undone)} undone` : ""],
    ["Calls", count(spent.toolCalls), ""],
    ["Models", duration(state.modelTime / 1e3), plural(spent.modelCalls, "request")],
    ["Tools", duration(state.toolTime / 1e3), ""],
    ["Elapsed", duration((until - begins) / 1e3), ""],
    ["Tokens", count(spent.tokensIn + spent.tokensOut), `${count(spent.tokensIn)} in, ${count(spent.tokensOut)} out`],
    ["Cost", spent.cost === null ? "–" : money(spent.cost), spent.unpriced.length ? `no price for ${spent.unpriced.join(", ")}` : ""],
    ["Agent", safe(state.agent), driver ? `driven by ${safe(driver.host || "a process")}` : ""],
  ];
  const reading = opened.value.loading && !past.value, row = summary.value;
  const known = /** @type {Record<string, string>} */ (row ? { Steps: count(row.steps), Tokens: count((row.input_tokens || 0) + (row.output_tokens || 0)), Cost: money(row.cost), Agent: safe(row.agent) } : {});
  const drawn = reading ? facts.map(([name]) => [name, known[name] || "…", ""]) : facts;
  return html`<dl class="facts">${drawn.map(([name, value, unit]) => html`<div key=${name}><dt class="cap">${name}</dt><dd class="v">${value} <span class="u">${unit}</span></dd></div>`)}</dl>`;
}

/** Verbs that fit the state, each with its key. One of them is the main one. @param {{id: string}} props */
function Actions({ id }) {
  if (opened.value.loading) return null;
  if (past.value) return html`<div class="acts">${may("edit") && html`<${Act} main icon="fork" label="Fork here" keyName="f" onClick=${() => (dialog.value = "fork")} />`}</div>`;
  const state = word.value, again = state === "failed";
  return html`<div class="acts">
    ${maySteps.value && may("run") && html`<${Act} icon="next" label="Step" keyName="s" onClick=${() => step(id)} />`}
    ${mayRun.value && may("run") && html`<${Act} main icon=${again ? "again" : "play"} label=${again ? "Try again" : "Run"} keyName="r" onClick=${() => run(id)} />`}
    ${state === "running" && may("control") && html`<${Act} icon="pause" label="Pause" keyName="p" onClick=${() => pause(id)} />`}
    ${state === "waiting" && html`<${Act} main label="Answer" keyName="i" href="#/inbox" />`}
    ${state !== "running" && state !== "cancelled" && may("edit") && html`<${Act} icon="undo" label="Undo" keyName="u" onClick=${() => (dialog.value = "undo")} />`}
    ${may("edit") && html`<${Act} icon="fork" label="Fork" keyName="f" onClick=${() => (dialog.value = "fork")} />`}
  </div>`;
}

const seen = () => ({ head: opened.value.journal.head });

/** Run one step. @param {string} id */
export const step = (id) => act(id, "steps", {}, "One step ran.", seen());
/** Let the task run on. @param {string} id */
export const run = (id) => act(id, "resume", {}, "The task runs.", { ...seen(), wait: 0 });
/** Pause the task after the calls that run. @param {string} id */
export const pause = (id) => act(id, "pause", {}, "The task pauses after the calls that run.");

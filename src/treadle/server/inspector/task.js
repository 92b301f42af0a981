// One task: its header, its facts, and the split into timeline, slider and side panel.
import { useEffect, useMemo, useState } from "preact/hooks";
import { call, taskPath } from "./api.js";
import { count, duration, moment, money, plural, safe } from "./format.js";
import { callsOf, reasonsOf, spending, stepsOf } from "./fold_view.js";
import { textOf } from "./fold_state.js";
import { NoCode } from "./doors.js";
import { taskLink } from "./place.js";
import { Side } from "./side.js";
import { Slider } from "./slider.js";
import { driven, now, opened } from "./store.js";
import { dialog, isLive, past, shown, summary, word } from "./task_state.js";
import { goToAsked, hasAsked, isAskedShown } from "./asked.js";
import { beside, offered } from "./task_verbs.js";
import { workTime } from "./timeline.js";
import { Timeline } from "./timeline_view.js";
import { Act, Empty, html, Icon, Note, State } from "./ui.js";

/** @param {{id: string}} props */
export function TaskPage({ id }) {
  const { journal, loading, missing, id: open } = opened.value;
  if (missing) return html`<${Empty} whole title="This task cannot be shown">${safe(missing)}<//>`;
  if (open !== id || (loading && !journal.head)) return html`<${Empty} whole title="Reading the journal…" />`;
  return html`<${Header} id=${id} />
    <div class="split"><div class="tl"><${Timeline} /><${Slider} /></div><${Side} id=${id} /></div>`;
}

/** @param {{id: string}} props */
function Header({ id }) {
  const { state } = shown.value;
  const title = summary.value?.input || textOf(state.input) || id;
  return html`<header class="task-head">
    <${Crumb} id=${id} state=${state} />
    <div class="titlebar">
      <h1 class="cut" title=${safe(title)}>${safe(title)}</h1><${State} state=${word.value} pill /><${Actions} />
    </div>
    <${Facts} id=${id} state=${state} />
    <${Reasons} state=${state} />
    <${NoCode} />
  </header>`;
}

/** @param {{id: string, state: any}} props */
function Crumb({ id, state }) {
  const above = state.parent || summary.value?.parent;
  const origin = state.forkedFrom && html`<span class="qq cut">fork of${" "}
    <a class="mono" href=${taskLink(state.forkedFrom, { at: state.forkedAt })}>${safe(state.forkedFrom)}</a>${" "}
    at event ${state.forkedAt}</span>`;
  return html`<div class="crumb"><a href="#/">Tasks</a><span>/</span>
    ${above && html`<a class="mono cut" href=${taskLink(above)}>${safe(above)}</a><span>/</span>`}
    <span class="mono cut">${safe(id)}</span>${origin}<span class="fill"></span>
    <a class="link" href=${`#/t/${encodeURIComponent(id)}/lineage`} aria-keyshortcuts="l">Lineage <kbd class="wide" aria-hidden="true">l</kbd></a></div>`;
}

const STOPPED = new Set(["paused", "interrupted", "cancelled"]);

/** Why a task failed, is degraded or stopped. @param {{state: any}} props */
function Reasons({ state }) {
  const reasons = [...new Set(reasonsOf(state))], stopped = STOPPED.has(word.value) && (state.stopReason || state.limitDetail);
  return html`
    ${state.error && html`<${Note} tone="bad" icon="failed">${state.error.kind !== "unknown" && html`<b>${safe(state.error.kind)}</b>`} ${safe(state.error.message)}<//>`}
    ${reasons.length > 0 && html`<${Note} tone="wait" icon="degraded"><b>${state.ended ? "Degraded, a best-effort answer:" : "Degraded so far:"}</b> ${safe(reasons.join("; "))}<//>`}
    ${stopped && html`<${Note} icon=${word.value}>${safe(stopped)}<//>`}
    ${state.undo && html`<${Note} tone="wait" icon="undo">An undo has begun and not ended. The task goes on after it.<//>`}`;
}

/** Return the limits that apply; they are no part of the journal if the agent sets them. @param {string} id @param {any} options */
function useLimits(id, options) {
  const [limits, setLimits] = useState(/** @type {any} */ ({}));
  useEffect(() => {
    let isOpen = true;
    call(taskPath(id)).then((task) => isOpen && setLimits(task.limits || {}), () => {});
    return () => void (isOpen = false);
  }, [id, options]);
  return limits;
}

/** The figures of the task at the event that the page looks at. @param {{id: string, state: any}} props */
function Facts({ id, state }) {
  const spent = spending(state), { version } = shown.value, limits = useLimits(id, state.options);
  const undone = state.undone.reduce((/** @type {number} */ sum, /** @type {any} */ group) => sum + group.steps.length, 0);
  const denied = callsOf(state).filter(({ call }) => call.outcome === "denied").length;
  const until = isLive.value ? Math.max(state.time, now.value * 1e3) : state.time;
  const worked = useMemo(() => workTime(state, until), [state, version, until]);
  const begins = stepsOf(state)[0]?.began || state.created;
  const driver = !past.value && driven.value && summary.value?.driver;
  const of = (/** @type {string} */ name, write = count) => (limits[name] || limits[name] === 0 ? `of ${write(limits[name])}` : "");
  const both = (/** @type {string[]} */ ...texts) => texts.filter(Boolean).join(" · ");
  /** @type {[string, any, any][]} */
  const facts = [
    ["Steps", count(state.order.length), both(of("steps"), undone ? `${count(undone)} undone` : "")],
    ["Calls", count(spent.toolCalls), denied ? html`${of("tool_calls")} <span class="st c-bad">${count(denied)} denied</span>` : of("tool_calls")],
    ["Models", duration(state.modelTime / 1e3), both(plural(spent.modelCalls, "request"), of("model_calls"))],
    ["Tools", duration(state.toolTime / 1e3), ""],
    [
      "Elapsed", html`<span title=${`${duration((until - begins) / 1e3)} from ${moment(begins)} to ${moment(until)}`}>${duration(worked / 1e3)}</span>`,
      of("seconds", (value) => duration(Number(value) * 1e3)),
    ],
    ["Tokens", count(spent.tokensIn + spent.tokensOut), of("tokens") || `${count(spent.tokensIn)} in, ${count(spent.tokensOut)} out`],
    [
      "Cost", spent.cost === null ? "–" : money(spent.cost),
      both(of("cost", money), spent.unpriced.length ? `no price for ${spent.unpriced.map(safe).join(", ")}` : ""),
    ],
    ["Agent", safe(state.agent), driver ? `driven by ${safe(driver.host || "a process")}` : ""],
  ];
  const scrolls = innerWidth < 760; // with the keyboard too
  return html`<dl class="facts" tabindex=${scrolls ? 0 : undefined}>${whileReading(facts).map(([name, value, unit]) =>
    html`<div key=${name}><dt class="cap">${name}</dt><dd class="v">${value} <span class="u">${unit}</span></dd></div>`)}</dl>`;
}

/** Return the figures of the list as long as the journal is read. @param {[string, any, any][]} facts */
function whileReading(facts) {
  if (!opened.value.loading || past.value) return facts;
  const row = summary.value;
  const known = /** @type {Record<string, string>} */ (row ? {
    Steps: count(row.steps), Tokens: count((row.input_tokens || 0) + (row.output_tokens || 0)), Cost: money(row.cost),
    Agent: safe(row.agent),
  } : {});
  return facts.map(([name]) => [name, known[name] || "…", ""]);
}

/** The verbs that fit the state, each with its key. One of them is the main one. */
function Actions() {
  if (opened.value.loading) return null;
  const verbs = beside.value, more = offered.value.size > verbs.length && !past.value;
  return html`<div class="acts">
    ${hasAsked.value && html`<span class=${isAskedShown.value ? "ask only-phone" : "ask"}><${Act} main icon="ask" label="Answer" onClick=${goToAsked} /></span>`}
    ${verbs.map((verb) => html`<span key=${verb.name} class=${verb.isMain ? "" : "opt"}>
      <${Act} main=${verb.isMain} icon=${verb.icon} label=${verb.label} keyName=${verb.key} title=${verb.says} onClick=${verb.act} />
    </span>`)}
    ${(more || verbs.length > 1) && html`<button type="button" class="btn more" aria-haspopup="dialog" aria-keyshortcuts="o"
      aria-label="All actions" title="All actions" onClick=${() => (dialog.value = "more")}>
      <${Icon} name="more" /><kbd aria-hidden="true">o</kbd></button>`}
  </div>`;
}

// The page: its frame, its views by their addresses, and the way in.
import { effect } from "@preact/signals";
import { render } from "preact";
import { Agents } from "./agents.js";
import { door, token } from "./api.js";
import { Compare } from "./compare.js";
import { Cost } from "./cost.js";
import { Dialog } from "./dialogs.js";
import { Mark, SignIn } from "./doors.js";
import { keepFocus } from "./focus.js";
import { count, safe } from "./format.js";
import { Inbox } from "./inbox.js";
import { listen } from "./keys.js";
import { Lineage } from "./lineage.js";
import { ownOf, place, taskLink } from "./place.js";
import { inbox, live, me, opened, start, tasks, toast, totals } from "./store.js";
import { dialog, word } from "./task_state.js";
import { TaskPage } from "./task.js";
import { Tasks } from "./tasks.js";
import { Threads } from "./threads.js";
import { Empty, html, Icon } from "./ui.js";

/** Views in the rail: address, icon, name. @type {[string, string, string][]} */
const VIEWS = [["", "tasks", "Tasks"], ["inbox", "inbox", "Inbox"], ["threads", "say", "Threads"], ["agents", "agent", "Agents"],
  ["cost", "cost", "Cost"]];

/** The views of an address without an id. @type {Record<string, any>} */
const PAGES = { "": Tasks, inbox: Inbox, threads: Threads, agents: Agents, cost: Cost, diff: Compare };

function App() {
  if (door.value === "entering") return html`<main class="signin"><${Empty} whole title="Signing in…" /></main>`;
  if (!token.value) return html`<${SignIn} />`;
  const { view, task, part } = place.value, isTask = view === "t", Page = isTask ? (part === "lineage" ? Lineage : TaskPage) : ownOf(PAGES, view);
  return html`<${Rail} view=${isTask || view === "diff" ? "" : view} /><main>${Page ? html`<${Page} key=${isTask ? `${task}/${part}` : view} id=${task} />` : html`<${Empty} whole title="There is no such view">The address names a view that this version does not have.<//>`}</main>
    <${Dialog} /><${Toast} />
    <div class="sr" role="status">${view === "t" && opened.value.version ? `The task is ${word.value}.` : ""}</div>`;
}

function Toast() {
  if (!toast.value) return null;
  const { text, bad, about } = toast.value, name = about && (tasks.value.get(about.task)?.input || about.task);
  return html`<div class=${`toast ${bad ? "bad" : ""}`} role=${bad ? "alert" : "status"}>${safe(text)}${about && html` <span class="mono">${safe(about.tool)}</span>${" in "}
    <a href=${taskLink(about.task)}>${safe(name.length > 60 ? `${name.slice(0, 59)}…` : name)}</a>`}</div>`;
}

/** @param {{view: string}} props */
function Rail({ view }) {
  const counts = /** @type {Record<string, [number, string]>} */ ({ "": [totals.value?.tasks || 0, "count"], inbox: [inbox.value.length, "count hot"] });
  return html`<nav aria-label="Views"><div class="brand"><${Mark} />Treadle</div>
    ${VIEWS.map(([name, icon, label]) => html`<a key=${name} href=${`#/${name}`} aria-current=${view === name ? "page" : undefined}><${Icon} name=${icon} /><span>${label}</span>${counts[name]?.[0] ? html`<span class=${counts[name][1]}>${count(counts[name][0])}</span>` : null}</a>`)}
    <div class="foot cap"><div class="row"><span class=${`dot ${live.value === "live" ? "" : "off"}`}></span><span role="status">${live.value}</span>${me.value ? html`<span>as ${safe(me.value.name)}</span>` : ""}</div>
      <button type="button" class="row" aria-keyshortcuts="?" onClick=${() => (dialog.value = "keys")}><kbd>?</kbd> keys</button></div></nav>`;
}

effect(() => {
  const { view, task } = place.value, waits = inbox.value.length ? `(${inbox.value.length}) ` : "";
  const name = view === "t" ? safe(task) : view === "diff" ? "Compare" : view && VIEWS.find(([each]) => each === view)?.[2];
  document.title = `${waits}${name ? `${name} · ` : ""}Treadle`;
});

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.textContent = "";
render(html`<${App} />`, root);
listen();
keepFocus();
start();

// The relatives of a task: forks at their point, undone branches, and the tree of calls of agents.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { readFamily } from "./family.js";
import { callRows, familyRows } from "./family_rows.js";
import { changeWords } from "./fork_changes.js";
import { count, money, plural, safe } from "./format.js";
import { go, place, taskLink } from "./place.js";
import { tasks } from "./store.js";
import { Act, Empty, html, Icon, Note, State, toneOf } from "./ui.js";

/** @typedef {import("./family_rows.js").FamilyRow} FamilyRow */

/** The family of the task in the address. */
const read = signal({ id: "", family: /** @type {import("./family_rows.js").Family | null} */ (null), missing: "" });
/** The key of the selected row, and that of the row that is marked for a comparison. */
const chosen = signal(""), marked = signal("");

const isOpen = () => place.value.view === "t" && place.value.part === "lineage";

/** The task whose family is being read. */
let loading = "";

/** Read the family of a task; parts of it are shown as long as none is. @param {string} id */
async function load(id) {
  const isFirst = !read.peek().family;
  let whole = read.peek().family;
  const show = () => void (place.value.task === id && (read.value = { id, family: whole, missing: "" }));
  loading = id;
  try {
    await readFamily(id, (family) => {
      whole = family;
      if (isFirst) show();
    });
    show();
  } catch (error) {
    const missing = /** @type {Error} */ (error).message;
    if (place.value.task === id) read.value = { id, family: read.value.family, missing };
  } finally {
    if (loading === id) loading = "";
  }
}

effect(() => {
  const id = isOpen() ? place.value.task : "";
  if (!id || read.peek().id === id) return;
  read.value = { id, family: null, missing: "" };
  chosen.value = id;
  marked.value = "";
  void load(id);
});

/** The forks and calls in the list of the page, as one text: it changes when there is a new one. */
const relatives = computed(() => {
  const { family } = read.value, known = [];
  if (!family || !isOpen()) return "";
  for (const task of tasks.value.values())
    if (family.members.has(task.forked_from) || family.calls.has(task.parent)) known.push(task.task_id);
  return known.join(" ");
});

effect(() => {
  const listed = relatives.value, { id, family } = read.peek();
  const isNew = (/** @type {string} */ name) => name && !family?.members.has(name) && !family?.calls.has(name);
  if (family && loading !== id && listed.split(" ").some(isNew)) void load(id);
});

/** Return a task as the page knows it now. @param {any} task */
const newest = (task) => tasks.value.get(task.task_id) || task;

/** The rows of forks and undone branches; none for a task without any. */
const forks = computed(() => {
  const rows = read.value.family ? familyRows(read.value.family) : [];
  return rows.length > 1 ? rows : [];
});
const calls = computed(() => {
  const { family } = read.value;
  return family && family.calls.size > 1 ? callRows(family.top, family.calls) : [];
});

/** The rows of both lists: key, and the address that Enter opens. */
const listed = computed(() => [
  ...forks.value.map((row) => ({ key: row.key, href: linkOf(row), row })),
  ...calls.value.map(({ task }) => ({ key: `call ${task.task_id}`, href: taskLink(task.task_id), row: null })),
]);

/** Return the address of a row: an undone branch is shown as it was. @param {FamilyRow} row */
const linkOf = (row) => taskLink(row.task.task_id, row.branch ? { at: row.branch.seq } : {});

const here = computed(() => listed.value.find((each) => each.key === chosen.value));

/** Select the next or the last row. @param {number} by */
export function moveRelative(by) {
  const list = listed.value, at = list.findIndex((each) => each.key === chosen.value);
  const next = list[Math.max(0, Math.min(list.length - 1, at + by))];
  if (next) chosen.value = next.key;
}

export const openRelative = () => here.value && go(here.value.href);
export const leaveLineage = () => go(taskLink(place.value.task));

/** Mark the selected task for a comparison, or take the mark back. */
export function markRelative() {
  const row = here.value?.row;
  if (row && !row.branch) marked.value = marked.value === row.key ? "" : row.key;
}

/** The two tasks that would be compared: the marked one, else the origin of the selected one, and the selected one. */
const pair = computed(() => {
  const row = here.value?.row, task = row && !row.branch ? row.task : null;
  if (!task) return null;
  const first = marked.value && marked.value !== task.task_id ? marked.value : task.forked_from;
  if (first && read.value.family?.members.has(first)) return [first, task.task_id];
  const fork = forks.value.find((each) => !each.branch && each.task.forked_from === task.task_id);
  return fork ? [task.task_id, fork.task.task_id] : null;
});

/** Return the address of a comparison. @param {string} a @param {string} b */
export const comparison = (a, b) => `#/diff/${encodeURIComponent(a)}/${encodeURIComponent(b)}`;

export const compareRelative = () => pair.value && go(comparison(pair.value[0], pair.value[1]));

/** @param {{id: string}} props */
export function Lineage({ id }) {
  const { family, missing, id: known } = read.value;
  const head = html`<${Head} id=${id} />`;
  if (!family || known !== id) {
    return [head, html`<${Empty} title=${missing ? "The lineage cannot be shown" : "Reading…"}>${safe(missing)}<//>`];
  }
  return [head, html`<div class="body lineage">
    ${missing && html`<${Note} tone="bad" icon="no">${safe(missing)}<//>`}
    ${family.more && html`<${Note} icon="filter">There are more relatives than are shown here.<//>`}
    <${Forks} id=${id} />
    <${Calls} id=${id} />
  </div>`];
}

/** @param {{id: string}} props */
function Head({ id }) {
  const task = newest({ task_id: id }), two = pair.value, row = here.value?.row;
  return html`<header class="task-head">
    <div class="crumb"><a href="#/">Tasks</a><span>/</span><a class="mono cut" href=${taskLink(id)}>${safe(id)}</a></div>
    <div class="titlebar">
      <h1 class="cut">Lineage <span class="title-of">${safe(task.input || "")}</span></h1>
      <div class="acts">
        <${Act} icon="back" label="Timeline" keyName="Esc" href=${taskLink(id)} />
        <${Act} label=${marked.value ? "Take the mark back" : "Mark"} keyName="Space" onClick=${markRelative}
          disabled=${!row || Boolean(row.branch)} />
        <${Act} main icon="compare" label="Compare" keyName="d" href=${two ? comparison(two[0], two[1]) : undefined}
          disabled=${!two} title=${two ? `${two[0]} and ${two[1]}` : undefined} />
      </div>
    </div></header>`;
}

/** @param {{id: string}} props */
function Forks({ id }) {
  const rows = forks.value, most = Math.max(1, ...rows.map((row) => row.to));
  if (!rows.length) {
    return html`<section><h2 class="cap">Forks and undone branches</h2>
      <p class="qq none">This task has neither. A fork tries another way from a point on; an undo leaves a branch.</p></section>`;
  }
  return html`<section>
    <h2 class="cap" id="forks-t">Forks and undone branches. Steps left of a branch are shared: they ran once.</h2>
    <div class="lrows" role="listbox" tabindex="0" aria-labelledby="forks-t"
      aria-activedescendant=${here.value?.row ? `l-${chosen.value}` : undefined}>
      ${rows.map((row, place) => html`<${Fork} key=${row.key} row=${row} id=${id} most=${most} place=${place} size=${rows.length} />`)}
    </div></section>`;
}

/** @param {{row: FamilyRow, id: string, most: number, place: number, size: number}} props */
function Fork({ row, id, most, place, size }) {
  const task = newest(row.task), { branch } = row, isChosen = chosen.value === row.key;
  const isOwn = !branch && task.task_id === id;
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (isChosen) box.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  const point = row.above < 0 ? "" : row.from ? `after step ${count(row.from)}` : "at the beginning";
  return html`<a class=${`lrow ${branch ? "gone" : ""} ${isOwn ? "own" : ""}`} ref=${box} id=${`l-${row.key}`}
    role="option" tabindex="-1" aria-selected=${isChosen} aria-posinset=${place + 1} aria-setsize=${size}
    aria-current=${isOwn ? "true" : undefined} href=${linkOf(row)} onFocus=${() => (chosen.value = row.key)}>
    <span class="what" style=${{ paddingLeft: `${Math.min(row.depth, 6) * 16}px` }}>
      ${branch ? html`<${BranchCells} branch=${branch} point=${point} />` : html`<${ForkCells} task=${task} row=${row} point=${point} />`}
    </span>
    <${Graph} row=${row} most=${most} task=${task} />
    ${branch ? html`<span class="st c-odd"><${Icon} name="undo" tone="odd" /><span class="word">undone</span></span>`
      : html`<${State} state=${task.state_text} />`}
    <span class="num q wide">${count(branch ? branch.steps.length : task.steps)}</span>
    <span class="num q wide">${branch ? "" : money(task.cost)}</span></a>`;
}

/** @param {{task: any, row: FamilyRow, point: string}} props */
function ForkCells({ task, row, point }) {
  const changes = task.fork_changes || [], isRoot = row.above < 0;
  const title = isRoot ? safe(task.input || task.task_id) : changes.length ? changeWords(changes) : "nothing changed";
  return html`<span class="t cut">${marked.value === row.key && html`<span class="tag">marked</span> `}${title}</span>
    <span class="s cut"><span class="mono">${safe(task.task_id)}</span>${point && ` · ${point}`}</span>`;
}

/** @param {{branch: import("./family_rows.js").Branch, point: string}} props */
function BranchCells({ branch, point }) {
  const verdicts = branch.calls.filter((each) => each.verdict !== "nothing_to_compensate");
  const said = verdicts.map((each) => html` · <span class="mono">${safe(each.tool)}</span> ${each.verdict.replaceAll("_", " ")}`);
  const by = branch.by ? ` by ${safe(branch.by)}` : "";
  return html`<span class="t cut">${plural(branch.steps.length, "step")} undone${by}</span><span class="s cut">${point}${said}</span>`;
}

/** The most steps that get a dot each. */
const DOTS = 40;

/** Return the steps of a row that get a dot. @param {FamilyRow} row */
function dotsOf({ from, to }) {
  if (to === from || to - from > DOTS) return [to];
  return Array.from({ length: to - from }, (_, at) => from + at + 1);
}

/**
 * The lines of a row: its own steps, where others begin, and others that pass.
 * @param {{row: FamilyRow, most: number, task: any}} props
 */
function Graph({ row, most, task }) {
  const x = (/** @type {number} */ step) => `${3 + (step / most) * 94}%`;
  const upright = (/** @type {number} */ step, /** @type {string} */ from, /** @type {string} */ to) =>
    html`<line key=${`${step}${from}`} class="e" x1=${x(step)} x2=${x(step)} y1=${from} y2=${to} />`;
  return html`<svg class=${`graph wide ${row.branch ? "c-odd" : toneOf(task.state_text)}`} aria-hidden="true">
    ${[...new Set(row.through)].map((step) => upright(step, "0", "100%"))}
    ${[...new Set(row.down)].map((step) => upright(step, "50%", "100%"))}
    ${row.above >= 0 && upright(row.from, "0", "50%")}
    <line class="e own" x1=${x(row.from)} x2=${x(row.to)} y1="50%" y2="50%" />
    <circle class="from" cx=${x(row.from)} cy="50%" r="2.5" />
    ${dotsOf(row).map((step) => {
      const isLast = step === row.to;
      return html`<circle key=${step} class=${isLast ? "to" : ""} cx=${x(step)} cy="50%" r=${isLast ? 4.5 : 3} />`;
    })}</svg>`;
}

/** @param {{id: string}} props */
function Calls({ id }) {
  const rows = calls.value, chosenCall = chosen.value.startsWith("call ") ? `l-${chosen.value}` : undefined;
  if (!rows.length) {
    return html`<section><h2 class="cap">Calls of agents</h2><p class="qq none">No agent called another one here.</p></section>`;
  }
  return html`<section><h2 class="cap" id="calls-t">Calls of agents</h2>
    <div class="lrows" role="listbox" tabindex="0" aria-labelledby="calls-t" aria-activedescendant=${chosenCall}>
      ${rows.map((row, place) => html`<${Called} key=${row.task.task_id} row=${row} id=${id} place=${place} size=${rows.length} />`)}
    </div></section>`;
}

/** @param {{row: {task: any, depth: number}, id: string, place: number, size: number}} props */
function Called({ row, id, place, size }) {
  const task = newest(row.task), key = `call ${task.task_id}`, isOwn = task.task_id === id;
  return html`<a class=${`lrow ${isOwn ? "own" : ""}`} id=${`l-${key}`} role="option" tabindex="-1"
    aria-selected=${chosen.value === key} aria-posinset=${place + 1} aria-setsize=${size}
    aria-current=${isOwn ? "true" : undefined} href=${taskLink(task.task_id)} onFocus=${() => (chosen.value = key)}>
    <span class=${`what ${row.depth ? "elbow" : ""}`} style=${{ marginLeft: `${Math.min(row.depth, 6) * 20}px` }}>
      <span class="t cut">${safe(task.input || task.task_id)}</span>
      <span class="s cut"><span class="mono">${safe(task.task_id)}</span></span></span>
    <span class="q cut wide">${safe(task.agent)}</span><${State} state=${task.state_text} />
    <span class="num q wide">${count(task.steps)}</span><span class="num q wide">${money(task.cost)}</span></a>`;
}

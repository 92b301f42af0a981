// The timeline: one lane for each step, request and call. Only the rows in view are in the page, and the axis covers
// exactly them: scrolling zooms by itself.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { asText } from "./fold_state.js";
import { count, duration, line, mark, plural, safe } from "./format.js";
import { go, taskLink } from "./place.js";
import { iconOf, isCutOff } from "./side_parts.js";
import { now, opened, reports, tasks } from "./store.js";
import { current, flip, isLive, rows, select, selected, sheet, shown } from "./task_state.js";
import { busyTime, isBad, partsOf, scale, ticks, waiting } from "./timeline.js";
import { html, Icon } from "./ui.js";
import { useWindow } from "./windowed.js";

/** @typedef {import("./timeline.js").Row} Row */

const rowHeight = () => (innerWidth < 760 ? 32 : 26);

/** Bring a row into view. @type {(place: number) => void} */
export let reveal = () => {};

export function Timeline() {
  const follows = useRef(true), isOver = useRef(false), followed = useRef(0);
  const list = rows.value, height = rowHeight(), live = isLive.value;
  const { box, seen, first, last, measure, reveal: bring } = useWindow(height, list.length);
  reveal = bring;
  useEffect(() => {
    follows.current = true;
    reveal(list.findIndex((row) => row.key === current.value?.key));
  }, [opened.value.id, opened.value.loading]);
  // At its end the list follows new events, but no row moves under the pointer, and the selected one stays in view.
  const follow = () => {
    const e = box.current;
    if (!live) followed.current = 0;
    if (e && e.scrollTop < followed.current - 1) follows.current = false; // a person has scrolled up since then
    if (!e || !live || !follows.current || isOver.current) return;
    const chosen = selected.value ? list.findIndex((row) => row.key === selected.value) : -1;
    e.scrollTop = chosen < 0 ? e.scrollHeight : Math.min(e.scrollHeight, chosen * height);
    followed.current = e.scrollTop;
  };
  const enter = () => void (isOver.current = true);
  const leave = () => {
    isOver.current = false;
    follow();
  };
  useLayoutEffect(follow, [list.length, live]);
  const scrolled = () => {
    const e = box.current;
    if (e) {
      follows.current = e.scrollTop + e.clientHeight > e.scrollHeight - 2 * height;
      followed.current = e.scrollTop;
    }
    measure();
  };
  const { state } = shown.value, until = live ? Math.max(state.time, now.value * 1e3) : state.time;
  const axis = scale(list.slice(seen[0], seen[1]), until), marks = ticks(axis, innerWidth < 760 ? 3 : 7);
  const drawn = list.slice(first, last);
  return html`<div class="axis" aria-hidden="true"><span class="cap">Step, call</span>
      <div class="ticks">${marks.map(({ time, x }) => x < 0.97
        && html`<span key=${time} style=${{ left: `${x * 100}%` }}>${mark(time)}</span>`)}</div>
      <span class="cap num">Took</span></div>
    <div class="rows" ref=${box} onScroll=${scrolled} onPointerEnter=${enter} onPointerLeave=${leave} tabindex="0" role="listbox"
      aria-label="Timeline" aria-activedescendant=${current.value ? `r-${current.value.key}` : undefined}>
      <div style=${{ height: `${list.length * height + 12}px` }} role="presentation"></div>
      ${drawn.map((row, place) => html`<${Line} key=${row.key} row=${row} place=${first + place} size=${list.length}
        height=${height} axis=${axis} until=${until} />`)}
    </div>`;
}

/** A wait that is cut out of the axis. @param {{x: number, time: number}} gap */
const drawBreak = (gap) =>
  html`<i class="brk" style=${{ left: `${gap.x * 100}%` }} title=${`nothing ran for ${duration(gap.time / 1e3)}`}></i>`;

/** One row. @param {{row: Row, place: number, size: number, height: number, axis: any, until: number}} props */
function Line({ row, place, size, height, axis, until }) {
  const isCurrent = current.value?.key === row.key;
  const pick = () => {
    select(row.key);
    if (row.kind === "fold") flip(row.group.branch);
    else sheet.value = true;
  };
  const shared = {
    id: `r-${row.key}`, role: "option", "aria-selected": isCurrent, "aria-posinset": place + 1, "aria-setsize": size,
    style: { top: `${place * height}px` }, onClick: pick,
  };
  const undone = row.undone && row.kind !== "fold" ? "undone" : "";
  if (row.kind === "fold") return html`<div class="r fold" ...${shared}><${Fold} row=${row} /></div>`;
  if (row.kind === "note") return html`<div class="r said" ...${shared}><${Said} row=${row} /></div>`;
  const [Label, Bars] = row.kind === "step" ? [StepLabel, StepBars] : [CallLabel, CallBars];
  return html`<div class=${`r ${row.kind} ${undone}`} ...${shared}><div class="lab"><${Label} row=${row} /></div>
    <div class="track" aria-hidden="true">${axis.breaks.map(drawBreak)}<${Bars} row=${row} axis=${axis} until=${until} /></div>
    <span class="d"><${Took} row=${row} until=${until} /></span></div>`;
}

/** @param {{row: Row}} props */
function StepLabel({ row }) {
  const { step } = row, send = step.sends.at(-1), usage = send?.usage;
  const writes = send && send.ended === null && step.status === "running";
  return html`<span class="no">${step.index}</span>${step.status === "failed" && html`<${Icon} name="failed" tone="bad" />`}
    <span class="n cut">${safe(step.name || send?.model || "step")}</span>
    <span class="a cut">${usage ? `${count(usage.input_tokens)} → ${count(usage.output_tokens)}` : writes ? "writing" : ""}
      ${step.attempt > 1 ? ` · attempt ${step.attempt}` : ""}</span>
    <span class="sr">step ${step.index}, ${step.undone ? "undone" : step.status}</span>`;
}

/** @param {{row: Row}} props */
function CallLabel({ row }) {
  const { call } = row, waits = waiting(call), child = call.child && tasks.value.get(call.child);
  const enter = (/** @type {Event} */ event) => {
    event.stopPropagation(); // for the keyboard the panel has a link
    go(taskLink(call.child));
  };
  const [icon, tone] = waits || isBad(call) || isCutOff(call) ? iconOf(call) : [call.undoes ? "undo" : call.child ? "agent" : "", ""];
  return html`${icon && html`<${Icon} name=${icon} tone=${tone} />`}<span class="n cut">${safe(call.name)}</span>
    <span class="a cut">${call.undoes ? "compensation" : reported(call) || line(call.arguments)}</span>
    ${call.child && html`<span class="into" aria-hidden="true" onClick=${enter}
      title=${`Open the subagent's task${child ? `, ${child.state_text}` : ""}`}><${Icon} name="open" /></span>`}
    <span class="sr">${waits || call.outcome || "open"}</span>`;
}

/** The report of a running call. @param {any} call */
const reported = (call) => (isLive.value && call.runs.at(-1)?.ended === null ? line(reports.value[call.id]) : "");

/** @param {any} props */
function Bar({ axis, began, ended, kind, title }) {
  const from = axis.x(began), to = axis.x(ended);
  const left = /unknown|waits/.test(kind) ? `min(${from * 100}%, calc(100% - 44px))` : `min(${from * 100}%, calc(100% - 3px))`;
  return html`<i class=${`bar ${kind}`} style=${{ left, width: `${Math.max(0, to - from) * 100}%` }} title=${title}></i>`;
}

/** @param {{row: Row, axis: any, until: number}} props */
function StepBars({ row, axis, until }) {
  const { step } = row, runs = step.status === "running" && !step.undone;
  return html`<${Bar} axis=${axis} began=${row.began} ended=${row.ended ?? until} kind="span" />
    ${step.sends.map((/** @type {any} */ send) => {
      const ended = send.ended ?? until, isOpen = send.ended === null && runs && isLive.value;
      return html`<${Bar} key=${send.seq} axis=${axis} began=${send.began} ended=${ended}
        kind=${`model ${send.error ? "bad" : ""} ${isOpen ? "live" : ""}`}
        title=${`${safe(send.model)} ${duration((ended - send.began) / 1e3)}`} />`;
    })}`;
}

/** @param {{row: Row, axis: any, until: number}} props */
function CallBars({ row, axis, until }) {
  const { call } = row, waits = waiting(call);
  const tone = call.undoes ? "comp" : isBad(call) ? "bad" : "";
  const bars = call.runs.map((/** @type {any} */ run, /** @type {number} */ place) => {
    const isLast = place === call.runs.length - 1, ended = run.ended ?? until;
    const before = run.how === "asked" || run.how === "slept" ? "" : "bad";
    const kind = isLast && (waits === "unknown" || isCutOff(call)) ? "unknown"
      : run.ended === null ? (isLive.value ? "live" : "") : isLast ? tone : before;
    return html`<${Bar} key=${place} axis=${axis} began=${run.began} ended=${ended} kind=${kind}
      title=${`${safe(call.name)} ${duration((ended - run.began) / 1e3)}`} />`;
  });
  const last = call.runs.at(-1)?.ended ?? row.began;
  return html`${bars}
    ${waits && waits !== "unknown" && html`<${Bar} axis=${axis} began=${last} ended=${last} kind="waits" title=${waits} />`}`;
}

/** @param {{row: Row, until: number}} props */
function Took({ row, until }) {
  if (row.kind === "step") return html`${duration(busyTime(partsOf(shown.value.state, row.step), until) / 1e3)}`;
  const { call } = row, waits = waiting(call);
  const tone = waits === "unknown" ? "odd" : waits === "sleeps" ? "" : "wait";
  if (waits) return html`<span class=${`st c-${tone}`}>${waits}</span>`;
  if (isCutOff(call)) return html`<span class="st c-odd">cut off</span>`;
  if (!call.runs.length) return call.outcome ? html`<span class=${`st ${call.outcome === "denied" ? "c-bad" : ""}`}>${call.outcome}</span>` : null;
  return html`${duration(busyTime(call.runs, until) / 1e3)}`;
}

/** @param {{row: Row}} props */
function Fold({ row }) {
  const { group, open } = row;
  const changed = group.calls.filter((/** @type {any} */ call) => call.verdict !== "nothing_to_compensate");
  const calls = changed.map((/** @type {any} */ call) => `${call.tool} ${call.verdict.replaceAll("_", " ")}`);
  return html`<div class="lab"><span class=${`tw ${open ? "open" : ""}`} aria-hidden="true">▸</span><${Icon} name="undo" />
    <span>${plural(group.steps.length, "step")} undone${group.by ? ` by ${safe(group.by)}` : ""}</span>
    <span class="qq cut wide">${safe(calls.join(", "))}</span><span class="hatch" aria-hidden="true"></span>
    <span class="sr">${open ? "unfolded" : "folded"}</span></div>`;
}

/** @param {{row: Row}} props */
function Said({ row }) {
  const { note } = row, people = note.by && note.by !== "user";
  const text = note.icon === "say" ? `“${note.text}”` : note.text;
  return html`<div class="lab"><${Icon} name=${note.icon} tone=${note.icon === "ask" ? "wait" : ""} />
    <span class="cut">${safe(asText(text))}</span>
    ${people && html`<span class="qq">${note.icon === "say" ? "" : "by "}${safe(note.by)}</span>`}</div>`;
}


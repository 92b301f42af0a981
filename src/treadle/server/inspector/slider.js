// The slider through the events of a task: one mark for each, the place of the page, and the event there.
import { useEffect, useRef } from "preact/hooks";
import { clock, count, safe } from "./format.js";
import { opened } from "./store.js";
import { at, look, past, seek } from "./task_state.js";
import { Act, html, Icon } from "./ui.js";

export function Slider() {
  const { journal, loading, known } = opened.value, { head, events } = journal, here = Math.min(at.value ?? head, head);
  const event = events[here - 1], isPast = past.value;
  const move = (/** @type {any} */ change) => look(Number(change.target.value));
  return html`<section class=${`time ${isPast ? "past" : ""}`} aria-label="Time">
    <div class="top"><span class="pair"><button type="button" aria-label="One event back" title="One event back" aria-keyshortcuts="," onClick=${() => seek(-1)}><${Icon} name="back" /></button><button type="button" aria-label="One event on" title="One event on" aria-keyshortcuts="." onClick=${() => seek(1)}><${Icon} name="on" /></button></span>
      <span class="what cut"><b>${count(here)}</b> <span class="qq">of ${count(loading ? known : head)}</span> <span class="q">${event ? `· ${safe(event.description)}` : ""}</span></span>
      <span class="qq mono wide">${event && clock(event.time)}</span>
      ${isPast ? html`<${Act} main label="Back to now" keyName="0" onClick=${() => look(null)} />` : html`<span class="cap wide">${loading ? "reading…" : "now"}</span>`}</div>
    <div class="scrub"><input type="range" min="1" max=${head} value=${here} aria-label="Event" aria-valuetext=${`event ${here} of ${head}: ${event?.description}`} onInput=${move} /><${Marks} head=${head} here=${here} /></div>
  </section>`;
}

/** Events that a person looks for are taller than others. */
const TALL = /^(rewound|task_ended|task_forked|step_failed|question_asked|approval_requested|input_received|limit_reached)$/;

/** @param {any} event */
function toneOf(event) {
  if (/failed/.test(event.kind) || (event.kind === "tool_ended" && event.outcome !== "ok") || event.state === "failed") return "--bad";
  if (/approval_requested|asked|unresolved|limit_reached/.test(event.kind)) return "--wait";
  if (/rewound|undo|forked/.test(event.kind)) return "--odd";
  return event.kind === "task_ended" ? "--ok" : "--ink-3";
}

/** The marks, on a canvas: they are drawn once, and the place of the page is a line over them. @param {{head: number, here: number}} props */
function Marks({ head, here }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const { journal } = opened.value, at_ = head > 1 ? (here - 1) / (head - 1) : 1;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const draw = () => canvas.current && drawMarks(canvas.current, journal.events);
  useEffect(() => {
    const watcher = new ResizeObserver(draw); // it draws at once, too
    if (canvas.current) watcher.observe(canvas.current);
    dark.addEventListener("change", draw);
    return () => {
      watcher.disconnect();
      dark.removeEventListener("change", draw);
    };
  }, [journal, head]);
  return html`<canvas ref=${canvas} aria-hidden="true"></canvas><i class="later" style=${{ left: `${at_ * 100}%` }}></i><i class="gone" style=${{ width: `${at_ * 100}%` }}></i><i class="here" style=${{ left: `${at_ * 100}%` }}></i>`;
}

/** Marks by their events: their colour and height. @type {WeakMap<any, {tall: number, tone: string}>} */
const drawn = new WeakMap();

/** @param {any} event */
function markOf(event) {
  let mark = drawn.get(event);
  if (!mark) {
    const tone = toneOf(event);
    mark = { tall: TALL.test(event.kind) ? 13 : event.kind === "step_started" || tone !== "--ink-3" ? 9 : 5, tone };
    drawn.set(event, mark);
  }
  return mark;
}

/** @param {HTMLCanvasElement} canvas @param {any[]} events */
function drawMarks(canvas, events) {
  const ratio = devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const brush = canvas.getContext("2d");
  if (!brush || !events.length) return;
  brush.scale(ratio, ratio);
  const style = getComputedStyle(canvas), room = width - 2, dense = events.length > width / 3;
  const colours = new Map(["--bad", "--wait", "--odd", "--ok", "--ink-3"].map((name) => [name, tint(style, name)]));
  const columns = new Map();
  for (const event of events) {
    const x = Math.round((events.length > 1 ? (event.seq - 1) / (events.length - 1) : 1) * room);
    const mark = markOf(event), known = columns.get(x);
    if (!known || mark.tall > known.tall) columns.set(x, mark);
  }
  for (const [x, { tall, tone }] of columns) {
    brush.fillStyle = /** @type {string} */ (colours.get(tone));
    brush.globalAlpha = tone === "--ink-3" ? (dense ? 0.4 : 0.7) : 1;
    brush.fillRect(x, height - 6 - tall, tall > 9 ? 2 : 1, tall);
  }
}

/** Return a colour as the canvas takes it: of the present theme. @param {CSSStyleDeclaration} style @param {string} name */
function tint(style, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour || style.color;
}


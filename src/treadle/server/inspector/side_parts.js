// Parts of the side panel and of dialogs: icons of calls, verdicts of an undo, the way back in time.
import { safe } from "./format.js";
import { past, rewind, shown, word } from "./task_state.js";
import { isBad, waiting } from "./timeline.js";
import { Act, html, Icon } from "./ui.js";

/** @param {{row: any}} props */
export function Back({ row }) {
  return row.lastSeq < shown.value.state.head || past.value ? html`<${Act} label="Rewind to here" keyName="g" onClick=${rewind} />` : null;
}

/** Whether the driver of an open call has gone. @param {any} call */
export const isCutOff = (call) => word.value === "interrupted" && !call.outcome && call.runs.at(-1)?.ended === null;

/** The icon and the colour of a call. @param {any} call @returns {[string, string]} */
export function iconOf(call) {
  const waits = waiting(call);
  if (waits === "unknown") return ["unknown", "odd"];
  if (waits === "sleeps") return ["timer", ""];
  if (waits) return ["ask", "wait"];
  if (call.outcome === "denied") return ["no", "bad"];
  if (isBad(call)) return ["failed", "bad"];
  if (isCutOff(call)) return ["interrupted", "odd"];
  return call.outcome ? ["done", "ok"] : ["play", "run"];
}

/** @param {{call: any}} props */
export function CallIcon({ call }) {
  const [name, tone] = iconOf(call);
  return html`<${Icon} name=${name} tone=${tone} />`;
}

/** The verdicts of an undo that is not carried out yet. @type {Record<string, string>} */
const WOULD = { compensated: "would be compensated", not_compensated: "would stay", nothing_to_compensate: "changed nothing" };

/** The verdicts of an undo for its calls. @param {{calls: any[], planned: boolean}} props */
export function Verdicts({ calls, planned }) {
  return html`<div class="args">${calls.map((call) => html`<div key=${call.call}><span class="mono cut">${safe(call.tool)}</span>
    <${Verdict} verdict=${call.verdict} text=${(planned && WOULD[call.verdict]) || call.verdict.replaceAll("_", " ")} why=${call.why} /></div>`)}</div>`;
}

/** @param {any} props */
function Verdict({ verdict, text, why }) {
  const good = verdict === "compensated" || verdict === "nothing_to_compensate";
  const [tone, icon] = good ? ["ok", "done"] : verdict === "unknown" ? ["odd", "unknown"] : ["wait", "degraded"];
  return html`<span class=${`st wrap c-${tone}`}><${Icon} name=${icon} />${text}${why ? `: ${safe(why)}` : ""}</span>`;
}

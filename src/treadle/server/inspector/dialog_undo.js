// The dialog of an undo. It first asks the server for a dry run: the steps that go, and the verdict for each call.
import { useEffect, useState } from "preact/hooks";
import { call, taskPath } from "./api.js";
import { carryOut, Choice, Form } from "./dialog_parts.js";
import { plural, safe } from "./format.js";
import { stepsOf } from "./fold_view.js";
import { Verdicts } from "./side_parts.js";
import { opened } from "./store.js";
import { current, shown, word } from "./task_state.js";
import { html, Note } from "./ui.js";

/** Return the steps that may be the first to go, the newest first. @param {any} state */
const undoable = (state) => stepsOf(state).filter((step) => !step.undone).reverse();

/** The step that the person looks at, if it may go; else the last one. @param {any[]} steps */
function firstChoice(steps) {
  const row = current.value, id = row?.kind === "step" || row?.kind === "call" ? row.step.id : "";
  return steps.some((step) => step.id === id) ? id : steps[0]?.id || "";
}

export function Undo() {
  const { id } = opened.value, { state } = shown.value, steps = state.undo ? [] : undoable(state);
  const [from, setFrom] = useState(() => firstChoice(steps)), [isForced, setForced] = useState(false);
  const [{ plan, of }, setPlan] = useState(/** @type {{plan: any, of: string}} */ ({ plan: null, of: "" }));
  const body = { ...where(state, from), ...(isForced ? { force: true } : {}) };
  const key = `${from} ${isForced}`;
  useEffect(() => {
    let isOpen = true;
    const keep = (/** @type {any} */ report) => isOpen && setPlan({ plan: report, of: key });
    call(`${taskPath(id)}/undo`, { ...body, dry_run: true }).then(keep, (error) => keep({ refused: error.message, steps: [], calls: [] }));
    return () => void (isOpen = false);
  }, [id, key]);
  const undo = () => carryOut("undo", body, saidOf, { wait: 10, isFree: word.value === "running" });
  const number = plan?.steps.length || 0, staying = plan?.calls.filter((/** @type {any} */ each) => stays(each)) || [];
  const label = staying.length && isForced ? "Undo, and leave them" : number > 1 ? `Undo ${plural(number, "step")}` : "Undo";
  return html`<${Form} title=${state.undo ? "Finish the undo" : "Undo"} label=${label} icon="undo" submit=${undo} disabled=${of !== key || !number || (!plan.complete && !isForced)}>
    ${steps.length > 1 && html`<${Choice} label="From which step on" value=${from} set=${setFrom} focus
      of=${steps.map((step, place) => [step.id, `step ${step.index}${step.name ? `, ${step.name}` : ""}${place ? "" : ", the last"}`])} />`}
    <${Plan} plan=${plan} state=${state} />
    ${staying.length > 0 && html`<label class="check"><input type="checkbox" checked=${isForced}
      onChange=${(/** @type {any} */ change) => setForced(change.target.checked)} />
      Take the steps back although ${staying.length === 1 ? "this call stays" : "these calls stay"} in the world</label>`}
  <//>`;
}

/** Whether a call stays in the world, or may. @param {any} call */
const stays = (call) => call.verdict === "not_compensated" || call.verdict === "unknown";

/** Return the arguments that name a step: a task of parallel steps keeps the siblings. @param {any} state @param {string} from */
function where(state, from) {
  if (!from) return {};
  if (state.graph) return { step: from };
  return { to: Math.max(0, state.steps.get(from).index - 1) };
}

/** Return the message after an undo. @param {any} report */
function saidOf(report) {
  if (!report?.steps) return "The undo has begun.";
  return report.complete ? `${plural(report.steps.length, "step")} undone.` : "The undo stopped: a compensation failed.";
}

/** Return the steps of a plan by their numbers. @param {any} state @param {string[]} ids */
function stepWords(state, ids) {
  const numbers = [...new Set(ids.map((id) => state.steps.get(id)?.index ?? safe(id)))];
  if (numbers.length === 1) return `step ${numbers[0]}`;
  return `steps ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}`;
}

/** The plan of an undo. @param {{plan: any, state: any}} props */
function Plan({ plan, state }) {
  if (!plan) return html`<p class="qq" role="status">Looking what it would take back…</p>`;
  if (plan.refused) return html`<${Note} icon="no">${safe(plan.refused)}<//>`;
  if (!plan.steps.length) return html`<p class="q">There is nothing to take back.</p>`;
  return html`<p class="q">It would take back ${stepWords(state, plan.steps)}. Nothing is deleted: the journal grows by one branch.
      Spent tokens stay spent.${(state.ended || state.answered) && html` <b>The task is unfinished afterwards</b>, and can run on.`}</p>
    ${plan.calls.length > 0 && html`<${Verdicts} calls=${plan.calls} planned=${true} />`}
    ${plan.problem && html`<${Note} tone="wait" icon="degraded">${safe(plan.problem)}<//>`}`;
}

// The dialogs of words: a message, the next input, and where to run to. Those that end something.
import { useState } from "preact/hooks";
import { carryOut, Choice, Field, Form } from "./dialog_parts.js";
import { safe } from "./format.js";
import { callsOf } from "./fold_view.js";
import { textOf } from "./fold_state.js";
import { failedSteps, nextInput } from "./offers.js";
import { current, shown } from "./task_state.js";
import { html, Note } from "./ui.js";

/** Who speaks, in a message. @type {[string, string][]} */
const ROLES = [["user", "a person"], ["system", "the system"], ["observation", "data from outside, no instruction"]];

export function Message() {
  const [text, setText] = useState(""), [role, setRole] = useState("user");
  const submit = () => carryOut("send", { message: text, role }, "Sent. The model reads it before its next answer.", { isFree: true });
  return html`<${Form} title="Message to the task" label="Send" icon="say" submit=${submit} disabled=${!text.trim()}>
    <p class="q">The model reads it before its next answer. What runs now runs on.</p>
    <${Field} label="Message" value=${text} set=${setText} rows=${4} focus />
    <${Choice} label="It comes from" value=${role} set=${setRole} of=${ROLES} /><//>`;
}

export function NextInput() {
  const [text, setText] = useState(() => textOf(nextInput(shown.value.state) || []));
  const submit = () => carryOut("edit_step", { input: text }, "The next input is changed.");
  return html`<${Form} title="Input of the next step" label="Change" icon="edit" submit=${submit} disabled=${!text.trim()}>
    <p class="q">The model reads this in place of what it would have read. The journal keeps both.</p>
    <${Field} label="Input" value=${text} set=${setText} rows=${6} focus /><//>`;
}

/** The places to which a task may run. @type {[string, string][]} */
const PLACES = [["step", "a step has ended"], ["tool", "a tool is about to run"], ["cost", "an amount is spent"]];

export function RunTo() {
  const { state } = shown.value, row = current.value;
  const last = Math.max(0, ...[...state.steps.values()].filter((step) => !step.undone).map((step) => step.index));
  const here = row?.kind === "step" || row?.kind === "call" ? row.step.index : 0;
  const [place, setPlace] = useState("step"), [value, setValue] = useState(String(Math.max(here, last + 1)));
  const tools = [...new Set(callsOf(state).map(({ call }) => /** @type {any} */ (call).name))];
  const choose = (/** @type {string} */ next) => {
    setPlace(next);
    setValue(next === "step" ? String(last + 1) : next === "tool" ? tools.at(-1) || "*" : "");
  };
  const submit = () => {
    const others = (state.options?.break_on || []).filter((/** @type {any} */ each) => !each.after_step);
    const options = { break_on: [...others, breakpoint(place, value.trim())] };
    return carryOut("resume", { options }, "The task pauses there at the latest.", { wait: 0 });
  };
  const names = /** @type {Record<string, string>} */ ({ step: "Number of the step", tool: "Tool, or a pattern such as write_*", cost: "US dollars" });
  return html`<${Form} title="Run to" label="Run" icon="until" submit=${submit} disabled=${!value.trim()}>
    <p class="q">The task runs on, and pauses as soon as</p>
    <${Choice} label="Until" value=${place} set=${choose} of=${PLACES} />
    <${Field} label=${names[place]} value=${value} set=${setValue} type=${place === "tool" ? "text" : "number"} mono=${place === "tool"} focus /><//>`;
}

/** Return a breakpoint. @param {string} place @param {string} text */
function breakpoint(place, text) {
  if (place === "tool") return { tool: text };
  const value = Number(text);
  if (place === "step" && !(Number.isInteger(value) && value > 0)) throw new Error("The step must be a whole number from 1 on.");
  if (!(value > 0)) throw new Error("The amount must be a number above 0.");
  return place === "step" ? { after_step: value } : { cost: text };
}

export function Skip() {
  const failed = failedSteps(shown.value.state);
  const [step, setStep] = useState(failed[0]?.id || "");
  const submit = () => carryOut("skip_step", failed.length > 1 ? { step } : {}, "The step is skipped.");
  const chosen = failed.find((each) => each.id === step);
  return html`<${Form} title="Skip the failed step" label="Skip" icon="skip" submit=${submit} disabled=${!chosen}>
    ${failed.length > 1 && html`<${Choice} label="Step" value=${step} set=${setStep} of=${failed.map((each) => [each.id, `step ${each.index}, ${each.id}`])} focus />`}
    ${chosen?.error && html`<${Note} tone="bad" icon="failed">${safe(chosen.error.message)}<//>`}
    <p class="q">The task goes on with the next step, without the result of this one. What its calls did stays.</p><//>`;
}

export function Cancel() {
  const [reason, setReason] = useState("");
  const submit = () => carryOut("cancel", reason ? { reason } : {}, "The task is cancelled.", { wait: 10, isFree: true });
  return html`<${Form} title="Cancel the task" label="Cancel the task" icon="cancelled" submit=${submit}>
    <p class="q">It ends for good: running calls are stopped, and it cannot run on. A fork of it can.</p>
    <${Field} label="Reason, for the record" value=${reason} set=${setReason} focus /><//>`;
}

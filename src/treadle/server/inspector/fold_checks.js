// Rules of guardrails: contents that are judged, and their effects. They follow `core/rules/guardrails.py`.
import { asText, ownCall, textOf } from "./fold_state.js";
import { changeRequests, finish, voidRequest } from "./fold_requests.js";

/** @typedef {import("./fold_state.js").State} State */
/** @typedef {import("./fold_state.js").Event} Event */

/** Names of judged contents, for people. @type {Record<string, string>} */
export const CONTENTS = { input: "the input", output: "the answer", result: "the result" };

const isInput = (/** @type {string} */ place) => /^in\d+$/.test(place);

/** Return whether a content is open, asked, passed or refused. @param {any} check */
export function standing(check) {
  const status = check?.permit?.status;
  if (!status || status === "edited") return "open";
  if (status === "asked") return "asked";
  return status === "denied" || status === "used" ? "refused" : "passed";
}

/** Change a check, as a new object. @param {State} state @param {string} place @param {any} changes */
export function setCheck(state, place, changes) {
  const check = { ...state.checks.get(place), ...changes };
  state.checks.set(place, check);
  return check;
}

/** Keep an answer that guardrails have not passed; drop it if its input was rewritten meanwhile. @param {State} state @param {Event} event */
function answerHeld(state, event) {
  const found = finish(state, event);
  if (!found) return;
  const { step, request, key } = found;
  if (request.void) {
    Object.assign(request, { status: "proposed", void: false, final: false });
    return;
  }
  request.status = "held";
  const place = `${key || step.id}-said${request.attempt}`;
  state.checks.set(place, newCheck(place, step.id, "output", { text: textOf(event.message.parts) }));
}

/** @param {string} id @param {string} step @param {string} guards @param {any} content */
const newCheck = (id, step, guards, content) => ({
  id, step, guards, name: CONTENTS[guards], arguments: content, permit: null, requests: 0, changed: false,
});

/** @param {State} state @param {Event} event */
function guardrailJudged(state, event) {
  const { place, verdict } = event;
  if (!state.checks.has(place)) {
    const content = verdict === "rewrite" ? event.previous : event.content;
    state.checks.set(place, newCheck(place, event.step, event.guards, content || {}));
  }
  const check = state.checks.get(place);
  if (verdict === "rewrite") setCheck(state, place, { arguments: event.content || {}, permit: null, changed: true });
  else if (verdict === "ask") setCheck(state, place, { arguments: event.content || check.arguments });
  else if (verdict === "deny") {
    settleCheck(state, setCheck(state, place, { permit: { status: "denied", rule: event.rule, reason: event.reason } }));
  } else {
    const permit = check.permit ? { ...check.permit, status: "approved" } : { status: "allowed", rule: event.rule };
    settleCheck(state, setCheck(state, place, { permit, changed: check.changed || Boolean(check.permit) }));
  }
  if (verdict !== "allow")
    state.rows.push({ kind: "note", icon: "guard", seq: event.seq, time: event.time, text: event.description, by: event.rule || "" });
}

/** Apply a passed or refused content to the task. @param {State} state @param {any} check */
export function settleCheck(state, check) {
  const stands = standing(check);
  if ((stands !== "refused" && stands !== "passed") || (stands === "passed" && !check.changed)) return;
  if (isInput(check.id)) replaceInput(state, check, stands);
  else if (check.guards === "result")
    replaceResult(state, check, stands === "refused" ? refusalText(check) : check.arguments.result);
}

/** @param {any} check */
function refusalText(check) {
  const { rule, reason } = check.permit;
  const refused = `${rule ? `the guardrail ${rule}` : "a guardrail"} refused ${check.name}`;
  return `[${reason ? `${refused}: ${reason}` : refused}]`;
}

/** @param {State} state @param {any} check @param {string} stands */
function replaceInput(state, check, stands) {
  const text = stands === "refused" ? refusalText(check) : asText(check.arguments.text);
  const seq = Number(check.id.slice(2));
  const judged = (/** @type {any} */ received) =>
    received.seq === seq
      ? { ...received, parts: [{ type: "text", text }, ...received.parts.filter((/** @type {any} */ p) => stands === "passed" && p.type !== "text")] }
      : received;
  state.unread = state.unread.map(judged);
  const step = state.step ? state.steps.get(state.step) : null;
  if (step?.read.some((received) => received.seq === seq)) changeRequests(state, voidRequest);
}

/** @param {State} state @param {any} check @param {any} output */
function replaceResult(state, check, output) {
  const call = ownCall(state, check.id.replace(/-value$/, ""));
  if (!call) return;
  Object.assign(call, { guarded: true, output });
  if (call.error) call.error = { ...call.error, message: asText(output) };
}

/** Record that a step failed because of its refused contents. @param {State} state @param {string} step */
export function consumeRefusals(state, step) {
  for (const check of state.checks.values())
    if (check.step === step && check.guards !== "input" && check.permit?.status === "denied")
      setCheck(state, check.id, { permit: { ...check.permit, status: "used" } });
}

/** Drop the decisions on contents of undone steps. @param {State} state @param {Set<string>} gone */
export function takeBackChecks(state, gone) {
  const unread = new Set(state.unread.map((received) => `in${received.seq}`));
  for (const check of [...state.checks.values()]) {
    const isOpen = !["passed", "refused"].includes(standing(check));
    if (isInput(check.id) ? isOpen && !unread.has(check.id) : gone.has(check.step)) dropCheck(state, check.id);
  }
}

/** @param {State} state @param {string} id */
function dropCheck(state, id) {
  state.checks.delete(id);
  state.approvals.delete(id);
}

/** Reset the checks of a fork's unsettled contents and unread input. @param {State} state */
export function forgetChecks(state) {
  const unread = new Set(state.unread.map((received) => `in${received.seq}`));
  for (const check of [...state.checks.values()]) {
    if (["passed", "refused"].includes(standing(check)) && !unread.has(check.id)) continue;
    setCheck(state, check.id, { permit: null });
    state.approvals.delete(check.id);
  }
}

/** Drop the questions to people of a task that ends. @param {State} state */
export function dropOpenChecks(state) {
  for (const check of [...state.checks.values()]) {
    const { permit } = check;
    if (permit?.status === "denied" && check.guards === "result") setCheck(state, check.id, { permit: { ...permit, status: "used" } });
    if (state.approvals.delete(check.id)) setCheck(state, check.id, { permit: null });
  }
}

export const CHECK_RULES = { answer_held: answerHeld, guardrail_judged: guardrailJudged };

// Fold the events of recorded journals with the page's `fold.js`, and print where it differs from the server.
//
//     node check_fold.mjs FOLDER-OF-THE-PAGE FILE
//
// FILE has one journal a line: its name, its events, and what the server says of the task after each of them.
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const page = (name) => import(pathToFileURL(`${folder}/${name}`).href);
const { Journal, fold } = await page("fold.js");
const { answerOf, callsOf, pendingCount, pendingOf, reasonsOf, spending, stateWord, stepsOf, stopReason } = await page("fold_view.js");
const { timelineRows, scale } = await page("timeline.js");

/** What the page knows of a task, in the words of the server. */
function shown(state) {
  const spent = spending(state), answer = answerOf(state);
  return {
    state: stateWord(state), agent: state.agent, thread: state.thread, attempt: state.attempt, steps: state.order.length,
    forked_from: state.forkedFrom, forked_at: state.forkedAt || null, parent: state.parent, head: state.head,
    updated: state.time, options: state.options, input: state.input, pending_count: pendingCount(state),
    tokens: [spent.tokensIn, spent.tokensOut, spent.cached, spent.cacheWrites, spent.reasoning], cost: spent.cost,
    unpriced: [...spent.unpriced].sort(), model_calls: spent.modelCalls, tool_calls: spent.toolCalls,
    final_text: answer.text, output: answer.output, error: state.error?.message ?? null, reasons: reasonsOf(state),
    stop_reason: stopReason(state), ended_at: state.ended ? state.endedAt : null,
    // The events do not show answers that guardrails hold: the inbox reads them from the server.
    pending: pendingOf(state).map((item) => [item.id, item.kind, item.tool, item.tool === "the answer" ? null : item.arguments, item.due]),
    began: stepsOf(state).map((step) => [step.id, step.index, step.status, step.attempt, step.agent]),
    calls: callsOf(state).map(({ call, step }) => [
      call.id, call.name, call.arguments, call.outcome, call.output, call.error?.message ?? null, call.attempt,
      call.began && call.ended ? call.ended - call.began : null, step.agent, call.rewritten ?? null,
    ]),
  };
}

const text = (value) => JSON.stringify(value, (_, each) =>
  each && typeof each === "object" && !Array.isArray(each) ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1))) : each);

let prefixes = 0;
const wrong = [];
for await (const line of createInterface({ input: createReadStream(file) })) {
  const { name, events, states } = JSON.parse(line);
  const journal = new Journal();
  const say = (seq, field, theirs, ours) => wrong.push({ name, seq, kind: events[seq - 1].kind, field, theirs, ours });
  for (const event of events) {
    try {
      journal.add(event);
    } catch (error) {
      say(event.seq, "error", null, String(error.stack));
      break;
    }
    prefixes += 1;
    const ours = shown(journal.state), theirs = states[event.seq - 1];
    for (const field of Object.keys(theirs)) if (text(ours[field]) !== text(theirs[field])) say(event.seq, field, theirs[field], ours[field]);
    scale(timelineRows(journal.state, new Set(journal.state.undone.map((group) => group.branch))), journal.state.time);
  }
  // The slider: any order of positions gives the same states as a fold from the beginning.
  const last = text(shown(journal.state));
  for (const seq of [journal.head - 1, 2, journal.head, 1, Math.ceil(journal.head / 2), journal.head - 2]) {
    if (seq < 1) continue;
    const there = text(shown(journal.at(seq))), again = text(shown(fold(events, seq)));
    if (there !== again) say(seq, "slider", again, there);
  }
  if (text(shown(journal.state)) !== last) say(journal.head, "slider changed the newest state", null, null);
}
console.log(JSON.stringify({ prefixes, wrong }));

// A chat with @ag-ui/client: each line on stdin is one run, each line on stdout what the client has after it. With
// `at` and `then`, it does something at the first event of a type: abort the run, cancel its task, or tell of it.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.TREADLE_PROTOCOLS}/`);
const { HttpAgent } = require("@ag-ui/client");

process.on("unhandledRejection", () => {}); // of a stream that was cut; its run is rejected too
console.error = () => {};

let agent;
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const headers = { Authorization: "Bearer ann" };
  if (asked.threadId) agent = new HttpAgent({ url: asked.url, headers, threadId: asked.threadId });
  agent.url = asked.url;
  if (asked.message) agent.addMessage(asked.message);
  const events = [];
  const after = {};
  let error = null;
  const subscriber = {
    onEvent({ event }) {
      events.push(event);
      if (event.type !== asked.at) return;
      asked.at = null;
      if (asked.then === "abort") agent.abortRun();
      if (asked.then === "tell") console.log(JSON.stringify(event));
      if (asked.then === "cancel") {
        const url = new URL(`/v1/tasks/${asked.runId}/cancel`, asked.url);
        void fetch(url, { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: "{}" });
      }
    },
    onRunFinishedEvent({ event }) {
      after.outcome = event.outcome;
      after.result = event.result;
    },
  };
  try {
    const { runId, tools, resume } = asked;
    await agent.runAgent({ runId, tools, resume }, subscriber);
  } catch (failed) {
    error = String(failed);
  }
  const pending = agent.pendingInterrupts;
  console.log(JSON.stringify({ events, messages: agent.messages, pending, error, ...after }));
}

// The official client `openai`: each line on stdin is one call, each line on stdout what came of it. With `at`, it tells
// of the first event of a type, before it reads on.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.TREADLE_PROTOCOLS}/`);
const { OpenAI } = require("openai");

function called({ responses }, { call, id, body, query, key }) {
  const options = key ? { headers: { "Idempotency-Key": key } } : {};
  if (call === "create") return responses.create(body, options);
  if (call === "retrieve") return responses.retrieve(id, query ?? {});
  return responses[call](id);
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const client = new OpenAI({ baseURL: `${asked.url}/v1`, apiKey: "ann", maxRetries: 0 });
  const events = [];
  let [response, error] = [null, null];
  try {
    const result = await called(client, asked);
    if (result?.controller) {
      for await (const event of result) {
        events.push(event);
        if (event.type === asked.at) {
          asked.at = null;
          console.log(JSON.stringify(event));
        }
      }
      response = events.at(-1)?.response ?? null;
    } else {
      response = result ?? null;
    }
  } catch (failed) {
    error = { name: failed.constructor.name, message: String(failed), code: failed.code, param: failed.param };
  }
  console.log(JSON.stringify({ events, response, error, text: response?.output_text ?? null }));
}

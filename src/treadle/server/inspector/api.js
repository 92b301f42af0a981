// The server: the token, requests, and one stream for the whole page.
import { signal } from "@preact/signals";
import { exact } from "./format.js";

const BASE = new URL("v1/", new URL(".", location.href)).pathname;
const TOKEN = "treadle-token";

/** The state of the link that opened this page: `entering`, `refused`, `spent` for a code, or nothing. */
export const door = signal("");

/** The token of this tab. The link that opens the page has it, or a one-time code for it; both leave the address at once. */
export const token = signal(takeToken());

function takeToken() {
  const found = /[#&](token|code)=([^&]+)/.exec(location.hash);
  if (!found) return sessionStorage.getItem(TOKEN) || "";
  const given = decodeURIComponent(found[2]), place = location.hash.replace(found[0], "") || "#/";
  history.replaceState(null, "", location.pathname + location.search + place);
  if (found[1] === "code") {
    door.value = "entering";
    void enter(given);
    return "";
  }
  sessionStorage.setItem(TOKEN, given);
  return given;
}

/** Exchange a one-time code for the token. @param {string} code */
async function enter(code) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(`${BASE}../inspector/enter`, { method: "POST", headers, body: JSON.stringify({ code }) }).catch(() => null);
  door.value = answer?.ok ? "" : "spent";
  signIn(answer?.ok ? (await answer.json()).token : sessionStorage.getItem(TOKEN) || "");
}

/** Forget a token that the server refused. */
function refuse() {
  if (token.value) door.value = "refused";
  signIn("");
}

/** Sign in with another token; "" signs out. @param {string} given */
export function signIn(given) {
  sessionStorage.setItem(TOKEN, given);
  token.value = given;
}

/** A request that the server refused; `problem` is its problem document. */
export class Refused extends Error {
  /** @param {number} status @param {any} problem */
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** The task has events that the person had not seen. */
export class Moved extends Error {
  /** @param {number} head  its last event */
  constructor(head) {
    super("The task went on meanwhile. Look at what changed, then decide again.");
    this.head = head;
  }
}

/**
 * Send a request and return its JSON; null if it has none.
 * @param {string} path  below `/v1/`
 * @param {any} [body]  with a body it is a POST
 * @param {Record<string, string>} [headers]
 */
export const call = (path, body, headers = {}) => send(body === undefined ? "GET" : "POST", path, body, headers);

/** Return JSON in which each number that JavaScript would round is its text: people decide about exact numbers. @param {string} path  below `/v1/` */
export const callExact = (path) => send("GET", path, undefined, {}, exact);

/** Delete the resource of a path. @param {string} path  below `/v1/` */
export const remove = (path) => send("DELETE", path, undefined, {});

/** @param {string} method @param {string} path @param {any} body @param {Record<string, string>} headers @param {any} [reviver]  of the JSON */
async function send(method, path, body, headers, reviver) {
  const sent = { Authorization: `Bearer ${token.value}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers };
  const answer = await fetch(BASE + path, {
    method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
  });
  const isJson = answer.headers.get("content-type")?.includes("json");
  const data = isJson ? JSON.parse(await answer.text(), reviver) : null;
  if (answer.status === 401) refuse();
  if (!answer.ok) throw new Refused(answer.status, data);
  return data;
}

/** Return a key that makes repeated requests one. */
export function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The waits before a command is sent again, in milliseconds. */
const AGAIN = [250, 500, 1000, 2000, 4000];

/**
 * Send a command. While the server cannot be reached, it is sent again with the same key, so it is carried out once.
 * @param {string} path @param {any} body @param {Record<string, string>} headers
 */
export async function command(path, body, headers) {
  const key = randomKey();
  for (const wait of AGAIN) {
    try {
      return await call(path, body, { "Idempotency-Key": key, ...headers });
    } catch (error) {
      if (error instanceof Refused) throw error;
      await new Promise((done) => setTimeout(done, wait));
    }
  }
  throw new Error("The server cannot be reached. Nothing tells whether it has carried this out.");
}

/** Return the path of a task. @param {string} id */
export const taskPath = (id) => `tasks/${encodeURIComponent(id)}`;

/** How long frames are collected before the page draws them, in milliseconds. */
const COLLECT = 50;

/** The shortest and the longest wait before the stream is opened again, in milliseconds. */
const SOONEST = 250, LATEST = 8000;

/**
 * Follow a stream until it is closed; open it again whenever it ends. `take` gets the frames, at most 20 times a second.
 * @param {{query: () => string, take: (frames: [string, any][]) => void, tell: (state: string) => void}} how
 * @returns {() => void}  closes it
 */
export function follow({ query, take, tell }) {
  const stop = new AbortController();
  void keepFollowing(stop.signal, query, take, tell);
  return () => stop.abort();
}

/** @param {AbortSignal} stopped @param {() => string} query @param {(frames: [string, any][]) => void} take @param {(state: string) => void} tell */
async function keepFollowing(stopped, query, take, tell) {
  let wait = SOONEST;
  while (!stopped.aborted) {
    try {
      const headers = { Authorization: `Bearer ${token.value}`, Accept: "text/event-stream" };
      const answer = await fetch(BASE + query(), { headers, signal: stopped, cache: "no-store" });
      if (answer.status === 401) refuse();
      if (!answer.ok || !answer.body) throw new Refused(answer.status, null);
      tell("live");
      wait = SOONEST;
      await readFrames(answer.body, take);
    } catch {
      if (stopped.aborted) return;
    }
    tell("reconnecting");
    await new Promise((done) => setTimeout(done, wait * (0.7 + Math.random() * 0.6)));
    wait = Math.min(wait * 2, LATEST);
  }
}

/** @param {ReadableStream<Uint8Array>} body @param {(frames: [string, any][]) => void} take */
async function readFrames(body, take) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "", timer = 0;
  /** @type {[string, any][]} */
  let frames = [];
  const flush = () => {
    timer = 0;
    const collected = frames;
    frames = [];
    if (collected.length) take(collected);
  };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = /** @type {string} */ (parts.pop());
      for (const part of parts) {
        const frame = parsed(part);
        if (frame) frames.push(frame);
      }
      if (frames.length && !timer) timer = window.setTimeout(flush, COLLECT);
    }
  } finally {
    clearTimeout(timer);
    flush();
  }
}

/** Return the name and the data of a frame; null for a comment. @param {string} text @returns {[string, any] | null} */
function parsed(text) {
  let name = "", data = "";
  for (const row of text.split("\n")) {
    if (row.startsWith("event: ")) name = row.slice(7);
    else if (row.startsWith("data: ")) data += row.slice(6);
  }
  return name && data ? [name, JSON.parse(data)] : null;
}

// The doors: the way in, and notes on the limits of this server.
import { useState } from "preact/hooks";
import { door, signIn } from "./api.js";
import { safe } from "./format.js";
import { hasCode, me } from "./store.js";
import { shown, word } from "./task_state.js";
import { offered } from "./task_verbs.js";
import { html, Note } from "./ui.js";

export const Mark = () => html`<svg viewBox="0 0 32 32" width="18" height="18" aria-hidden="true">
  <rect width="32" height="32" rx="8" fill="#3657c8" />
  <path d="M7 21.500h18M16 21.500V10M9.500 10h13" fill="none" stroke="#fff" stroke-width="2.600" stroke-linecap="round" />
  <circle cx="16" cy="21.500" r="3" fill="#fff" /></svg>`;

export function SignIn() {
  const [text, setText] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!text.trim()) return;
    door.value = "";
    signIn(text.trim());
  };
  return html`<main class="signin"><form onSubmit=${submit}><div class="brand"><${Mark} />Treadle</div>
    <h1>Which token?</h1>
    <p class="q"><code>treadle inspect</code> and <code>treadle serve</code> print a link with it. It is
      also in <code>.treadle/server-token</code>, in the folder where the server was started.</p>
    ${door.value === "refused" && html`<${Note} tone="bad" icon="key">The server does not accept this token:
      it may have a new one.<//>`}
    ${door.value === "spent" && html`<${Note} tone="wait" icon="key">This link opens the page once, within a minute.
      Open it again with the command that printed it.<//>`}
    <label><span class="cap">Token</span>
      <input class="field mono" type="password" autocomplete="off" value=${text} onInput=${(/** @type {any} */ change) => setText(change.target.value)} /></label>
    <button class="btn main">Sign in</button><p class="qq">It stays in this tab, and goes to this server alone.</p></form></main>`;
}

/** The verbs that need an agent; none where the server has one. */
export function NoAgents() {
  if (!me.value || me.value.agents.length) return null;
  return html`<${Note} icon="eye">This server has no agents: you can look, decide, fork and undo.
    To run tasks and to compensate calls, start it with them: <code>treadle inspect module:agent</code>.<//>`;
}

/** The verbs that the open task lacks, if the server has no code of its agent. */
export function NoCode() {
  const { agent } = shown.value.state;
  if (hasCode(agent) || !(offered.value.has("run") || word.value === "waiting")) return null;
  return html`<${Note} icon="eye">This server lacks the code of <span class="mono">${safe(agent)}</span>. Decisions and “Run” are
    recorded. They take effect in a process with that code: <code>treadle inspect module:agent</code>.<//>`;
}

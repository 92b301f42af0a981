// The changes of a fork after the shared events, in words.
import { safe } from "./format.js";
import { html } from "./ui.js";

/** Return the changes of a fork, in a few words each. @param {any[]} changes */
export function changeWords(changes) {
  const words = changes.map(({ kind, text, tool }) => {
    if (kind === "input") return html`<span class="said">“${safe(text)}”</span>`;
    if (kind === "instructions") return html`instructions <span class="said">“${safe(text)}”</span>`;
    if (kind !== "result") return html`${kind} <span class="mono">${safe(text)}</span>`;
    return html`<span class="mono">${safe(tool)}</span> returned <span class="mono">${safe(text) || "nothing"}</span> instead`;
  });
  return words.map((part, at) => [at ? html`<span class="qq"> and </span>` : "", part]);
}

// Small parts of all views: icons, states, buttons with keys, JSON.
import { h } from "preact";
import htm from "htm";
import { safe } from "./format.js";
import { ICONS, STATES } from "./icons.js";

export const html = htm.bind(h);

/** Return the colour class of a state. @param {string} state */
export const toneOf = (state) => (STATES[state]?.[1] ? `c-${STATES[state][1]}` : "");

/** @param {{name: string, tone?: string}} props */
export function Icon({ name, tone = "" }) {
  const path = ICONS[name] || STATES[name]?.[0];
  return html`<svg class=${`ic ${tone && `c-${tone}`}`} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${path} /></svg>`;
}

/** A state by word, shape and colour. @param {{state: string, pill?: boolean, hide?: boolean}} props */
export function State({ state, pill, hide }) {
  return html`<span class=${`st ${pill ? "pill" : ""} ${toneOf(state)} s-${state.replace(" ", "-")}`}><${Icon} name=${state} /><span class=${hide ? "sr" : "word"}>${state}</span></span>`;
}

/** A button that shows its key. @param {any} props */
export function Act({ icon, label, keyName, main, onClick, href, disabled, title, submit }) {
  const inner = html`${icon && html`<${Icon} name=${icon} />`}<span>${label}</span>${keyName && html`<kbd aria-hidden="true">${keyName}</kbd>`}`;
  const shared = { class: `btn ${main ? "main" : ""}`, "aria-keyshortcuts": keyName, title };
  return href ? html`<a ...${shared} href=${href}>${inner}</a>` : html`<button type=${submit ? "submit" : "button"} ...${shared} disabled=${disabled} onClick=${onClick}>${inner}</button>`;
}

/** A tinted line about the whole view or a part of it. @param {any} props */
export function Note({ tone, icon, children }) {
  return html`<div class=${`note ${tone ? `c-${tone}` : ""}`} role=${tone === "bad" ? "alert" : undefined}><${Icon} name=${icon} /><div>${children}</div></div>`;
}

/** A note on an empty view; `whole` is in place of a whole view. @param {any} props */
export const Empty = ({ title, whole, children }) => html`<div class="empty">${whole ? html`<h1>${title}</h1>` : html`<h2>${title}</h2>`}<p>${children}</p></div>`;

/** A JSON value in a box. @param {{value: any}} props */
export function Json({ value }) {
  return html`<pre class="box" tabindex="0">${typeof value === "string" ? safe(value) : pretty(value, "")}</pre>`;
}

/** The most characters of an object or a list on one line. */
const FLAT = 48;

/** Whether a value fits on one line: without objects in it, and short. @param {any} value */
function isFlat(value) {
  if (value === null || typeof value !== "object" || "$cut" in value) return true;
  return Object.values(value).every((item) => item === null || typeof item !== "object") && JSON.stringify(value).length < FLAT;
}

/** Return a value that fits on one line. @param {any} value @returns {any} */
function flat(value) {
  if (typeof value === "string") return `"${safe(value)}"`;
  if (value === null || typeof value !== "object") return String(value);
  if ("$cut" in value) return html`"${safe(value.$cut.head)}…" <span class="k">${value.$cut.chars} characters</span>`;
  const isList = Array.isArray(value), [left, right] = isList ? "[]" : "{}";
  const items = Object.entries(value).map(([key, item], place) => [place ? ", " : "", isList ? "" : html`<span class="k">${safe(key)}: </span>`, flat(item)]);
  return [left, items, right];
}

/** Return a value as lines: names with their values, and items of lists after a dash. @param {any} value @param {string} pad @returns {any} */
function pretty(value, pad) {
  if (isFlat(value) && (pad || value === null || typeof value !== "object" || Array.isArray(value) || "$cut" in value || !Object.keys(value).length)) return flat(value);
  return Object.entries(value).map(([key, item], place) => {
    const head = Array.isArray(value) ? html`<span class="k">- </span>` : html`<span class="k">${safe(key)}: </span>`;
    const start = place ? `\n${pad}` : "";
    if (isFlat(item)) return [start, head, flat(item)];
    return Array.isArray(value) ? [start, head, pretty(item, `${pad}  `)] : [start, head, `\n${pad}  `, pretty(item, `${pad}  `)];
  });
}

/** An object as a table of names and values. @param {{of: Record<string, any>}} props */
export function Table({ of }) {
  return html`<div class="args">${Object.entries(of).map(([key, value]) => html`<div><span class="qq">${safe(key)}</span><span class="v">${typeof value === "string" ? safe(value) : safe(JSON.stringify(value))}</span></div>`)}</div>`;
}

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
export function Act({ icon, label, keyName, main, onClick, href, disabled, title }) {
  const inner = html`${icon && html`<${Icon} name=${icon} />`}<span>${label}</span>${keyName && html`<kbd aria-hidden="true">${keyName}</kbd>`}`;
  const shared = { class: `btn ${main ? "main" : ""}`, "aria-keyshortcuts": keyName, title };
  return href ? html`<a ...${shared} href=${href}>${inner}</a>` : html`<button type="button" ...${shared} disabled=${disabled} onClick=${onClick}>${inner}</button>`;
}

/** A tinted line about the whole view or a part of it. @param {any} props */
export function Note({ tone, icon, children }) {
  return html`<div class=${`note ${tone ? `c-${tone}` : ""}`} role=${tone === "bad" ? "alert" : undefined}><${Icon} name=${icon} /><div>${children}</div></div>`;
}

/** What will appear here, and how. @param {any} props */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;

/** A JSON value in a box. @param {{value: any}} props */
export function Json({ value }) {
  return html`<pre class="box" tabindex="0">${typeof value === "string" ? safe(value) : pretty(value, "")}</pre>`;
}

const FLAT = 46;

/** Whether a value fits on one line. @param {any} value */
function isFlat(value) {
  const items = Object.values(value);
  return items.every((item) => item === null || typeof item !== "object") && JSON.stringify(value).length < FLAT;
}

/** @param {any} value @param {string} pad @returns {any} */
function pretty(value, pad) {
  if (typeof value === "string") return `"${safe(value)}"`;
  if (value === null || typeof value !== "object") return String(value);
  if ("$cut" in value) return html`"${safe(value.$cut.head)}…" <span class="k">${value.$cut.chars} characters</span>`;
  const isList = Array.isArray(value), entries = Object.entries(value);
  if (!entries.length) return isList ? "[]" : "{}";
  const name = (/** @type {string} */ key) => (isList ? "" : html`<span class="k">${safe(key)}: </span>`);
  if (isFlat(value)) {
    const parts = entries.map(([key, item], place) => [place ? ", " : "", name(key), pretty(item, "")]);
    return isList ? ["[", parts, "]"] : pad ? ["{ ", parts, " }"] : entries.map(([key, item], place) => [place ? "\n" : "", name(key), pretty(item, "")]);
  }
  const inner = isList ? `${pad}  ` : pad;
  const rows = entries.map(([key, item], place) => {
    const below = !isList && item !== null && typeof item === "object" && Object.keys(item).length && !isFlat(item);
    return [place || isList ? `\n${inner}` : pad && place === 0 ? "" : "", name(key), below ? `\n${pad}  ` : "", pretty(item, below ? `${pad}  ` : inner || " ")];
  });
  return isList ? ["[", rows, `\n${pad}]`] : rows;
}

/** An object as a table of names and values. @param {{of: Record<string, any>}} props */
export function Table({ of }) {
  return html`<div class="args">${Object.entries(of).map(([key, value]) => html`<div><span class="qq">${safe(key)}</span><span class="v">${typeof value === "string" ? safe(value) : safe(JSON.stringify(value))}</span></div>`)}</div>`;
}

// The changes of a person in the arguments of a call, in a few words. Pure.
import { line, safe } from "./format.js";

/** The most characters of a value. */
const VALUE = 60;

/** @param {any} value */
function short(value) {
  if (value === undefined) return "none";
  const text = value === "" ? '""' : value === null ? "null" : line(value);
  return text.length > VALUE ? `${text.slice(0, VALUE)}…` : text;
}

/**
 * Return the changed arguments, each with its value before and after: `cents 4000 → 3000`.
 * @param {any} before @param {any} after
 */
export function changedArguments(before, after) {
  if (!before || !after || typeof before !== "object" || typeof after !== "object") return "";
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  return changed.map((name) => `${safe(name)} ${short(before[name])} → ${short(after[name])}`).join(", ");
}

/** Return how a person approved a call with other arguments. @param {string} by @param {any} before @param {any} after */
export function approvedWith(by, before, after) {
  const changes = changedArguments(before, after);
  return `approved with changes${by && by !== "user" ? ` by ${safe(by)}` : ""}${changes && `: ${changes}`}`;
}

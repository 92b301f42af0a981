// The request for sums of usage, from the query of an address; and the lines of a report as bars. Pure.

const DAY = 864e5;

/** The periods that have a name: their word in the address, their name, and their days with today. @type {[string, string, number][]} */
export const PERIODS = [["", "All time", 0], ["today", "Today", 1], ["7d", "7 days", 7], ["30d", "30 days", 30]];

/** Return the beginning of a day, UTC, in milliseconds; NaN for another text. @param {string} text */
const dayOf = (text) => (/^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : NaN);

/** Return a day, UTC. @param {number} ms */
export const dayText = (ms) => new Date(ms).toISOString().slice(0, 10);

const startOf = (/** @type {number} */ ms) => `${dayText(ms)}T00:00:00Z`;

/**
 * Return the period of an address as days, the last one included; "" for no bound.
 * @param {URLSearchParams} query @param {number} now  milliseconds
 */
export function periodOf(query, now) {
  const days = PERIODS.find(([word]) => word && word === query.get("period"))?.[2];
  if (days) return { from: dayText(now - (days - 1) * DAY), to: "" };
  const valid = (/** @type {string | null} */ text) => (text && !Number.isNaN(dayOf(text)) ? text : "");
  return { from: valid(query.get("from")), to: valid(query.get("to")) };
}

/** Return the key of the sums. @param {URLSearchParams} query */
export function groupOf(query) {
  const by = query.get("by") || "";
  return ["agent", "day", "model"].includes(by) || (by.startsWith("label:") && by !== "label:") ? by : "agent";
}

/** Return the filter for a label, as its name and its text. @param {URLSearchParams} query @returns {[string, string] | null} */
export function labelOf(query) {
  const text = query.get("label") || "", at = text.indexOf("=");
  return at > 0 ? [text.slice(0, at), text.slice(at + 1)] : null;
}

/** Return the query of the request. @param {URLSearchParams} query @param {number} now  milliseconds */
export function usageQuery(query, now) {
  const { from, to } = periodOf(query, now), asked = new URLSearchParams({ by: groupOf(query) }), label = labelOf(query);
  if (from) asked.set("since", startOf(dayOf(from)));
  if (to) asked.set("until", startOf(dayOf(to) + DAY));
  if (query.get("agent")) asked.set("agent", /** @type {string} */ (query.get("agent")));
  if (label) asked.set("labels", label.join("="));
  return asked;
}

/** The most days that get a bar each, those without a task too. */
const MOST_DAYS = 92;

/**
 * Return the lines of a report with their part of the whole, 0 to 1: of the cost, or of the tokens where nothing has a
 * cost. Days without tasks get a line. `bar` is relative to the largest line.
 * @param {{by: string, lines: any[]}} report
 */
export function barsOf({ by, lines }) {
  const list = by === "day" ? everyDay(lines) : lines;
  const hasCost = list.some((line) => Number(line.cost) > 0);
  const sizes = list.map((line) => (hasCost ? Number(line.cost) : line.tokens));
  const all = sizes.reduce((sum, size) => sum + size, 0), most = Math.max(...sizes, 0);
  return list.map((line, at) => ({ line, part: all ? sizes[at] / all : 0, bar: most ? sizes[at] / most : 0 }));
}

/** @param {any[]} lines */
function everyDay(lines) {
  if (!lines.length) return lines;
  const first = dayOf(lines[0].key), last = dayOf(lines[lines.length - 1].key), known = new Map(lines.map((line) => [line.key, line]));
  if (!(last - first < MOST_DAYS * DAY)) return lines;
  const days = [];
  for (let at = first; at <= last; at += DAY)
    days.push(known.get(dayText(at)) || { key: dayText(at), tasks: 0, tokens: 0, cost: "0", unpriced: 0 });
  return days;
}

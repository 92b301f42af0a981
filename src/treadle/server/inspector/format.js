// Numbers, times and recorded text as people read them. Pure.

const THIN = "\u202f";

/** Return a duration in milliseconds, with at most three significant digits. @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "";
  if (ms < 1) return ms <= 0 ? "0" : "<1 ms";
  if (ms < 1e3) return `${Math.round(ms)} ms`;
  if (ms < 6e4) return `${(ms / 1e3).toFixed(ms < 1e4 ? 2 : 1)} s`;
  if (ms < 36e5) return `${Math.floor(ms / 6e4)} min ${Math.floor((ms % 6e4) / 1e3)} s`;
  if (ms < 864e5) return `${Math.floor(ms / 36e5)} h ${Math.floor((ms % 36e5) / 6e4)} min`;
  return `${Math.floor(ms / 864e5)} d ${Math.floor((ms % 864e5) / 36e5)} h`;
}

/** Return the mark of an axis: short, without trailing zeros. @param {number} ms */
export function mark(ms) {
  if (ms === 0) return "0";
  if (ms < 1e3) return `${ms} ms`;
  return ms < 6e4 ? `${ms / 1e3} s` : duration(ms).replace(/ 0 [a-z]+$/, "");
}

/** Return an amount of money; decimal text from the server. @param {string | number | null | undefined} amount */
export function money(amount) {
  if (amount === null || amount === undefined) return "–";
  const value = Number(amount);
  if (Number.isInteger(value)) return `$${count(value)}`;
  if (value < 0.01) return `$${value.toFixed(4)}`;
  return value < 10 ? `$${value.toFixed(3)}` : `$${count(value.toFixed(2))}`;
}

/** Return a number with thin spaces between thousands. @param {number | string | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return "–";
  const [whole, part] = String(value).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, THIN) + (part ? `.${part}` : "");
}

/** Return how long ago a time was, in one unit. @param {number | null | undefined} time  microseconds @param {number} now  milliseconds */
export function ago(time, now) {
  if (!time) return "";
  const ms = now - time / 1e3;
  if (ms < 6e4) return "now";
  if (ms < 36e5) return `${Math.floor(ms / 6e4)} min`;
  return ms < 864e5 ? `${Math.floor(ms / 36e5)} h` : `${Math.floor(ms / 864e5)} d`;
}

/** Return the time of day with milliseconds. @param {number} time  microseconds */
export function clock(time) {
  const date = new Date(time / 1e3), two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** Return the date and the time of day. @param {number} time  microseconds */
export function moment(time) {
  const date = new Date(time / 1e3);
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${clock(time).slice(0, 8)}`;
}

// Characters that change the order of others or are not seen: recorded text cannot pose as something else.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;

/** Return recorded text with its hidden characters as visible marks. @param {any} text @returns {string} */
export function safe(text) {
  return String(text ?? "").replace(HIDDEN, (sign) => `⟨U+${/** @type {number} */ (sign.codePointAt(0)).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Return a JSON value on one line, for a row. @param {any} value @returns {string} */
export function line(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return safe(value);
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return safe(JSON.stringify(value));
  return Object.values(value).map((each) => (typeof each === "string" ? safe(each) : safe(JSON.stringify(each)))).join(", ");
}

/** Return a number with its noun. @param {number} number @param {string} noun */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A reviver of JSON: a whole number that JavaScript would round stays text. @param {string} _key @param {any} value @param {{source?: string}} [context] */
export function exact(_key, value, context) {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && /^-?\d+$/.test(context?.source || "") ? context?.source : value;
}

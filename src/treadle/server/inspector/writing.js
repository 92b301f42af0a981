// Answers that models are writing, from the deltas of a stream. Pure.

/**
 * @typedef {object} Writing
 * @property {string} text
 * @property {string} thinking
 * @property {{tool: string, text: string}[]} calls  the calls that it writes, in their order
 * @property {Record<string, number>} at  characters by channel
 * @property {boolean} isLate  whether the page came after the first characters
 */

/** @type {Writing} */
export const NOTHING = { text: "", thinking: "", calls: [], at: {}, isLate: false };

/**
 * Return the texts with one more delta. A delta counts the characters before it, so a page that came late knows.
 * @param {Record<string, Writing>} texts  by step
 * @param {any} delta
 */
export function withDelta(texts, delta) {
  const { step, channel, text, index = 0, tool = "" } = delta, at = delta.at || 0;
  const known = texts[step] || NOTHING, key = channel === "arguments" ? `${channel} ${index}` : channel;
  const before = known.at[key] || 0;
  if (at < before) return texts; // it is here already
  const next = { ...known, at: { ...known.at, [key]: at + text.length }, isLate: known.isLate || at > before };
  if (channel === "reasoning") next.thinking += text;
  else if (channel !== "arguments") next.text += text;
  else {
    const call = known.calls[index] || { tool: "", text: "" };
    next.calls = [...known.calls];
    next.calls[index] = { tool: call.tool + tool, text: call.text + text };
  }
  return { ...texts, [step]: next };
}

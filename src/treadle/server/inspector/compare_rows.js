// The common steps and the differences of two tasks, as rows. Pure.

/** The most shared steps that are drawn one by one; of more, only the last ones are. */
const SHOWN = 12, LAST = 3;

/**
 * @typedef {object} Pair  the steps at one place
 * @property {number} index
 * @property {string | null} a
 * @property {string | null} b
 * @property {boolean} shared  whether it ran once, for both
 * @property {string[]} fields  the names of the differing fields
 */

/**
 * @typedef {object} CompareRow
 * @property {"fold" | "same" | "differ"} kind
 * @property {number} from  its first step
 * @property {number} to  its last step
 * @property {Pair | null} pair
 */

/** Whether nothing differs. @param {Pair} pair */
const isSame = (pair) => pair.fields.length === 0;

/** Return the number of steps before the first one that is not the same in both. @param {Pair[]} pairs */
export function sharedSteps(pairs) {
  const first = pairs.findIndex((pair) => !pair.shared || !isSame(pair));
  return first < 0 ? pairs.length : first;
}

/** Return how many steps need no content: those before the last shared ones. @param {Pair[]} pairs */
export function skippedSteps(pairs) {
  const shared = sharedSteps(pairs);
  return shared > SHOWN ? shared - LAST : 0;
}

/** Return the rows of a comparison. @param {Pair[]} pairs @returns {CompareRow[]} */
export function compareRows(pairs) {
  const skipped = skippedSteps(pairs);
  const rows = skipped ? [{ kind: /** @type {const} */ ("fold"), from: 1, to: skipped, pair: null }] : [];
  return [...rows, ...pairs.slice(skipped).map((pair) => {
    const kind = isSame(pair) ? /** @type {const} */ ("same") : /** @type {const} */ ("differ");
    return { kind, from: pair.index, to: pair.index, pair };
  })];
}

/**
 * Return a text in three parts: the common beginning, the difference and the common end; cut between words.
 * @param {string} text @param {string} other @returns {[string, string, string]}
 */
export function changedPart(text, other) {
  if (text === other) return [text, "", ""];
  const ours = words(text), theirs = words(other), most = Math.min(ours.length, theirs.length);
  let start = 0, end = 0;
  while (start < most && ours[start] === theirs[start]) start += 1;
  while (end < most - start && ours.at(-1 - end) === theirs.at(-1 - end)) end += 1;
  const parts = [ours.slice(0, start), ours.slice(start, ours.length - end), ours.slice(ours.length - end)];
  return /** @type {[string, string, string]} */ (parts.map((part) => part.join("")));
}

const words = (/** @type {string} */ text) => text.match(/\s+|[^\s]+/g) || [];

/** Names of fields, and of those of a call. @type {Record<string, string>} */
const OF_STEP = { input: "the input", text: "the text", calls: "the calls", output: "the output", status: "the status" };
/** @type {Record<string, string>} */
const OF_CALL = { outcome: "the outcome of a call", output: "the result of a call", changes: "the state" };

/** Return the names of fields as people read them, each once. @param {string[]} fields */
export function fieldWords(fields) {
  const names = fields.map((field) => {
    const [name, id] = field.split(" of ");
    return (id ? OF_CALL : OF_STEP)[name] || name;
  });
  return [...new Set(names)].join(", ");
}

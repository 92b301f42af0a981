// The events of a person's own verbs, which the stream brings a moment after the answer: they are no surprise.

/** How long the stream may take for such an event, in milliseconds. */
const OWN = 1500;
let own = { journal: /** @type {any} */ (null), head: 0, until: 0 };

/** A verb was carried out, of which the journal has no event yet. @param {any} journal @param {number} head  its last event */
export function awaitOwn(journal, head) {
  if (journal.head === head) own = { journal, head, until: Date.now() + OWN };
}

/** Return the event after which the person decides, once the event of their verb before is here. @param {any} journal @param {number} head */
export async function withOwn(journal, head) {
  const isSoon = () => Date.now() < own.until;
  if (own.journal !== journal || own.head !== head || !isSoon()) return head;
  while (journal.head === head && isSoon()) await new Promise((done) => setTimeout(done, 20));
  return journal.head;
}

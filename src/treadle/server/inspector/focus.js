// The focus of a person, kept when the element that has it goes away: the browser would forget it.

/** The ancestors of the element that had the focus last, itself first. @type {Element[]} */
let trail = [];

/** What may take the focus in a part of the page, in this order: nothing that Enter would press. */
const HOLDERS = "[role=tabpanel], [role=listbox]";

/** @param {Element} element */
function ancestorsOf(element) {
  const found = [];
  for (let at = /** @type {Element | null} */ (element); at; at = at.parentElement) found.push(at);
  return found;
}

/** Give the focus to what is nearest to the place of an element that has gone. */
function restore() {
  if (!trail.length || trail[0].isConnected || document.querySelector("dialog[open]")) return;
  const places = trail.filter((each) => each.isConnected);
  trail = [];
  if (document.activeElement && document.activeElement !== document.body) return;
  for (const place of places) {
    const holder = place.matches(HOLDERS) ? place : place.querySelector(HOLDERS);
    if (!holder) continue;
    /** @type {HTMLElement} */ (holder).focus({ preventScroll: true });
    return;
  }
}

/** Keep the focus of the page from now on. */
export function keepFocus() {
  addEventListener("focusin", (event) => {
    trail = ancestorsOf(/** @type {Element} */ (event.target));
  });
  addEventListener("pointerdown", () => (trail = [])); // a click beside the element gives the focus away
  new MutationObserver(restore).observe(document.body, { childList: true, subtree: true });
}

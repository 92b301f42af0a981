// The focus of a person: kept when the element that has it goes away, and brought into a view that a key opens.

/** The ancestors of the element that had the focus last, itself first. @type {Element[]} */
let trail = [];

/** The elements that may take the focus in a part of the page, in this order: none that Enter would press. */
const HOLDERS = "[role=tabpanel], [role=listbox]";

/** @param {Element} element */
function ancestorsOf(element) {
  const found = [];
  for (let at = /** @type {Element | null} */ (element); at; at = at.parentElement) found.push(at);
  return found;
}

/** The id of the element that gets the focus next, and the element that has the focus until it is drawn. */
let wanted = "", from = /** @type {Element | null} */ (null);

/** Give the focus to an element as soon as the page has drawn it, unless the person moves it before. @param {string} id */
export function focusSoon(id) {
  const at = /** @type {HTMLElement | null} */ (document.activeElement);
  if (at?.closest("nav")) at.blur(); // it leads to another view
  wanted = id;
  from = document.activeElement;
  grant();
}

/** Whether an element waits for the focus. @param {string} id */
export const isAwaited = (id) => wanted === id;

function grant() {
  const element = wanted ? document.getElementById(wanted) : null, at = document.activeElement;
  if (at !== from && at && at !== document.body) wanted = "";
  if (!element || !wanted) return;
  wanted = "";
  element.focus({ preventScroll: true });
}

/** Give the focus to the element nearest to the place of one that has gone. */
function restore() {
  grant();
  if (wanted || !trail.length || trail[0].isConnected || document.querySelector("dialog[open]")) return;
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
  addEventListener("pointerdown", () => {
    trail = []; // a click beside the element gives the focus away
    wanted = "";
  });
  new MutationObserver(restore).observe(document.body, { childList: true, subtree: true });
}

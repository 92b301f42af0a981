// The address of a place in the page. It can be shared: `#/t/ID?at=20&sel=s2-0` is a task at its event 20, with a call.
import { computed, signal } from "@preact/signals";

const address = signal(location.hash);
addEventListener("hashchange", () => (address.value = location.hash));

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The view, its task and its further part, and the query. */
export const place = computed(() => {
  const [path, query = ""] = (address.value || "#/").split("?");
  const [, view = "", task = "", part = ""] = path.split("/").map(decoded);
  return { view, task, part, query: new URLSearchParams(query) };
});

/** The view; changes of the query change nothing here. */
export const view = computed(() => place.value.view);

/** The id of the task whose view is open; "" without one. */
export const taskShown = computed(() => (place.value.view === "t" ? place.value.task : ""));

/** Return the address of a task. @param {string} id @param {Record<string, string | number | null>} [query] */
export function taskLink(id, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== "");
  const text = given.map(([name, value]) => `${name}=${encodeURIComponent(/** @type {string} */ (value))}`).join("&");
  return `#/t/${encodeURIComponent(id)}${text ? `?${text}` : ""}`;
}

/** Go to an address, at once: its event comes later. @param {string} hash */
export function go(hash) {
  location.hash = hash;
  address.value = location.hash;
}

/** Put the present place of a view into the address, without an entry in the history. @param {string} hash */
export function rename(hash) {
  if (hash === location.hash) return;
  history.replaceState(null, "", hash);
  address.value = hash;
}

/**
 * Return the entry of a table for a name of an address: no name leads to an attribute of all objects.
 * @template T
 * @param {Record<string, T>} table @param {string} name
 */
export const ownOf = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

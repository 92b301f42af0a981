// The frame of all dialogs, the list of keys, and the list of the verbs that a task takes now.
import { useEffect, useRef } from "preact/hooks";
import { CallArguments } from "./dialog_call.js";
import { Fork } from "./dialog_fork.js";
import { noteSeen, shut } from "./dialog_parts.js";
import { Undo } from "./dialog_undo.js";
import { Cancel, Message, NextInput, RunTo, Skip } from "./dialog_words.js";
import { KEYS } from "./keys.js";
import { dialog } from "./task_state.js";
import { offered, VERBS, worded } from "./task_verbs.js";
import { Act, html, Icon } from "./ui.js";

/** Dialogs by their names. @type {Record<string, (props: any) => any>} */
const DIALOGS = {
  keys: Keys, more: More, undo: Undo, fork: Fork, send: Message, words: NextInput, call: CallArguments, until: RunTo,
  skip: Skip, cancel: Cancel,
};

export function Dialog() {
  const asked = typeof dialog.value === "string" ? { name: dialog.value } : dialog.value;
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    if (!asked || box.current?.open) return;
    noteSeen();
    box.current?.showModal();
  }, [asked?.name]);
  const Inside = asked && DIALOGS[asked.name];
  if (!Inside) return null;
  const onClick = (/** @type {any} */ event) => event.target === box.current && shut();
  const value = dialog.value; // a dialog may open another one before its own event of closing
  const onClose = () => void (dialog.value === value && (dialog.value = null));
  return html`<dialog ref=${box} key=${asked.name} aria-labelledby="dialog-t" onClose=${onClose} onClick=${onClick}>
    <${Inside} asked=${asked} /></dialog>`;
}

function Keys() {
  return html`<h2 class="dialog-t" id="dialog-t" tabindex="-1" autofocus>Keys</h2>
    <div class="keys">${KEYS.map(([title, rows]) => html`<section key=${title}><h3 class="cap">${title}</h3><dl>
      ${rows.map(([keys, text]) => html`<dt key=${text}>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${text}</dd>`)}
    </dl></section>`)}</div>
    <div class="answer"><${Act} label="Close" keyName="Esc" onClick=${shut} /></div>`;
}

/** All verbs that the open task takes now, each with its meaning. */
function More() {
  const verbs = VERBS.filter((verb) => offered.value.has(verb.name)).map(worded);
  const choose = (/** @type {() => void} */ act) => () => {
    shut();
    queueMicrotask(() => {
      dialog.value = null;
      act();
    });
  };
  return html`<h2 class="dialog-t" id="dialog-t">Actions</h2>
    <div class="verbs">${verbs.map((verb) => html`<button type="button" key=${verb.name} class="verb" onClick=${choose(verb.act)}>
      <${Icon} name=${verb.icon} /><b>${verb.label}</b><span class="q">${verb.says}</span><kbd aria-hidden="true">${verb.key}</kbd></button>`)}</div>`;
}

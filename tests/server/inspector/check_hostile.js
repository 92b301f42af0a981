// What of hostile texts a page took for more than text, or shows without the characters that hide. An expression: a function
// that returns what is wrong, as lines.
() => {
  const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]|\udb40/;
  const wrong = [...faults.splice(0)], has = (element, what) => wrong.push(`${what} in ${element.outerHTML.slice(0, 80)}`);
  if ("owned" in window) wrong.push("a script ran");
  const odd = "script, iframe, object, embed, base, style, link, meta, video, audio, template, math, form[action]";
  const mayHide = /^(href|value|id|for|aria-(activedescendant|controls|labelledby))$/, leads = /^(href|src|action|formaction)$/;
  for (const element of document.querySelectorAll("body *")) {
    if (element.matches(odd)) has(element, "markup");
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on")) has(element, "a handler");
      if (leads.test(name) && !/^(#|blob:|\.?\/?inspector\/)/.test(value)) has(element, `the address ${value.slice(0, 80)}`);
      if (!mayHide.test(name) && HIDDEN.test(value)) has(element, `hidden characters of ${name}`);
    }
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement, data } = texts.currentNode;
    if (HIDDEN.test(data) && !parentElement.closest("textarea, noscript")) has(parentElement, "hidden characters");
  }
  if (HIDDEN.test(document.title)) wrong.push("hidden characters in the title");
  return [...new Set(wrong)];
}

// Walks through a view of the page as a person does who looks at everything, and checks it at each stop.
//
// An expression: a function of a check and of limits. The check is a function that returns what is wrong, as lines.
(() => {
  /** Wait until the page has nothing to read and has not changed for a moment. */
  const settled = () =>
    new Promise((done) => {
      const began = performance.now();
      let last = began;
      const watcher = new MutationObserver(() => (last = performance.now()));
      watcher.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
      const look = () => {
        const now = performance.now(), reads = /Reading|Looking/.test(document.body.textContent);
        if (now - began > 5000 || (now - last > 60 && !reads)) {
          watcher.disconnect();
          done();
        } else setTimeout(look, 20);
      };
      look();
    });

  const all = (selector) => [...document.querySelectorAll(selector)];
  const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

  /**
   * @param {string} address
   * @param {(stop: string) => string[] | Promise<string[]>} check
   * @param {{options: number, dialogs: string}} limits  rows of each list, and the keys that open dialogs
   */
  return async function walk(address, check, { options = 3, dialogs = "" } = {}) {
    const stops = [], wrong = [];
    const stop = async (name) => {
      await settled();
      stops.push(name);
      wrong.push(...(await check(`${address} ${name}`)).map((fault) => `${address} ${name}: ${fault}`));
    };
    const visitTabs = async (name) => {
      const tabs = all("main [role=tab]").length;
      for (let place = 0; place < tabs; place += 1) {
        const tab = all("main [role=tab]")[place];
        if (!tab) break;
        tab.click();
        await settled();
        for (const fold of all("main details:not([open])")) fold.open = true;
        all("main [role=tabpanel] [aria-expanded=false]")[0]?.click();
        await stop(`${name} ${tab.textContent}`);
      }
    };
    const at = location.hash.split("?")[0];
    await stop("as opened");
    const rows = () => all("main [role=listbox] [role=option]:not(a)");
    const count = Math.min(rows().length, options);
    for (let place = 0; place < count && location.hash.split("?")[0] === at; place += 1) {
      const row = rows()[place];
      row?.click();
      await stop(`row ${place + 1}`);
      await visitTabs(`row ${place + 1}`);
    }
    if (!count) await visitTabs("");
    for (const key of dialogs) {
      document.activeElement.blur();
      press(key);
      await settled();
      if (!document.querySelector("dialog[open]")) continue;
      await stop(`dialog ${key}`);
      document.querySelector("dialog[open]")?.close();
      await settled();
    }
    return { stops, wrong };
  };
})()

// What a test waits for in the search box of an open page: each promise is kept when the list changes, never by a time.
(() => {
  const input = document.querySelector('[data-md-component="search-query"]');
  const says = document.querySelector(".md-search-result__meta");
  const list = document.querySelector(".md-search-result__list");
  const until = (holds) => new Promise((resolve) => {
    if (holds()) return resolve();
    const observer = new MutationObserver(() => {
      if (holds()) { observer.disconnect(); resolve(); }
    });
    observer.observe(says, { childList: true, characterData: true, subtree: true });
  });
  const beginning = says.textContent; // "Initializing search"
  let empty; // "Type to start searching"
  window.searchBox = {
    async open() { input.focus(); await until(() => says.textContent !== beginning); empty = says.textContent; },
    async found() {
      await until(() => says.textContent !== empty);
      return [...list.querySelectorAll(".md-search-result__item > .md-search-result__link")].map((link) => link.href);
    },
    select() { input.select(); },
    async cleared() { await until(() => says.textContent === empty); },
  };
})()

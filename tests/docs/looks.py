"""Looks at pages of the built site in Chromium, as a reader sees them: a page of each type, on a screen and on a phone.

What it finds is a line of the report of `make site`: a page wider than its window, code of which 80 characters do
not fit, text of too little contrast, a control that shows no focus.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.docs.browser import Browser, chromium
from tests.docs.search import lost_in_a_browser

PAGES = (
    "index.html",
    "guide/approvals.html",
    "guide/which-verb.html",
    "guide/concepts.html",
    "how-to/web-app.html",
    "examples/what_if.html",
    "coming-from/langgraph.html",
    "reference/runner.html",
    "reference/runner/undo-and-fork.html",
    "reference/http.html",
    "decisions/index.html",
    "project/changelog.html",
)
"""A page of each type."""
SIZES = ((1440, 900), (1280, 800), (390, 844))
"""Width and height of the windows, in pixels."""
FOCUS = """(() => {
  const style = getComputedStyle(document.activeElement.matches(".md-option")
    ? document.activeElement.nextElementSibling : document.activeElement);
  const what = document.activeElement.outerHTML.slice(0, 60);
  return style.outlineStyle === "none" || style.outlineWidth === "0px" ? what : null;
})()"""
"""Says which element has the focus and does not show it."""


def seen(site: Path) -> Iterator[str]:
    """Yield what a reader of the built site would stumble over, or that no Chromium is there to look at it."""
    if (path := chromium()) is None:
        yield "no Chromium is installed, which looks at the pages and types into the search box"
        return
    with Browser(path) as browser:
        yield from lost_in_a_browser(site, browser)
        yield from ill_shown(site, browser)
        for dark in (False, True):
            browser.show(1280, 800, dark=dark)
            yield from unfocused(site / PAGES[0], browser)


def ill_shown(
    site: Path,
    browser: Browser,
    pages: Sequence[str] = PAGES,
    sizes: Sequence[tuple[int, int]] = SIZES,
    themes: Sequence[bool] = (False, True),
) -> Iterator[str]:
    """Yield what is wrong with the look of pages in each size; a theme is whether it is dark."""
    script = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
    for dark, (width, height) in itertools.product(themes, sizes):
        browser.show(width, height, dark=dark)
        for page in pages:
            browser.open((site / page).as_uri())
            for problem in browser.run(script):
                yield f"{page} ({width} pixels, {'dark' if dark else 'light'}): {problem}"


def unfocused(page: Path, browser: Browser, times: int = 20) -> Iterator[str]:
    """Yield the elements of a page that do not show their focus when a reader presses Tab."""
    browser.open(page.as_uri())
    for _ in range(times):
        browser.press("Tab", 9)
        if element := browser.run(FOCUS):
            yield f"{page.name}: the focus is not visible on {element}"

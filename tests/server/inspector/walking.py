"""A walk through all views of the page. A new view is in it as soon as a link leads there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, until

WALK = (Path(__file__).parent / "walk.js").read_text()

LINKS = """[...document.querySelectorAll('a[href^="#/"]')].map((link) => link.getAttribute("href"))"""


def shape(address: str) -> str:
    """Return the view of an address and its part, without the id: `#/t/ID/events?at=3` is `t/*/events?at`."""
    place = urlsplit(address.removeprefix("#/"))
    view, *rest = place.path.split("/")
    names = sorted(pair.split("=")[0] for pair in place.query.split("&"))
    return "/".join([view, *["*" for _ in rest[:1]], *rest[1:]]) + (
        "?" + "&".join(names) if place.query else ""
    )


def views(browser: Browser, *first: str, most: int = 1) -> Iterator[str]:
    """Go to every view to which links lead, and yield its address.

    Args:
        browser: it shows the page, signed in.
        first: addresses to which it goes in any case; by default the list of tasks.
        most: the most other addresses that differ only in an id.
    """
    left = [*first] or ["#/"]
    known, seen = {*left}, Counter[str]()
    while left:
        address = left.pop(0)
        if address not in first:
            seen[shape(address)] += 1
            if seen[shape(address)] > most:
                continue
        go(browser, address)
        until(
            browser,
            f"location.hash.split('?')[0] === {json.dumps(address.split('?')[0])}"
            " && document.querySelector('main')?.children.length",
        )
        yield address
        found = [link for link in browser.run(LINKS) if link not in known]
        known.update(found)
        left.extend(sorted(found, key=lambda link: seen[shape(link)]))


def walked(
    browser: Browser, address: str, check: str, *, options: int = 3, dialogs: str = ""
) -> dict[str, Any]:
    """Look at everything of the present view; return the stops, and what the check found wrong.

    Args:
        browser: it shows the view.
        address: the address of the view.
        check: a function in JavaScript; it returns what is wrong, as lines.
        options: the most rows of each list that are selected.
        dialogs: the keys that open dialogs.
    """
    limits = json.dumps({"options": options, "dialogs": dialogs})
    return browser.run(f"{WALK}({json.dumps(address)}, {check}\n, {limits})")

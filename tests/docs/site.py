"""Builds the documentation site without a network, and checks what was built.

    python -m tests.docs.site [--chromium]

A link to a page, an anchor or a file that is not there, a public name without an entry, a script, style, font or
picture from another server, headings out of order, a page without the version in its header and a picture without a
text are each a line of the report. So is what `looks` sees in Chromium. With any of them the exit status is 1.
Without Chromium the pages are not looked at, which is said; with `--chromium` that is a failure too.
`mkdocs.yml` makes every warning of the build an error.
"""

import os
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from tests.docs.browser import chromium
from tests.docs.looks import seen
from tests.docs.public_names import public_names, undescribed
from tests.docs.search import lost

ROOT = Path(__file__).parents[2]
SITE = ROOT / "dist" / "site"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""What a browser fetches by itself, by element."""
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}


@dataclass
class BuiltPage(HTMLParser):
    """What a built page links to, what it loads, and what may be linked to."""

    path: Path
    links: list[str] = field(default_factory=list[str])
    loads: list[str] = field(default_factory=list[str])
    anchors: set[str] = field(default_factory=set[str])
    headings: list[int] = field(default_factory=list[int])
    unnamed: list[str] = field(default_factory=list[str])
    shows_version: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if anchor := values.get("id") or (values.get("name") if tag == "a" else None):
            self.anchors.add(anchor)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if values.get("class") == "version":
            self.shows_version = True
        if tag == "img" and not values.get("alt"):
            self.unnamed.append(values.get("src", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif (
            (attribute := LOADED.get(tag)) and values.get(attribute) and values.get("rel") not in NOT_FETCHED
        ):
            self.loads.append(values[attribute])


def build(site: Path = SITE) -> None:
    """Build the site in this process, which reaches no other machine meanwhile."""
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config

    def refuse(*_args: Any, **_more: Any) -> NoReturn:
        raise OSError("the documentation site is built without a network")

    connect, resolve = socket.socket.connect, socket.getaddrinfo
    socket.socket.connect = socket.getaddrinfo = refuse  # type: ignore[method-assign, assignment]
    try:
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site))
        config.plugins.run_event("startup", command="build", dirty=False)
        mkdocs_build(config)
        config.plugins.run_event("shutdown")
    finally:
        socket.socket.connect, socket.getaddrinfo = connect, resolve  # type: ignore[method-assign]


def problems(site: Path = SITE) -> Iterator[str]:
    """Yield what is wrong with a built site."""
    pages = {path: BuiltPage(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loads:
            if urlsplit(address).netloc:
                yield f"{name}: loads {address}"
        for address in [*page.links, *page.loads]:
            url = urlsplit(address)
            if url.scheme or url.netloc:
                continue
            folder = site if url.path.startswith("/") else path.parent
            target = (folder / unquote(url.path).lstrip("/")).resolve() if url.path else path
            if not target.exists():
                yield f"{name}: {address} leads nowhere"
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].anchors:
                yield f"{name}: {address} names no anchor of that page"
        if not page.shows_version:
            yield f"{name}: the header shows no version"
        yield from (f"{name}: {picture} has no text" for picture in page.unnamed)
        for before, heading in pairwise([0, *page.headings]):
            if heading > before + 1:
                yield f"{name}: a heading of level {heading} follows one of level {before}"
    described = {anchor for path in (site / "reference").rglob("*.html") for anchor in pages[path].anchors}
    yield from (f"reference: {name} is on no page" for name in undescribed(public_names(), described))


if __name__ == "__main__":
    build()
    found = [*problems(), *lost(SITE)]
    if chromium() is not None or "--chromium" in sys.argv:
        found += seen(SITE)
    else:
        print("no Chromium is installed: the pages were not looked at")
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)

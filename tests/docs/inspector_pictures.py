"""Takes the pictures of the inspector: a real page, of a real server, on the store of a made-up firm.

    python -m tests.docs.inspector_pictures FOLDER [NAME ...]   every view, in both themes, at 1440 and 390 pixels
    python -m tests.docs.inspector_pictures                     those of the documentation, into docs/pictures

Times are virtual and the clock of the page stands still, so a picture changes only with the page.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from tests.docs import diagrams, inspected_firm
from tests.docs.browser import Browser, chromium
from tests.server.inspector.chromium import press, until
from tests.server.inspector.site import Site
from treadle import Runner
from treadle.testing import clock

SIZES = {"wide": (1440, 900), "phone": (390, 844), "page": (1200, 720)}
"""The windows of the pictures; `page` is that of the documentation."""

MOST_BYTES = 250_000
"""The largest picture of the documentation."""

BUSY = "/Reading|Signing in|Looking what/.test(document.body.innerText)"


@dataclass(frozen=True)
class View:
    """A picture: a place in the page, and the keys that lead on from it.

    Args:
        place: the address within the page.
        keys: pressed there, one after the other; `click SELECTOR` clicks instead.
        ready: an expression of the page that is true as soon as the picture can be taken.
        sizes: the windows of the picture.
        shown: the windows of its pictures in the documentation.
    """

    place: str
    keys: Sequence[str] = ()
    ready: str = "document.querySelector('main')"
    sizes: Sequence[str] = ("wide", "phone")
    shown: Sequence[str] = ()


ROWS = "document.querySelectorAll('.list .trow').length > 5"
TIMELINE = "document.querySelectorAll('.r.step, .r.call').length > 0"
CASE = "document.querySelector('.case')"
ROW = "click .r[aria-selected=true]"
FIRST = ("k", "k", "k")
DIALOG = "document.querySelector('dialog')"

VIEWS = {
    "tasks": View("#/", ready=ROWS, shown=("page",)),
    "tasks-waiting": View("#/", ("/",), ready=ROWS, sizes=("wide",)),
    "task": View("#/t/close-2026-10?sel=s2b1-0", ready=TIMELINE, shown=("page",)),
    "task-past": View("#/t/close-2026-10?at=30", ready=TIMELINE, shown=("page",)),
    "task-side": View("#/t/close-2026-10?sel=s2b1-0", (ROW,), ready=TIMELINE, sizes=("phone",)),
    "task-running": View("#/t/feed-today", ready=TIMELINE),
    "task-waiting": View("#/t/refund-A-17", ready=TIMELINE),
    "task-unknown": View("#/t/pay-2026-118", ready=TIMELINE),
    "task-degraded": View("#/t/price-lamp", ready=TIMELINE),
    "task-failed": View("#/t/forecast-w48", ready=TIMELINE),
    "task-interrupted": View("#/t/stock-november", ready=TIMELINE),
    "task-between": View("#/t/close-2026-10-no-invoices", ready=TIMELINE),
    "task-answered": View("#/t/notes-fence", ready=TIMELINE),
    "task-paused": View("#/t/feed-lunch", ready=TIMELINE),
    "task-cancelled": View("#/t/feed-night", ready=TIMELINE),
    "task-created": View("#/t/close-2026-11", ready="document.querySelector('.task-head')"),
    "task-long": View("#/t/row-audit-2026-11", ready=TIMELINE),
    "task-children": View("#/t/research-leases", ready=TIMELINE),
    "task-handoff": View("#/t/case-5512", ready=TIMELINE),
    "dialog-keys": View("#/t/close-2026-10", ("?",), ready=DIALOG, sizes=("wide",)),
    "dialog-more": View("#/t/close-2026-10-no-invoices", ("o",), ready=DIALOG),
    "dialog-undo": View("#/t/close-2026-10", ("u", "ArrowDown", "ArrowDown"), ready=DIALOG, shown=("page",)),
    "dialog-fork": View("#/t/close-2026-10?at=30", ("f",), ready=DIALOG),
    "dialog-send": View("#/t/refund-A-17", ("m",), ready=DIALOG),
    "inbox": View("#/inbox", (*FIRST, "j", "j"), ready=CASE, shown=("page", "phone")),
    "inbox-question": View("#/inbox", (*FIRST, "j"), ready=CASE),
    "inbox-unknown": View("#/inbox", FIRST, ready=CASE),
    "messages": View("#/t/close-2026-10?sel=s2b1", (ROW, "click #tab-messages"), ready=TIMELINE),
    "events": View("#/t/close-2026-10?sel=s2b1", (ROW, "click #tab-events"), ready=TIMELINE),
    "agents": View("#/agents/month-end"),
    "threads": View("#/threads"),
    "thread": View("#/threads/books-2026"),
    "cost": View("#/cost"),
    "lineage": View("#/t/close-2026-10/lineage", shown=("page",)),
    "compare": View("#/diff/close-2026-10/close-2026-10-what-if", shown=("page",)),
    "no-such-view": View("#/nothing", sizes=("wide",)),
}

_FIXED_DATE = """(() => {{
  const Real = Date;
  globalThis.Date = class extends Real {{
    constructor(...given) {{ given.length ? super(...given) : super({now}); }}
    static now() {{ return {now}; }}
  }};
}})()"""


@contextmanager
def firm() -> Iterator[tuple[Site, int]]:
    """Yield a server on the store of the firm, and the time of the pictures, in milliseconds since 1970."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "journal.db"
        inspected_firm.begin_tasks(store)
        standing, ended, times = Event(), Event(), list[int]()

        async def fill() -> None:
            prices = inspected_firm.PRICES
            async with clock.runner(
                str(store), agents=inspected_firm.AGENTS, prices=prices, clock=inspected_firm.now
            ) as runner:
                await inspected_firm.fill(runner)
                times.append(await inspected_firm.run_one(runner))
                standing.set()
                ended.wait()  # holds the loop, and with it the time

        filling = Thread(target=lambda: clock.run(fill()), daemon=True)
        filling.start()
        while not standing.wait(1):
            assert filling.is_alive(), "the store could not be filled"
        runner = Runner(
            str(store), agents=inspected_firm.AGENTS, prices=inspected_firm.PRICES, clock=lambda: times[0]
        )
        site = Site((), runner=runner, drive=False, models=("haiku-5", "sonnet-5"))
        try:
            yield site, times[0] // 1000
        finally:
            site.close()
            ended.set()
            filling.join(30)


def take(folder: Path, wanted: Callable[[str, View], Sequence[str]]) -> list[Path]:
    """Take the pictures of each view in the wanted windows, into a folder."""
    program = chromium()
    assert program is not None, "Chromium is not installed"
    taken = list[Path]()
    with firm() as (site, now), Browser(program) as browser:
        browser.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=_FIXED_DATE.format(now=now))
        for dark in (False, True):
            for size, (width, height) in SIZES.items():
                browser.show(width, height, dark=dark)
                browser.open("about:blank")
                browser.open(site.link())
                until(browser, ROWS)
                for name, view in VIEWS.items():
                    if size in wanted(name, view):
                        path = folder / f"{name}-{size}{'-dark' if dark else ''}.png"
                        show(browser, view)
                        browser.picture(path)
                        taken.append(path)
                        told(browser, path)
    return taken


def show(browser: Browser, view: View) -> None:
    """Go to a view, and wait until it is drawn."""
    browser.run("document.querySelector('dialog')?.close()")
    browser.run("void (location.hash = '#/nothing')")
    still(browser)
    browser.run(f"void (location.hash = {json.dumps(view.place)})")
    ready = view.ready if view.ready != DIALOG else "true"
    until(browser, f"({ready}) && !{BUSY}")
    still(browser)
    for key in view.keys:
        if key.startswith("click "):
            browser.run(f"document.querySelector({json.dumps(key.removeprefix('click '))}).click()")
        else:
            press(browser, key)
        still(browser)
    until(browser, f"({view.ready}) && !{BUSY}")
    still(browser)


def still(browser: Browser) -> None:
    """Wait until nothing in the page has changed for a moment."""
    seen, since = None, time.monotonic()
    while time.monotonic() - since < 0.35:
        now = browser.run("document.body.innerHTML.length + ':' + document.body.innerText")
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.05)


def told(browser: Browser, path: Path) -> None:
    """Say whether the page is wider than its window, or what it could not do."""
    if browser.run("document.documentElement.scrollWidth > innerWidth + 1"):
        print(f"{path.name}: the page scrolls sideways")


def write() -> None:
    """Take the pictures of the documentation."""
    with tempfile.TemporaryDirectory() as temporary:
        for path in take(Path(temporary), lambda name, view: view.shown):
            content = path.read_bytes()
            assert len(content) < MOST_BYTES, f"{path.name} has {len(content):,} bytes"
            (diagrams.PICTURES / f"inspector-{path.name}").write_bytes(content)


def main(arguments: Sequence[str]) -> None:
    """Take the pictures that the arguments name."""
    if not arguments:
        write()
        return
    folder, names = Path(arguments[0]), set(arguments[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for path in take(folder, lambda name, view: view.sizes if not names or name in names else ()):
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])

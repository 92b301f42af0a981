"""Hostile texts in every place of the page stay text: no script runs, and nothing asks another server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until
from tests.server.inspector.hostile_texts import TEXTS, attack, hostile_texts
from tests.server.inspector.outside import Outside
from tests.server.inspector.site import Site
from tests.server.inspector.walking import views, walked
from treadle import Runner

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

ON_GUARD = """
window.faults = [];
window.broken = [];
addEventListener("error", (event) => broken.push(event.message));
addEventListener("unhandledrejection", (event) => broken.push(String(event.reason)));
window.alert = window.confirm = window.prompt = () => void faults.push("a dialog was opened");
addEventListener("securitypolicyviolation", (event) => faults.push(`the policy refused ${event.blockedURI}`));
"""
"""Runs before the page: what it refuses is a fault too, for a text was taken for more than text."""

ADDRESSES = (
    "#/{0}",
    "#/t/{0}",
    "#/t/x/{0}",
    "#/t/x?at={0}&sel={0}",
    "#/{quoted}",
    "#/t/{quoted}",
    "#/threads/{0}",
)

CHECK = (Path(__file__).parent / "check_hostile.js").read_text()


@pytest.fixture(scope="module")
def page(chromium_window: Browser) -> Iterator[Browser]:
    """Yield a browser that stands guard over each page that it opens."""
    guard = chromium_window.call("Page.addScriptToEvaluateOnNewDocument", source=ON_GUARD)["identifier"]
    chromium_window.show(1440, 900)
    yield chromium_window
    chromium_window.call("Page.removeScriptToEvaluateOnNewDocument", identifier=guard)


def attacked(texts: list[str]) -> tuple[Site, list[str]]:
    """Return a site with tasks for each text, and the ids of the tasks."""
    site = Site([])
    made: list[str] = []
    for number, words in enumerate(texts):

        async def make(runner: Runner, words: str = words, number: int = number) -> list[str]:
            return await attack(runner, f"hostile-{number:02}", words)

        made += site.run(make)
    return site, made


def look_at_everything(browser: Browser, site: Site, tasks: list[str], options: int) -> int:
    """Check every view and everything in it; return how many stops there were."""
    browser.open("about:blank")
    browser.open(site.link())
    until(browser, "document.querySelector('.list .trow')")
    stops, wrong = 0, []
    compared = f"#/diff/{tasks[0]}/{tasks[1]}"
    for address in views(browser, "#/", compared, *[f"#/t/{task}" for task in tasks], most=6):
        dialogs = "fu" if address.startswith("#/t/") else ""
        found = walked(browser, address, CHECK, options=options, dialogs=dialogs)
        stops += len(found["stops"])
        wrong += found["wrong"]
    assert wrong == []
    return stops


def test_there_are_as_many_hostile_texts_as_the_design_wants() -> None:
    assert len({*TEXTS}) == 45


def test_the_check_sees_a_text_that_is_taken_for_markup(page: Browser) -> None:
    site = Site([])
    try:
        page.open("about:blank")
        page.open(site.link())
        until(page, "document.querySelector('main')")
        assert page.run(f"({CHECK})()") == []
        page.run(
            "void document.querySelector('main').insertAdjacentHTML('beforeend', `<img src=x onerror=f()>\u202e`)"
        )
        until(page, "faults.length")
        assert len(page.run(f"({CHECK})()")) >= 4
    finally:
        site.close()


@pytest.mark.full
def test_all_hostile_texts_at_once_stay_text_in_every_place(page: Browser, outside: Outside) -> None:
    site, tasks = attacked(["\n".join(hostile_texts(outside.address))])
    try:
        assert look_at_everything(page, site, tasks, options=5) > 40
    finally:
        site.close()


@pytest.mark.full
@pytest.mark.parametrize("group", range(9))
def test_each_hostile_text_stays_text_in_every_place(page: Browser, outside: Outside, group: int) -> None:
    site, tasks = attacked(hostile_texts(outside.address)[group::9])
    try:
        stops = look_at_everything(page, site, tasks, options=9)
    finally:
        site.close()
    print(f"{len(tasks)} tasks with hostile texts, looked at in {stops} places")
    assert stops > 5 * 20


@pytest.mark.full
def test_hostile_addresses_open_nothing(page: Browser, outside: Outside) -> None:
    site, _ = attacked([])
    try:
        page.open("about:blank")
        page.open(site.link())
        until(page, "document.querySelector('nav')")
        for number, words in enumerate(hostile_texts(outside.address)):
            address = ADDRESSES[number % len(ADDRESSES)].format(words, quoted=quote(words))
            go(page, address)
            assert page.run(f"({CHECK})()") == [], address
        until(page, "document.querySelector('main').textContent.length")
        for name in ("constructor", "__proto__", "toString"):
            go(page, f"#/{name}")
            until(page, "document.querySelector('main h1')?.textContent === 'There is no such view'")
            press(page, "j", "Enter")
            assert page.run("broken") == [], name
        page.open("about:blank")
        page.open(f"{site.url}/#token={quote(TEXTS[0])}")
        until(page, "document.querySelector('.signin')")
        assert page.run(f"({CHECK})()") == []
        assert "script" not in page.run("location.href")
    finally:
        site.close()

"""The page keeps up: with a server that is killed and started again, with a new token, and in seven tabs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from threading import Event, Thread
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.forked import Forked
from tests.server.inspector.chromium import go, needs_chromium, press, until, write
from tests.server.inspector.site import Site
from treadle import Agent, Limits, ModelRequest, Runner, ScriptedModel, tool
from treadle.llm.scripted import Turn, call, text, turn
from treadle.server.serving import tcp_socket

pytestmark = [needs_chromium, pytest.mark.sampled(1)]


@tool(read_only=True)
async def look(minute: int) -> dict[str, int]:
    """Look at a feed."""
    await asyncio.sleep(0.01)
    return {"minute": minute}


class Feed:
    """A task that goes on until it is told to end, driven in a thread on a store that a server reads."""

    def __init__(self, store: Path) -> None:
        self.may_end, self._began = Event(), Event()
        self._store = store
        self._thread = Thread(target=lambda: asyncio.run(self._drive()), daemon=True)
        self._thread.start()
        assert self._began.wait(30)

    def _says(self, request: ModelRequest) -> Turn:
        if self.may_end.is_set():
            return text("The feed is calm.")
        return turn("", [call("look", minute=request.turn)], delay=0.02)

    async def _drive(self) -> None:
        agent = Agent(ScriptedModel(self._says), name="feed", tools=[look], limits=Limits(steps=10_000))
        async with Runner(str(self._store), agents=[agent]) as runner:
            task = await runner.create_task(agent, "Watch the feed.", task_id="feed")
            self._began.set()
            await runner.resume(task)

    def end(self) -> None:
        """Let the task end, and wait for it."""
        self.may_end.set()
        self._thread.join(30)


class Served:
    """A server process that only serves, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with tcp_socket("127.0.0.1", 0) as bound:
            self.port = bound.getsockname()[1]
        self.start()

    def start(self, *arguments: str) -> None:
        """Start the process."""
        options = ["--no-drive", "--port", str(self.port), "--json", *arguments]
        command = [sys.executable, "-m", "treadle", "serve", *options]
        self.process = Forked(command, cwd=self.folder, stdout=PIPE, stderr=PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        self.token = (self.folder / json.loads(line)["token_file"]).read_text().strip()

    @property
    def link(self) -> str:
        """The link that signs in."""
        return f"http://127.0.0.1:{self.port}/#token={self.token}"

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.communicate(timeout=30)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    """Yield a task that is driven."""
    (tmp_path / ".treadle").mkdir()
    driven = Feed(tmp_path / ".treadle" / "journal.db")
    yield driven
    driven.end()


@pytest.fixture
def server(tmp_path: Path, feed: Feed) -> Iterator[Served]:
    """Yield a server of the store of that task."""
    process = Served(tmp_path)
    yield process
    process.kill()


PAGE = "import(document.querySelector('script[type=module]').src.replace('app.js', 'store.js'))"
NUMBERS = f"{PAGE}.then(({{ opened }}) => opened.value.journal.events.map((event) => event.seq))"
HEAD = f"(await {PAGE}).opened.value.journal.head"
SAID = "document.querySelector('nav [role=status]')?.textContent"


def head_of(browser: Browser) -> int:
    """Return the number of the last event that the page has."""
    return browser.run(f"(async () => {HEAD})()")


def test_a_server_killed_under_the_page_is_followed_on_from_the_last_event(
    chromium_window: Browser, server: Served, feed: Feed
) -> None:
    browser = chromium_window
    browser.open("about:blank")
    browser.open(server.link)
    until(browser, "document.querySelector('.list .trow')")
    go(browser, "#/t/feed")
    until(browser, "document.querySelector('.r.step')")
    until(browser, f"{SAID} === 'live'")
    for _ in range(2):
        server.kill()
        until(browser, f"{SAID} === 'reconnecting'")
        last = head_of(browser)
        asked = len(browser.requests)
        server.start()
        until(browser, f"{SAID} === 'live'")
        streams = [
            each["request"]["url"]
            for each in browser.requests[asked:]
            if "/v1/stream" in each["request"]["url"]
        ]
        assert streams, "the page opened its stream again"
        assert all(f"task=feed%3A{last}" in url for url in streams), "from the last event on"
        go_on(browser, last + 40)
    feed.end()
    until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'completed'")
    numbers = browser.run(NUMBERS)
    assert numbers == list(range(1, len(numbers) + 1)), "no event is lost or doubled"
    assert numbers[-1] == asyncio.run(head_in(server.folder))


def go_on(browser: Browser, head: int) -> None:
    """Wait until the page has an event that came after the server."""
    until(browser, f"document.querySelector('.time b')?.textContent.replace(/\\D/g, '') >= {head}")


async def head_in(folder: Path) -> int:
    """Return the number of the last event in the journal."""
    async with Runner(str(folder / ".treadle" / "journal.db")) as runner:
        return (await runner.get_task("feed")).head


def test_a_token_that_is_refused_is_asked_for_and_the_page_goes_on_with_a_new_one(
    chromium_window: Browser, server: Served
) -> None:
    browser = chromium_window
    browser.open("about:blank")
    browser.open(server.link)
    until(browser, "document.querySelector('.list .trow')")
    go(browser, "#/t/feed")
    until(browser, "document.querySelector('.r.step')")
    server.kill()
    server.start("--new-token")
    until(browser, "document.querySelector('.signin [role=alert]')?.textContent.includes('does not accept')")
    assert browser.run("document.querySelectorAll('.r, .trow').length") == 0
    browser.run("document.querySelector('.signin input').focus()")
    write(browser, server.token)
    press(browser, "Enter")
    until(browser, "document.querySelector('.r.step')")
    until(browser, f"{SAID} === 'live'")
    assert browser.run("location.hash").startswith("#/t/feed")


ANSWERS = Agent(ScriptedModel([text("It is answered.")] * 20), name="desk")


@pytest.mark.full
def test_seven_tabs_of_one_server_work_though_a_browser_opens_six_connections(
    chromium_window: Browser,
) -> None:
    browser = chromium_window
    site = Site([ANSWERS])

    async def asked(runner: Runner, name: str) -> Any:
        return await runner.run(ANSWERS, "A question", task_id=name)

    first, tabs = browser.tab, list[str]()
    try:
        site.run(lambda runner: asked(runner, "task-0"))
        for _ in range(7):
            tabs.append(browser.new_tab())
            browser.call("Network.enable")
            browser.open(site.link())
            until(browser, "document.querySelector('.list .trow')")
            until(browser, f"{SAID} === 'live'")
        for number, tab in enumerate(tabs, 1):
            name = f"task-{number}"
            browser.use_tab(tab)
            until(browser, f"!document.hidden && {SAID} === 'live'")
            hidden = [browser.run(SAID, other) for other in tabs if other != tab]
            assert hidden == ["hidden"] * 6, "the other tabs hold no connection"
            site.run(lambda runner, name=name: asked(runner, name))
            until(browser, f"document.querySelectorAll('.list .trow').length === {number + 1}")
            go(browser, f"#/t/{name}")
            until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'completed'")
            assert browser.run("document.querySelectorAll('.r.step').length") == 1
        browser.use_tab(tabs[0])
        until(browser, f"!document.hidden && {SAID} === 'live'")
        go(browser, "#/")
        until(browser, "document.querySelectorAll('.list .trow').length === 8")
    finally:
        for tab in tabs:
            browser.close_tab(tab)
        browser.use_tab(first)
        site.close()

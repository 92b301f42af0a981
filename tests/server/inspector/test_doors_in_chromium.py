"""The way into the page, and what it says of a server without agents, in a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import needs_chromium, press, serving, until
from treadle import Agent, Runner, ScriptedModel
from treadle.server.entrance import code_of

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

WORDS = "document.body.innerText"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the URL of a server without agents, and its token."""
    folder = tmp_path_factory.mktemp("doors")
    asyncio.run(fill(folder / ".treadle" / "journal.db"))
    with serving(folder, "--no-drive") as link:
        url, _, token = link.partition("/#token=")
        yield url, token


async def fill(store: Path) -> None:
    """Make a task that has not begun."""
    agent = Agent(ScriptedModel(["done"]), name="shop")
    async with Runner(str(store)) as runner:
        await runner.create_task(agent, "Is there tea?", task_id="a task/1")


def test_a_code_opens_a_task_once_and_leaves_the_address(
    chromium_window: Browser, server: tuple[str, str]
) -> None:
    browser, (url, token) = chromium_window, server
    link = f"{url}/#/t/a%20task%2F1&code={code_of(token)}"

    browser.open(link)
    until(browser, f"{WORDS}.includes('Is there tea?')")
    assert "code" not in browser.run("location.href")
    until(browser, f"{WORDS}.includes('lacks the code of shop')")
    assert "Step" not in browser.run("[...document.querySelectorAll('.acts')].map((e) => e.innerText).join()")
    press(browser, "t")
    until(browser, f"{WORDS}.includes('This server has no agents')")
    browser.run("sessionStorage.clear()")
    browser.open("about:blank")
    browser.open(link)
    until(browser, f"{WORDS}.includes('Which token?')")
    until(browser, f"{WORDS}.includes('This link opens the page once')")


def test_a_person_signs_in_with_the_token(chromium_window: Browser, server: tuple[str, str]) -> None:
    browser, (url, token) = chromium_window, server
    browser.open("about:blank")
    browser.open(f"{url}/#/inbox")
    until(browser, f"{WORDS}.includes('Which token?')")
    browser.run("document.querySelector('input').focus()")
    browser.type(token)
    press(browser, "Enter")
    until(browser, "document.querySelector('nav a[aria-current=page]')?.innerText.includes('Inbox')")

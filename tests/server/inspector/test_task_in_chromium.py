"""The view of a task in a real browser, by the keyboard alone: every verb, the past, the journal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import needs_chromium, press, until
from tests.server.inspector.site import Site
from treadle import Agent, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = needs_chromium


@tool(read_only=True)
def look_up(order: str) -> dict[str, object]:
    return {"order": order, "cents": 4000}


DESK = Agent(
    ScriptedModel([call("look_up", order="A-17"), text("It is fair.")] * 20), name="desk", tools=[look_up]
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([DESK])
    yield opened
    opened.close()


def show(browser: Browser, site: Site, task: str, who: str = "ann") -> None:
    """Open a task as a person."""
    browser.open("about:blank")
    browser.open(site.link(who))
    until(browser, "document.querySelector('nav')")
    browser.run(f"void (location.hash = '#/t/{task}')")
    until(browser, "document.querySelector('.task-head')")


def until_text(browser: Browser, selector: str, text: str) -> None:
    """Wait until one of the elements of a selector has a text in it."""
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    until(browser, f"{chosen}.some((each) => each.textContent.includes({json.dumps(text)}))")


def until_state(browser: Browser, state: str) -> None:
    until_text(browser, ".task-head .st.pill", state)


def count(browser: Browser, selector: str) -> int:
    return browser.run(f"document.querySelectorAll({json.dumps(selector)}).length")


def test_a_task_is_stepped_and_run_by_keys(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    site.run(lambda runner: runner.create_task(DESK, "Order A-17", task_id="stepped"))
    show(browser, site, "stepped")
    until_state(browser, "created")
    press(browser, "s")
    until_state(browser, "between steps")
    assert count(browser, ".r.call") == 1
    press(browser, "r")
    until_state(browser, "completed")

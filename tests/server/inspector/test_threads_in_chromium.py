"""The threads in a real browser, by the keyboard alone: their messages, their tasks, and the next turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until, write
from tests.server.inspector.site import Site
from treadle import Agent, Policy, Rule, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]


@tool(read_only=True)
def look(order: str) -> str:
    return f"{order} is <b>broken</b>"


@tool
def refund(order: str) -> str:
    return f"paid back {order}"


def desk_says(request: Any) -> Any:
    """Look at the first order, then greet; ask for a refund when a message wants one."""
    said = request.messages[-1]
    if said.role == "tool":
        return text(f"I see: {said.parts[0].parts[0].text}.")
    words = said.parts[-1].text
    if "refund" in words:
        return call("refund", order="A-17")
    return call("look", order="A-17") if "A-17" in words else text(f"You said: {words}")


POLICY = Policy(Rule("second", "ask", tool="refund", reason="A second person decides."))
DESK = Agent(ScriptedModel(desk_says), name="desk", tools=[look, refund], policy=POLICY)
ECHO = Agent(ScriptedModel(lambda request: text(f"Echo {len(request.messages)}.")), name="echo")


async def fill(runner: Runner) -> None:
    await runner.run(ECHO, "Something else", task_id="other-1", thread_id="other")
    await runner.run(DESK, "Order A-17 came broken", task_id="maya-1", thread_id="maya")
    await runner.run(DESK, "Thank you", task_id="maya-2", thread_id="maya")


@pytest.fixture
def site() -> Iterator[Site]:
    opened = Site([DESK, ECHO])
    opened.run(fill)
    yield opened
    opened.close()


def show(browser: Browser, site: Site, who: str = "ann") -> None:
    """Sign a person in, and open the threads by their key."""
    browser.open("about:blank")
    browser.open(site.link(who))
    until(browser, "document.querySelector('.list .trow')")
    press(browser, "v")
    until(browser, "document.querySelector('.thread .words')")


def said(browser: Browser) -> str:
    return browser.run("document.querySelector('.said-all').innerText")


def test_a_thread_shows_its_messages_calls_and_tasks(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until(browser, "document.querySelector('.item[aria-selected=true]').innerText.includes('maya')")
    until(browser, "document.querySelectorAll('.thread .words').length === 4")
    assert "2 turns" in browser.run("document.querySelector('.item[aria-selected=true]').innerText")
    shown = said(browser)
    assert shown.index("Order A-17") < shown.index("I see: A-17 is <b>broken</b>.") < shown.index("Thank you")
    assert browser.run("document.querySelectorAll('.turns a').length") == 2
    browser.run("document.querySelector('.said-all summary').focus()")
    press(browser, "Enter")
    until(browser, "document.querySelector('.said-all details[open] pre').innerText.includes('broken')")
    press(browser, "j")
    until(browser, "document.querySelector('.item[aria-selected=true]').innerText.includes('other')")
    until(browser, "location.hash === '#/threads/other'")
    press(browser, "k")
    until(browser, "location.hash === '#/threads/maya'")
    press(browser, "o")
    until(browser, "location.hash.startsWith('#/t/maya-2')")


def test_the_next_turn_is_started_in_the_thread(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until(browser, "document.querySelector('.next-turn select')?.value === 'desk'")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'turn'")
    press(browser, "Control+Enter")
    until(browser, "document.querySelector('.toast.bad')?.innerText === 'Write a message first.'")
    write(browser, "One more thing")
    press(browser, "Control+Enter")
    until(browser, "document.querySelector('.said-all').innerText.includes('You said: One more thing')")
    assert browser.run("document.querySelectorAll('.turns a').length") == 3
    assert browser.run("[document.activeElement.id, document.getElementById('turn').value]") == ["turn", ""]

    async def turns(runner: Runner) -> int:
        return len((await runner.list_tasks(thread_id="maya")).items)

    assert site.run(turns) == 3


def test_another_agent_answers_in_the_same_thread(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until(browser, "document.querySelector('.next-turn select')")
    press(browser, "Enter")
    write(browser, "How many?")
    press(browser, "Tab", "ArrowDown")
    until(browser, "document.querySelector('.next-turn select').value === 'echo'")
    press(browser, "Tab", "Enter")
    until(browser, "document.querySelector('.said-all').innerText.includes('Echo 7.')")


def test_a_turn_that_waits_leads_to_the_inbox(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until(browser, "document.querySelector('.next-turn select')")
    press(browser, "Enter")
    write(browser, "I want a refund")
    press(browser, "Control+Enter")
    until(browser, "document.querySelector('.turn.now')?.innerText.includes('waiting')")
    until(browser, "document.querySelector('.next-turn').innerText.includes('has ended')")
    browser.run("document.querySelector('.turn.now .link').focus()")
    press(browser, "Enter")
    until(browser, "document.querySelector('.case .lead')?.innerText.includes('refund')")
    press(browser, "a")
    until(browser, "document.querySelector('.empty')")
    press(browser, "v")
    until(browser, "document.querySelector('.said-all')?.innerText.includes('I see: paid back A-17.')")


def test_a_new_thread_appears_and_a_reader_cannot_write(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "ron")
    until(browser, "document.querySelectorAll('.item').length === 2")
    assert browser.run("document.querySelectorAll('.next-turn').length") == 0

    async def run(runner: Runner) -> None:
        await runner.run(ECHO, "A new one", task_id="new-1", thread_id="new")

    site.run(run)
    until(browser, "document.querySelectorAll('.item').length === 3")
    go(browser, "#/threads/new")
    until(browser, "document.querySelector('.said-all')?.innerText.includes('Echo 1.')")


def test_threads_do_not_scroll_sideways_on_a_phone(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    browser.show(390, 844, dark=True)
    try:
        show(browser, site)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.show(1440, 900)

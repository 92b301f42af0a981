"""The lineage of a task and the comparison of two tasks in a real browser, by the keyboard alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until
from tests.server.inspector.site import Site
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

LONG = 16
"""The steps of the task whose fork shares more of them than the view shows."""


def take_back(done: Any, ctx: Any) -> None:
    """Delete an entry."""


@tool(read_only=True)
def look(month: str) -> str:
    return f"the books of {month}"


@tool(undo=take_back)
def post(cents: int) -> str:
    return f"entry of {cents}"


def bookkeeper(request: Any) -> Any:
    """Look, post as the last message says, and end."""
    said = [part.text for message in request.messages if message.role == "user" for part in message.parts]
    cents = 200 if any("twice" in words for words in said) else 100
    return [call("look", month="10"), call("post", cents=cents), text(f"Posted {cents}.")][
        min(request.turn, 2)
    ]


def count_on(request: Any) -> Any:
    return call("look", month=str(request.turn)) if request.turn < LONG else text("Counted.")


SCOUT = Agent(ScriptedModel([call("look", month="9"), text("Seen.")] * 9), name="scout", tools=[look])
CLERK = Agent(
    ScriptedModel([call("scout", input="Look."), text("It says.")] * 9), name="clerk", subagents=[SCOUT]
)
BOSS = Agent(ScriptedModel([call("clerk", input="Go."), text("Done.")] * 9), name="boss", subagents=[CLERK])

AGENTS = {
    "books": Agent(ScriptedModel(bookkeeper), name="books", tools=[look, post]),
    "boss": BOSS,
    "counter": Agent(ScriptedModel(count_on), name="counter", tools=[look]),
}


async def fill(runner: Runner) -> None:
    """Make a family: forks of forks with other messages, instructions and results, an undo, and calls of agents."""
    books = AGENTS["books"]
    await runner.run(books, "Close October.", task_id="close")
    await runner.undo_step("close", to="s1", by="ann")
    await runner.resume("close")
    await runner.resume(await runner.fork("close", at="s1", input="Book it twice.", task_id="twice"))
    await runner.fork("twice", at="s1", instructions="Be brief.", task_id="brief")
    await runner.fork("close", replace={"s1-0": "nothing"}, task_id="empty")
    await runner.run(AGENTS["boss"], "Look everywhere.", task_id="boss-1")
    long = await runner.run(AGENTS["counter"], "Count.", task_id="long")
    await runner.fork(long.task_id, at=f"s{LONG}", input="Again.", task_id="long-again")
    await runner.resume("long-again")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([*AGENTS.values(), CLERK, SCOUT])
    opened.run(fill)
    yield opened
    opened.close()


def show(browser: Browser, site: Site, hash_: str) -> None:
    """Sign ann in, and go to a place of the page."""
    browser.open("about:blank")
    browser.open(site.link())
    until(browser, "document.querySelector('.list .trow')")
    go(browser, hash_)


def until_row(browser: Browser, words: str) -> None:
    selected = "document.querySelector('.lrow[aria-selected=true]')?.innerText"
    until(browser, f"{selected}.includes({json.dumps(words)})")


def test_a_lineage_shows_forks_of_forks_and_undone_branches_at_their_point(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    show(browser, site, "#/t/twice")
    until(browser, "document.querySelector('.task-head h1')")
    press(browser, "l")
    until(browser, "document.querySelectorAll('.lrow').length === 5")
    until(browser, "location.hash === '#/t/twice/lineage'")
    until_row(browser, "twice")
    rows = browser.run("[...document.querySelectorAll('.lrow .what')].map((each) => each.innerText)")
    assert [words.split("\n")[0] for words in rows] == [
        "Close October.",
        "2 steps undone by ann",
        "“Book it twice.”",
        "instructions “Be brief.”",
        "look returned nothing instead",
    ]
    assert "post compensated" in rows[1]
    assert "after step 1" in rows[2]
    ends = browser.run(
        "[...document.querySelectorAll('.graph')].map((each) => each.querySelectorAll('circle:not(.from)').length)"
    )
    assert ends == [3, 2, 2, 1, 1]
    press(browser, "k")
    until_row(browser, "2 steps undone")
    press(browser, "Enter")
    until(browser, "/^#.t.close.at=\\d+$/.test(location.hash)")
    until(browser, "document.querySelector('.time.past')")


def test_a_comparison_is_opened_from_a_lineage_walked_swapped_and_left(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    show(browser, site, "#/t/twice/lineage")
    until(browser, "document.querySelectorAll('.lrow').length === 5")
    press(browser, "d")
    until(browser, "location.hash === '#/diff/close/twice'")
    until(browser, "document.querySelectorAll('.two.differ').length === 2")
    assert "1 step ran once, for both. 2 steps differ, first in the input of step 2." in browser.run(
        "document.querySelector('.head').innerText"
    )
    assert "look. It ran once." in browser.run("document.querySelector('.two.same').innerText")
    marks = browser.run("[...document.querySelectorAll('.two.differ .diff-m')].map((each) => each.innerText)")
    assert ["input" in marks, "post" in marks, "200." in " ".join(marks)] == [True, True, True]
    until(browser, "document.querySelector('.two[aria-current=true] .at').innerText === '2'")
    press(browser, "j")
    until(browser, "document.querySelector('.two[aria-current=true] .at').innerText === '3'")
    press(browser, "k", "x")
    until(browser, "location.hash === '#/diff/twice/close'")
    until(browser, "document.querySelector('.two.heads a')?.innerText === 'twice'")
    press(browser, "2")
    until(browser, "location.hash === '#/t/close?sel=s2b1'")
    until(browser, "document.querySelector('.r[aria-selected=true]')")
    go(browser, "#/diff/twice/close")
    until(browser, "document.querySelectorAll('.two.differ').length === 2")
    press(browser, "Escape")
    until(browser, "location.hash === '#/t/close/lineage'")
    press(browser, "Escape")
    until(browser, "location.hash === '#/t/close'")


def test_any_two_relatives_are_compared_with_a_mark(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/t/brief/lineage")
    until_row(browser, "brief")
    press(browser, "Space")
    until(browser, "document.querySelector('.lrow .tag')?.innerText === 'marked'")
    press(browser, "j")
    until_row(browser, "empty")
    press(browser, "d")
    until(browser, "location.hash === '#/diff/brief/empty'")
    until(browser, "document.querySelector('.two.differ .diff-m')")
    assert browser.run("document.querySelectorAll('.two.differ').length") == 1
    assert "the result of a call of step 1" in browser.run("document.querySelector('.head').innerText")


def test_long_shared_beginnings_are_one_line(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/diff/long/long-again")
    until(browser, "document.querySelector('.two.differ')")
    assert f"The same: {LONG - 3} steps. They ran once." in browser.run(
        "document.querySelector('.two.same').innerText"
    )
    assert browser.run("document.querySelectorAll('.two.same').length") >= 4


def test_calls_of_agents_are_a_tree_over_all_levels(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/t/boss-1/lineage")
    until(browser, "document.querySelectorAll('.lrow').length === 3")
    assert "This task has neither" in browser.run("document.querySelector('.lineage').innerText")
    indents = browser.run(
        "[...document.querySelectorAll('.lrow .what')].map((each) => parseInt(each.style.marginLeft))"
    )
    assert indents == [0, 20, 40]
    press(browser, "j", "j", "j")
    until_row(browser, "scout")
    press(browser, "Enter")
    until(browser, "location.hash.startsWith('#/t/boss-1.')")
    until(browser, "document.querySelector('.task-head .facts')?.innerText.includes('scout')")
    press(browser, "l")
    until(browser, "document.querySelector('.lrow.own')?.innerText.includes('scout')")


def test_a_fork_appears_while_the_lineage_is_open(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/t/boss-1/lineage")
    until(browser, "document.querySelectorAll('.lrow').length === 3")

    async def fork(runner: Runner) -> None:
        await runner.fork("boss-1", input="Look again.", task_id="boss-2")

    site.run(fork)
    until(browser, "document.querySelectorAll('.lrow').length === 5")
    assert "“Look again.”" in browser.run("document.querySelector('.lineage').innerText")


def test_a_comparison_follows_both_tasks_and_the_list_says_what_a_fork_changes(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window

    async def fork(runner: Runner) -> None:
        await runner.fork("close", at="s1", input="Book it otherwise.", task_id="otherwise")

    site.run(fork)
    show(browser, site, "#/")
    until(
        browser, "document.querySelector('.list').innerText.includes('fork of close: “Book it otherwise.”')"
    )
    go(browser, "#/diff/close/otherwise")
    until(browser, "document.querySelector('.two.differ')?.innerText.includes('No such step.')")

    async def step(runner: Runner) -> None:
        await runner.run_step("otherwise")

    site.run(step)
    until(browser, "document.querySelector('.two.differ')?.innerText.includes('Book it otherwise.')")
    until(browser, "document.querySelector('.two[aria-current=true] .at').innerText === '2'")


def test_tasks_that_are_not_there_are_named(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/diff/close/nowhere")
    until(browser, "document.querySelector('.empty')?.innerText.includes('nowhere')")
    go(browser, "#/diff")
    until(browser, "document.querySelector('.empty')?.innerText.includes('Which two tasks?')")
    go(browser, "#/t/nowhere/lineage")
    until(browser, "document.querySelector('.empty')?.innerText.includes('nowhere')")


def test_no_relative_scrolls_sideways_on_a_phone(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    browser.show(390, 844, dark=True)
    try:
        for hash_, shown in (("#/t/twice/lineage", ".lrow"), ("#/diff/close/twice", ".two.differ")):
            show(browser, site, hash_)
            until(browser, f"document.querySelector('{shown}')")
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), hash_
    finally:
        browser.show(1440, 900)

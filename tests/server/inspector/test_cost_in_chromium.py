"""The cost of tasks in a real browser, by the keyboard alone: sums, periods, filters, all in the address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until
from tests.server.inspector.site import Site
from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.llm.prices import Price
from treadle.llm.scripted import text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]


def agent(name: str, model: str) -> Agent[None]:
    return Agent(ScriptedModel([text("Noted.")] * 9, name=model), name=name)


LARGE, SMALL, FREE = agent("planner", "large"), agent("clerk", "small"), agent("helper", "unknown")


async def fill(runner: Runner) -> None:
    for count, each, team in ((3, LARGE, "shop"), (2, SMALL, "shop"), (1, SMALL, "office")):
        for number in range(count):
            options = RunOptions(labels={"team": team})
            await runner.run(each, "Go.", task_id=f"{each.name}-{team}-{number}", options=options)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    prices = {"large": Price(1_000, 2_000), "small": Price(100, 200)}
    opened = Site([], runner=Runner("memory:", agents=[LARGE, SMALL, FREE], prices=prices))
    opened.run(fill)
    yield opened
    opened.close()


def show(browser: Browser, site: Site, hash_: str = "") -> None:
    browser.open("about:blank")
    browser.open(site.link())
    until(browser, "document.querySelector('.list .trow')")
    if hash_:
        go(browser, hash_)
    else:
        press(browser, "c")
    until(browser, "document.querySelector('.brow[role=option]') || document.querySelector('.empty')")


def until_bars(browser: Browser, *names: str) -> None:
    shown = (
        "[...document.querySelectorAll('.brow[role=option]')].map((each) => each.firstElementChild.innerText)"
    )
    until(browser, f"JSON.stringify({shown}) === {json.dumps(json.dumps(names, separators=(',', ':')))}")


def test_one_number_with_bars_by_agent_day_model_and_label(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until_bars(browser, "planner", "clerk")
    total = browser.run("document.getElementById('cost-total').innerText")
    shown = browser.run("document.querySelector('.cost').innerText")
    assert total.startswith("$")
    assert float(total[1:]) > 0
    assert "tokens in 6 tasks, all of them priced." in shown
    widths = browser.run(
        "[...document.querySelectorAll('.brow i')].map((each) => parseFloat(each.style.width))"
    )
    assert widths[0] == 100
    assert 0 < widths[1] < 20
    press(browser, "b")
    until_bars(browser, datetime.now(UTC).date().isoformat())
    press(browser, "b")
    until_bars(browser, "large", "small")
    press(browser, "b")
    until_bars(browser, "shop", "office")
    assert browser.run("location.hash") == "#/cost?by=label%3Ateam"
    press(browser, "b")
    until_bars(browser, "planner", "clerk")


def test_a_line_narrows_the_sums_and_escape_takes_it_back(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/cost?by=label%3Ateam")
    until_bars(browser, "shop", "office")
    press(browser, "j")
    until(browser, "document.querySelector('.brow[aria-selected=true]').innerText.startsWith('office')")
    press(browser, "Enter")
    until_bars(browser, "clerk")
    until(browser, "location.hash.includes('label=team%3Doffice')")
    assert "in 1 task," in browser.run("document.querySelector('.cost').innerText")
    press(browser, "Escape")
    until_bars(browser, "planner", "clerk")
    press(browser, "Enter")
    until(browser, "location.hash.includes('agent=planner')")
    until(browser, "document.querySelector('.cost').innerText.includes('in 3 tasks,')")
    press(browser, "b", "Enter")
    assert "agent=planner" in browser.run("location.hash"), "a model is not a filter"
    browser.run("document.querySelector('.sums .link').focus()")
    press(browser, "Enter")
    until(browser, "location.hash === '#/?agent=planner'")
    until(browser, "document.querySelectorAll('.list .trow').length === 3")


def test_the_period_stands_in_the_address(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until_bars(browser, "planner", "clerk")
    press(browser, "[")
    until(browser, "location.hash.includes('period=30d')")
    press(browser, "[", "[")
    until(browser, "location.hash.includes('period=today')")
    until(browser, "document.querySelector('.chip[aria-pressed=true]') && document.querySelector('.brow i')")
    press(browser, "]")
    until(browser, "location.hash.includes('period=7d')")
    go(browser, "#/cost?from=2020-01-01&to=2020-01-31")
    until(browser, "document.querySelector('.empty h2')?.innerText === 'No task in this period'")
    assert browser.run("[...document.querySelectorAll('input[type=date]')].map((each) => each.value)") == [
        "2020-01-01",
        "2020-01-31",
    ]
    press(browser, "Escape")
    until_bars(browser, "planner", "clerk")


def test_what_has_no_price_is_named_and_new_tasks_appear(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until_bars(browser, "planner", "clerk")

    async def ask(runner: Runner) -> None:
        await runner.run(FREE, "Go.", task_id="free")

    site.run(ask)
    until_bars(browser, "planner", "clerk", "helper")
    assert "1 task used a model without a price" in browser.run("document.querySelector('.cost').innerText")
    assert "all of them priced" not in browser.run("document.querySelector('.cost').innerText")
    assert "+?" in browser.run("[...document.querySelectorAll('.brow')].at(-1).innerText")


def test_cost_does_not_scroll_sideways_on_a_phone(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    browser.show(390, 844, dark=True)
    try:
        show(browser, site)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.show(1440, 900)

"""The page in a real browser, by the keyboard alone, on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, serving, until
from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"> \u202egnp.exe "
    "</script><script>document.title='owned'</script>"
)

AGENTS = """
from treadle import Agent, Policy, Rule, ScriptedModel, tool
from treadle.models import call, text


@tool(read_only=True)
def look_up(order: str) -> dict[str, object]:
    return {"order": order, "cents": 4000}


@tool
def refund(order: str, cents: int) -> str:
    return f"{cents} cents paid back for {order}"


script = [call("look_up", order="A-17"), call("refund", order="A-17", cents=4000), text("The refund is settled.")]
policy = Policy(Rule("second-person", "ask", tool="refund", reason="A second person decides."))
agent = Agent(ScriptedModel(script), name="desk", tools=[look_up, refund], policy=policy)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield the link that opens the page, and the folder of its server."""
    folder = tmp_path_factory.mktemp("inspected")
    (folder / "shop.py").write_text(AGENTS)
    asyncio.run(fill(folder / ".treadle" / "journal.db"))
    with serving(folder, "shop:agent") as link:
        yield link, folder


async def fill(store: Path) -> None:
    """Make a task that waits for an approval, and one with hostile texts in every place."""

    @tool(read_only=True)
    def look_up(order: str) -> dict[str, object]:
        return {"order": order, "cents": 4000}

    @tool
    def refund(order: str, cents: int) -> str:
        return f"{cents} cents paid back for {order}"

    @tool(read_only=True)
    def echo(words: str) -> dict[str, str]:
        return {words: words}

    script = [
        call("look_up", order="A-17"),
        call("refund", order="A-17", cents=4000),
        text("The refund is settled."),
    ]
    policy = Policy(Rule("second-person", "ask", tool="refund", reason="A second person decides."))
    desk = Agent(ScriptedModel(script), name="desk", tools=[look_up, refund], policy=policy)
    hostile = Agent(ScriptedModel([call("echo", words=HOSTILE), text(HOSTILE)]), name="hostile", tools=[echo])
    async with Runner(str(store), agents=[desk, hostile]) as runner:
        await runner.run(desk, "Order A-17: the lamp came broken", task_id="refund-17")
        await runner.run(hostile, HOSTILE, task_id="hostile", options=RunOptions(labels={"team": "shop"}))


@pytest.fixture(scope="module")
def browser(chromium_window: Browser, server: tuple[str, Path]) -> Browser:
    """Return a browser with the page, signed in."""
    chromium_window.show(1440, 900)
    chromium_window.open(server[0])
    until(chromium_window, "document.querySelectorAll('.list .trow').length === 2")
    return chromium_window


def test_the_token_leaves_the_address_and_nothing_comes_from_elsewhere(
    browser: Browser, server: tuple[str, Path]
) -> None:
    origin = server[0].split("/#")[0]
    assert "token" not in browser.run("location.href")
    loaded = browser.run("performance.getEntriesByType('resource').map((each) => each.name)")
    assert loaded
    assert [name for name in loaded if not name.startswith(origin)] == []


def test_a_task_is_opened_rewound_and_left_by_keys(browser: Browser) -> None:
    go(browser, "#/")
    until(browser, "document.querySelectorAll('.list .trow').length === 2")
    press(browser, "j")
    until(browser, "document.querySelector('.trow[aria-selected=true] .t').textContent.includes('lamp')")
    press(browser, "Enter")
    until(browser, "document.querySelector('.r.call[aria-selected], .r.call')")
    assert browser.run("document.querySelector('.st.pill').textContent.trim()") == "waiting"
    press(browser, "<", "<")
    until(browser, "document.querySelector('.time.past')")
    until(browser, "location.hash.includes('at=')")
    assert browser.run("document.querySelectorAll('.r.call').length") < 2
    press(browser, "f")
    until(browser, "document.querySelector('dialog[open] h2')?.textContent.startsWith('Fork at event')")
    press(browser, "Escape")
    until(browser, "!document.querySelector('dialog')")
    press(browser, "0")
    until(browser, "!document.querySelector('.time.past')")
    press(browser, "t")
    until(browser, "location.hash === '#/'")


def test_hostile_texts_stay_text_and_show_their_hidden_characters(browser: Browser) -> None:
    for place in ("#/", "#/t/hostile", "#/t/hostile?sel=s1-0", "#/t/hostile?sel=s2"):
        go(browser, place)
        until(browser, "document.body.innerText.includes('onerror')")
        for tab in ("request", "events", "detail"):
            browser.run(f"document.getElementById('tab-{tab}')?.click()")
            time.sleep(0.2)
        assert browser.run("document.querySelectorAll('main img, main script').length") == 0
        assert "owned" not in browser.run("document.title")
        assert "\u202e" not in browser.run("document.body.innerText")


def test_an_approval_is_given_by_one_key_and_the_task_goes_on(
    browser: Browser, server: tuple[str, Path]
) -> None:
    press(browser, "i")
    until(browser, "document.querySelector('.case .lead')?.textContent.includes('refund')")
    press(browser, "a")
    until(browser, "document.querySelector('.empty h2')?.textContent === 'Nothing waits for you'")
    go(browser, "#/t/refund-17")
    until(browser, "document.querySelector('.st.pill')?.textContent.trim() === 'completed'")

    async def approvals() -> list[Any]:
        async with Runner(str(server[1] / ".treadle" / "journal.db")) as runner:
            return [event async for event in await runner.get_events("refund-17", kinds="approval_given")]

    assert [event.by for event in asyncio.run(approvals())] == ["local"]


def test_no_view_scrolls_sideways_on_a_phone_and_nothing_broke_the_policy(browser: Browser) -> None:
    browser.show(390, 844, dark=True)
    for place in ("#/", "#/inbox", "#/t/refund-17", "#/t/hostile"):
        go(browser, place)
        time.sleep(0.4)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), place
    browser.show(1440, 900)
    events = browser._events  # pyright: ignore[reportPrivateUsage]  the browser has no other way to them
    said = [event["params"]["entry"]["text"] for event in events if event.get("method") == "Log.entryAdded"]
    assert [line for line in said if "Refused" in line or "Content Security" in line] == []

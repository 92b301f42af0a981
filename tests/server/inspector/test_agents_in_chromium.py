"""The view of agents in a real browser, by the keyboard alone: their facts, and a form that starts a task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import needs_chromium, press, until, write
from tests.server.inspector.site import Site
from treadle import Agent, Limits, RunOptions, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]


def give_back(done: Any, ctx: Any) -> None:
    """Take a refund back."""


@tool(undo=give_back, spends=True)
def refund(order: str, cents: int = 100) -> str:
    """Pay money back."""
    return f"{cents} cents for {order}"


CLERK = Agent(ScriptedModel([text("Noted.")] * 9), name="clerk", description="Answers letters.")
DESK = Agent(
    ScriptedModel([call("refund", order="A-17"), text("It is paid back.")] * 9),
    name="desk",
    instructions="Pay back what is fair.",
    tools=[refund],
    limits=Limits(steps=7),
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([CLERK, DESK])
    yield opened
    opened.close()


def show(browser: Browser, site: Site, who: str = "ann") -> None:
    """Sign a person in, and open the agents by their key."""
    browser.open("about:blank")
    browser.open(site.link(who))
    until(browser, f"document.querySelector('nav .foot')?.textContent.includes('as {who}')")
    press(browser, "n")
    until(browser, f"document.activeElement.id === '{'agent-list' if who == 'ron' else 'start-input'}'")
    press(browser, "Escape")
    until(browser, "document.querySelector('.case .lead')")


def until_lead(browser: Browser, name: str) -> None:
    until(browser, f"document.querySelector('.case .lead').textContent === {json.dumps(name)}")


def tab_to(browser: Browser, condition: str) -> None:
    """Press Tab until the focus is where a condition is true of it."""
    for _ in range(40):
        press(browser, "Tab")
        if browser.run(f"((at) => Boolean({condition}))(document.activeElement)"):
            return
    pytest.fail(f"Tab reaches no element with {condition}")


def test_an_agent_shows_its_model_its_tools_and_what_they_do(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    until_lead(browser, "clerk")
    press(browser, "j")
    until_lead(browser, "desk")
    until(browser, "location.hash === '#/agents/desk'")
    shown = browser.run("document.querySelector('.case').innerText")
    for fact in ("scripted", "refund", "can be undone", "writes", "spends", "Pay money back.", "steps 7"):
        assert fact in shown
    assert "Pay back what is fair." in shown
    press(browser, "k")
    until_lead(browser, "clerk")


def test_a_task_is_started_by_the_form_and_shown(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    press(browser, "j")
    until_lead(browser, "desk")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'start-input'")
    press(browser, "Control+Enter")
    until(browser, "document.querySelector('.toast.bad')?.textContent.includes('Write a message first')")
    write(browser, "Order A-17 came broken")
    for name, value in (("task_id", "broken-17"), ("thread_id", "ann")):
        tab_to(browser, f"at.id === 'start-{name}-add'")
        press(browser, "Enter")
        until(browser, f"document.activeElement.id === 'start-{name}'")
        write(browser, value)
    tab_to(browser, "at.id === 'start-labels-add'")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'start-labels'")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'start-labels-0-name'")
    write(browser, "team")
    tab_to(browser, "at.id === 'start-labels-0'")
    write(browser, "shop")
    tab_to(browser, "at.id === 'start-limits-add'")
    press(browser, "Enter")
    until(browser, "document.getElementById('start-limits-steps')?.placeholder === 'agent: 7'")
    tab_to(browser, "at.id === 'start-limits-seconds'")
    write(browser, "much")
    press(browser, "Control+Enter")
    until(browser, "document.activeElement.id === 'start-limits-seconds'")
    until(browser, "document.querySelector('.f-bad')?.textContent === 'It is not a number.'")
    write(browser, "60.5")
    press(browser, "Control+Enter")
    until(browser, "location.hash.startsWith('#/t/broken-17')")
    until(browser, "document.querySelector('.task-head .st.pill')?.textContent.includes('completed')")

    async def created(runner: Any) -> Any:
        return await runner.get_task("broken-17")

    task = site.run(created)
    assert (task.agent, task.thread_id, task.labels) == ("desk", "ann", {"team": "shop"})
    assert (task.limits.steps, task.limits.seconds) == (7, 60.5)


def test_letters_after_the_key_of_a_new_task_are_no_commands(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    browser.open("about:blank")
    browser.open(site.link())
    until(browser, "document.querySelector('.head h1')")
    browser.run(
        "void (window.held = new Promise((go) => (window.letGo = go)), window.own = fetch, "
        "window.fetch = async (url, how) => { "
        "if (String(url).endsWith('/agents')) await window.held; return own(url, how); })"
    )
    press(browser, "i", "n", *"cat")
    assert browser.run("location.hash") == "#/agents"
    browser.run("void letGo()")
    until(browser, "document.activeElement.id === 'start-input'")
    press(browser, *"cat")
    until(browser, "document.getElementById('start-input').value === 'cat'")
    press(browser, "Escape", "t")
    until(browser, "location.hash === '#/'")
    show(browser, site)
    tab_to(browser, "at.id === 'start-labels-add'")
    assert browser.run("document.activeElement.title").endswith("rules may need them")


def test_the_list_of_keys_opens_at_its_top(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    browser.show(1440, 500)
    try:
        show(browser, site)
        press(browser, "?")
        until(browser, "document.querySelector('dialog[open]') && document.activeElement.id === 'dialog-t'")
        box = "document.querySelector('dialog')"
        assert browser.run(f"[{box}.scrollTop, {box}.scrollHeight > {box}.clientHeight]") == [0, True]
        press(browser, "Escape")
    finally:
        browser.show(1440, 900)


def test_a_task_is_created_without_running_from_json(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    tab_to(browser, "at.textContent === 'As JSON'")
    press(browser, "Enter")
    until(browser, "document.querySelector('#start')?.value.includes('input')")
    browser.run("document.getElementById('start').focus()")
    write(browser, '{"input": [{"type": "text", "text": "From JSON"}], "task_id": "created')
    tab_to(browser, "at.textContent === 'As a form'")
    press(browser, "Enter")
    until(browser, "document.querySelector('.f-bad')?.textContent.startsWith('It is not JSON')")
    browser.run("document.getElementById('start').focus()")
    write(browser, '{"input": [{"type": "text", "text": "From JSON"}], "task_id": "created"}')
    tab_to(browser, "at.textContent === 'Create only'")
    press(browser, "Enter")
    until(browser, "location.hash.startsWith('#/t/created')")
    until(browser, "document.querySelector('.task-head .st.pill')?.textContent.includes('created')")
    assert site.kinds("created") == ["task_created"]


def test_the_id_of_another_task_is_refused_with_a_sentence(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window

    async def create(runner: Any) -> None:
        await runner.create_task(DESK, "First", task_id="taken", options=RunOptions())

    site.run(create)
    show(browser, site)
    press(browser, "Enter")
    write(browser, "Second")
    tab_to(browser, "at.id === 'start-task_id-add'")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'start-task_id'")
    write(browser, "taken")
    press(browser, "Enter")
    until(browser, "document.querySelector('.toast.bad')?.textContent.includes('taken')")
    assert browser.run("location.hash").startswith("#/agents")
    assert browser.run("document.getElementById('start-input').value") == "Second"


def test_a_reader_sees_agents_and_no_form(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "ron")
    until(browser, "document.querySelector('.case .note')?.textContent.includes('not start tasks')")
    assert browser.run("document.querySelectorAll('.case form').length") == 0


def test_a_server_without_agents_says_how_to_get_them(chromium_window: Browser) -> None:
    browser = chromium_window
    site = Site([])
    try:
        browser.open("about:blank")
        browser.open(site.link())
        until(browser, "document.querySelector('.head h1')")
        press(browser, "n")
        until(browser, "document.querySelector('.empty')?.textContent.includes('treadle serve')")
    finally:
        site.close()

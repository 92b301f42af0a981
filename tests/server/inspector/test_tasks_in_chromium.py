"""The list of tasks in a real browser, by the keyboard alone: states, filters, trees, several at once, pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until, write
from tests.server.inspector.site import Site
from treadle import Agent, Limits, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import TaskNotFound
from treadle.llm.scripted import call, text, turn

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

MAY_END = Event()


@tool(read_only=True)
def look_up(order: str) -> str:
    return f"order {order} came broken"


@tool
def refund(order: str) -> str:
    return "paid"


@tool(read_only=True)
def fail(order: str) -> str:
    raise ConnectionError("the shop is closed")


@tool(read_only=True)
def watch(feed: str) -> str:
    MAY_END.wait(60)
    return "quiet"


def agent(name: str, *answers: Any, **more: Any) -> Agent[Any]:
    """Return an agent that gives its answers in this order in each task, the last one again and again."""
    script = ScriptedModel(lambda request: answers[min(request.turn, len(answers) - 1)])
    return Agent(script, name=name, **more)


def no_template(request: Any) -> Any:
    raise RuntimeError("the template of the prompt has no region")


DESK = agent("desk", call("look_up", order="A"), text("It is fair."), tools=[look_up])
ASKS = agent(
    "asks",
    call("refund", order="A"),
    text("Paid."),
    tools=[refund],
    policy=Policy(Rule("second", "ask", tool="refund", reason="A second person decides.")),
)
BROKEN = agent("broken", call("fail", order="A"), tools=[fail], limits=Limits(steps=2))
FAILS = Agent(ScriptedModel(no_template), name="fails")
WATCHER = agent("watcher", call("watch", feed="a"), text("Quiet."), tools=[watch])
HELPER = agent("helper", text("Found."), description="Answers one question.")
EDITOR = agent(
    "editor",
    turn("", [call("helper", input="What is a lease?"), call("helper", input="Who renews it?")]),
    text("Both."),
    subagents=[HELPER],
)

SHOP = RunOptions(labels={"team": "shop"})


async def fill(runner: Runner) -> None:
    """Make a task in each state."""
    await runner.run(DESK, "Order done", task_id="t-completed", options=SHOP)
    await runner.create_task(DESK, "Order new", task_id="t-created", options=SHOP)
    for name, verb in (
        ("paused", runner.pause),
        ("interrupted", runner.interrupt),
        ("cancelled", runner.cancel),
    ):
        await runner.create_task(DESK, f"Order {name}", task_id=f"t-{name}")
        await runner.run_step(f"t-{name}")
        await verb(f"t-{name}")
    await runner.create_task(DESK, "Order between", task_id="t-between")
    await runner.run_step("t-between")
    await runner.create_task(DESK, "Order answered", task_id="t-answered")
    for _ in range(2):
        await runner.run_step("t-answered")
    await runner.run(ASKS, "Order waits", task_id="t-waiting", options=RunOptions(labels={"team": "money"}))
    await runner.run(BROKEN, "Order degraded", task_id="t-degraded")
    await runner.run(FAILS, "Order failed", task_id="t-failed")
    await runner.run(EDITOR, "Ask around", task_id="t-tree")
    await runner.submit(WATCHER, "Order running", task_id="t-running")


STATES = {
    "waiting": "c-wait",
    "running": "c-run",
    "between steps": "",
    "interrupted": "c-odd",
    "paused": "",
    "created": "",
    "cancelled": "",
    "completed": "c-ok",
    "answered": "c-ok",
    "degraded": "c-wait",
    "failed": "c-bad",
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([DESK, ASKS, BROKEN, FAILS, WATCHER, HELPER, EDITOR])
    opened.run(fill)
    yield opened
    MAY_END.set()
    opened.close()


def show(browser: Browser, site: Site, hash_: str = "#/", who: str = "ann") -> None:
    """Sign a person in, and open a list."""
    browser.open("about:blank")
    browser.open(site.link(who))
    until(browser, "document.querySelector('.list .trow')")
    if hash_ != "#/":
        go(browser, hash_)
        until(browser, f"location.hash === {json.dumps(hash_)}")


def rows(browser: Browser, each: str) -> Any:
    """Return a value for each drawn task, in their order on the screen; `each` is an expression about its `row`."""
    found = "[...document.querySelectorAll('.list .trow')].sort((a, b) => a.offsetTop - b.offsetTop)"
    return browser.run(f"{found}.map((row) => {each})")


def ids(browser: Browser) -> list[str]:
    """Return the ids of the drawn tasks, in their order on the screen."""
    return rows(browser, "row.id.slice(2)")


def until_ids(browser: Browser, *wanted: str) -> None:
    until(
        browser,
        "[...document.querySelectorAll('.list .trow')].map((row) => row.id.slice(2)).sort().join()"
        f" === {json.dumps(','.join(sorted(wanted)))}",
    )


def select(browser: Browser, task: str) -> None:
    """Move the selection down to a task."""
    for _ in range(40):
        if browser.run("document.querySelector('.trow.at')?.id") == f"t-{task}":
            return
        press(browser, "j")
    pytest.fail(f"no row of {task}")


def tab_to(browser: Browser, condition: str) -> None:
    """Press Tab until the focus is where a condition is true of it."""
    for _ in range(40):
        press(browser, "Tab")
        if browser.run(f"((at) => Boolean({condition}))(document.activeElement)"):
            return
    pytest.fail(f"Tab reaches no element with {condition}")


def states_of(site: Site, *tasks: str) -> list[str]:
    async def read(runner: Runner) -> list[str]:
        return [(await runner.get_task(task)).state for task in tasks]

    return site.run(read)


def test_each_state_is_a_word_a_shape_and_a_colour_and_waiting_comes_first(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    show(browser, site)
    until(browser, "document.querySelectorAll('.list .trow').length === 14")
    state = "row.querySelector('.st')"
    words = rows(browser, f"{state}.textContent.trim()")
    colours = rows(browser, f"[...{state}.classList].find((name) => name.startsWith('c-')) || ''")
    shapes = rows(browser, f"{state}.querySelector('path').getAttribute('d')")
    assert dict(zip(words, colours, strict=True)) == STATES
    assert len(set(shapes)) == len(STATES)
    assert ids(browser)[:2] == ["t-waiting", "t-running"]
    heads = "[...document.querySelectorAll('.thead')].map((head) => head.textContent)"
    assert browser.run(heads) == ["Waiting", "Running", "By last change"]
    assert "waits for an approval" in browser.run("document.getElementById('t-t-waiting').textContent")
    until(browser, "document.querySelectorAll('.chips .chip').length === 12")
    chips = browser.run("[...document.querySelectorAll('.chips .chip')].map((chip) => chip.innerText)")
    counts = dict(chip.split("\n") if "\n" in chip else chip.rsplit(" ", 1) for chip in chips)
    assert counts == {"All": "14", **dict.fromkeys(STATES, "1"), "completed": "4"}


def test_children_are_below_their_parent_and_a_tree_is_shown_alone(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    show(browser, site)
    shown = ids(browser)
    at = shown.index("t-tree")
    assert sorted(shown[at + 1 : at + 3]) == ["t-tree.s1-0", "t-tree.s1-1"]
    assert browser.run("document.querySelectorAll('.trow.kid').length") == 2
    select(browser, "t-tree.s1-1")
    press(browser, "ArrowRight")
    until_ids(browser, "t-tree", "t-tree.s1-0", "t-tree.s1-1")
    assert browser.run("location.hash") == "#/?tree=t-tree.s1-1"
    press(browser, "ArrowLeft")
    until(browser, "location.hash === '#/' && document.querySelectorAll('.list .trow').length === 14")


def test_the_list_is_filtered_by_keys_and_the_address_says_how(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    tab_to(browser, "at.textContent.includes('failed')")
    press(browser, "Enter")
    until_ids(browser, "t-failed")
    browser.run("document.querySelector('.chip').focus()")
    tab_to(browser, "at.textContent.includes('degraded')")
    press(browser, "Space")
    until_ids(browser, "t-failed", "t-degraded")
    assert browser.run("location.hash") == "#/?state=failed,degraded"
    browser.run("document.activeElement.blur()")
    press(browser, "Escape")
    until(browser, "location.hash === '#/'")
    press(browser, "f")
    until(browser, "document.activeElement.id === 'agent-filter'")
    for letter in "desk":
        press(browser, letter)
    until(browser, "location.hash === '#/?agent=desk'")
    until(browser, "document.querySelectorAll('.list .trow').length === 7")
    press(browser, "Tab")
    until(browser, "document.activeElement.id === 'label-filter-0'")
    for letter in "team: s":
        press(browser, "Space" if letter == " " else letter)
    until(browser, "location.hash === '#/?agent=desk&label=team=shop'")
    until_ids(browser, "t-completed", "t-created")
    browser.run("document.activeElement.blur()")
    select(browser, "t-created")
    press(browser, "Enter")
    until(browser, "location.hash.startsWith('#/t/t-created') && document.querySelector('.task-head')")
    press(browser, "t")
    until(browser, "location.hash === '#/' && document.querySelectorAll('.list .trow').length === 14")


def test_a_search_finds_messages_answers_and_ids_on_the_server(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    press(browser, "/")
    until(browser, "document.activeElement.id === 'search'")
    write(browser, "template")
    until_ids(browser, "t-failed")
    assert browser.run("location.hash") == "#/?q=template"
    write(browser, "t-tree.s1-0")
    until_ids(browser, "t-tree.s1-0")
    write(browser, "nothing has this")
    until(browser, "document.querySelector('.empty h2')?.textContent === 'No task matches'")
    press(browser, "Escape", "Escape")
    until(browser, "document.querySelectorAll('.list .trow').length === 14")
    until(browser, "document.getElementById('search').value === ''")


FACTS = "document.querySelector('.head .qq').textContent"
ALL = "document.querySelector('.chips .chip').innerText.replace('\\n', ' ')"


def test_the_counts_are_those_of_the_rows(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/?state=failed")
    until_ids(browser, "t-failed")
    until(browser, f"{FACTS}.startsWith('1 task ·')")
    assert browser.run("document.getElementById('search').placeholder") == "Search failed   /"
    press(browser, "/")
    until(browser, "document.activeElement.id === 'search'")
    write(browser, "Order new")
    until(browser, "document.querySelector('.empty h2')?.textContent === 'No task that is failed matches'")
    until(browser, "document.querySelector('.empty').textContent.includes('with the words “Order new”')")
    tab_to(browser, "at.textContent === 'Show all states (1)'")
    press(browser, "Enter")
    until_ids(browser, "t-created")
    until(browser, f"{FACTS}.startsWith('1 task ·') && {ALL} === 'All 1'")
    press(browser, "/")
    until(browser, "document.activeElement.id === 'search'")
    write(browser, "t-tree.s")
    until_ids(browser, "t-tree.s1-0", "t-tree.s1-1")
    until(browser, f"{FACTS} === '2 tasks' && {ALL} === 'All 2'")


def test_a_search_from_another_view_is_among_all_tasks(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/?state=failed")
    until_ids(browser, "t-failed")
    press(browser, "i")
    until(browser, "location.hash.startsWith('#/inbox')")
    press(browser, "/", *"degraded")
    until(browser, "location.hash === '#/?q=degraded'")
    until(browser, "document.activeElement.id === 'search' && document.activeElement.value === 'degraded'")
    until_ids(browser, "t-degraded")


def test_several_tasks_are_cancelled_after_a_sentence_says_so(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window

    async def create(runner: Runner) -> None:
        for number in range(3):
            await runner.create_task(DESK, f"Spare {number}", task_id=f"spare-{number}")

    site.run(create)
    show(browser, site, "#/?q=Spare")
    until_ids(browser, "spare-0", "spare-1", "spare-2")
    press(browser, "j", "Space", "Shift+ArrowDown")
    until(browser, "document.querySelector('.marked b')?.textContent === '2 tasks marked'")
    assert browser.run("document.querySelectorAll('[role=option][aria-selected=true]').length") == 2
    press(browser, "x")
    until(browser, "document.querySelector('dialog[open] h2')?.textContent === 'Cancel 2 tasks'")
    assert "nothing is compensated" in browser.run("document.querySelector('dialog').textContent")
    press(browser, "Escape")
    until(browser, "!document.querySelector('dialog')")
    assert states_of(site, "spare-2", "spare-1") == ["created", "created"]
    press(browser, "x")
    until(browser, "document.activeElement.textContent === 'Cancel 2 tasks'")
    press(browser, "Enter")
    until(browser, "document.querySelector('.toast')?.textContent === '2 tasks cancelled.'")
    assert states_of(site, "spare-2", "spare-1", "spare-0") == ["cancelled", "cancelled", "created"]
    press(browser, "*")
    until(browser, "document.querySelector('.marked b')?.textContent === '3 tasks marked'")
    press(browser, "Delete")
    until(browser, "document.querySelector('dialog[open]')?.textContent.includes('Nothing brings them back')")
    until(browser, "document.activeElement.textContent === 'Leave them'")
    press(browser, "Shift+Tab", "Enter")
    until(browser, "document.querySelector('.empty h2')?.textContent === 'No task matches'")
    with pytest.raises(TaskNotFound):
        states_of(site, "spare-0")


def test_a_refusal_of_one_of_several_is_told(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, "#/?state=running")
    until_ids(browser, "t-running")
    press(browser, "j", "Delete")
    until(browser, "document.querySelector('dialog[open] .note')?.textContent.includes('cancel first')")
    until(browser, "document.activeElement.textContent === 'Leave it'")
    press(browser, "Shift+Tab", "Enter")
    until(browser, "document.querySelector('.toast.bad')?.textContent.startsWith('1 task not deleted: ')")
    assert states_of(site, "t-running") == ["running"]


def test_no_verb_is_about_a_task_that_the_filter_hides(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site)
    select(browser, "t-created")
    press(browser, "Space")
    until(browser, "document.querySelector('.marked')")
    go(browser, "#/?state=paused")
    until_ids(browser, "t-paused")
    assert not browser.run("document.querySelector('.marked')")
    press(browser, "x", "Delete", "Space", "Enter")
    assert browser.run("location.hash") == "#/?state=paused"
    assert not browser.run("document.querySelector('.marked, dialog')")


def test_a_reader_may_mark_and_not_cancel(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    show(browser, site, who="ron")
    press(browser, "j", "Space")
    until(browser, "document.querySelector('.marked')")
    press(browser, "x", "Delete")
    assert not browser.run("document.querySelector('dialog')")
    assert "Cancel" not in browser.run("document.querySelector('.marked').textContent")


def test_a_new_task_and_a_changed_one_come_by_themselves_and_hold_under_the_pointer(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    show(browser, site)
    rest = browser.run("document.getElementById('task-list').getBoundingClientRect().toJSON()")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=rest["x"] + 300, y=rest["y"] + 200)
    before = ids(browser)
    site.run(lambda runner: runner.create_task(DESK, "Later", task_id="later"))
    until(browser, "document.getElementById('t-later')")
    assert ids(browser) == [*before, "later"]
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=20, y=400)
    until(
        browser,
        "document.getElementById('t-later').offsetTop < document.getElementById('t-t-created').offsetTop",
    )
    site.run(lambda runner: runner.delete_task("later"))
    until(browser, "!document.getElementById('t-later')")


@pytest.fixture(scope="module")
def crowd() -> Iterator[Site]:
    opened = Site([DESK], drive=False)

    async def create(runner: Runner) -> None:
        for number in range(450):
            await runner.create_task(DESK, f"Order {number}", task_id=f"o-{number}")

    opened.run(create)
    yield opened
    opened.close()


def test_pages_are_read_as_one_moves_and_few_rows_are_drawn(chromium_window: Browser, crowd: Site) -> None:
    browser = chromium_window
    show(browser, crowd)
    first = "document.querySelector('.list .trow')"
    until(browser, f"{first}.getAttribute('aria-setsize') === '450'")
    assert browser.run("document.querySelectorAll('.list .trow').length") < 50
    for last, read in (("o-250", 400), ("o-50", 450), ("o-0", 450)):
        press(browser, "End")
        until(browser, f"document.querySelector('.trow.at')?.id === 't-{last}'")
        until(browser, f"parseInt(document.querySelector('#task-list > div').style.height) >= {read * 46}")
    assert browser.run("document.querySelector('.trow.at').getAttribute('aria-posinset')") == "450"
    assert browser.run("document.querySelectorAll('.list .trow').length") < 50
    press(browser, "Home")
    until(browser, "document.querySelector('.trow.at')?.id === 't-o-449'")


def test_a_store_without_tasks_says_what_will_appear(chromium_window: Browser) -> None:
    browser = chromium_window
    site = Site([])
    try:
        browser.open("about:blank")
        browser.open(site.link())
        until(
            browser,
            "document.querySelector('.empty')?.textContent.includes('A task appears here as soon as')",
        )
    finally:
        site.close()


def test_the_list_fits_a_phone_and_marks_by_taps(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    browser.show(390, 844, dark=True)
    try:
        show(browser, site)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.run(
            "[...document.querySelectorAll('.chip')].find((chip) => chip.textContent === 'Select').click()"
        )
        until(browser, "document.querySelector('.marked')")
        browser.run("document.getElementById('t-t-created').click()")
        until(browser, "document.querySelector('.marked b').textContent === '1 task marked'")
        assert browser.run("location.hash") == "#/"
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.show(1440, 900)

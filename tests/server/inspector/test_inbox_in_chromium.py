"""The inbox in a real browser, by the keyboard alone: each kind of request, changed arguments, late decisions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from tests.docs.browser import Browser
from tests.server.inspector.chromium import go, needs_chromium, press, until, write
from tests.server.inspector.site import Site
from treadle import Agent, Policy, Rule, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text

pytestmark = [needs_chromium, pytest.mark.sampled(1)]


class Line(BaseModel):
    account: str = Field(pattern=r"^\d{4}$", description="Four digits")
    cents: int = Field(ge=1, le=10_000)


class Delivery(BaseModel):
    day: Literal["monday", "friday"]
    boxes: int = Field(ge=1)
    gift: bool = False


@tool(read_only=True)
def read_mail() -> str:
    return "Please pay 129."


@tool
def post(kind: Literal["accrual", "reversal"], lines: list[Line], memo: str = "") -> str:
    """Post entries.

    Args:
        memo: words for the auditor.
    """
    return f"{kind} {sum(line.cents for line in lines)} {memo}".strip()


@tool(preview=lambda cents: f"Count {cents} cents.")
def count(cents: int) -> str:
    return str(cents)


@tool(idempotent=True)
async def ask(ctx: ToolContext[Any], what: str) -> str:
    schemas: dict[str, Any] = {
        "delivery": Delivery,
        "sure": bool,
        "who": Literal["Assam", "Darjeeling"],
        "tins": int,
        "words": str,
    }
    return f"answer {await ctx.ask(f'Which {what}?', schemas[what])}"


@tool(timeout=0.05)
async def wire(cents: int) -> str:
    await asyncio.sleep(60)
    return "sent"


BANK = {"open": False}


def give_back(done: Any, ctx: Any) -> None:
    if not BANK["open"]:
        raise RuntimeError("the bank is closed")


@tool(undo=give_back)
def debit(cents: int) -> str:
    return "taken"


def agent(name: str, *answers: Any, **more: Any) -> Agent[Any]:
    """Return an agent that gives its answers in this order in each task, the last one again and again."""
    script = ScriptedModel(lambda request: answers[min(request.turn, len(answers) - 1)])
    return Agent(script, name=name, **more)


LINES = [{"account": "6300", "cents": 1849}]
RULES = Policy(
    Rule(
        "auditor",
        "ask",
        tool=["post", "count"],
        reason="An auditor decides.",
        excluded=["labels.clerk"],
        expires=3600,
    )
)
POSTER = agent(
    "poster",
    call("read_mail"),
    call("post", kind="accrual", lines=LINES),
    text("Posted."),
    tools=[read_mail, post],
    policy=RULES,
)
LONG = agent("long", call("count", cents=9007199254740993), text("Counted."), tools=[count], policy=RULES)
SHORT = agent("short", call("count", cents=4000), text("Counted."), tools=[count], policy=RULES)
ASKERS = {
    what: agent(f"asks-{what}", call("ask", what=what), text("Thanks."), tools=[ask])
    for what in ("delivery", "sure", "who", "tins", "words")
}
PAYER = agent("payer", call("wire", cents=129), text("Paid."), tools=[wire])
DEBITER = agent("debiter", call("debit", cents=49), text("Taken."), tools=[debit])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([POSTER, LONG, SHORT, *ASKERS.values(), PAYER, DEBITER])
    yield opened
    opened.close()


def begin(site: Site, asking: Agent[Any], task: str, **labels: str) -> None:
    """Run a task until it waits."""

    async def run(runner: Runner) -> None:
        result = await runner.run(
            asking, f"Do {task}", task_id=task, options=RunOptions(labels={"clerk": "bob", **labels})
        )
        assert result.state == "waiting"

    site.run(run)


def show(browser: Browser, site: Site, task: str, who: str = "ann") -> None:
    """Sign a person in, and select the request of a task in the inbox."""
    browser.open("about:blank")
    browser.open(site.link(who))
    until(browser, "document.querySelector('.head h1')")
    press(browser, "i")
    until(browser, "document.querySelector('.case') && document.activeElement.id === 'inbox-list'")
    for _ in range(20):
        if browser.run(f"location.hash.startsWith('#/inbox?request={task}%2F')"):
            return
        press(browser, "j")
        browser.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
    pytest.fail(f"the inbox has no request of {task}")


def until_lead(browser: Browser, words: str) -> None:
    until(browser, f"document.querySelector('.case .lead')?.textContent.includes({json.dumps(words)})")


def until_toast(browser: Browser, words: str) -> None:
    until(browser, f"document.querySelector('.toast')?.textContent.includes({json.dumps(words)})")


def until_text(site: Site, task: str, words: str) -> None:
    """Wait until a task has ended; its last call returned these words."""

    end = time.monotonic() + 20
    while not (result := site.run(lambda runner: runner.result(task))).ended_at:
        assert time.monotonic() < end, f"{task} is {result.state}"
        time.sleep(0.05)
    assert result.tool_executions[-1].output == words


def tab_to(browser: Browser, condition: str) -> None:
    """Press Tab until the focus is where a condition is true of it."""
    for _ in range(40):
        press(browser, "Tab")
        if browser.run(f"((at) => Boolean({condition}))(document.activeElement)"):
            return
    pytest.fail(f"Tab reaches no element with {condition}")


def decided(site: Site, task: str, kind: str) -> Any:
    """Return the decision of a kind in the journal of a task."""

    async def read(runner: Runner) -> list[Any]:
        return [event async for event in await runner.get_events(task, kinds=kind)]

    (event,) = site.run(read)
    return event


def test_an_approval_tells_who_asks_why_and_after_what(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, POSTER, "seen", team="books")
    show(browser, site, "seen")
    until_lead(browser, "Run post?")
    shown = browser.run("document.querySelector('.case').innerText")
    for fact in ("An auditor decides.", "rule auditor", "poster asked now", "tool:read_mail", "team books"):
        assert fact in shown
    assert "untrusted content" in shown
    assert "then it is denied" in shown
    assert "6300" in shown
    show(browser, site, "seen", "bob")
    until(browser, "document.querySelector('.case').textContent.includes('You (bob) may not decide this')")
    press(browser, "a")
    show(browser, site, "seen", "ron")
    until(browser, "document.querySelector('.case').textContent.includes('may read, and not decide')")
    press(browser, "a", "d", "e")
    assert "approval_given" not in site.kinds("seen")
    show(browser, site, "seen")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'answer'")
    press(browser, "Enter")
    assert "Enter denies with this reason" in browser.run(
        "document.getElementById('answer-about').textContent"
    )
    write(browser, "not this month")
    press(browser, "Enter")
    until_toast(browser, "Denied. post in Do seen")
    assert browser.run("document.querySelector('.toast a').hash") == "#/t/seen"
    assert (decided(site, "seen", "approval_denied").reason, decided(site, "seen", "approval_denied").by) == (
        "not this month",
        "ann",
    )


def test_arguments_are_changed_in_a_form_by_their_schema(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, POSTER, "edited")
    show(browser, site, "edited")
    press(browser, "e")
    until(browser, "document.activeElement.id === 'edit-kind'")
    press(browser, "r")
    until(browser, "document.querySelector('.f-was:not(.off)')?.textContent === 'was accrual'")
    tab_to(browser, "at.id === 'edit-lines-0-cents'")
    write(browser, "20000")
    tab_to(browser, "at.id === 'edit-lines'")
    press(browser, "Enter")
    until(browser, "document.getElementById('edit-lines-1-account')")
    browser.run("document.getElementById('edit-lines-1-account').focus()")
    write(browser, "685")
    tab_to(browser, "at.id === 'edit-lines-1-cents'")
    write(browser, "7")
    tab_to(browser, "at.id === 'edit-memo-add'")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'edit-memo'")
    write(browser, "checked")
    press(browser, "Escape")
    press(browser, "a")
    until_toast(browser, "lines.0.cents must be at most 10000")
    wrong = "[...document.querySelectorAll('.case .f-bad')].map((each) => each.textContent)"
    assert browser.run(wrong) == ["It must be at most 10000.", "It must match ^\\d{4}$."]
    browser.run("document.getElementById('edit-lines-0-cents').focus()")
    write(browser, "20")
    browser.run("document.getElementById('edit-lines-1-account').focus()")
    write(browser, "6855")
    press(browser, "Escape")
    press(browser, "a")
    until_toast(browser, "Approved.")
    until_text(site, "edited", "reversal 27 checked")


def test_arguments_are_changed_as_json_and_taken_back(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, POSTER, "as-json")
    show(browser, site, "as-json")
    press(browser, "e")
    until(browser, "document.activeElement.id === 'edit-kind'")
    press(browser, "Escape")
    press(browser, "e")
    until(browser, "!document.querySelector('.case .form')")
    press(browser, "e")
    until(browser, "document.activeElement.id === 'edit-kind'")
    tab_to(browser, "at.textContent === 'As JSON'")
    press(browser, "Enter")
    until(browser, "document.getElementById('edit')?.value.includes('6300')")
    browser.run("document.getElementById('edit').focus()")
    write(browser, '{"kind": "accrual", "lines": [')
    press(browser, "Escape")
    press(browser, "a")
    until_toast(browser, "This is not JSON")
    browser.run("document.getElementById('edit').focus()")
    write(browser, '{"kind": "accrual", "lines": [{"account": "1", "cents": 5}]}')
    press(browser, "Escape")
    press(browser, "a")
    until(browser, "document.querySelector('.toast.bad')?.textContent.includes('account')")
    browser.run("document.getElementById('edit').focus()")
    write(browser, '{"kind": "accrual", "lines": []}')
    press(browser, "Escape")
    press(browser, "a")
    until_toast(browser, "Approved.")
    until_text(site, "as-json", "accrual 0")


def answer_delivery(browser: Browser) -> None:
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'answer-day'")
    press(browser, "f")
    tab_to(browser, "at.id === 'answer-boxes'")
    write(browser, "none")
    press(browser, "Enter")
    until_toast(browser, "boxes is not a number")
    write(browser, "3")
    tab_to(browser, "at.id === 'answer-gift-add'")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'answer-gift'")
    press(browser, "y")
    tab_to(browser, "at.textContent.startsWith('Answer')")
    press(browser, "Enter")


def answer_with(words: str) -> Callable[[Browser], None]:
    def typed(browser: Browser) -> None:
        press(browser, "Enter")
        until(browser, "document.activeElement.id === 'answer'")
        write(browser, words)
        press(browser, "Enter")

    return typed


@pytest.mark.parametrize(
    ("what", "act", "said"),
    [
        ("delivery", answer_delivery, "answer day='friday' boxes=3 gift=True"),
        ("sure", lambda browser: press(browser, "n"), "answer False"),
        ("who", lambda browser: press(browser, "2"), "answer Darjeeling"),
        ("tins", answer_with("12"), "answer 12"),
        ("words", answer_with("to the back door"), "answer to the back door"),
    ],
)
def test_a_question_is_answered_by_its_schema(
    what: str, act: Any, said: str, chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    begin(site, ASKERS[what], f"q-{what}")
    show(browser, site, f"q-{what}")
    until_lead(browser, f"Which {what}?")
    act(browser)
    until_toast(browser, "Answered.")
    until_text(site, f"q-{what}", said)


def test_a_settlement_of_a_task_that_moved_is_refused_and_read_again(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    begin(site, PAYER, "lost")
    show(browser, site, "lost")
    until_lead(browser, "Did wire happen?")
    assert "/s1-0" in browser.run("document.querySelector('.case .kv .mono').textContent")
    site.run(lambda runner: runner.pause("lost"))
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'answer'")
    write(browser, "sent")
    press(browser, "Escape")
    press(browser, "h")
    until_toast(browser, "The result is not JSON")
    browser.run("document.getElementById('answer').focus()")
    write(browser, '"sent by hand"')
    press(browser, "Escape")
    press(browser, "h")
    until_toast(browser, "The task went on meanwhile.")
    assert "outcome_settled" not in site.kinds("lost")
    until_lead(browser, "Did wire happen?")
    until(browser, "document.querySelector('#answer').value === '\"sent by hand\"'")
    press(browser, "h")
    until_toast(browser, "Settled: it happened.")
    settled = decided(site, "lost", "outcome_settled")
    assert (settled.verdict, settled.output, settled.by) == ("happened", "sent by hand", "ann")


def test_a_call_that_did_not_happen_is_settled_by_its_key(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, PAYER, "lost-too")
    show(browser, site, "lost-too")
    press(browser, "n")
    until_toast(browser, "Settled: it did not happen.")
    assert decided(site, "lost-too", "outcome_settled").verdict == "not_happened"
    site.run(lambda runner: runner.cancel("lost-too"))


def test_a_stopped_undo_is_tried_again_or_goes_on_without_the_call(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window

    async def stop(runner: Runner) -> None:
        for task in ("undo-1", "undo-2"):
            await runner.create_task(DEBITER, task, task_id=task)
            await runner.run_step(task)
            await runner.undo_step(task)

    BANK["open"] = False
    site.run(stop)
    show(browser, site, "undo-1")
    until_lead(browser, "The compensation of debit failed")
    assert "the bank is closed" in browser.run("document.querySelector('.case').textContent")
    press(browser, "r")
    until_toast(browser, "The undo has stopped again")
    BANK["open"] = True
    until(browser, "location.hash.startsWith('#/inbox?request=undo-1%2F')")
    press(browser, "r")
    until_toast(browser, "The undo is complete.")
    assert "rewound" in site.kinds("undo-1")
    BANK["open"] = False
    show(browser, site, "undo-2")
    press(browser, "S")
    until(browser, "!document.querySelector('.ilist')?.textContent.includes('undo-2')")
    assert "rewound" in site.kinds("undo-2")


def test_a_late_decision_is_told_and_the_next_request_is_selected(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    for number in range(3):
        begin(site, POSTER, f"late-{number}")
    show(browser, site, "late-0")
    press(browser, "a")
    until_toast(browser, "Approved.")
    until(browser, "location.hash.startsWith('#/inbox?request=late-1%2F')")
    browser.run(
        "void (window.held = new Promise((go) => (window.letGo = go)), window.own = fetch, "
        "window.fetch = async (url, how) => { if (how?.method === 'POST') await window.held; return own(url, how); })"
    )
    press(browser, "a")
    site.run(lambda runner: runner.deny("late-1", by="cem"))
    browser.run("void letGo()")
    until(browser, "document.querySelector('.toast.bad')?.textContent.startsWith('Nothing changed: ')")
    until(browser, "location.hash.startsWith('#/inbox?request=late-2%2F')")
    press(browser, "d")
    until(browser, "document.querySelector('.empty')?.textContent.includes('appear here')")
    assert "approval_denied" in site.kinds("late-2")


def test_the_answers_stay_and_the_headline_is_as_asked_while_arguments_change(
    chromium_window: Browser, site: Site
) -> None:
    browser = chromium_window
    begin(site, SHORT, "short")
    show(browser, site, "short")
    until_lead(browser, "Count 4000 cents.")
    press(browser, "n")
    until(browser, "location.hash === '#/agents' && document.activeElement.id === 'start-input'")
    press(browser, *"ad", "Escape")
    assert not {"approval_given", "approval_denied"} & {*site.kinds("short")}
    show(browser, site, "short")
    press(browser, "e")
    until(browser, "document.activeElement.id === 'edit-cents'")
    until_lead(browser, "As asked: Count 4000 cents.")
    place = "document.querySelector('.case .sticky').getBoundingClientRect().top"
    before = browser.run(place)
    write(browser, "2000")
    until(browser, "document.querySelector('.f-was:not(.off)')?.textContent === 'was 4000'")
    assert browser.run(place) == before
    press(browser, "Escape", "a")
    until_toast(browser, "Approved. count in Do short")
    until_text(site, "short", "2000")


def test_a_long_number_is_shown_to_its_last_digit(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, LONG, "long")
    show(browser, site, "long")
    assert "9007199254740993" in browser.run("document.querySelector('.case .args').textContent")
    press(browser, "d")
    until_toast(browser, "Denied.")


def test_an_approval_may_hold_for_later_calls(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, POSTER, "wide")
    show(browser, site, "wide")
    tab_to(browser, "at.tagName === 'SELECT'")
    press(browser, "ArrowDown")
    press(browser, "Escape")
    press(browser, "a")
    until_toast(browser, "Approved.")
    assert decided(site, "wide", "approval_given").scope == "task"


def test_the_inbox_fits_a_phone(chromium_window: Browser, site: Site) -> None:
    browser = chromium_window
    begin(site, POSTER, "phone")
    browser.show(390, 844, dark=True)
    try:
        show(browser, site, "phone")
        press(browser, "e")
        until(browser, "document.querySelector('.case .form')")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        foot = browser.run("document.querySelector('.case .sticky').getBoundingClientRect().bottom")
        bar = browser.run("document.querySelector('nav').getBoundingClientRect().top")
        assert foot <= bar + 1, "the answers are in view"
    finally:
        browser.show(1440, 900)
        go(browser, "#/")

"""Every verb of a task in a real browser, by the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.browser import Browser
from tests.server.inspector.chromium import needs_chromium, press, until, write
from tests.server.inspector.site import Site
from tests.server.inspector.task_page import (
    AGENTS,
    BOOKED,
    BOOKER,
    BROKEN,
    BUYER,
    CLERK,
    DESK,
    HEAD,
    Gate,
    count,
    look_at,
    show,
    text_of,
    until_open,
    until_shut,
    until_state,
    until_text,
    waiter,
)
from treadle import Breakpoint, RunOptions

pytestmark = [needs_chromium, pytest.mark.sampled(1)]

HELD, STOPPED = Gate(), Gate()
HOLDER, STOPPER = waiter(HELD, "holder"), waiter(STOPPED, "stopper", writes=True)


LOSE_ANSWERS = """
void (() => {
  const real = fetch;
  window.lost = 0;
  window.fetch = async (url, how) => {
    const answer = await real(url, how);
    if (String(url).endsWith("/steps") && window.lost++ < 2) throw new TypeError("the answer is lost");
    return answer;
  };
})()
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    opened = Site([*AGENTS, HOLDER, STOPPER], models=["openai:gpt-5.2-mini"])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def browser(chromium_window: Browser, site: Site) -> Browser:
    """The window, with ann signed in."""
    site.run(lambda runner: runner.create_task(CLERK, "Which orders are known?", task_id="stepped"))
    chromium_window.show(1440, 900)
    show(chromium_window, site, "stepped")
    return chromium_window


def event(site: Site, task: str, kind: str) -> Any:
    """Return the last event of a kind."""

    async def read(runner: Any) -> Any:
        return [each async for each in await runner.get_events(task, kinds=kind)][-1]

    return site.run(read)


def test_a_task_is_stepped_and_run(browser: Browser) -> None:
    until_state(browser, "created")
    press(browser, "s")
    until_state(browser, "between steps")
    assert count(browser, ".r.call") == 1
    press(browser, "r")
    until_state(browser, "completed")
    assert count(browser, ".r.step") == 3


def test_what_is_said_of_a_run_is_still_true(browser: Browser, site: Site) -> None:
    for agent, name, said in (
        (DESK, "said-waits", "The task waits."),
        (CLERK, "said-ends", "The task has ended."),
    ):
        site.run(lambda runner, agent=agent, name=name: runner.create_task(agent, "Go", task_id=name))
        look_at(browser, name)
        until_state(browser, "created")
        press(browser, "r")
        until_text(browser, ".toast", said)
    until(browser, "document.querySelector('.facts [title*=\" from \"]')")


def test_a_task_runs_to_a_step_and_to_a_tool(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.create_task(BOOKER, "Book the rent", task_id="run-to"))
    look_at(browser, "run-to")
    press(browser, "b")
    until_open(browser, "Run to")
    press(browser, "Enter")
    until_state(browser, "paused")
    assert count(browser, ".r.step") == 1
    press(browser, "b")
    until_open(browser, "Run to")
    press(browser, "Shift+Tab", "ArrowDown")
    until_text(browser, "dialog .cap", "Tool, or a pattern")
    press(browser, "Tab")
    write(browser, "ma*")
    press(browser, "Enter")
    until_state(browser, "paused")
    until_text(browser, ".r.call .n", "mail")
    assert "tool_started" in site.kinds("run-to")
    assert BOOKED == ["rent"]
    BOOKED.clear()


def test_a_running_task_gets_a_message_and_is_paused(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.create_task(HOLDER, "Wait for it", task_id="held"))
    look_at(browser, "held")
    press(browser, "r")
    until_state(browser, "running")
    assert HELD.reached.wait(10)
    until(browser, "document.querySelector('.r.call .bar.live')")
    until_text(browser, ".r.call .a", "3 of 9")
    press(browser, "m")
    until_open(browser, "Message to the task")
    write(browser, "Be quick, please.")
    press(browser, "Control+Enter")
    until_shut(browser)
    until_text(browser, ".r.said", "Be quick, please.")
    took = text_of(browser, ".r.call .d")
    until(browser, f"document.querySelector('.r.call .d').innerText !== {took!r}")
    press(browser, "p")
    until_text(browser, ".r.said", "pause")
    HELD.open()
    until_state(browser, "paused")
    press(browser, "r")
    until_state(browser, "completed")
    assert event(site, "held", "input_received").by == "ann"


def test_a_running_task_is_stopped_and_its_unknown_outcome_settled(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.create_task(STOPPER, "Do it", task_id="stopped"))
    look_at(browser, "stopped")
    press(browser, "r")
    assert STOPPED.reached.wait(10)
    until_state(browser, "running")
    press(browser, "P")
    until_state(browser, "interrupted")
    until_text(browser, ".asked .lead", "Did wait_for_it happen?")
    press(browser, "h")
    until_text(browser, ".toast", "Settled: it happened.")
    press(browser, "r")
    until_state(browser, "completed")
    assert event(site, "stopped", "outcome_settled").verdict == "happened"
    STOPPED.open()


def test_the_next_input_is_edited(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.create_task(CLERK, "Wich orders?", task_id="words"))
    look_at(browser, "words")
    press(browser, "w")
    until_open(browser, "Input of the next step")
    write(browser, "Which orders?")
    site.run(lambda runner: runner.edit_step("words", "Wich order?", by="bob"))
    press(browser, "Tab", "Enter")
    until_text(browser, "dialog .note", "The task went on meanwhile.")
    assert event(site, "words", "input_edited").by == "bob"
    press(browser, "Enter")
    until_shut(browser)
    until_text(browser, ".r.said", "Which orders?")
    assert event(site, "words", "input_edited").previous[0].text == "Wich order?"
    press(browser, "o")
    until_open(browser, "Actions")
    while not browser.run("document.activeElement.innerText").startswith("Cancel"):
        press(browser, "Tab")
    press(browser, "Enter")
    until_open(browser, "Cancel the task")
    write(browser, "a trial")
    press(browser, "Enter")
    until_state(browser, "cancelled")
    until_text(browser, ".task-head .note", "a trial")
    assert text_of(browser, ".acts").split() == ["Fork", "f"]


def test_the_arguments_of_a_waiting_call_are_edited(browser: Browser, site: Site) -> None:
    options = RunOptions(break_on=[Breakpoint(tool="look_up")])
    site.run(lambda runner: runner.run(CLERK, "Which?", task_id="call-edited", options=options))
    look_at(browser, "call-edited")
    until_state(browser, "paused")
    press(browser, "j", "e")
    until_open(browser, "Arguments of look_up")
    write(browser, "Z-9")
    press(browser, "Control+Enter")
    until_shut(browser)
    until_text(browser, ".r.call", "Z-9")
    press(browser, "r")
    until_text(browser, ".r.call", "B-4")
    assert event(site, "call-edited", "call_edited").arguments == {"order": "Z-9"}


def test_an_approval_is_changed_denied_and_given_in_the_task(browser: Browser, site: Site) -> None:
    for name in ("approve-1", "approve-2", "approve-3"):
        site.run(lambda runner, name=name: runner.run(DESK, "Order A-17", task_id=name))
    look_at(browser, "approve-1")
    until_text(browser, ".asked .lead", "Run refund?")
    until_text(browser, ".side-b .kv", "Effectnone yet")
    press(browser, "a")
    until_state(browser, "completed")
    look_at(browser, "approve-2")
    until_text(browser, ".asked .lead", "Run refund?")
    press(browser, "e")
    until(browser, "document.activeElement.closest('.asked .form')")
    press(browser, "Tab")
    write(browser, "ten")
    press(browser, "Escape", "a")
    until_text(browser, ".asked .f-bad", "not a number")
    until_text(browser, ".toast", "cents")
    while not browser.run("document.activeElement.id === 'edit-cents'"):
        press(browser, "Tab")
    write(browser, "15")
    press(browser, "Escape", "a")
    until_state(browser, "completed")
    assert event(site, "approve-2", "approval_given").arguments == {"order": "A-17", "cents": 15}
    until_text(browser, ".r.said", "refund was approved with changes by ann: cents 4000 → 15")
    look_at(browser, "approve-2", "?sel=s2-0")
    until_text(browser, ".side-b .note", "Approved with changes by ann: cents 4000 → 15")
    look_at(browser, "approve-3")
    until_text(browser, ".asked .lead", "Run refund?")
    browser.run("document.querySelector('.rows').focus()")
    press(browser, "Tab", "Tab", "Tab")
    press(browser, "d")
    until_text(browser, ".r.said", "denied")
    assert event(site, "approve-3", "approval_denied").by == "ann"
    until_state(browser, "completed")
    until_text(browser, ".r.call .st.c-bad", "denied")
    until_text(browser, ".facts .c-bad", "1 denied")
    look_at(browser, "approve-3", "?sel=s2-0")
    until_text(browser, ".side-b .kv", "Effectnone: it was not run")
    assert text_of(browser, ".side-b").lower().count("denied") == 1


def test_a_question_is_answered_in_the_task(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(BUYER, "We need tea", task_id="asks"))
    look_at(browser, "asks")
    until_text(browser, ".asked .lead", "How many tins of tea?")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'side-b'")
    press(browser, "Tab")
    write(browser, "many")
    press(browser, "Enter")
    until_text(browser, ".asked .f-bad", "not a number")
    write(browser, "12")
    press(browser, "Enter")
    until_state(browser, "completed")
    assert event(site, "asks", "question_answered").value == 12


def test_what_waits_below_a_task_is_decided_in_it(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(HEAD, "Settle it", task_id="above"))
    look_at(browser, "above")
    until_text(browser, ".asked .lead", "Run refund?")
    until_text(browser, ".asked", "above.s1-0")
    press(browser, "a")
    until_state(browser, "completed")


def test_a_failed_step_is_skipped(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.create_task(BROKEN, "Go", task_id="skipped"))
    look_at(browser, "skipped")
    press(browser, "r")
    until_state(browser, "failed")
    until_text(browser, ".task-head .note.c-bad", "the prompt misses a field")
    press(browser, "S")
    until_open(browser, "Skip the failed step")
    press(browser, "Enter")
    until_shut(browser)
    until_state(browser, "between steps")
    press(browser, "s")
    until_state(browser, "answered")
    press(browser, "z")
    until_state(browser, "completed")


def test_an_undo_shows_first_what_it_would_do(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(BOOKER, "Book the rent", task_id="undone"))
    look_at(browser, "undone")
    until_state(browser, "completed")
    browser.run("document.querySelector('.rows').focus()")
    press(browser, "k", "k", "k", "u")
    until_open(browser, "Undo")
    assert browser.run("document.querySelector('dialog select').value") == "s2"
    until_text(browser, "dialog .q", "It would take back steps 2, 3 and 4.")
    until_text(browser, "dialog .q", "The task is unfinished afterwards, and can run on.")
    until_text(browser, "dialog .args", "would be compensated")
    until_text(browser, "dialog .args", "would stay")
    assert browser.run("document.querySelector('dialog .main').disabled")
    assert BOOKED == ["rent"]
    press(browser, "Tab", "Space")
    until(browser, "document.querySelector('dialog .main')?.disabled === false")
    press(browser, "Control+Enter")
    until_shut(browser)
    until_text(browser, ".r.fold", "3 steps undone by ann")
    assert BOOKED == []
    assert event(site, "undone", "rewound").to == 1
    assert browser.run("document.activeElement.classList.contains('rows')"), "the focus came back"


def test_a_task_is_forked_with_words_instructions_and_a_model(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(CLERK, "Which orders?", task_id="forked"))
    look_at(browser, "forked")
    until_state(browser, "completed")
    press(browser, "<", "<", "f")
    until_open(browser, "Fork at event 8, in step 2")
    write(browser, "Look at B-4 alone.")
    press(browser, "Tab")
    write(browser, "Be brief.")
    press(browser, "Tab", "ArrowDown")
    press(browser, "Control+Enter")
    until_text(browser, ".crumb", "fork of")
    fork = browser.run("location.hash").split("/")[2].split("?")[0]
    first = event(site, fork, "task_forked")
    assert (first.override.instructions, first.override.model) == ("Be brief.", "openai:gpt-5.2-mini")
    until_text(browser, ".r.said", "Look at B-4 alone.")


def test_a_task_is_forked_after_the_selected_step(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(CLERK, "Which orders?", task_id="fork-here"))
    look_at(browser, "fork-here", "?sel=s1-0")
    until_state(browser, "completed")
    press(browser, "f")
    until_open(browser, "Fork")
    until_text(browser, "dialog select", "after step 1, which is selected")
    assert browser.run("document.querySelector('dialog select').value") == "s1"
    press(browser, "Control+Enter")
    until_text(browser, ".crumb", "fork of")
    fork = browser.run("location.hash").split("/")[2].split("?")[0]
    assert [each.step.step_id for each in site.run(lambda runner: runner.get_completed_steps(fork))] == ["s1"]


def test_a_task_is_forked_with_another_result_of_a_call(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(CLERK, "Which orders?", task_id="other-result"))
    look_at(browser, "other-result", "?sel=s1-0")
    until_text(browser, ".side-t", "look_up")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'side-b'")
    for _ in range(8):
        press(browser, "Tab")
        if browser.run("document.activeElement.innerText") == "Fork with another result":
            break
    press(browser, "Enter")
    until_open(browser, "Fork with another result of look_up")
    write(browser, '{"order": "A-17", "cents": 0}')
    press(browser, "Control+Enter")
    until_text(browser, ".crumb", "fork of")
    fork = browser.run("location.hash").split("/")[2].split("?")[0]
    assert event(site, fork, "result_replaced").output == {"order": "A-17", "cents": 0}


def test_a_command_whose_answer_was_lost_is_carried_out_once(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.create_task(CLERK, "Which orders?", task_id="lost"))
    look_at(browser, "lost")
    until_state(browser, "created")
    browser.run(LOSE_ANSWERS)
    press(browser, "s")
    until_state(browser, "between steps")
    until(browser, "lost === 3")
    until_text(browser, ".toast", "One step ran.")
    assert site.kinds("lost").count("step_started") == 1


def test_the_focus_stays_near_what_went_away(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(DESK, "Order A-17", task_id="near"))
    look_at(browser, "near")
    until_text(browser, ".asked .lead", "Run refund?")
    press(browser, "Enter")
    until(browser, "document.activeElement.id === 'side-b'")
    while browser.run("document.activeElement.innerText") != "Approve\na":
        press(browser, "Tab")
    press(browser, "Enter")
    until_state(browser, "completed")
    until(browser, "document.activeElement.id === 'side-b'")


def test_who_may_only_read_is_shown_no_verb(browser: Browser, site: Site) -> None:
    site.run(lambda runner: runner.run(DESK, "Order A-17", task_id="read-only"))
    show(browser, site, "read-only", who="ron")
    until_text(browser, ".asked", "Your token may read, and not decide.")
    assert text_of(browser, ".acts") == ""
    assert count(browser, ".asked button") == 0
    before = site.kinds("read-only")
    press(browser, *"srbpPmwSxzufoade")
    assert count(browser, "dialog") == 0
    assert site.kinds("read-only") == before

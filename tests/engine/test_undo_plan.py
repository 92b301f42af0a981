"""What an undo takes back, and which undos are refused."""

from dataclasses import replace
from typing import Any

import pytest

from tests.agents.stories import answered, began, state_after, step
from tests.cast import Gate, Ledger, calculator, gate_agent, pay, save
from tests.runner.acts import both, journal, only, step_to_answer, verdicts
from treadle import Agent, Runner, ScriptedModel
from treadle.core import events as e
from treadle.engine.undo_plan import harmless_children, plan
from treadle.errors import (
    AlreadyFinalized,
    ConfigurationError,
    IrreversibleStep,
    StepNotFound,
    TaskFinished,
    TaskMoved,
    UndoUnfinished,
)
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("to", "left"), [(0, 0), (1, 1), ("s1", 1), (2, 2), ("s2", 2), (None, 2)], ids=repr)
async def test_to_names_the_last_step_that_is_kept(runner: Runner, to: Any, left: int) -> None:
    task = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, task)
    report = await runner.undo_step(task, to=to)
    assert (report.to, len(report.steps)) == (left, 3 - left)
    assert (await runner.get_task(task)).steps == left
    assert [info.index for info in await runner.get_upcoming_steps(task)] == [left + 1]
    assert (await step_to_answer(runner, task))[-1].output == "405"


async def test_there_is_nothing_to_take_back_before_the_first_step(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    with pytest.raises(StepNotFound, match="no step to take back"):
        await runner.undo_step(task)
    assert (await runner.get_task(task)).state == "created"
    assert (await runner.get_task(task)).driven is False


@pytest.mark.parametrize("to", [True, 1.5, -1, 4, 3, "s9", "s3"])
async def test_a_step_that_cannot_be_kept_is_named(runner: Runner, to: Any) -> None:
    task = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, task)
    before = await journal(runner, task)
    says = "undo_step: to must be an id or a whole number" if to in (True, 1.5) else task.task_id
    with pytest.raises(ConfigurationError if to in (True, 1.5) else StepNotFound, match=says):
        await runner.undo_step(task, to=to)
    assert await journal(runner, task) == before


async def test_another_undo_while_one_is_unfinished_is_refused(runner: Runner) -> None:
    ledger = Ledger(fails=lambda entry: entry.startswith("unbook"))
    task = await runner.create_task(ledger.agent(call("book", what="1"), "done"), "?")
    await step_to_answer(runner, task)
    await runner.undo_step(task, to=0)
    with pytest.raises(UndoUnfinished, match="an undo to step 0 has begun"):
        await runner.undo_step(task, to=1)


async def test_a_step_with_an_effect_that_cannot_be_taken_back_is_refused_whole(runner: Runner) -> None:
    ledger = Ledger()
    agent = ledger.agent(both(call("book", what="1"), call("mail", to="ann")), "done")
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    before = await journal(runner, task)
    with pytest.raises(IrreversibleStep, match=r"mail \(s1-1\).*undo=.*force=True") as caught:
        await runner.undo_step(task, to=0)
    assert caught.value.calls == ("s1-1",)
    assert await journal(runner, task) == before
    assert ledger.entries == ["book 1", "mail ann"]


async def test_calls_that_failed_or_never_ran_are_nothing_to_compensate(runner: Runner) -> None:
    ledger = Ledger()
    agent = ledger.agent(both(call("book", where=7), call("nothing")), "done")
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    report = await runner.undo_step(task, to=0)
    assert verdicts(report) == [("s1-1", "nothing_to_compensate"), ("s1-0", "nothing_to_compensate")]


def test_an_undo_that_is_asked_for_again_keeps_a_compensation_that_began_before_its_call_failed() -> None:
    failed = e.ToolEnded("s1", "s1-0", "error", error=e.Failure("tool", "error", "broken", "s1-0"))
    state = state_after(
        step(),
        answered("book"),
        e.TicketIssued("s1", "s1-0", "ticket"),
        began(0, name="book"),
        e.CallDeferred("s1", "s1-0", 99),
        e.StepCompleted("s1"),
        e.UndoRequested(0, ("s1",), ("s1-0",)),
        e.TicketFailed("s1", "s1-0", "broken", by="me"),
        failed,
        e.ToolStarted("s1", "s1-0-undo", "write", 1, undoes="s1-0"),
        e.ToolStopped("s1", "s1-0-undo", "crash"),
    )
    assert plan(state, None, force=True, by="me").event.calls == ("s1-0",)


# ------------------------------------------------------------------------------------------ dry runs


async def test_a_dry_run_tells_what_the_undo_then_does_and_changes_nothing(runner: Runner) -> None:
    ledger = Ledger()
    script = [call("look", what="room"), both(call("book", what="room"), call("book", what="car")), "Booked."]
    task = await runner.create_task(ledger.agent(*script), "Book")
    await step_to_answer(runner, task)
    before, entries = await journal(runner, task), list(ledger.entries)
    foreseen = await runner.undo_step(task, to=0, dry_run=True)
    assert (await journal(runner, task), ledger.entries) == (before, entries)
    assert (foreseen.complete, foreseen.to, foreseen.steps, foreseen.problem) == (
        True,
        0,
        ("s1", "s2", "s3"),
        None,
    )
    assert verdicts(foreseen) == [
        ("s2-1", "compensated"),
        ("s2-0", "compensated"),
        ("s1-0", "nothing_to_compensate"),
    ]
    assert await runner.undo_step(task, to=0) == replace(foreseen, planned=False)
    with pytest.raises(StepNotFound):
        await runner.undo_step(task, dry_run=True)


async def test_a_dry_run_tells_what_cannot_be_taken_back_and_what_force_would_leave(runner: Runner) -> None:
    ledger = Ledger()
    script = [both(call("book", what="room"), call("mail", to="ann")), "Done."]
    task = await runner.create_task(ledger.agent(*script), "Book")
    await runner.run_step(task)
    foreseen = await runner.undo_step(task, dry_run=True)
    assert not foreseen.complete
    assert "mail (s1-1) may have changed something" in str(foreseen.problem)
    assert verdicts(foreseen) == [("s1-1", "not_compensated"), ("s1-0", "compensated")]
    forced = await runner.undo_step(task, force=True, dry_run=True)
    assert (forced.complete, forced.left, forced.calls[0].why) == (True, ("s1-1",), "the tool has no undo=")
    assert verdicts(forced) == verdicts(foreseen)
    assert await runner.undo_step(task, force=True) == replace(forced, planned=False)
    (rewound,) = await only(runner, task, "rewound")
    assert rewound.calls == forced.calls


async def test_a_dry_run_of_a_stopped_undo_tells_what_its_next_try_would_do(runner: Runner) -> None:
    ledger = Ledger(lambda entry: entry.startswith("unbook"))
    task = await runner.create_task(ledger.agent(call("book", what="room"), "Done."), "Book")
    await runner.run_step(task)
    stopped = await runner.undo_step(task)
    assert not stopped.complete
    assert verdicts(await runner.undo_step(task, dry_run=True)) == [("s1-0", "compensated")]
    forced = await runner.undo_step(task, force=True, dry_run=True)
    assert verdicts(forced) == [("s1-0", "not_compensated")]
    assert verdicts(await runner.undo_step(task, force=True)) == verdicts(forced)


async def test_a_dry_run_refuses_what_the_undo_refuses(runner: Runner) -> None:
    first = await runner.run(calculator("Hello."), "Hi", thread_id="talk")
    assert (await runner.undo_step(first.task_id, dry_run=True)).complete
    await runner.run(calculator("Hello."), "Hi", thread_id="talk")
    cancelled = await runner.create_task(calculator(), "?")
    await runner.cancel(cancelled)
    for task, error in ((first.task_id, AlreadyFinalized), (cancelled, TaskFinished)):
        for dry_run in (True, False):
            with pytest.raises(error):
                await runner.undo_step(task, dry_run=dry_run)
    stepped = await runner.create_task(calculator(), "?")
    await runner.run_step(stepped)
    with pytest.raises(TaskMoved):
        await runner.undo_step(stepped, dry_run=True, expect=1)


async def test_a_dry_run_says_that_a_call_runs_which_the_undo_would_wait_for(runner: Runner) -> None:
    gate = Gate()
    handle = await runner.start(gate_agent(gate), "Go")
    await gate.entered.wait()
    foreseen = await handle.undo_step(dry_run=True)
    assert foreseen.complete
    assert [(undone.verdict, undone.why) for undone in foreseen.calls] == [
        ("unknown", "it runs, and an undo waits for its end")
    ]
    gate.let_go.set()
    assert (await handle.result()).state == "completed"


async def test_a_dry_run_says_that_a_crash_left_a_call_of_unknown_outcome(store: Any) -> None:
    gate = Gate()
    agent = gate_agent(gate)
    lost = Runner(store)
    await lost.start(agent, "Go", task_id="t")
    await gate.entered.wait()
    await lost.store.close()
    async with Runner(store, agents=[agent]) as runner:
        foreseen = await runner.undo_step("t", dry_run=True)
        assert not foreseen.complete
        with pytest.raises(IrreversibleStep, match=r"work \(s1-0\)") as refused:
            await runner.undo_step("t")
        assert str(refused.value) == foreseen.problem


# -------------- what a child has changed is read from its own journal, and from those of the tasks below it


def above(child: Agent[Any], name: str) -> Agent[Any]:
    return Agent(ScriptedModel([call(child.name, input="go"), text("done")]), name=name, subagents=[child])


@pytest.mark.parametrize(("first", "harmless"), [([], {"s1-0"}), ([call("save", note="x")], set[str]())])
async def test_a_child_is_harmless_if_no_task_below_it_has_changed_anything(
    runner: Runner, first: list[Any], harmless: set[str]
) -> None:
    payer = Agent(
        ScriptedModel([*first, call("pay", amount=1), text("done")]), name="payer", tools=[pay, save]
    )
    top = above(above(payer, "middle"), "top")
    assert (await runner.run(top, "go", task_id="t")).state == "waiting"
    state = (await runner._driver.cache.load("t")).state
    assert await harmless_children(runner.store, state) == harmless

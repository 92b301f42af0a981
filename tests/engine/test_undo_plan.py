"""What an undo takes back, and which undos are refused."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, state_after, step
from tests.runner.cases import (
    Ledger,
    both,
    calculator,
    journal,
    only,
    step_to_answer,
    verdicts,
)
from treadle import (
    Runner,
)
from treadle.core import events as e
from treadle.engine.undo_plan import plan
from treadle.errors import (
    ConfigurationError,
    IrreversibleStep,
    StepNotFound,
    UndoUnfinished,
)
from treadle.llm.scripted import call

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


@pytest.mark.parametrize("to", [True, 1.5])
async def test_an_undo_to_an_unknown_step_is_refused(runner: Runner, to: Any) -> None:
    task = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, task)
    before = await journal(runner, task)
    with pytest.raises(ConfigurationError, match="undo_step: to must be an id or a whole number"):
        await runner.undo_step(task, to=to)
    assert await journal(runner, task) == before


@pytest.mark.parametrize("to", [-1, 4, 3, "s9", "s3"])
async def test_a_step_that_cannot_be_kept_is_named(runner: Runner, to: Any) -> None:
    task = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, task)
    before = await journal(runner, task)
    with pytest.raises(StepNotFound, match=task.task_id):
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


async def test_force_rewinds_irreversible_calls_and_reports_them(runner: Runner) -> None:
    ledger = Ledger()
    agent = ledger.agent(both(call("book", what="1"), call("mail", to="ann")), "done")
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    report = await runner.undo_step(task, to=0, force=True)
    assert verdicts(report) == [("s1-1", "not_compensated"), ("s1-0", "compensated")]
    assert report.calls[0].why == "the tool has no undo="
    assert report.left == ("s1-1",)
    (rewound,) = await only(runner, task, "rewound")
    assert rewound.calls == report.calls


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

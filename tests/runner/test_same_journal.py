"""Stepping, running freely and streaming are one engine: their journals are the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Ledger, calculator, sayer
from tests.runner.acts import both, journal, step_to_answer
from treadle import FailurePolicy, Limits, Runner, RunOptions
from treadle.errors import StepFailed
from treadle.llm.scripted import call, call_raw, fail, turn
from treadle.replay.recording import assert_same_journal, journal_of

pytestmark = pytest.mark.anyio

Make = Callable[[], tuple[Any, RunOptions | None]]


def readme() -> Any:
    return calculator(), None


def parallel_calls() -> Any:
    calls = [call("book", what=str(n)) for n in range(4)]
    return Ledger().agent(
        both(*calls), both(call("look", what="a"), call("mail", to="b")), "done"
    ), RunOptions(max_parallel_tools=1)


def broken_calls() -> Any:
    ledger = Ledger(fails=lambda entry: entry == "book 1")
    bad = both(call("book", what="1"), call("nowhere"), call("book", where=1), call_raw("look", '{"what": '))
    return ledger.agent(bad, turn(calls=[call("look", what="a")], finish="length"), "done"), RunOptions(
        max_parallel_tools=1
    )


def degraded() -> Any:
    ledger = Ledger(fails=lambda entry: True)
    agent = ledger.agent(call("look", what="a"), "done")
    return agent, RunOptions(on_failure=FailurePolicy(tool="degrade"))


def step_limit() -> Any:
    return calculator(limits=Limits(steps=1)), None


def tool_limit() -> Any:
    script = both(call("add", a=1, b=1), call("add", a=2, b=2)), "done"
    return calculator(*script, limits=Limits(tool_calls=1)), RunOptions(max_parallel_tools=1)


def failing_limit() -> Any:
    return calculator(limits=Limits(steps=2)), RunOptions(on_limit="fail")


def failed_model() -> Any:
    return calculator(call("add", a=1, b=1), fail(500), "2"), None


def instructions_of_a_function() -> Any:
    return sayer("Hi.", instructions=lambda ctx: f"You talk in {ctx.input[0].text}"), None


CASES: list[Make] = [
    readme,
    parallel_calls,
    broken_calls,
    degraded,
    step_limit,
    tool_limit,
    failing_limit,
    failed_model,
    instructions_of_a_function,
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__.replace("_", " "))
async def test_stepping_gives_the_journal_of_the_free_run(runner: Runner, make: Make) -> None:
    agent, options = make()
    free = await runner.run(agent, "What is (121 * 3) + 42?", options=options)
    agent, options = make()
    task = await runner.create_task(agent, "What is (121 * 3) + 42?", options=options)
    try:
        outputs = await step_to_answer(runner, task)
        if outputs[-1].state == "answered":
            await runner.finalize(task)
    except StepFailed:
        assert free.state == "failed"
    assert_same_journal(await journal(runner, free.task_id), await journal(runner, task))
    stepped = await runner.result(task)
    assert (stepped.state, stepped.final_text, stepped.usage) == (free.state, free.final_text, free.usage)
    assert stepped.messages == free.messages


@pytest.mark.sampled(5)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__.replace("_", " "))
async def test_streaming_gives_the_journal_of_the_free_run(runner: Runner, make: Make) -> None:
    agent, options = make()
    free = await runner.run(agent, "?", options=options)
    agent, options = make()
    async with runner.run_stream(agent, "?", options=options) as stream:
        seen = [event async for event in stream if hasattr(event, "seq")]
    assert_same_journal(await journal(runner, free.task_id), seen)
    assert stream.result.final_text == free.final_text


async def test_streaming_each_step_gives_the_journal_of_the_free_run(runner: Runner) -> None:
    free = await runner.run(calculator(), "?")
    task = await runner.create_task(calculator(), "?")
    while (await runner.get_task(task)).state != "answered":
        async with runner.stream_step(task) as stream:
            async for _ in stream:
                pass
    await runner.finalize(task)
    assert_same_journal(await journal(runner, free.task_id), await journal(runner, task))


async def test_each_step_by_another_runner_gives_the_journal_of_the_free_run(store: Any) -> None:
    async with Runner(store) as runner:
        free = await runner.run(calculator(), "?")
        task = await runner.create_task(calculator(), "?")
    for _ in range(3):
        async with Runner(store, agents=[calculator()]) as runner:
            await runner.run_step(task)
    async with Runner(store) as runner:
        await runner.finalize(task)
        assert_same_journal(await journal(runner, free.task_id), await journal(runner, task))


async def test_both_stores_hold_the_same_journal(tmp_path: Path) -> None:
    journals = []
    for store in ("memory:", tmp_path / "journal.db"):
        async with Runner(store) as runner:
            result = await runner.run(calculator(), "?")
            journals.append(await journal_of(runner.store, result.task_id))
    assert_same_journal(*journals)


async def test_the_journals_of_different_runs_differ(runner: Runner) -> None:
    one = await runner.run(calculator(), "?")
    other = await runner.run(calculator(call("multiply", a=121, b=4), "484"), "?")
    with pytest.raises(AssertionError, match=r"event 4 \(model_returned\): message is"):
        assert_same_journal(await journal(runner, one.task_id), await journal(runner, other.task_id))

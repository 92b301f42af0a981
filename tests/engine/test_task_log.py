"""The logger `treadle.tasks` is told how tasks begin and stop, of retries, takeovers and failures; facts alone."""

import asyncio
import logging
import sys
from typing import Any

import pytest

from tests import forked
from treadle import Agent, Breakpoint, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.engine import task_log
from treadle.llm.layers.retry import Retry
from treadle.models import call, fail, text
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

SECRET = "swordfish-of-doom"


@tool(read_only=True, retries=1)
async def broken(word: str) -> str:
    """Break."""
    raise OSError(f"cannot {word} {SECRET}")


def agent(*turns: Any) -> Agent[Any]:
    return Agent(Retry(ScriptedModel(list(turns)), base=0.01), name="clerk", tools=[broken])


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage().partition(": ")[2])
        for record in caplog.records
        if record.name == "treadle.tasks"
    ]


async def test_a_task_is_told_from_its_begin_to_its_end(caplog: Any, store: Any) -> None:
    caplog.set_level(logging.INFO, "treadle")
    async with Runner(store) as runner:
        result = await runner.run(agent(text("Hello.")), f"Say {SECRET}")
    assert said(caplog) == [
        ("INFO", "begins, after event 1"),
        ("INFO", f"is completed, after event {len_of(caplog)}"),
    ]
    record = caplog.records[-1]
    assert (record.task_id, record.agent, record.event) == (result.task_id, "clerk", "drive_ended")
    assert record.getMessage().startswith(f"task {result.task_id} of clerk: ")


def len_of(caplog: Any) -> int:
    return int(caplog.records[-1].getMessage().rpartition(" ")[2])


async def test_retries_and_failures_are_warnings_and_a_failed_task_is_an_error(
    caplog: Any, store: Any
) -> None:
    caplog.set_level(logging.WARNING, "treadle")
    turns = [fail(500), call("broken", word=SECRET), fail(400, message=SECRET)]
    async with Runner(store) as runner:
        result = await runner.run(agent(*turns), SECRET)
    assert result.state == "failed"
    lines = said(caplog)
    levels = [level for level, _ in lines]
    assert levels == ["WARNING"] * 7 + ["ERROR"]
    assert "asked again in" in lines[0][1]
    assert lines[1][1] == "broken raised an error"
    assert lines[2][1].startswith("broken was stopped (s1-0): error; the call is tried again")
    assert lines[4][1] == "broken ended (s1-0): error"
    assert lines[-1][1].startswith("is failed: ")
    assert all(SECRET not in record.getMessage() for record in caplog.records)
    tracebacks = [record.exc_info for record in caplog.records if record.exc_info]
    assert [error[0] for error in tracebacks] == [OSError, OSError]


async def test_a_limit_on_time_is_told_as_other_limits_are(caplog: Any, store: Any) -> None:
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow", limits=Limits(seconds=0.05))
    async with Runner(store) as runner:
        await runner.run(slow, "go")
    assert ("WARNING", "the limit on seconds was reached: 0.05 of 0.05") in said(caplog)


async def test_a_takeover_is_told(caplog: Any) -> None:
    store = MemoryStore()
    async with Runner(store) as runner:
        task = await runner.create_task(agent(text("Hello.")), "Hi")
        await store.claim(task.task_id)  # and it goes without releasing it
    async with Runner(store, agents=[agent(text("Hello."))]) as runner:
        await runner.resume(task)
    assert ("WARNING", "is taken over under epoch 3: its driver crashed or stalled") in said(caplog)


async def test_no_takeover_is_told_of_a_task_that_its_driver_released(caplog: Any, store: Any) -> None:
    asking = agent(call("broken", word="open"), text("Done."))
    options = RunOptions(break_on=[Breakpoint(after_step=1)])
    async with Runner(store, agents=[asking]) as runner:
        await runner.submit(asking, "Go", task_id="t", options=options)
        await runner.resume("t")
        await runner.resume("t", drive=False)
        assert (await runner.resume("t", options=RunOptions(break_on=[]))).state == "completed"
    assert [line for line in said(caplog) if "taken over" in line[1]] == []


async def test_nothing_is_made_where_no_handler_would_get_it(monkeypatch: Any, store: Any) -> None:
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    assert not task_log.is_heard()
    made: list[Any] = []
    monkeypatch.setattr(task_log, "_tell", lambda *args: made.append(args))
    async with Runner(store) as runner:
        await runner.run(agent(fail(500), text("Hello.")), "Hi")
    assert made == []


def test_a_process_that_sets_up_no_logging_prints_nothing() -> None:
    script = """
from treadle import Agent, Runner, ScriptedModel
from treadle.models import fail
import logging
result = Runner("memory:").run_sync(Agent(ScriptedModel([fail(400)])), "Hi")
assert result.state == "failed"
assert not logging.getLogger("treadle").handlers
assert not logging.getLogger("treadle.tasks").handlers
"""
    done = forked.completed([sys.executable, "-c", script], check=True)
    assert (done.stdout, done.stderr) == ("", "")


async def test_steps_and_stops_are_told(caplog: Any, store: Any) -> None:
    caplog.set_level(logging.INFO, "treadle.tasks")
    slow = Agent(ScriptedModel([text("later", delay=30)]), name="slow")
    async with Runner(store) as runner:
        handle = await runner.start(slow, "go")
        await asyncio.sleep(0.05)
        await handle.interrupt()
    assert ("INFO", "begins, after event 1") in said(caplog)
    assert any(text.startswith("is interrupted") for _, text in said(caplog))

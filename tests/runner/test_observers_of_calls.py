"""Observers that are given to one call: they are told of what that call drives, and of nothing else."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Event as Signal
from threading import Thread, current_thread
from typing import Any

import apsw
import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.errors import ConfigurationError, WrongArguments
from treadle.llm.scripted import call, text
from treadle.replay.recording import journal_of
from treadle.runner.handle import RunHandle
from treadle.telemetry import Callback, DriveBegan, DriveEnded, Notice

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int) -> str:
    """Look."""
    return f"found {n}"


@tool(needs_approval=True)
def wipe() -> str:
    """Wipe."""
    return "wiped"


def agent(name: str = "looker", **how: Any) -> Agent[Any, str]:
    return Agent(ScriptedModel([call("look", n=1), text("Done.")]), name=name, tools=[look], **how)


def tasks_of(notices: list[Notice]) -> set[str]:
    return {notice.task.task_id for notice in notices if notice.task is not None}


def kinds(notices: list[Notice]) -> list[str]:
    return [notice.event.kind for notice in notices]


async def test_each_of_two_runs_at_once_tells_its_own_observer_and_both_tell_the_runners(store: Any) -> None:
    first: list[Notice] = []
    second: list[Notice] = []
    every: list[Notice] = []
    async with Runner(store, observers=[every.append]) as runner:
        results = await asyncio.gather(
            runner.run(agent("a"), "Go.", observers=[first.append]),
            runner.run(agent("b"), "Go.", observers=[second.append]),
            runner.run(agent("c"), "Go."),
        )
        journals = [await journal_of(runner.store, result.task_id) for result in results]
    for result, heard, journal in zip(results[:2], (first, second), journals[:2], strict=True):
        assert tasks_of(heard) == {result.task_id}
        began, *events, ended = [notice.event for notice in heard]
        assert isinstance(began, DriveBegan)
        assert events == journal
        assert ended == DriveEnded("completed", events[-1].seq)
    assert tasks_of(every) == {result.task_id for result in results}


async def test_the_observers_of_a_run_are_told_of_its_children_too(store: Any) -> None:
    heard: list[Notice] = []
    boss = Agent(
        ScriptedModel([call("aide", input="Look."), "Done."]), name="boss", subagents=[agent("aide")]
    )
    async with Runner(store) as runner:
        result = await runner.run(boss, "Go.", observers=[heard.append])
    below = [notice for notice in heard if notice.task is not None and notice.task.parent == result.task_id]
    assert {notice.task.agent for notice in below if notice.task is not None} == {"aide"}
    assert kinds(below)[:2] == ["drive_began", "task_created"]
    assert kinds(below)[-2:] == ["task_ended", "drive_ended"]
    assert len(tasks_of(heard)) == 2


async def test_a_child_that_is_driven_on_is_told_to_the_observers_of_the_resume(store: Any) -> None:
    first: list[Notice] = []
    second: list[Notice] = []
    aide = Agent(ScriptedModel([call("wipe"), "Wiped."]), name="aide", tools=[wipe])
    boss = Agent(ScriptedModel([call("aide", input="Wipe."), "Done."]), name="boss", subagents=[aide])
    async with Runner(store, agents=[boss]) as runner:
        waiting = await runner.run(boss, "Go.", observers=[first.append])
        await runner.approve(waiting.task_id)
        assert (await runner.resume(waiting.task_id, observers=[second.append])).final_text == "Done."
    assert tasks_of(first) == tasks_of(second)
    assert "tool_ended" not in kinds(first)
    assert "task_created" not in kinds(second)
    ended = [notice for notice in second if notice.event.kind == "task_ended"]
    assert [notice.task.agent for notice in ended if notice.task is not None] == ["aide", "boss"]


async def test_a_later_drive_has_the_observers_that_are_given_to_it_and_those_alone(store: Any) -> None:
    first: list[Notice] = []
    second: list[Notice] = []
    async with Runner(store) as runner:
        task = await runner.create_task(agent(), "Go.")
        await runner.run_step(task, observers=[first.append])
        head = (await runner.get_task(task)).head
        await runner.resume(task, observers=[second.append])
        assert (await runner.result(task)).final_text == "Done."
    began = second[0].event
    assert isinstance(began, DriveBegan)
    assert began.seq == head, "it began behind the step"
    assert kinds(first).count("step_completed") == 1
    assert kinds(second)[-2:] == ["task_ended", "drive_ended"]
    assert "task_ended" not in kinds(first)


async def test_a_run_that_only_waits_for_another_driver_tells_its_observers_nothing(store: Any) -> None:
    drives: list[Notice] = []
    waits: list[Notice] = []
    begun, release = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def hold() -> str:
        """Hold."""
        begun.set()
        await release.wait()
        return "held"

    holder = Agent(ScriptedModel([call("hold"), "Done."]), name="holder", tools=[hold])
    async with Runner(store) as runner:
        handle = await runner.start(holder, "Go.", task_id="t", observers=[drives.append])
        await begun.wait()
        second = asyncio.ensure_future(runner.run(holder, "Go.", task_id="t", observers=[waits.append]))
        await asyncio.sleep(0)
        release.set()
        assert (await second).final_text == (await handle.result()).final_text == "Done."
    assert kinds(drives)[-1] == "drive_ended"
    assert waits == []


async def test_a_run_that_loses_its_task_and_drives_it_on_tells_the_same_observers(tmp_path: Path) -> None:
    path, heard, taken = tmp_path / "journal.db", list[Notice](), list[int]()
    async with Runner(path) as stalled, Runner(path) as other:

        @tool(read_only=True)
        async def stall() -> str:
            """Stall once, as a process does that was stopped for long."""
            if not taken:
                connection = apsw.Connection(str(path))
                connection.set_busy_timeout(5_000)
                connection.execute("UPDATE drivers SET lease = 1")
                owned = await other._driver.ownership.claim("t")
                taken.append(owned.writer.epoch)
                await other._driver.ownership.release(owned)
            return "went on"

        staller = Agent(ScriptedModel([call("stall"), "Done."]), name="staller", tools=[stall])
        result = await stalled.run(staller, "Go.", task_id="t", observers=[heard.append])
    assert result.final_text == "Done."
    drives = [notice.event for notice in heard if isinstance(notice.event, (DriveBegan, DriveEnded))]
    *lost, last = [each.state for each in drives if isinstance(each, DriveEnded)]
    assert (set(lost), last) == ({"lost"}, "completed")
    first, *later = [each.epoch for each in drives if isinstance(each, DriveBegan)]
    assert first < taken[0] < later[-1]


Drives = Callable[[Runner, list[Any]], Awaitable[object]]


async def _streams(runner: Runner, observers: list[Any]) -> None:
    async with runner.run_stream(agent(), "Go.", observers=observers) as stream:
        async for _ in stream:
            pass


async def _starts(runner: Runner, observers: list[Any]) -> None:
    await (await runner.start(agent(), "Go.", observers=observers)).result()


async def _streams_a_step(runner: Runner, observers: list[Any]) -> None:
    task = await runner.create_task(agent(), "Go.")
    async with runner.stream_step(task, observers=observers) as stream:
        async for _ in stream:
            pass


async def _resumes_by_a_handle(runner: Runner, observers: list[Any]) -> None:
    task = await runner.create_task(agent(), "Go.")
    await runner.handle(task).resume(observers=observers)


async def _runs_ready_steps(runner: Runner, observers: list[Any]) -> None:
    await runner.run_ready_steps(await runner.create_task(agent(), "Go."), observers=observers)


VERBS: dict[str, Drives] = {
    "run": lambda runner, observers: runner.run(agent(), "Go.", observers=observers),
    "run_stream": _streams,
    "start": _starts,
    "stream_step": _streams_a_step,
    "handle.resume": _resumes_by_a_handle,
    "run_ready_steps": _runs_ready_steps,
}


@pytest.mark.parametrize("drives", VERBS.values(), ids=VERBS)
async def test_every_verb_that_drives_tells_the_observers_of_its_call(drives: Drives) -> None:
    heard: list[Notice] = []
    async with Runner("memory:") as runner:
        await drives(runner, [heard.append])
        await runner.run(agent("another"), "Go.")
    assert kinds(heard)[0] == "drive_began"
    assert "model_returned" in kinds(heard)
    assert kinds(heard)[-1] == "drive_ended"
    assert len(tasks_of(heard)) == 1


async def test_no_run_waits_for_an_observer_of_its_own_that_raises_or_hangs(store: Any) -> None:
    entered, release = Signal(), Signal()

    def raises(notice: Notice) -> None:
        raise ValueError("no")

    def hangs(notice: Notice) -> None:
        entered.set()
        release.wait(60)

    heard: list[Notice] = []
    async with Runner(store) as runner:
        try:
            result = await runner.run(agent(), "Go.", observers=[raises, hangs, heard.append])
            assert result.state == "completed"
            await asyncio.to_thread(entered.wait)
        finally:
            release.set()
    assert kinds(heard)[-1] == "drive_ended", "the others hear all of it"


async def test_an_observer_of_a_call_gets_deltas_and_calls_of_tools_if_it_asks_for_them() -> None:
    heard: list[Notice] = []
    entered: list[str] = []

    class Eager(Callback):
        def enter_call(self, task: object, epoch: int, call: str, attempt: int) -> None:
            entered.append(call)

    plain: list[Notice] = []
    async with Runner("memory:", observers=[plain.append]) as runner:
        await runner.run(agent(), "Go.", observers=[Eager(heard.append, deltas=True)])
    assert "delta" in kinds(heard)
    assert "delta" not in kinds(plain)
    assert len(entered) == 1


async def test_a_runner_keeps_no_observer_whose_call_has_ended() -> None:
    thread = Future[Thread]()

    def observer(notice: Notice) -> None:
        if not thread.done():
            thread.set_result(current_thread())

    async with Runner("memory:") as runner:
        result = await runner.run(agent(), "Go.", observers=[observer])
        await runner.resume(result.task_id, observers=[print])  # it has ended: nothing is driven or told
        await asyncio.to_thread(thread.result().join)
        assert runner._driver.observers.listeners() == []
        assert runner.observers == (), "it reports on its own"


async def test_an_object_stays_open_for_other_calls_and_what_was_named_is_closed(tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.told: list[Notice] = []
            self.closed = 0

        def observe(self, notice: Notice) -> None:
            self.told.append(notice)

        def close(self) -> None:
            self.closed += 1

    kept, lines = Kept(), tmp_path / "events.jsonl"
    async with Runner("memory:") as runner:
        for _ in range(2):
            await runner.run(agent(), "Go.", observers=[kept, f"jsonl:{lines}"])
    assert (len(tasks_of(kept.told)), kept.closed) == (2, 0)
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {line["task_id"] for line in written} == tasks_of(kept.told)


async def test_a_runner_that_is_opened_again_tells_the_observers_of_a_call(tmp_path: Path) -> None:
    heard: list[Notice] = []
    runner = Runner(tmp_path / "journal.db")
    for _ in range(2):
        async with runner:
            await runner.run(agent(), "Go.", observers=[heard.append])
    assert kinds(heard).count("drive_ended") == 2


async def test_observers_of_another_form_are_refused_before_a_task_is_made() -> None:
    async with Runner("memory:") as runner:
        for wrong in ("console", print, None):
            with pytest.raises(ConfigurationError, match="run: observers must be a list"):
                await runner.run(agent(), "Go.", observers=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="start: observers must list plain functions"):
            await runner.start(agent(), "Go.", observers=[3])  # type: ignore[list-item]
        with pytest.raises(ConfigurationError, match="resume: observers takes console, jsonl:PATH or otel"):
            await runner.resume("t", observers=["consol"])
        with pytest.raises(ConfigurationError, match="drive=False"):
            await runner.resume("t", observers=[print], drive=False)
        with pytest.raises(WrongArguments, match="belong to the process that drives"):
            await runner.submit(agent(), "Go.", observers=[print])  # type: ignore[call-arg]
        assert (await runner.list_tasks()).items == ()


def test_a_verb_takes_observers_where_it_takes_a_context_and_drives() -> None:
    for face in (Runner, type(Runner("memory:").sync), RunHandle):
        for name in ("run", "run_sync", "run_stream", "start", "resume", "run_step", "stream_step"):
            if (verb := getattr(face, name, None)) is not None:
                assert "observers" in inspect.signature(verb).parameters, (face, name)

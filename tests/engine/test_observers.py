"""Observers in threads of their own: they get every event, and slow no run."""

import asyncio
import logging
import sys
from threading import Event as Signal
from threading import Thread

import pytest

from tests import forked
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.engine import observers as observing
from treadle.llm.scripted import call, text, turn
from treadle.replay.recording import journal_of
from treadle.telemetry import Callback, DriveBegan, DriveEnded, Missed, Notice

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int) -> str:
    """Look."""
    return f"found {n}"


def agent(name="looker", **how):
    return Agent(ScriptedModel([call("look", n=1), text("Done.")]), name=name, tools=[look], **how)


async def test_an_observer_gets_every_event_of_every_task_once_and_in_order():
    notices: list[Notice] = []
    async with Runner("memory:", observers=[notices.append]) as runner:
        results = await asyncio.gather(*[runner.run(agent(f"a{n}"), "Go.") for n in range(20)])
        journals = {result.task_id: await journal_of(runner.store, result.task_id) for result in results}
    for number, result in enumerate(results):
        mine = [notice for notice in notices if notice.task and notice.task.task_id == result.task_id]
        first, *events, last = [notice.event for notice in mine]
        assert isinstance(first, DriveBegan)
        assert (first.seq, first.previous, first.calls) == (0, 0, {})
        assert events == journals[result.task_id]
        assert last == DriveEnded("completed", events[-1].seq)
        assert {(notice.task.agent, notice.task.thread_id) for notice in mine} == {
            (f"a{number}", result.thread_id)
        }


async def test_only_observers_that_ask_for_deltas_get_them():
    plain: list[Notice] = []
    eager: list[Notice] = []
    async with Runner("memory:", observers=[plain.append, Callback(eager.append, deltas=True)]) as runner:
        await runner.run(agent(), "Go.")
    assert [n.event for n in eager if not isinstance(n.event, e.Delta)] == [n.event for n in plain]
    assert (
        "".join(n.event.text for n in eager if isinstance(n.event, e.Delta) and not n.event.tool) == "Done."
    )


async def test_a_new_drive_is_observed_with_its_open_calls_and_its_final_state():
    notices: list[Notice] = []
    async with Runner("memory:", observers=[notices.append]) as runner:
        task = await runner.create_task(agent(), "Go.")
        await runner.run_step(task)
        await runner.resume(task)
    drives = [n.event for n in notices if isinstance(n.event, (DriveBegan, DriveEnded))]
    ends = [event.state for event in drives if isinstance(event, DriveEnded)]
    begins = [event for event in drives if isinstance(event, DriveBegan)]
    assert ends == ["created", "running", "completed"]
    assert begins[0].seq == 0
    assert begins[1].seq > 0
    assert begins[2].previous == begins[1].epoch


async def test_no_run_waits_for_an_observer_that_raises_or_hangs():
    entered, release, waited = Signal(), Signal(), []

    def raises(notice):
        raise ValueError("no")

    def hangs(notice):
        entered.set()
        waited.append(release.wait(60))

    async with Runner("memory:", observers=[raises, hangs]) as runner:
        try:
            for _ in range(25):
                assert (await runner.run(agent(), "Go.")).state == "completed"
            await asyncio.to_thread(entered.wait)
            assert not waited
        finally:
            release.set()


async def test_an_observers_errors_are_counted_and_logged_once_and_it_gets_later_events(caplog):
    notices: list[Notice] = []

    def picky(notice):
        notices.append(notice)
        if isinstance(notice.event, e.ModelStarted):
            raise ValueError("I do not like models")

    with caplog.at_level(logging.WARNING, "treadle.observing"):
        async with Runner("memory:", observers=[picky]) as runner:
            await runner.run(agent(), "Go.")
        assert runner.observers[0].errors == 2
        assert runner.observers[0].told == len(notices)
    assert isinstance(notices[-1].event, DriveEnded)
    raised = [record for record in caplog.records if "I do not like models" in record.getMessage()]
    assert len(raised) == 1


async def test_a_hanging_observer_costs_a_bounded_buffer_and_a_bounded_time_at_the_end(monkeypatch, caplog):
    monkeypatch.setattr(observing, "BUFFER", 100)
    monkeypatch.setattr(observing, "PATIENCE", 0.2)
    release, ended, notices = Signal(), Signal(), []

    class Hangs:
        def observe(self, notice):
            notices.append(notice)
            release.wait(30)

        def close(self):
            ended.set()

    with caplog.at_level(logging.WARNING, "treadle.observing"):
        runner = Runner("memory:", observers=[Hangs()])
        for _ in range(40):
            await runner.run(agent(), "Go.")
        await runner.aclose()
        assert not ended.is_set()
    report = runner.observers[0]
    assert report.dropped_events > 200
    assert "is too slow" in caplog.text
    assert "did not end in time" in caplog.text
    release.set()
    ended.wait(5)
    gaps = [n for n in notices if isinstance(n.event, Missed)]
    assert {gap.task for gap in gaps} == {None}
    assert sum(gap.event.events for gap in gaps) == report.dropped_events


async def test_deltas_are_dropped_before_events(monkeypatch):
    monkeypatch.setattr(observing, "BUFFER", 200)
    release, notices = Signal(), []

    def late(notice):
        release.wait(30)
        notices.append(notice)

    model = ScriptedModel([turn("word " * 2000, chunk=5)])
    runner = Runner("memory:", observers=[Callback(late, deltas=True)])
    result = await runner.run(Agent(model), "Go.")
    journal = await journal_of(runner.store, result.task_id)
    release.set()
    await runner.aclose()
    assert [n.event for n in notices if isinstance(n.event, e.Event)] == journal
    assert runner.observers[0].dropped_events == 0
    assert runner.observers[0].dropped_deltas > 1500


def test_events_of_a_runner_that_is_never_closed_are_delivered_before_the_process_ends():
    script = """
import sys, time
from treadle import Agent, Runner, ScriptedModel
def late(notice):
    time.sleep(0.02)
    print(notice.event.kind)
runner = Runner("memory:", observers=[late])
print(runner.run_sync(Agent(ScriptedModel(["Hi."])), "Hello").state)
"""
    done = forked.completed([sys.executable, "-c", script], check=True)
    assert done.stdout.split()[-1] == "drive_ended"


async def test_without_observers_no_notice_is_built():
    async with Runner("memory:") as runner:
        handle = await runner.start(agent(), "Go.")
        owned = runner._driver.owned.tasks[handle.task_id]
        assert owned.channel.observed is None
        await handle.result()
        assert (runner._driver.observers.own, runner.observers) == (None, ())


async def test_a_task_runs_even_if_no_observer_thread_can_be_started(monkeypatch):
    def refuse(thread):
        if thread.name.startswith("treadle-observer"):
            raise RuntimeError("can't start new thread")
        start(thread)

    start = Thread.start
    monkeypatch.setattr(Thread, "start", refuse)
    notices = []
    async with Runner("memory:", observers=[notices.append]) as runner:
        assert (await runner.run(agent(), "Go.")).state == "completed"
        monkeypatch.undo()
        assert (await runner.run(agent(), "Go.")).state == "completed"
    assert len({notice.task.task_id for notice in notices}) == 2

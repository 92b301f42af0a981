"""Observers get all events of all tasks, and neither fail nor slow any of them."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from threading import Event as Signal
from threading import Thread

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.core import events as e
from treadle.core.messages import Message, Text
from treadle.core.model import SideCall
from treadle.engine import observers as observing
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, fail, text, turn
from treadle.telemetry import Callback, Console, DriveBegan, DriveEnded, JsonLines, Missed, Notice
from treadle.telemetry.redaction import LONGEST, Redaction
from treadle.testing.replay.journals import journal_of

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int) -> str:
    """Look."""
    return f"found {n}"


def agent(name="looker", **how):
    return Agent(ScriptedModel([call("look", n=1), text("Done.")]), name=name, tools=[look], **how)


async def test_an_observer_gets_every_event_of_every_task_once_and_in_order():
    told: list[Notice] = []
    async with Runner("memory:", observers=[told.append]) as runner:
        results = await asyncio.gather(*[runner.run(agent(f"a{n}"), "Go.") for n in range(20)])
        journals = {result.task_id: await journal_of(runner.store, result.task_id) for result in results}
    for number, result in enumerate(results):
        mine = [notice for notice in told if notice.task and notice.task.task_id == result.task_id]
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
    told: list[Notice] = []
    async with Runner("memory:", observers=[told.append]) as runner:
        task = await runner.create_task(agent(), "Go.")
        await runner.run_step(task)
        await runner.resume(task)
    drives = [n.event for n in told if isinstance(n.event, (DriveBegan, DriveEnded))]
    ends = [event.state for event in drives if isinstance(event, DriveEnded)]
    begins = [event for event in drives if isinstance(event, DriveBegan)]
    assert ends == ["created", "running", "completed"]
    assert begins[0].seq == 0
    assert begins[1].seq > 0
    assert begins[2].previous == begins[1].epoch


async def seconds(observers, runs=25):
    """The best time of three for runs with these observers."""
    best = float("inf")
    for _ in range(3):
        runner = Runner("memory:", observers=observers())
        began = time.perf_counter()
        for _ in range(runs):
            assert (await runner.run(agent(), "Go.")).state == "completed"
        best = min(best, time.perf_counter() - began)
        # Not closed here: what closing may take is another test.
    return best


async def test_observers_that_raise_hang_or_are_slow_slow_no_run_down(caplog):
    release = Signal()

    def raises(notice):
        raise ValueError("no")

    def hangs(notice):
        release.wait(30)

    def is_slow(notice):
        time.sleep(0.05)

    try:
        alone = await seconds(list)
        for bad in (raises, hangs, is_slow):
            beside = await seconds(lambda bad=bad: [bad])
            # A step in memory takes some 50 us here; if any of these were waited for, it would be thousands.
            assert beside < alone * 3 + 0.05, bad.__name__
    finally:
        release.set()


async def test_an_observers_errors_are_counted_and_logged_once_and_it_gets_later_events(caplog):
    told: list[Notice] = []

    def picky(notice):
        told.append(notice)
        if isinstance(notice.event, e.ModelStarted):
            raise ValueError("I do not like models")

    with caplog.at_level(logging.WARNING, "treadle.observing"):
        async with Runner("memory:", observers=[picky]) as runner:
            await runner.run(agent(), "Go.")
        assert runner.observers[0].errors == 2
        assert runner.observers[0].told == len(told)
    assert isinstance(told[-1].event, DriveEnded)
    raised = [record for record in caplog.records if "I do not like models" in record.getMessage()]
    assert len(raised) == 1


async def test_a_hanging_observer_costs_a_bounded_buffer_and_a_bounded_time_at_the_end(monkeypatch, caplog):
    monkeypatch.setattr(observing, "BUFFER", 100)
    monkeypatch.setattr(observing, "PATIENCE", 0.2)
    release, ended, told = Signal(), Signal(), []

    class Hangs:
        def observe(self, notice):
            told.append(notice)
            release.wait(30)

        def close(self):
            ended.set()

    with caplog.at_level(logging.WARNING, "treadle.observing"):
        runner = Runner("memory:", observers=[Hangs()])
        for _ in range(40):
            await runner.run(agent(), "Go.")
        began = time.perf_counter()
        await runner.aclose()
        assert time.perf_counter() - began < 5
    report = runner.observers[0]
    assert report.dropped_events > 200
    assert "is too slow" in caplog.text
    assert "did not end in time" in caplog.text
    release.set()
    ended.wait(5)
    gaps = [n for n in told if isinstance(n.event, Missed)]
    assert {gap.task for gap in gaps} == {None}
    assert sum(gap.event.events for gap in gaps) == report.dropped_events


async def test_deltas_are_dropped_before_events(monkeypatch):
    monkeypatch.setattr(observing, "BUFFER", 200)
    release, told = Signal(), []

    def late(notice):
        release.wait(30)
        told.append(notice)

    model = ScriptedModel([turn("word " * 2000, chunk=5)])
    runner = Runner("memory:", observers=[Callback(late, deltas=True)])
    result = await runner.run(Agent(model), "Go.")
    journal = await journal_of(runner.store, result.task_id)
    release.set()
    await runner.aclose()
    assert [n.event for n in told if isinstance(n.event, e.Event)] == journal
    assert runner.observers[0].dropped_events == 0
    assert runner.observers[0].dropped_deltas > 1500


async def test_an_object_that_is_not_an_observer_is_refused_by_name():
    async def eager(notice): ...

    for wrong in (eager, 5, JsonLines, "console"):
        with pytest.raises(ConfigurationError, match="Runner: observers must list"):
            Runner("memory:", observers=[wrong])


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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "drive_ended"


async def test_json_lines_hold_facts_and_content_only_if_configured(tmp_path):
    model = ScriptedModel([call("look", n=1), text("The answer is violet.")])
    plain, full = tmp_path / "plain.jsonl", tmp_path / "full.jsonl"
    observers = [JsonLines(plain), JsonLines(full, content=True, deltas=True)]
    async with Runner("memory:", observers=observers) as runner:
        result = await runner.run(
            Agent(model, name="looker", tools=[look], instructions="Be mauve."), "Beige?"
        )
    lines = [json.loads(line) for line in plain.read_text().splitlines()]
    assert {line["task"] for line in lines} == {result.task_id}
    assert [line["kind"] for line in lines][:2] == ["drive_began", "task_created"]
    assert lines[-1] == {**lines[-1], "kind": "drive_ended", "state": "completed"}
    assert all(word not in plain.read_text() for word in ("violet", "mauve", "Beige", "found 1"))
    returned = next(line for line in lines if line["kind"] == "model_returned")
    assert returned["calls"] == [{"id": "s1-0", "name": "look"}]
    assert returned["usage"]["input_tokens"] == 10
    assert all(word in full.read_text() for word in ("violet", "mauve", "Beige", "found 1", '"kind":"delta"'))
    assert plain.stat().st_mode & 0o077 == 0


SECRETS = {
    "in an argument": "sekret-argument-1",
    "in the environment": "sekret-environment-2",
    "given": "sekret-given-3",
    "in a header": "sekret-header-4",
    "in a url": "sekret-url-5",
    "in json as text": "sekret-json-6",
}


async def test_no_observer_exports_secrets_even_with_content(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", SECRETS["in the environment"])

    @tool(read_only=True)
    async def login(user: str, password: str) -> dict:
        return {
            "text": f"key {SECRETS['in the environment']} and {SECRETS['given']}",
            "header": f"Authorization: Bearer {SECRETS['in a header']}",
            "url": f"postgres://me:{SECRETS['in a url']}@host/db",
            "raw": json.dumps({"access_token": SECRETS["in json as text"], "max_tokens": 512}),
        }

    model = ScriptedModel([call("login", user="ann", password=SECRETS["in an argument"]), text("Done.")])
    given, screen = [SECRETS["given"]], (tmp_path / "screen").open("w+")
    observers = [
        JsonLines(tmp_path / "all.jsonl", content=True, deltas=True, secrets=given),
        Console(screen, content=True, secrets=given),
    ]
    async with Runner("memory:", observers=observers) as runner:
        result = await runner.run(Agent(model, tools=[login]), "Go.")
    assert result.state == "completed"
    screen.seek(0)
    for told in ((tmp_path / "all.jsonl").read_text(), screen.read()):
        assert "Done." in told
        assert [where for where, secret in SECRETS.items() if secret in told] == []
    assert "512" in (tmp_path / "all.jsonl").read_text()
    screen.close()


async def test_the_console_shows_which_agent_did_what_and_what_failed(tmp_path):
    @tool(read_only=True)
    async def broken() -> str:
        raise OSError("no disk \x1b[31m")

    model = ScriptedModel([[call("look", n=1), call("broken")], fail(500), text("Sorry.")])
    with (tmp_path / "screen").open("w+") as screen:
        async with Runner("memory:", observers=[Console(screen, content=True)]) as runner:
            await runner.run(Agent(model, name="looker", tools=[look, broken]), "Go.", options=RunOptions())
        screen.seek(0)
        shown = screen.read()
    for words in (
        "looker",
        "step 1",
        "wants look, broken",
        "look 0 ms" if "look 0 ms" in shown else "look ",
        "Go.",
    ):
        assert words in shown
    assert "broken: error" in shown
    assert "the model failed: unavailable 500" in shown or "the model failed" in shown
    assert "\x1b" not in shown
    assert shown.rstrip().splitlines()[-1].endswith("■ failed")


async def test_without_observers_no_notice_is_built():
    async with Runner("memory:") as runner:
        handle = await runner.start(agent(), "Go.")
        owned = runner.driver.owned.tasks[handle.task_id]
        assert owned.channel.observed is None
        await handle.result()
        assert (runner.driver.observers, runner.observers) == (None, ())


async def test_a_task_runs_even_if_no_observer_thread_can_be_started(monkeypatch):
    def refuse(thread):
        if thread.name.startswith("treadle-observer"):
            raise RuntimeError("can't start new thread")
        start(thread)

    start = Thread.start
    monkeypatch.setattr(Thread, "start", refuse)
    told = []
    async with Runner("memory:", observers=[told.append]) as runner:
        assert (await runner.run(agent(), "Go.")).state == "completed"
        monkeypatch.undo()
        assert (await runner.run(agent(), "Go.")).state == "completed"
    assert len({notice.task.task_id for notice in told}) == 2


def test_the_text_of_a_side_calls_error_is_content():
    event = e.ModelReturned(
        "s1", Message("assistant", (Text("Hi."),)), also=(SideCall("a:b", error="down: key"),)
    )
    told = Redaction().event(event, content=False)
    assert [(side["model"], side["error"]) for side in told["also"]] == [("a:b", "failed")]
    assert "down: key" in str(Redaction().event(event, content=True))


def test_a_very_long_text_is_cut_without_half_a_secret():
    redaction = Redaction(["sekret-" + "x" * 100])
    told = redaction.text("a" * (LONGEST - 50) + "sekret-" + "x" * 100 + "b" * 5_000_000)
    assert len(told) < LONGEST + 50
    assert "sekret" not in told
    assert len(redaction.json(list(range(5_000_000)))) == 1_000
    began = time.perf_counter()
    redaction.json({"page": "token " * 2_000_000, "more": [{"x": "password " * 1_000}] * 100})
    assert time.perf_counter() - began < 2

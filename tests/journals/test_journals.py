"""Journals that earlier versions recorded are read, verified and driven on, for ever; what a change of code does."""

from __future__ import annotations

import io
import json
import shutil
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.journals.stories import AGENTS, LOOKER, STORIES, goes_on
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.core import codec
from treadle.core import events as e
from treadle.errors import ImportRefused, JournalCorrupt, TaskTooNew, VersionRefused
from treadle.llm.scripted import call, text, turn
from treadle.replay import record, replay
from treadle.replay.recording import journal_of
from treadle.stores.sqlite import SQLiteStore
from treadle.telemetry import (
    Console,
    DriveBegan,
    DriveEnded,
    JsonLines,
    Missed,
    Notice,
    ObservedTask,
    OpenTelemetry,
)
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
RECORDED = sorted(file for file in HERE.glob("*/*.jsonl"))


TOO_NEW = "with_an_event_of_the_future"
"""The first release drove it on: it took every event it did not know for one that a driver may ignore."""


MUST_KNOW = "with_an_event_that_a_driver_must_know"


def expected(file: Path) -> dict[str, Any]:
    wanted = json.loads((file.parent / "expected.json").read_text())[file.stem]
    return {**wanted, "ends": "too new", "says": ""} if file.stem == TOO_NEW else wanted


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name} {file.stem}")
async def test_a_recorded_journal_is_read_verified_replayed_and_driven_on(file: Path, tmp_path: Path) -> None:
    name, wanted = file.stem, expected(file)
    async with Runner(SQLiteStore(tmp_path / "journal.db"), agents=AGENTS) as runner:
        await runner.import_tasks(file)
        report = await runner.verify()
        assert report.findings == ()
        assert await audit_store(runner.store) == []
        events = {task.task_id: task.events for task in report.tasks}[name]
        assert (events, (await runner.get_task(name)).state) == (wanted["events"], wanted["state"])
        second_export = io.BytesIO()
        await runner.export_tasks(second_export, name)
        # An unknown event needs the format after this version's, also if it was recorded by an older version.
        needs, exported = f'"format":{e.JOURNAL_FORMAT + 1},'.encode(), second_export.getvalue()
        if (name, file.parent.name) == (
            TOO_NEW,
            "0.1.0",
        ):  # the first release did not say what a driver must know
            assert exported.replace(needs, b"").splitlines()[1:-2] == lines(file)[1:-2]
        elif name == MUST_KNOW:
            assert exported.replace(needs, b'"format":3,').splitlines()[1:-2] == lines(file)[1:-2]
        else:
            assert exported.splitlines()[1:-1] == lines(file)[1:-1]
        row = await runner.store.row(name)
        agent = next(agent for agent in AGENTS if agent.name == row.agent)
        replayed = await replay(await record(runner, name, agent), agent)
        changed = {"with_another_version_of_its_agent": ["instructions"]}
        assert [drift.kind for drift in replayed.drifts] == changed.get(name, []), str(replayed)
        assert await goes_on(runner, name) == (wanted["ends"], wanted["says"])
        assert (await runner.verify()).findings == ()


async def test_a_journal_of_a_newer_version_is_read_and_not_driven(store: Any) -> None:
    name = MUST_KNOW
    async with Runner(store, agents=AGENTS) as runner:
        await runner.import_tasks(HERE / "unreleased" / f"{name}.jsonl")
        with pytest.raises(TaskTooNew, match=f"this version knows format {e.JOURNAL_FORMAT}"):
            await runner.resume(name, options=RunOptions(break_on=[]))
        kinds = [event.kind async for event in runner.handle(name).events(deltas=False)]
        assert (len(kinds), kinds[-1], kinds.count("tool_started")) == (12, "unknown_event", 1)
        assert (await runner.get_task(name)).state == "paused"


@pytest.mark.sampled(10)
@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name} {file.stem}")
async def test_observers_make_sense_of_a_recorded_journal_from_wherever_they_begin(file: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces = OpenTelemetry(provider, content=True)
    observers = [Console(io.StringIO(), content=True), JsonLines(io.StringIO(), content=True)]
    async with Runner("memory:") as runner:
        await runner.import_tasks(file)
        events = await journal_of(runner.store, file.stem)
    task = ObservedTask(file.stem, "agent", "thread")
    for begin in range(len(events)):
        began = DriveBegan(begin, 2, 1, {}, copy_context())
        gap = [Notice(None, Missed(1, 0))] if begin % 3 == 1 else []
        notices = [
            Notice(task, event) for event in (began, *events[begin:], DriveEnded("paused", len(events)))
        ]
        for notice in [*notices[:3], *gap, *notices[3:]]:
            for observer in (traces, *observers) if begin % 5 == 0 else (traces,):
                observer.observe(notice)
        spans = exporter.get_finished_spans()
        exporter.clear()
        span_ids = {span.context.span_id for span in spans}
        assert {span.parent.span_id for span in spans if span.parent is not None} <= span_ids
        assert all(span.start_time <= span.end_time for span in spans)
        assert len([span for span in spans if span.parent is None]) == (2 if gap and len(notices) > 4 else 1)
    assert not traces._open
    provider.shutdown()


def lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines()


def test_each_story_is_recorded() -> None:
    assert {file.stem for file in RECORDED} == {history.__name__ for history in STORIES}


# ------------------------------------------------------------------------------- a newer format, older records


async def test_an_older_record_is_brought_up_to_this_version_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a release does that renames a field: raise `VERSION`, and say how an older document becomes a newer one."""

    def from_1_to_2(document: dict[str, Any]) -> dict[str, Any]:
        if document["k"] == "step_begun":  # the older name of the event, had it been this
            document["k"] = "step_started"
            document["index"] = document.pop("number")
        return document

    older = {"v": 1, "t": 5, "e": [{"k": "step_begun", "step": "s1", "number": 3}]}
    monkeypatch.setattr(codec, "VERSION", 2)
    monkeypatch.setitem(codec.UPCASTERS, 1, from_1_to_2)
    [event] = codec.decode(json.dumps(older).encode(), {}, 7)
    assert (event, event.seq) == (e.StepStarted("s1", 3), 7)
    for file in RECORDED:  # all that was recorded before is read through the upcaster
        async with Runner("memory:", agents=AGENTS) as runner:
            await runner.import_tasks(file)
            assert (await runner.verify()).findings == ()
            assert await goes_on(runner, file.stem) == (expected(file)["ends"], expected(file)["says"])
            assert (await runner.verify()).findings == ()


async def test_older_code_refuses_newer_records_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "newer.jsonl"
    with monkeypatch.context() as newer:
        newer.setattr(codec, "VERSION", 2)
        newer.setitem(codec.UPCASTERS, 1, lambda document: document)
        async with Runner(tmp_path / "journal.db") as runner:
            await runner.run(LOOKER, "Is Oslo free?", task_id="t")
            await runner.export_tasks(file, "t")
    async with Runner(tmp_path / "journal.db", agents=AGENTS) as runner:
        for verb in (runner.result, runner.resume):
            with pytest.raises(JournalCorrupt, match="written in format 2, this version reads up to 1"):
                await verb("t")
        with pytest.raises(ImportRefused, match=r"line 3: .*format 2"):
            await Runner("memory:").import_tasks(file)
        assert (await runner.run(LOOKER, "Is Oslo free?")).state == "completed"


# --------------------------------------------------------------------------------- code that changed meanwhile

TURNS = [turn(calls=[call("look", place="a"), call("look", place="b")]), text("Both.")]


@tool(read_only=True)
async def look(place: str) -> str:
    """Look."""
    return place


@tool(read_only=True, name="look")
async def look_closer(place: int, how: str) -> str:
    """Look closer."""
    return how


@tool(read_only=True)
async def view(place: str) -> str:
    """See."""
    return place


async def stopped_before_its_calls(path: Path) -> None:
    """A task whose model has asked for two calls that have not begun."""
    from treadle import Breakpoint

    agent = Agent(ScriptedModel(TURNS), name="looker", tools=[look])
    async with Runner(path) as runner:
        options = RunOptions(break_on=[Breakpoint(before_tool="look")])
        assert (await runner.run(agent, "Go.", task_id="t", options=options)).state == "paused"


CHANGES: dict[str, tuple[list[Any], set[str]]] = {
    "the same": ([look], {"ok"}),
    "a tool renamed": ([view], {"invalid"}),
    "a tool removed": ([], {"invalid"}),
    "another schema": ([look_closer], {"invalid"}),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_code_that_changed_gives_a_typed_outcome_and_no_loop(tmp_path: Path, change: str) -> None:
    tools, outcomes = CHANGES[change]
    await stopped_before_its_calls(tmp_path / "journal.db")
    agent = Agent(ScriptedModel(TURNS), name="looker", tools=tools)
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        result = await runner.resume("t", options=RunOptions(break_on=[]))
        assert (result.state, result.final_text) == ("completed", "Both.")
        assert {execution.outcome for execution in result.tool_executions} == outcomes
        events = [event async for event in runner.handle("t").events(deltas=False)]
        changed = [event for event in events if isinstance(event, e.VersionChanged)]
        assert len(changed) == (change != "the same")
        assert len(events) < 25


async def test_another_model_that_asks_in_another_order_repeats_nothing(tmp_path: Path) -> None:
    path, ran = tmp_path / "journal.db", list[str]()

    @tool
    async def write(place: str) -> str:
        """Write."""
        ran.append(place)
        return place

    def agent(*places: str) -> Agent[Any]:
        calls = [call("write", place=place) for place in places]
        return Agent(ScriptedModel([turn(calls=calls), text("Both.")]), name="writer", tools=[write])

    async with Runner(path) as runner:
        await runner.create_task(agent("a", "b"), "Go.", task_id="t")
        await runner.run_step("t")
    for number in range(3):
        copy = tmp_path / f"{number}.db"
        shutil.copy(path, copy)
        async with Runner(copy, agents=[agent("b", "a")]) as runner:
            assert (await runner.resume("t")).final_text == "Both."
    assert ran == ["a", "b"]


async def test_a_task_can_refuse_another_version_of_its_agent(tmp_path: Path) -> None:
    options = RunOptions(on_version_change="refuse")
    async with Runner(tmp_path / "journal.db") as runner:
        await runner.create_task(LOOKER, "Go.", task_id="t", options=options)
        await runner.run_step("t")
    changed = LOOKER.replace(instructions="Be kind.")
    async with Runner(tmp_path / "journal.db", agents=[changed]) as runner:
        for _ in range(2):
            with pytest.raises(VersionRefused, match=changed.fingerprint) as refused:
                await runner.resume("t")
            assert refused.value.task_id == "t"
            assert (await runner.get_task("t")).state == "running"
        accepted = await runner.resume("t", options=RunOptions(on_version_change="accept"))
        assert accepted.state == "completed"
        assert (await runner.verify()).findings == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"instructions": "Be kind."},
        {"model": "openai:gpt-5.2-mini"},
        {"name": "other"},
        {"tools": []},
        {"tools": [look_closer]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_fingerprint_tells_whether_the_agent_is_another(changes: dict[str, Any]) -> None:
    agent = Agent(ScriptedModel(TURNS), name="looker", tools=[look])
    assert agent.fingerprint == Agent(ScriptedModel(TURNS), name="looker", tools=[look]).fingerprint
    assert agent.replace(metadata={"a": 1}).fingerprint == agent.fingerprint
    assert agent.replace(**changes).fingerprint != agent.fingerprint

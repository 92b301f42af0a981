"""Sources and artifacts: what tools leave with their task, collected where it stands now, in call order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.runner.acts import journal, only
from treadle import (
    Agent,
    File,
    Image,
    NextStep,
    Runner,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolSpec,
    Unknown,
    tool,
)
from treadle.core import codec
from treadle.core.events import ToolEnded
from treadle.errors import ArtifactNotFound
from treadle.llm.scripted import call, text, turn
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

BIG = b"%PDF " + bytes(range(256)) * 100


@tool(read_only=True)
async def find(topic: str, after: float = 0) -> ToolOutput:
    """Find out."""
    await asyncio.sleep(after)
    sources = [{"title": topic, "url": f"https://e.org/{topic}"}, {"title": "all", "url": "https://e.org"}]
    return ToolOutput(f"{topic} found", sources=sources, artifacts=[File(data=BIG, name=f"{topic}.pdf")])


def agent_of(*turns: Any, tools: Any = (find,), **more: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(turns)), name="clerk", tools=tools, **more)


def titles(result: Any) -> list[str]:
    return [source["title"] for source in result.sources]


def names(result: Any) -> list[str]:
    return [f"{artifact.artifact_id} {artifact.name}" for artifact in result.artifacts]


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner
        assert await audit_store(runner.store) == []


async def test_sources_and_artifacts_are_in_call_order_and_equal_sources_appear_once(
    runner: Runner,
) -> None:
    both = turn(calls=[call("find", topic="slow", after=0.02), call("find", topic="quick")])
    result = await runner.run(agent_of(both, call("find", topic="later"), text("All.")), "go")
    ended = [event.call for event in await only(runner, result.task_id, "tool_ended")]
    assert ended == ["s1-1", "s1-0", "s2-0"]
    assert titles(result) == ["slow", "all", "quick", "later"]
    assert names(result) == ["s1-0-a1 slow.pdf", "s1-1-a1 quick.pdf", "s2-0-a1 later.pdf"]
    first = result.artifacts[0]
    assert (first.media_type, first.size, first.url) == ("application/pdf", len(BIG), None)
    assert (first.call_id, first.tool) == ("s1-0", "find")
    got = await runner.get_artifact(result.task_id, "s2-0-a1")
    assert (got.data, got.name) == (BIG, "later.pdf")
    assert (await runner.handle(result.task_id).get_artifact("s1-0-a1")).data == BIG
    for unknown in ("s1-0-a2", "s1-0", "s9-0-a1"):
        with pytest.raises(ArtifactNotFound, match=f"no artifact '{unknown}' on its present branch"):
            await runner.get_artifact(result.task_id, unknown)


async def test_undo_takes_them_back_and_a_fork_inherits_them(runner: Runner) -> None:
    agent = agent_of(call("find", topic="a"), call("find", topic="b"), text("Both."))
    task = await runner.create_task(agent, "go")
    await runner.run_step(task)
    await runner.run_step(task)
    fork = await runner.fork(task)
    other = await runner.fork(task, replace={"s2-0": "nothing was found"})
    await runner.undo_step(task)
    left = await runner.result(task)
    assert (titles(left), names(left)) == (["a", "all"], ["s1-0-a1 a.pdf"])
    with pytest.raises(ArtifactNotFound):
        await runner.get_artifact(task, "s2-0-a1")
    inherited = await runner.result(fork)
    assert (titles(inherited), names(inherited)) == (["a", "all", "b"], ["s1-0-a1 a.pdf", "s2-0-a1 b.pdf"])
    assert (await runner.get_artifact(fork, "s2-0-a1")).data == BIG
    assert titles(await runner.result(other)) == ["a", "all"]  # another result rests on nothing that is known
    again = await runner.resume(task, agent=agent)
    assert names(again) == ["s1-0-a1 a.pdf", f"{again.tool_executions[1].call_id}-a1 b.pdf"]


async def test_another_process_and_another_store_have_them_bit_by_bit(tmp_path: Path) -> None:
    async with Runner(SQLiteStore(tmp_path / "one.db")) as runner:
        result = await runner.run(agent_of(call("find", topic="a"), text("It.")), "go", task_id="t")
        await runner.export_tasks(tmp_path / "tasks", "t")
    with Runner(tmp_path / "one.db").sync as there:
        assert there.get_artifact("t", "s1-0-a1").data == BIG
    async with Runner(tmp_path / "two.db") as elsewhere:
        await elsewhere.import_tasks(tmp_path / "tasks")
        moved = await elsewhere.result("t")
        assert (moved.sources, moved.artifacts) == (result.sources, result.artifacts)
        assert (await elsewhere.get_artifact("t", "s1-0-a1")).data == BIG
        assert (await elsewhere.verify()).findings == ()
        assert await audit_store(elsewhere.store) == []


async def test_a_call_without_them_is_journalled_as_ever(runner: Runner) -> None:
    @tool(read_only=True)
    async def plain() -> str:
        """Return a text."""
        return "plain"

    result = await runner.run(agent_of(call("plain"), text("ok"), tools=[plain]), "go")
    [ended] = [event for event in await journal(runner, result.task_id) if isinstance(event, ToolEnded)]
    assert set(codec.fields_of(ended)) == {"step", "call", "output"}
    assert (ended.sources, ended.artifacts, result.sources, result.artifacts) == ((), (), (), ())


async def test_calls_of_steps_that_are_functions_count_in_the_order_of_the_plan(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            ask = [NextStep("one", 0.02), NextStep("two", 0)]
            return StepResult(next_steps=[*ask, NextStep("end", after=("one", "two"))])
        if ctx.name == "end":
            return StepResult("done", is_last=True)
        return StepResult(await ctx.call_tool("find", {"topic": ctx.name, "after": ctx.input}))

    result = await runner.run(agent_of("never asked", worker=worker), "go")
    assert titles(result) == ["one", "all", "two"]
    assert [artifact.name for artifact in result.artifacts] == ["one.pdf", "two.pdf"]


async def test_a_step_that_is_a_function_adds_its_own_after_those_of_its_calls(runner: Runner) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            await ctx.call_tool("find", {"topic": "a"})
            mine = [File(data=b"notes", name="notes.txt"), File(url="https://e.org/x", name="x")]
            more = {
                "sources": [{"title": "own"}, {"title": "all", "url": "https://e.org"}],
                "artifacts": mine,
            }
            return StepResult("first", next_steps=[NextStep("end")], **more)
        return StepResult("done", is_last=True, sources=({"title": "end"},))

    agent = agent_of("never asked", worker=worker)
    result = await runner.run(agent, "go")
    assert titles(result) == ["a", "all", "own", "end"]
    assert names(result) == ["s1-c1-a1 a.pdf", "s1-a1 notes.txt", "s1-a2 x"]
    assert [(made.call_id, made.tool) for made in result.artifacts] == [
        ("s1-c1", "find"),
        *[(None, None)] * 2,
    ]
    assert (await runner.get_artifact(result.task_id, "s1-a1")).data == b"notes"
    await runner.undo_step(result.task_id)
    assert titles(await runner.result(result.task_id)) == ["a", "all", "own"]
    await runner.undo_step(result.task_id)
    assert titles(await runner.result(result.task_id)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"sources": "text"},
        {"sources": {"title": "x"}},
        {"sources": [object()]},
        {"artifacts": [File(path="x")]},
        {"artifacts": [b"bytes"]},
        {"skipped": "not needed", "is_last": False, "output": None, "sources": ["x"]},
    ],
)
async def test_a_step_that_leaves_what_it_may_not_fails(runner: Runner, wrong: Any) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(**{"output": "done", "is_last": True, **wrong})

    result = await runner.run(agent_of("never asked", worker=worker), "go")
    assert (result.state, result.error and result.error.source) == ("failed", "worker")


async def test_a_model_that_only_writes_text_gathers_them_too(runner: Runner) -> None:
    script = ['Action: find\nAction Input: {"topic": "a"}', "Answer: found"]
    result = await runner.run(agent_of(*script, worker="react"), "go")
    assert (titles(result), names(result)) == (["a", "all"], ["s1-0-a1 a.pdf"])
    assert not any("pdf" in message.text or "e.org" in message.text for message in result.messages)


@pytest.mark.parametrize(
    ("given", "name", "media_type", "url"),
    [
        (lambda folder: File(path=str(folder / "notes.txt")), "notes.txt", "text/plain", None),
        (lambda folder: Image(path=str(folder / "chart.png")), "chart.png", "image/png", None),
        (lambda _: Image(data=b"png", media_type="image/png"), None, None, None),
        (lambda _: File(data=b"a,b", name="t.csv"), "t.csv", "text/csv", None),
        (
            lambda _: File(url="https://e.org/my%20plan.pdf?v=2"),
            "my plan.pdf",
            "application/pdf",
            "https://e.org/my%20plan.pdf?v=2",
        ),
        (lambda _: File(data=b"?", name="thing"), None, None, None),
        (lambda _: File(path="/no/such/file.txt"), None, None, None),
        (lambda _: "a text", None, None, None),
    ],
)
async def test_an_artifact_has_a_name_a_type_and_bytes_or_an_address(
    runner: Runner, tmp_path: Path, given: Any, name: str | None, media_type: str | None, url: str | None
) -> None:
    (tmp_path / "notes.txt").write_text("a note")
    (tmp_path / "chart.png").write_bytes(b"png")

    @tool(read_only=True)
    def make() -> ToolOutput:
        """Make something."""
        return ToolOutput("made", artifacts=[given(tmp_path)])

    result = await runner.run(agent_of(call("make"), text("ok"), tools=[make]), "go")
    if name is None:
        assert (result.tool_executions[0].outcome, result.artifacts) == ("error", ())
        return
    [made] = result.artifacts
    assert (made.name, made.media_type, made.url) == (name, media_type, url)
    got = await runner.get_artifact(result.task_id, made.artifact_id)
    assert (got.path, got.data is None, got.url) == (None, url is not None, url)
    assert made.size == (len(got.data) if got.data is not None else None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sources": "a text"},
        {"sources": [object()]},
        {"sources": {"title": "x"}},
        {"artifacts": File(url="x")},
    ],
)
async def test_sources_or_artifacts_that_are_not_a_list_are_an_error_of_the_call(
    runner: Runner, wrong: Any
) -> None:
    @tool(read_only=True)
    def make() -> ToolOutput:
        """Make something."""
        return ToolOutput("made", **wrong)

    result = await runner.run(agent_of(call("make"), text("ok"), tools=[make]), "go")
    assert (result.state, result.tool_executions[0].outcome) == ("completed", "error")


class OwnTool:
    """A tool that is no function, and so is not checked where functions are."""

    spec = ToolSpec(name="make", read_only=True)

    def __init__(self, given: ToolOutput) -> None:
        self._given = given

    def validate(self, arguments: dict[str, Any]) -> Any:
        return arguments

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        return self._given

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None: ...

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Unknown:
        return Unknown()


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (ToolOutput(1, sources=["a"], artifacts=[File(data=b"x", name="x.bin")]), "ok"),
        (ToolOutput(1, artifacts=[File(path="x.bin", name="x.bin")]), "error"),
        (ToolOutput(1, artifacts=[File(data=b"x")]), "error"),
        (ToolOutput(1, artifacts=[Image(data=b"x", media_type="image/png")]), "error"),
        (ToolOutput(1, artifacts=[File(data=b"x", name="x", meta=object())]), "error"),
        (ToolOutput(1, sources=[object()]), "error"),
        (ToolOutput(1, sources="text"), "error"),
    ],
)
async def test_a_tool_of_an_own_class_cannot_put_into_the_journal_what_it_cannot_hold(
    runner: Runner, given: ToolOutput, outcome: str
) -> None:
    result = await runner.run(agent_of(call("make"), text("ok"), tools=[OwnTool(given)]), "go")
    assert (result.state, result.tool_executions[0].outcome) == ("completed", outcome)
    assert (len(result.sources), len(result.artifacts)) == ((1, 1) if outcome == "ok" else (0, 0))


async def test_a_caller_may_change_the_sources_it_gets(runner: Runner) -> None:
    result = await runner.run(agent_of(call("find", topic="a"), text("ok")), "go")
    result.sources[0]["title"] = "changed"
    assert titles(await runner.result(result.task_id)) == ["a", "all"]

"""Models and tools with defects: each defect ends its own call, and none hangs the task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Message, Runner, RunResult, ScriptedModel, ToolOutput, tool
from treadle.core.messages import Text, ToolCall
from treadle.core.model import ModelAnswer, TextDelta, Usage
from treadle.core.tools import ToolSpec
from treadle.llm.scripted import call
from treadle.ports import Commit, CommitDone
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


class Own:
    """A model that yields what it was given."""

    name = "own:model"

    def __init__(self, *items: Any) -> None:
        self.items = items

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        for item in self.items:
            if isinstance(item, BaseException):
                raise item
            yield item


def answer_of(*parts: Any, **more: Any) -> ModelAnswer:
    return ModelAnswer(Message("assistant", parts), **more)


async def ends(agent: Agent[Any], store: Any = "memory:") -> RunResult:
    """Run, within a time that a hanging task would not keep, and audit what was journalled."""
    async with Runner(store) as runner, asyncio.timeout(5):
        result = await runner.run(agent, "Go.")
        assert await audit_store(runner.store) == []
    return result


WRONG: dict[str, tuple[Any, ...]] = {
    "text for a message": (ModelAnswer("hello"),),  # type: ignore[arg-type]
    "no message": (ModelAnswer(None),),  # type: ignore[arg-type]
    "a list of parts": (ModelAnswer(Message("assistant", [Text("a")])),),  # type: ignore[arg-type]
    "text for a part": (answer_of("a"),),
    "an object for a part": (answer_of(object()),),
    "no words": (answer_of(Text(None)),),  # type: ignore[arg-type]
    "arguments that are text": (answer_of(ToolCall("1", "t", "{}")),),  # type: ignore[arg-type]
    "arguments that are no JSON": (answer_of(ToolCall("1", "t", {"a": object()})),),
    "a nameless call": (answer_of(ToolCall("1", None, {})),),  # type: ignore[arg-type]
    "meta that is no JSON": (answer_of(Text("a", meta=object())),),
    "no usage": (answer_of(Text("a"), usage=None),),
    "usage without numbers": (answer_of(Text("a"), usage=Usage(None)),),  # type: ignore[arg-type]
    "an unknown finish": (answer_of(Text("a"), finish="weird"),),
    "two answers": (answer_of(Text("a")), answer_of(Text("b"))),
    "no answer": (TextDelta("a"),),
    "something that is no delta": (5, answer_of(Text("a"))),
    "an exit": (SystemExit(3),),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_model_that_answers_wrongly_fails_its_task_and_hangs_nothing(name: str) -> None:
    result = await ends(Agent(Own(*WRONG[name])))
    assert result.state == "failed"
    assert result.error is not None
    assert result.error.source == "model"


async def test_garbage_between_deltas_fails_with_and_without_a_watcher() -> None:
    agent = Agent(Own(5, answer_of(Text("a"))))
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "Go.")
        async with runner.run_stream(agent, "Go.") as stream:
            async for _ in stream:
                pass
    assert result.state == stream.result.state == "failed"


class OwnTool:
    """A tool of a custom class, whose results are not checked."""

    def __init__(self, output: Any, problem: Exception | None = None) -> None:
        self.spec = ToolSpec(name="own")
        self.output = output
        self.problem = problem

    def validate(self, arguments: dict[str, Any]) -> Any:
        if self.problem is not None:
            raise self.problem
        return arguments

    async def call(self, arguments: Any, ctx: Any) -> Any:
        return self.output

    async def undo(self, call: Any, ctx: Any) -> None: ...

    async def reconcile(self, call: Any, ctx: Any) -> Any: ...


@pytest.mark.parametrize(
    "own",
    [
        OwnTool(None),
        OwnTool(ToolOutput(object())),
        OwnTool(ToolOutput(1, observation=5)),  # type: ignore[arg-type]
        OwnTool(ToolOutput(1, observation=[object()])),  # type: ignore[list-item]
        OwnTool(ToolOutput(1, display=object())),  # type: ignore[arg-type]
        OwnTool(ToolOutput(1), ValueError("bad")),
        OwnTool(ToolOutput(1), KeyError("bad")),
    ],
)
async def test_a_tool_that_returns_or_raises_anything_harms_only_its_call(
    own: OwnTool, tmp_path: Path
) -> None:
    result = await ends(Agent(ScriptedModel([call("own"), "done"]), tools=[own]), tmp_path / "journal.db")
    assert result.state == "completed"
    assert result.tool_executions[0].outcome in ("error", "invalid")


@tool(read_only=True)
async def changes_its_arguments(anything: Any, inner: dict[str, Any]) -> str:
    anything["new"] = True
    inner["list"].append("new")
    return "changed"


async def test_a_tool_that_changes_its_arguments_does_not_change_the_journal() -> None:
    arguments = {"anything": {}, "inner": {"list": []}}
    model = ScriptedModel([call("changes_its_arguments", **arguments), "done"])
    result = await ends(Agent(model, tools=[changes_its_arguments]))
    assert result.tool_executions[0].arguments == {"anything": {}, "inner": {"list": []}}
    assert model.requests[-1].messages[1].tool_calls[0].arguments == {"anything": {}, "inner": {"list": []}}


async def test_a_caller_that_stops_waiting_for_a_drive_does_not_break_it() -> None:
    release = asyncio.Event()

    @tool(read_only=True)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    agent = Agent(ScriptedModel([call("stubborn"), "done"]), tools=[stubborn])
    runner = Runner("memory:", agents=[agent])
    handle = await runner.start(agent, "Go.")
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runner.aclose(), 0.1)
    release.set()
    assert (await handle.result()).state == "interrupted"
    await runner.aclose()


async def test_a_timer_that_a_tool_leaves_behind_does_not_hit_the_call_after_it() -> None:
    @tool(read_only=True)
    async def forgetful() -> str:
        me = asyncio.current_task()
        assert me is not None
        asyncio.get_running_loop().call_later(0.02, me.cancel)
        return "done"

    @tool(read_only=True)
    async def slow() -> str:
        await asyncio.sleep(0.1)
        return "slept"

    agent = Agent(ScriptedModel([call("forgetful"), call("slow"), "Both ran."]), tools=[forgetful, slow])
    async with asyncio.timeout(5), Runner("memory:") as runner:
        result = await runner.run(agent, "go")
    assert [(execution.name, execution.outcome) for execution in result.tool_executions] == [
        ("forgetful", "ok"),
        ("slow", "ok"),
    ]
    assert result.final_text == "Both ran."


async def test_the_time_of_a_write_counts_from_its_start_and_not_from_its_wait_for_the_disk(
    tmp_path: Path,
) -> None:
    class Slow(SQLiteStore):
        """Takes longer to write than the tool may take."""

        def commit(self, commit: Commit, done: CommitDone) -> None:
            asyncio.get_running_loop().call_later(0.1, super().commit, commit, done)

    starts = 0

    @tool(timeout=0.05)
    async def post() -> str:
        nonlocal starts
        starts += 1
        return "posted"

    agent = Agent(ScriptedModel([call("post"), "Done."]), tools=[post])
    async with Runner(Slow(tmp_path / "j.db")) as runner:
        result = await runner.run(agent, "go")
        kinds = [event.kind async for event in runner.handle(result.task_id).events()]
    assert (result.state, starts) == ("completed", 1)
    assert kinds.count("tool_started") == 1

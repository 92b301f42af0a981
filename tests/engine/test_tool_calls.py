"""Tools inside a task: durable begins and ends, timeouts, retries, independence, isolation, odd results."""

import asyncio
import contextvars
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Gate, book, broken, look
from tests.runner.acts import (
    assert_journal_makes_sense,
    assert_well_formed,
    journal,
    kinds,
    only,
    results_seen,
)
from treadle import (
    Agent,
    Image,
    ModelSettings,
    Runner,
    RunOptions,
    ScriptedModel,
    Text,
    ToolContext,
    ToolOutput,
    tool,
)
from treadle.core.events import ToolProgress
from treadle.core.journal import unfold
from treadle.errors import ToolOutcomeUnknown
from treadle.llm.scripted import call, turn
from treadle.stores.sqlite import SQLiteStore

pytestmark = pytest.mark.anyio


def with_tools(*tools: Any, script: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(script)), name="worker", tools=list(tools), **options)


# ------------------------------------------------------------------------------------- durability


async def durable_kinds(path: Path, task_id: str) -> list[tuple[str, str]]:
    """What another process would read just now: (event, call)."""
    other = SQLiteStore(path)
    await other.open()
    try:
        records = await other.read(task_id)
    finally:
        await other.close()
    return [
        (event.kind, getattr(event, "call", "")) for _, events in unfold(task_id, records) for event in events
    ]


async def test_the_begin_of_a_write_is_durable_before_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    seen: dict[str, list[tuple[str, str]]] = {}

    @tool
    async def write(ctx: ToolContext[Any]) -> None:
        seen[ctx.call_id] = await durable_kinds(path, ctx.task_id)

    @tool
    def write_in_thread(ctx: ToolContext[Any]) -> None:
        seen[ctx.call_id] = asyncio.run(durable_kinds(path, ctx.task_id))

    agent = with_tools(
        write, write_in_thread, script=[turn(calls=[call("write"), call("write_in_thread")]), "Done."]
    )
    async with Runner(path) as runner:
        assert (await runner.run(agent, "go")).state == "completed"
    for call_id in ("s1-0", "s1-1"):
        assert ("tool_started", call_id) in seen[call_id]


async def test_the_end_of_a_call_is_durable_before_the_next_write_begins(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    seen: list[list[tuple[str, str]]] = []

    @tool
    async def write(ctx: ToolContext[Any]) -> None:
        seen.append(await durable_kinds(path, ctx.task_id))

    agent = with_tools(write, look, script=[call("write"), call("look"), call("write"), "Done."])
    async with Runner(path) as runner:
        assert (await runner.run(agent, "go")).state == "completed"
    assert ("tool_ended", "s1-0") in seen[1]
    assert ("tool_ended", "s2-0") in seen[1]


async def test_every_event_that_a_watcher_gets_is_durable(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    agent = with_tools(book, script=[call("book", place="room"), "Done."])
    async with Runner(path) as runner, runner.run_stream(agent, "go") as stream:
        async for event in stream:
            if getattr(event, "seq", 0):
                stored = await durable_kinds(path, stream.task_id)
                assert len(stored) >= event.seq  # type: ignore[union-attr]


# --------------------------------------------------------------------------------- timeouts, retries


async def test_a_read_that_takes_too_long_is_an_error_for_the_model(runner: Runner) -> None:
    gate = Gate(read_only=True, timeout=0.05)
    agent = with_tools(gate.tool, script=[call("work"), "Too slow."])
    result = await runner.run(agent, "go")
    assert (result.state, result.tool_executions[0].outcome) == ("completed", "timeout")
    assert "longer than 0.05 s" in results_seen(result.messages)[0]
    assert gate.cancelled == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("policy", ["wait", "tell_model", "fail"])
async def test_a_write_that_takes_too_long_is_unknown(runner: Runner, policy: Any) -> None:
    gate = Gate(timeout=0.05)
    agent = with_tools(gate.tool, script=[call("work"), "Noted."])
    result = await runner.run(agent, "go", options=RunOptions(on_unknown_outcome=policy))
    assert result.state == {"wait": "waiting", "tell_model": "completed", "fail": "failed"}[policy]
    if policy == "wait":
        assert "0.05 s" in result.pending[0].text
    else:
        assert result.tool_executions[0].outcome == "unknown"
    assert gate.starts == 1


@pytest.mark.parametrize(
    ("effect", "outcome", "starts"),
    [
        ({}, "unknown", 1),
        ({"idempotent": True, "retries": 1}, "unknown", 2),
        ({"read_only": True}, "error", 1),
    ],
    ids=["write", "idempotent", "read"],
)
async def test_a_tool_may_say_that_the_outcome_of_its_call_is_unknown(
    runner: Runner, effect: Any, outcome: str, starts: int
) -> None:
    started: list[int] = []

    @tool(**effect)
    async def ask_a_server(ctx: ToolContext[Any]) -> None:
        started.append(ctx.attempt)
        raise ToolOutcomeUnknown("the server was gone before it answered")

    agent = with_tools(ask_a_server, script=[call("ask_a_server"), "Noted."])
    result = await runner.run(agent, "go", options=RunOptions(on_unknown_outcome="tell_model"))
    assert result.state == "completed"
    (execution,) = result.tool_executions
    assert (execution.outcome, len(started)) == (outcome, starts)
    assert execution.error is not None
    assert "the server was gone before it answered" in execution.error.message


async def test_reads_are_tried_again_as_often_as_they_declare_under_one_key(runner: Runner) -> None:
    seen: list[tuple[str, int]] = []

    @tool(read_only=True, retries=2)
    async def flaky(ctx: ToolContext[Any]) -> str:
        seen.append((ctx.idempotency_key, ctx.attempt))
        if len(seen) < 3:
            raise ConnectionError("not yet")
        return "there"

    result = await runner.run(with_tools(flaky, script=[call("flaky"), "Done."]), "go")
    assert result.tool_executions[0].outcome == "ok"
    key = f"{result.task_id}/s1-0"
    assert seen == [(key, 1), (key, 2), (key, 3)]
    await assert_journal_makes_sense(runner, result.task_id)

    seen.clear()

    @tool(read_only=True, retries=1, timeout=0.03)
    async def hanging(ctx: ToolContext[Any]) -> None:
        seen.append((ctx.idempotency_key, ctx.attempt))
        await asyncio.sleep(9)

    result = await runner.run(with_tools(hanging, script=[call("hanging"), "Done."]), "go")
    assert result.tool_executions[0].outcome == "timeout"
    assert [attempt for _, attempt in seen] == [1, 2]


# ------------------------------------------------------------------------------- context and progress


async def test_a_tool_knows_the_call_it_serves(runner: Runner) -> None:
    seen: list[ToolContext[Any]] = []

    @tool(read_only=True)
    async def who(ctx: ToolContext[Any]) -> None:
        seen.append(ctx)

    secret = {"user": "u1"}
    agent = with_tools(who, script=[turn(calls=[call("who"), call("who")]), "Done."])
    result = await runner.run(agent, "go", thread_id="th", context=secret)
    first, second = seen
    assert (first.task_id, first.thread_id, first.step_id, first.call_id) == (
        result.task_id, "th", "s1", "s1-0",
    )  # fmt: skip
    assert (first.agent, first.attempt, second.call_id) == ("worker", 1, "s1-1")
    assert first.context is secret
    assert first.idempotency_key != second.idempotency_key
    assert "u1" not in repr(await journal(runner, result.task_id))


async def test_a_fork_has_other_idempotency_keys(runner: Runner) -> None:
    seen: list[str] = []

    @tool(idempotent=True)
    async def pay(ctx: ToolContext[Any]) -> None:
        seen.append(ctx.idempotency_key)

    agent = with_tools(pay, script=["First.", call("pay"), "Done."])
    task = await runner.create_task(agent, "go")
    await runner.run_step(task)
    await runner.run_step(task, input="and pay")
    fork = await runner.fork(task, at="s1", input="and pay")
    await runner.run_step(fork)
    assert seen == [f"{task.task_id}/s2-0", f"{fork.task_id}/s2-0"]


async def test_progress_reaches_watchers_from_every_kind_of_tool_and_is_not_stored(runner: Runner) -> None:
    @tool(read_only=True)
    def thread(ctx: ToolContext[Any]) -> str:
        ctx.progress({"half": True})
        return "thread"

    @tool(read_only=True)
    def generator() -> Any:
        yield 1
        yield 2
        return "generator"

    @tool(read_only=True)
    async def stream() -> Any:
        yield "a"
        yield "b"

    names = ["thread", "generator", "stream"]
    agent = with_tools(thread, generator, stream, script=[turn(calls=map_calls(names)), "Done."])
    progress: dict[str, list[Any]] = {}
    async with runner.run_stream(agent, "go") as run:
        async for event in run:
            if isinstance(event, ToolProgress):
                progress.setdefault(event.call, []).append(event.value)
    assert progress == {"s1-0": [{"half": True}], "s1-1": [1, 2], "s1-2": ["a", "b"]}
    assert [e.output for e in run.result.tool_executions] == ["thread", "generator", "b"]
    assert not any("progress" in kind for kind in await kinds(runner, run.task_id))


def map_calls(names: Any) -> list[Any]:
    return [call(name) for name in names]


async def test_context_variables_of_a_call_are_its_own(runner: Runner) -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="none")

    @tool(read_only=True)
    async def inline(name: str) -> str:
        before = var.get()
        var.set(name)
        await asyncio.sleep(0.01)
        return f"{before} {var.get()}"

    @tool(read_only=True)
    def thread(name: str) -> str:
        before = var.get()
        var.set(name)
        time.sleep(0.01)
        return f"{before} {var.get()}"

    var.set("caller")
    calls_made = [call(kind, name=f"{kind}{n}") for n in range(4) for kind in ("inline", "thread")]
    result = await runner.run(with_tools(inline, thread, script=[turn(calls=calls_made), "Done."]), "go")
    assert [run.output for run in result.tool_executions] == [
        f"caller {kind}{n}" for n in range(4) for kind in ("inline", "thread")
    ]
    assert var.get() == "caller"


# --------------------------------------------------------------------------------------- independence


async def test_calls_of_one_turn_do_not_touch_each_other(runner: Runner) -> None:
    ready = [asyncio.Event() for _ in range(3)]
    ready[2].set()

    @tool(read_only=True)
    async def fine(n: int) -> str:
        await ready[n].wait()
        ready[n - 1].set()  # the last call ends first
        return f"fine {n}"

    @tool(read_only=True, timeout=0.05)
    async def hanging() -> None:
        await asyncio.sleep(9)

    @tool(read_only=True)
    async def leaving() -> None:
        raise SystemExit(3)

    calls_made = [
        call("fine", n=0), call("broken"), call("fine", n=1), call("hanging"), call("missing"),
        call("fine", n="x"), call("leaving"), call("fine", n=2),
    ]  # fmt: skip
    agent = with_tools(fine, broken, hanging, leaving, script=[turn(calls=calls_made), "Done."])
    result = await runner.run(agent, "go")
    assert result.state == "completed"
    assert [run.outcome for run in result.tool_executions] == [
        "ok", "error", "ok", "timeout", "invalid", "invalid", "error", "ok",
    ]  # fmt: skip
    results = results_seen(result.messages)
    assert [content for content in results if content.startswith("fine ") and len(content) == 6] == [
        "fine 0", "fine 1", "fine 2",
    ]  # fmt: skip
    ended = [event.call for event in await only(runner, result.task_id, "tool_ended")]
    assert ended.index("s1-7") < ended.index("s1-2") < ended.index("s1-0")
    assert_well_formed(result.messages)
    await assert_journal_makes_sense(runner, result.task_id)


async def test_sixteen_calls_that_end_at_one_moment_lose_nothing(runner: Runner) -> None:
    for kind in ("async", "thread"):
        for _ in range(5):
            if kind == "async":
                barrier = asyncio.Barrier(16)

                @tool
                async def meet(n: int, barrier: Any = barrier) -> int:
                    await barrier.wait()
                    return n
            else:
                at_once = threading.Barrier(16)

                @tool
                def meet(n: int, barrier: Any = at_once) -> int:
                    barrier.wait(5)
                    return n

            calls_made = [call("meet", n=n) for n in range(16)]
            result = await runner.run(with_tools(meet, script=[turn(calls=calls_made), "Done."]), "go")
            assert [run.output for run in result.tool_executions] == list(range(16))
            assert results_seen(result.messages) == [str(n) for n in range(16)]


async def test_a_thread_that_blocks_does_not_block_the_loop_or_its_siblings(runner: Runner) -> None:
    ended = threading.Event()

    @tool(read_only=True)
    def block() -> bool:
        return ended.wait(30)

    @tool(read_only=True)
    async def quick() -> None:
        ended.set()

    agent = with_tools(block, quick, script=[turn(calls=[call("block"), call("quick")]), "Done."])
    result = await runner.run(agent, "go")
    assert result.tool_executions[0].output is True


# ------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "stored as JSON"),
        ({"x": [math.inf]}, "stored as JSON"),
        ("\ud800", "stored as JSON"),
        (object(), "stored as JSON"),
        ({1: 2}, ""),
        (b"bytes", ""),
    ],
    ids=["nan", "inf", "surrogate", "object", "integer key", "bytes"],
)
async def test_a_result_that_cannot_be_stored_is_the_error_of_the_call(
    runner: Runner, value: Any, why: str
) -> None:
    @tool(read_only=True)
    async def odd() -> Any:
        return value

    result = await runner.run(with_tools(odd, script=[call("odd"), "Done."]), "go")
    assert result.state == "completed"
    if why:
        assert result.tool_executions[0].outcome == "error"
        assert why in results_seen(result.messages)[0]
    await assert_journal_makes_sense(runner, result.task_id)


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("own"), BaseException("b")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_any_exception_of_a_tool_is_the_error_of_its_call(
    runner: Runner, error: Any, kind: str
) -> None:
    @tool(read_only=True)
    async def inline() -> None:
        raise error

    @tool(read_only=True)
    def thread() -> None:
        raise error

    name = "inline" if kind == "async" else "thread"
    async with asyncio.timeout(5):
        result = await runner.run(with_tools(inline, thread, script=[call(name), "Done."]), "go")
    assert (result.state, result.tool_executions[0].outcome) == ("completed", "error")


async def test_a_tool_that_cancels_its_own_task_ends_as_an_error_and_does_not_spin(runner: Runner) -> None:
    starts: list[int] = []

    @tool(read_only=True)
    async def suicidal() -> None:
        starts.append(1)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async with asyncio.timeout(20):
        result = await runner.run(with_tools(suicidal, script=[call("suicidal"), "Done."]), "go")
    assert len(starts) == 1
    assert (result.state, result.tool_executions[0].outcome) == ("completed", "error")


async def test_a_huge_result_is_cut_for_the_model_and_kept_whole(store: Any) -> None:
    huge = "".join(f"{n:07d} " for n in range(250_000))

    @tool(read_only=True)
    async def dump() -> str:
        return huge

    agent = with_tools(dump, script=[call("dump"), "Long."])
    async with Runner(store) as first:
        result = await first.run(agent, "go")
        (results,) = results_seen(agent.model.requests[1].messages)  # type: ignore[union-attr]
        assert len(results) < 8_200
        assert 'characters cut; read_output(call_id="s1-0", offset=' in results
        assert results.startswith("0000000 ")
        assert results.endswith(huge[-20:])
        assert result.tool_executions[0].output == huge
    async with Runner(store) as second:
        assert (await second.result(result.task_id)).tool_executions[0].output == huge


async def test_the_model_sees_the_observation_and_people_the_display(runner: Runner) -> None:
    @tool(read_only=True)
    async def faces() -> ToolOutput:
        return ToolOutput({"raw": 1}, "what the model sees", "what people see")

    agent = with_tools(faces, script=[call("faces"), "Done."])
    result = await runner.run(agent, "go")
    (run,) = result.tool_executions
    assert (run.output, run.display) == ({"raw": 1}, "what people see")
    assert results_seen(result.messages) == ["what the model sees"]


async def test_an_image_is_seen_by_the_model(store: Any) -> None:
    @tool(read_only=True)
    async def photo() -> list[Any]:
        return ["a photo:", Image(data=b"\x89PNG" * 1000, media_type="image/png")]

    agent = with_tools(photo, script=[call("photo"), "Nice."])
    async with Runner(store) as runner:
        result = await runner.run(agent, "go")
        parts: Any = agent.model.requests[1].messages[-1].parts[0]  # type: ignore[union-attr]
        assert isinstance(parts.parts[0], Text)
        assert parts.parts[1].data == b"\x89PNG" * 1000
    async with Runner(store) as other:
        again: Any = (await other.result(result.task_id)).messages[2].parts[0]
        assert again.parts[1].data == b"\x89PNG" * 1000


# ------------------------------------------------------------------------ direct answers, first choices


def direct(works: bool = True) -> Any:
    @tool(read_only=True, return_direct=True)
    async def answer() -> ToolOutput:
        if not works:
            raise ValueError("no answer")
        return ToolOutput({"n": 42}, "for the model", "Forty-two.")

    return answer


async def test_return_direct_answers_with_the_display_and_its_siblings_still_run(runner: Runner) -> None:
    gate = Gate()
    gate.let_go.set()
    agent = with_tools(direct(), gate.tool, script=[turn(calls=[call("answer"), call("work")]), "never"])
    result = await runner.run(agent, "go")
    assert (result.state, result.final_text) == ("completed", "Forty-two.")
    assert [run.outcome for run in result.tool_executions] == ["ok", "ok"]
    assert len(agent.model.requests) == 1  # type: ignore[union-attr]
    thread = await runner.get_thread(result.thread_id)
    assert (thread[-1].role, thread[-1].text) == ("assistant", "Forty-two.")
    assert_well_formed(thread)


async def test_return_direct_answers_only_on_success(runner: Runner) -> None:
    agent = with_tools(direct(works=False), script=[call("answer"), "I could not."])
    result = await runner.run(agent, "go")
    assert result.final_text == "I could not."


async def test_a_message_that_crosses_with_a_direct_answer_is_read(runner: Runner) -> None:
    gate = Gate(read_only=True, return_direct=True)
    agent = with_tools(gate.tool, script=[call("work"), "Also that."])
    handle = await runner.start(agent, "go")
    await gate.entered.wait()
    await handle.send("and the other thing?")
    gate.let_go.set()
    result = await handle.result()
    assert result.final_text == "Also that."
    assert_well_formed(result.messages)


@pytest.mark.parametrize("choice", ["required", "work"])
async def test_tool_choice_is_reset_after_the_first_step(runner: Runner, choice: str) -> None:
    gate = Gate(read_only=True)
    gate.let_go.set()
    agent = with_tools(
        gate.tool,
        script=[call("work"), call("work"), "Done."],
        model_settings=ModelSettings(tool_choice=choice),
    )
    await runner.run(agent, "go")
    assert [request.tool_choice for request in agent.model.requests] == [choice, "auto", "auto"]  # type: ignore[union-attr]

"""What tools ask and keep: in each kind of function, at each place, and what is refused."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel

from tests.runner.acts import only
from treadle import Agent, Runner, RunOptions, RunResult, ScriptedModel, ToolContext, tool
from treadle.errors import QuestionUnanswered, ToolError
from treadle.llm.scripted import call
from treadle.ports import ToolOutput

pytestmark = pytest.mark.anyio


class Room(BaseModel):
    kind: Literal["single", "double"]
    nights: int = 1


@dataclass
class Pair:
    left: int
    right: str


def agent_of(*tools: Any, calls: Any = None) -> Agent[Any]:
    requested = calls or [call(each.spec.name) for each in tools]
    return Agent(ScriptedModel([requested, "Done."]), name="asker", tools=list(tools))


async def answered(runner: Runner, result: RunResult[Any], *values: Any) -> RunResult[Any]:
    """Answer one question after the other, and go on each time."""
    for value in values:
        assert result.state == "waiting", result.state
        await runner.answer(result.task_id, value=value, by="ann")
        result = await runner.resume(result.task_id)
    return result


def outcome(result: RunResult[Any], index: int = 0) -> tuple[str | None, Any]:
    execution = result.tool_executions[index]
    return execution.outcome, execution.error.message if execution.error is not None else execution.output


# ------------------------------------------------------------------------------ each kind of function


@tool(read_only=True)
async def coroutine(ctx: ToolContext) -> str:
    return "said " + await ctx.ask("What?")


@tool(read_only=True)
def in_thread(ctx: ToolContext) -> str:
    return "said " + ctx.wait(ctx.ask("What?"))


@tool(read_only=True)
def generator(ctx: ToolContext) -> Generator[str, None, str]:
    yield "asking"
    return "said " + ctx.wait(ctx.ask("What?"))


@tool(read_only=True)
async def async_generator(ctx: ToolContext) -> AsyncGenerator[str, None]:
    yield "asking"
    yield "said " + await ctx.ask("What?")


@tool(read_only=True)
async def catches_errors(ctx: ToolContext) -> str:
    try:
        return "said " + await ctx.ask("What?")
    except Exception as error:  # noqa: BLE001  what tools do
        return f"caught {error!r}"


@tool(read_only=True)
async def catches_all(ctx: ToolContext) -> str:
    try:
        return "said " + await ctx.ask("What?")
    except BaseException:  # noqa: BLE001  what tools should not do
        return "nothing"


@tool(read_only=True)
async def raises_another(ctx: ToolContext) -> str:
    try:
        return "said " + await ctx.ask("What?")
    except BaseException as error:
        raise ValueError("mine") from error


@tool(read_only=True)
async def in_a_group(ctx: ToolContext) -> str:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(ctx.ask("What?"))
    return "said " + asked.result()


@tool(read_only=True)
async def within_a_timeout(ctx: ToolContext) -> str:
    async with asyncio.timeout(5):
        return "said " + await ctx.ask("What?")


class OwnTool:
    """A tool that is a class of its own."""

    __name__ = "own class"
    spec = coroutine.spec

    def validate(self, arguments: dict[str, Any]) -> Any:
        return arguments

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ctx.ask("What?"))
        return ToolOutput("said " + asked.result())

    async def undo(self, call: Any, ctx: ToolContext[Any]) -> None: ...

    async def reconcile(self, call: Any, ctx: ToolContext[Any]) -> Any: ...


ALL = (
    *(coroutine, in_thread, generator, async_generator, catches_errors, catches_all, raises_another),
    *(in_a_group, within_a_timeout, OwnTool()),
)


@pytest.mark.parametrize("asker", ALL, ids=[getattr(each, "__name__", each.spec.name) for each in ALL])
async def test_a_tool_of_any_kind_ends_its_attempt_and_starts_again_with_the_answer(
    runner: Runner, asker: Any
) -> None:
    result = await runner.run(agent_of(asker), "Go.")
    (asked,) = result.pending
    assert (result.state, asked.kind, asked.request_id) == ("waiting", "question", "s1-0-q1")
    assert (asked.text, asked.tool, asked.schema) == ("What?", asker.spec.name, {"type": "string"})
    result = await answered(runner, result, "hello")
    assert (result.state, outcome(result)) == ("completed", ("ok", "said hello"))
    starts = await only(runner, result.task_id, "tool_started")
    assert [(start.call, start.attempt) for start in starts] == [("s1-0", 1), ("s1-0", 2)]


# ------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        (str, "x", "x"),
        (int, 3, 3),
        (bool, False, False),
        (Literal["a", "b"], "b", "b"),
        (Room, {"kind": "single"}, Room(kind="single")),
        (Room, Room(kind="double", nights=2), Room(kind="double", nights=2)),
        (Pair, {"left": 1, "right": "r"}, Pair(1, "r")),
        (list[date], ["2026-01-31"], [date(2026, 1, 31)]),
        (int | None, None, None),
        (tuple[int, str], (1, "a"), (1, "a")),
    ],
)
async def test_an_answer_comes_back_as_the_type_that_was_asked_for(
    runner: Runner, schema: Any, value: Any, read: Any
) -> None:
    seen: list[Any] = []

    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> str:
        seen.append(await ctx.ask("Which?", schema))
        return "ok"

    result = await answered(runner, await runner.run(agent_of(asker), "Go."), value)
    assert (outcome(result), seen) == (("ok", "ok"), [read])


def even(value: int) -> int:
    if value % 2:
        raise ValueError("it is odd")
    return value


async def test_an_answer_that_only_a_validator_of_the_type_refuses_is_asked_for_again(runner: Runner) -> None:
    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> int:
        return await ctx.ask("How many?", Annotated[int, AfterValidator(even)])

    result = await answered(runner, await runner.run(agent_of(asker), "Go."), 3)
    (asked,) = result.pending
    assert (asked.request_id, asked.reason) == ("s1-0-q2", "the answer: it is odd, got 3")
    assert outcome(await answered(runner, result, 4)) == ("ok", 4)


async def test_several_questions_come_one_after_the_other_in_the_order_of_the_code(runner: Runner) -> None:
    @tool(idempotent=True)
    async def asker(ctx: ToolContext) -> str:
        first = await ctx.ask("First?", int)
        second = await ctx.ask("Second?", int)
        return f"{first} {second} {ctx.idempotency_key.rpartition('/')[2]} {ctx.attempt}"

    result = await answered(runner, await runner.run(agent_of(asker), "Go."), 1, 2)
    assert outcome(result) == ("ok", "1 2 s1-0 3")
    asked = await only(runner, result.task_id, "question_asked")
    assert [(event.request_id, event.question) for event in asked] == [
        ("s1-0-q1", "First?"),
        ("s1-0-q2", "Second?"),
    ]


async def test_questions_asked_at_once_are_pending_at_once_and_answered_in_any_order(runner: Runner) -> None:
    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> str:
        return " ".join(await asyncio.gather(*[ctx.ask(f"Number {n}?") for n in range(3)]))

    result = await runner.run(agent_of(asker), "Go.")
    assert [item.request_id for item in result.pending] == ["s1-0-q1", "s1-0-q2", "s1-0-q3"]
    for number in (3, 1):
        await runner.answer(result.task_id, f"s1-0-q{number}", value=f"v{number}")
        assert (await runner.resume(result.task_id)).state == "waiting"
    await runner.answer(result.task_id, value="v2")
    result = await runner.resume(result.task_id)
    assert outcome(result) == ("ok", "v1 v2 v3")
    assert result.tool_executions[0].attempt == 2


async def test_a_tool_that_asks_something_else_at_the_same_place_fails_and_gets_no_answer(
    runner: Runner,
) -> None:
    questions = ["Delete a.txt?", "Delete b.txt?"]

    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> str:
        return f"deleted {await ctx.ask(questions[ctx.attempt - 1], bool)}"

    result = await answered(runner, await runner.run(agent_of(asker), "Go."), True)
    how, error = outcome(result)
    assert (result.state, how) == ("completed", "error")
    assert "call s1-0 of tool 'asker': question 1 differs from the one that a person answered" in error
    assert "'Delete a.txt?' and is 'Delete b.txt?'" in error
    assert "ctx.once" in error


async def test_a_tool_that_asks_for_another_type_at_the_same_place_fails(runner: Runner) -> None:
    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> str:
        return f"{await ctx.ask('How many?', int if ctx.attempt == 1 else str)}"

    how, error = outcome(await answered(runner, await runner.run(agent_of(asker), "Go."), 3))
    assert (how, "its answers are of another type" in error) == ("error", True)


# ------------------------------------------------------------------------------------ without people


async def test_a_headless_run_takes_the_default_or_tells_the_tool_at_once(runner: Runner) -> None:
    @tool(read_only=True)
    async def with_default(ctx: ToolContext) -> int:
        return await ctx.ask("How many?", int, default=7)

    @tool(read_only=True)
    async def without(ctx: ToolContext) -> str:
        return await ctx.ask("What?")

    @tool(read_only=True)
    async def catches(ctx: ToolContext) -> str:
        try:
            return await ctx.ask("What?")
        except QuestionUnanswered as error:
            return f"none: {error}"

    options = RunOptions(interaction="headless")
    result = await runner.run(agent_of(with_default, without, catches), "Go.", options=options)
    assert result.state == "completed"
    assert outcome(result, 0) == ("ok", 7)
    how, error = outcome(result, 1)
    assert (how, error) == (
        "error",
        f"task {result.task_id}, call s1-1 of tool 'without': the question 'What?' was not answered in time",
    )
    assert outcome(result, 2)[1].startswith("none: task ")


# ---------------------------------------------------------------------------------------- tools that write


async def test_a_tool_that_may_write_is_refused_when_it_asks_and_does_not_start_again(runner: Runner) -> None:
    written: list[int] = []

    async def helper(ctx: ToolContext) -> str:
        return await ctx.ask("Really?")

    @tool
    async def write(ctx: ToolContext) -> str:
        written.append(1)
        return await helper(ctx)

    result = await runner.run(agent_of(write), "Go.")
    how, error = outcome(result)
    assert (result.state, how, written) == ("completed", "error", [1])
    assert "tool 'write' may not ask: it may write and is not idempotent" in error


# --------------------------------------------------------------------------------------------- values


async def test_what_once_keeps_is_not_done_again_in_later_attempts(runner: Runner) -> None:
    done: list[str] = []

    def effect(name: str) -> str:
        done.append(name)
        return name

    async def waits(name: str) -> list[str]:
        await asyncio.sleep(0)
        return [effect(name)]

    @tool(idempotent=True)
    async def asker(ctx: ToolContext) -> Any:
        first = await ctx.once("first", lambda: effect("a"))
        answer = await ctx.ask("Go?")
        second = await ctx.once("second", lambda: waits("b"))
        again = await ctx.once("first", lambda: effect("never"))
        await ctx.ask("Really?")
        return [first, answer, second, again]

    result = await answered(runner, await runner.run(agent_of(asker), "Go."), "yes", "yes")
    assert (outcome(result), done) == (("ok", ["a", "yes", ["b"], "a"]), ["a", "b"])


async def test_once_calls_a_blocking_function_in_a_thread_where_its_tool_runs_in_one(runner: Runner) -> None:
    main, names = threading.current_thread(), list[bool]()

    @tool(idempotent=True)
    def blocking(ctx: ToolContext) -> str:
        return ctx.wait(ctx.once("it", lambda: names.append(threading.current_thread() is main) or "kept"))

    assert outcome(await runner.run(agent_of(blocking), "Go.")) == ("ok", "kept")
    assert names == [False]


async def test_two_at_once_under_one_name_call_one_function(runner: Runner) -> None:
    calls: list[int] = []

    async def slow(number: int) -> int:
        calls.append(number)
        await asyncio.sleep(0.01)
        return number

    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> list[int]:
        return list(await asyncio.gather(*[ctx.once("n", lambda n=n: slow(n)) for n in range(3)]))

    assert outcome(await runner.run(agent_of(asker), "Go.")) == ("ok", [0, 0, 0])
    assert calls == [0]


@pytest.mark.parametrize("name", [17, None, ("a",), b"k", "caf\ud800"], ids=ascii)
async def test_a_value_under_a_name_that_is_no_text_made_its_task_unreadable(
    tmp_path: Path, name: Any
) -> None:
    ran: list[str] = []

    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> Any:
        return await ctx.once(name, lambda: ran.append("ran"))

    store = f"sqlite:///{tmp_path}/tasks.db"
    async with Runner(store) as first:
        result = await first.run(agent_of(asker), "Go.")
    how, error = outcome(result)
    assert (how, "once(name, ...) takes a text" in error, ran) == ("error", True, [])
    async with Runner(store) as later:
        assert (await later.get_task(result.task_id)).state == "completed"
        await later.export_tasks(tmp_path / "tasks.jsonl", result.task_id)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), "caf\ud800", {"a": ["\udfff"]}, float("nan"), [float("-inf")], nested(3_000)],
    ids=[
        "no data",
        "half a character",
        "half of one inside",
        "nan",
        "infinity",
        "nested too deep to be shown",
    ],
)
async def test_a_value_that_was_another_one_in_the_next_attempt_is_refused(
    runner: Runner, value: Any
) -> None:
    @tool(read_only=True)
    async def asker(ctx: ToolContext) -> Any:
        return await ctx.once("it", lambda: value)

    how, error = outcome(await runner.run(agent_of(asker), "Go."))
    assert (how, "once('it', ...) must return JSON data" in error) == ("error", True)


async def test_a_value_of_a_failed_attempt_is_there_in_its_retry(runner: Runner) -> None:
    @tool(idempotent=True, retries=1)
    async def asker(ctx: ToolContext) -> list[int]:
        value = await ctx.once("attempt", lambda: ctx.attempt)
        await ctx.ask("Go?")
        if ctx.attempt == 2:
            raise ValueError("flaky")
        return [value, ctx.attempt]

    result = await answered(runner, await runner.run(agent_of(asker), "Go."), "yes")
    assert outcome(result) == ("ok", [1, 3])


# ------------------------------------------------------------------------------------ where it may be used


async def test_a_context_is_used_in_its_loop_and_while_its_call_runs(runner: Runner) -> None:
    kept: list[ToolContext[Any]] = []

    @tool(read_only=True)
    def wrong_thread(ctx: ToolContext) -> str:
        kept.append(ctx)
        return asyncio.run(_raised(ctx))

    @tool(read_only=True)
    async def waits_in_the_loop(ctx: ToolContext) -> str:
        return ctx.wait(ctx.ask("What?"))

    result = await runner.run(agent_of(wrong_thread, waits_in_the_loop), "Go.")
    assert "a tool that runs in a thread says ctx.wait(ctx.ask(...))" in outcome(result, 0)[1]
    assert "an async one says await" in outcome(result, 1)[1]
    with pytest.raises(ToolError, match="after the call has ended"):
        await kept[0].ask("What?")
    with pytest.raises(ToolError, match="after the call has ended"):
        await kept[0].once("it", lambda: 1)


async def _raised(ctx: ToolContext[Any]) -> str:
    try:
        return await ctx.ask("What?")
    except ToolError as error:
        return str(error)


async def test_a_context_that_no_call_made_can_neither_ask_nor_keep() -> None:
    ctx = ToolContext("t", "th", "s1", "s1-0", "k", "a", 1, None)
    for use in (ctx.ask("What?"), ctx.once("it", lambda: 1)):
        with pytest.raises(ToolError, match="is for tools while they run in a task"):
            await use


async def test_previews_and_compensations_cannot_ask(runner: Runner) -> None:
    async def undo(call: Any, ctx: ToolContext[Any]) -> None:
        await ctx.ask("Really?")

    @tool(idempotent=True, undo=undo)
    async def put() -> str:
        return "put"

    result = await runner.run(agent_of(put), "Go.")
    report = await runner.undo_step(result.task_id, to=0)
    (undone,) = report.calls
    assert (undone.verdict, undone.why is not None) == ("not_compensated", True)
    assert "ctx.ask(...) is for tools while they run in a task, not for undo=" in str(undone.why)

"""Calling tools of every kind, and what becomes of their faults, exits and cancellations."""

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from treadle.core.abandoned import MAX_ABANDONED
from treadle.core.messages import ToolCall
from treadle.core.tools import Happened, NotHappened, Unknown
from treadle.errors import ToolError
from treadle.ports import ToolContext, ToolOutput
from treadle.tools import FunctionTool, abandoned, tool
from treadle.tools import threads as threads_module

pytestmark = pytest.mark.anyio
Ctx = ToolContext[Any]


async def run(made: FunctionTool[..., Any, Any], ctx: Ctx, **arguments: Any) -> Any:
    return (await made.call(made.validate(arguments), ctx)).output


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - threads set no event of a loop
            await asyncio.sleep(0.002)


# ------------------------------------------------------------------------------------------ four kinds


async def test_an_async_tool_runs_in_the_loop(ctx: Ctx) -> None:
    @tool
    async def where(a: int) -> list[Any]:
        await asyncio.sleep(0)
        return [a, threading.current_thread() is threading.main_thread()]

    assert await run(where, ctx, a=1) == [1, True]


async def test_a_sync_tool_runs_in_a_thread_and_does_not_block_the_loop(ctx: Ctx) -> None:
    together = threading.Barrier(8)

    @tool
    def where(a: int) -> list[Any]:
        together.wait(20)
        return [a, threading.current_thread() is threading.main_thread()]

    assert await asyncio.gather(*(run(where, ctx, a=n) for n in range(8))) == [[n, False] for n in range(8)]


async def test_a_sync_tool_sees_the_context_variables_of_its_caller(ctx: Ctx) -> None:
    variable = contextvars.ContextVar("who", default="nobody")

    @tool
    def ask() -> str:
        before = variable.get()
        variable.set("changed in the thread")
        return before

    variable.set("me")
    assert await run(ask, ctx) == "me"
    assert variable.get() == "me"


async def test_the_context_is_filled_in_wherever_it_stands(ctx: Ctx) -> None:
    @tool
    async def first(ctx: ToolContext, a: int) -> list[Any]:
        return [a, ctx.idempotency_key]

    @tool
    def last(a: int, ctx: ToolContext | None = None) -> list[Any]:
        assert ctx is not None
        return [a, ctx.context["user"], ctx.cancelled()]

    assert await run(first, ctx, a=1) == [1, "t1:s1-0"]
    assert await run(last, ctx, a=1) == [1, "u", False]


async def test_a_generator_yields_progress_and_returns_its_result(watched: Ctx, seen: list[Any]) -> None:
    @tool
    def count(n: int) -> Iterator[int]:
        yield from range(n)
        return "counted"

    assert await run(count, watched, n=3) == "counted"
    assert seen == [0, 1, 2]


async def test_the_last_value_yielded_is_the_result_of_a_generator_that_returns_none(
    watched: Ctx, seen: list[Any]
) -> None:
    @tool
    def count(n: int) -> Iterator[int]:
        yield from range(n)

    @tool
    async def later(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    assert await run(count, watched, n=3) == 2
    assert await run(later, watched, n=3) == 2
    assert await run(later, watched, n=0) is None
    assert seen == [0, 1, 2, 0, 1, 2]


async def test_a_sync_function_that_returns_an_awaitable_is_awaited(ctx: Ctx) -> None:
    async def inner() -> int:
        return 3

    @tool
    def wrapped() -> Any:
        return inner()

    assert await run(wrapped, ctx) == 3


async def test_printed_text_of_a_tool_is_no_part_of_its_result(
    ctx: Ctx, capsys: pytest.CaptureFixture[str]
) -> None:
    @tool
    def noisy() -> int:
        sys.stdout.write("noise")
        return 1

    assert await run(noisy, ctx) == 1
    assert capsys.readouterr().out == "noise"


async def test_a_huge_output_is_only_an_output(ctx: Ctx) -> None:
    @tool
    def huge() -> str:
        return "x" * 20_000_000

    assert len(await run(huge, ctx)) == 20_000_000


# ----------------------------------------------------------------------------------------------- faults


class Base(BaseException):
    """A fault that is no `Exception`."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Speechless:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def all_kinds(fault: Callable[[], Any]) -> list[FunctionTool[..., Any, Any]]:
    """Return a tool of each kind that does the same."""

    def in_thread() -> Any:
        return fault()

    async def in_loop() -> Any:
        return fault()

    def generating() -> Any:
        yield 1
        return fault()

    async def generating_in_loop() -> Any:
        yield 1
        yield fault()

    return [tool(fn) for fn in (in_thread, in_loop, generating, generating_in_loop)]


def raising(error: BaseException) -> Callable[[], Any]:
    def fault() -> Any:
        raise error

    return fault


@pytest.mark.sampled(16)
@pytest.mark.parametrize("kind", range(4), ids=["thread", "loop", "generator", "async generator"])
@pytest.mark.parametrize(
    ("fault", "expected", "text"),
    [
        (raising(ValueError("bad")), ValueError, "bad"),
        (raising(Base("deep")), ToolError, "the tool raised Base: deep"),
        (raising(SystemExit(3)), ToolError, "the tool raised SystemExit: 3"),
        (raising(KeyboardInterrupt()), ToolError, "the tool raised KeyboardInterrupt"),
        (raising(GeneratorExit()), ToolError, "the tool raised GeneratorExit"),
        (raising(asyncio.CancelledError()), ToolError, "the tool raised CancelledError"),
        (raising(BaseExceptionGroup("g", [SystemExit(1)])), ToolError, "the tool raised BaseExceptionGroup"),
        (raising(MemoryError()), MemoryError, ""),
        (lambda: float("nan"), ToolError, "nan is not a JSON number"),
        (lambda: b"\xff" and object(), ToolError, "a value of type object"),
        (Speechless, ToolError, "a value of type Speechless"),
        (lambda: "\ud800", ToolError, "lone surrogate"),
    ],
)
async def test_a_fault_is_the_error_of_its_call_and_of_nothing_else(
    kind: int, fault: Callable[[], Any], expected: type[Exception], text: str, ctx: Ctx
) -> None:
    faulty = all_kinds(fault)[kind]

    @tool
    async def sibling() -> str:
        await asyncio.sleep(0.01)
        return "unharmed"

    calls = [asyncio.create_task(run(faulty, ctx)), asyncio.create_task(run(sibling, ctx))]
    error, other = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(error, expected)
    assert text in str(error)
    assert other == "unharmed"


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("error", [StopIteration(3), StopAsyncIteration(3), Mute()])
async def test_odd_errors_come_out_as_ordinary_ones(kind: int, error: Exception, ctx: Ctx) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        await run(all_kinds(raising(error))[kind], ctx)
    assert not isinstance(caught.value, StopIteration)


async def test_an_error_in_a_thread_keeps_its_own_traceback(ctx: Ctx) -> None:
    with pytest.raises(ValueError, match="bad") as caught:
        await run(all_kinds(raising(ValueError("bad")))[0], ctx)
    assert caught.traceback[-1].name == "fault"


# --------------------------------------------------------------------------------------- cancellation


async def test_a_cancelled_async_tool_is_cancelled_and_may_clean_up(ctx: Ctx) -> None:
    cleaned = []

    @tool
    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    call = asyncio.create_task(run(forever, ctx))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert cleaned == [True]


async def test_a_tool_that_ends_in_spite_of_its_cancellation_has_its_result(ctx: Ctx) -> None:
    @tool
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "written"

    call = asyncio.create_task(run(stubborn, ctx))
    await asyncio.sleep(0.01)
    call.cancel()
    assert await call == "written"


async def test_a_cancelled_call_in_a_thread_is_signalled_and_awaited_until_it_has_ended(ctx: Ctx) -> None:
    begun = threading.Event()

    @tool
    def looks_up(ctx: ToolContext) -> str:
        begun.set()
        while not ctx.cancelled():
            time.sleep(0.002)
        time.sleep(0.05)
        return "written"

    call = asyncio.create_task(run(looks_up, ctx))
    await until(begun.is_set)
    call.cancel()
    assert await call == "written"
    assert abandoned() == ()


async def test_a_cancelled_call_in_a_thread_that_raises_raises(ctx: Ctx) -> None:
    begun = threading.Event()

    @tool
    def looks_up(ctx: ToolContext, own: bool) -> str:
        begun.set()
        while not ctx.cancelled():
            time.sleep(0.002)
        raise asyncio.CancelledError if own else ValueError("half way")

    for own, error in [(False, ValueError), (True, asyncio.CancelledError)]:
        begun.clear()
        call = asyncio.create_task(run(looks_up, ctx, own=own))
        await until(begun.is_set)
        call.cancel()
        with pytest.raises(error):
            await call


async def test_the_runner_may_ask_a_call_in_a_thread_to_stop_before_it_cancels(ctx: Ctx) -> None:
    stop_requested = threading.Event()
    ctx.cancelled = stop_requested.is_set

    @tool
    def looks_up(ctx: ToolContext) -> str:
        while not ctx.cancelled():
            time.sleep(0.002)
        return "stopped"

    call = asyncio.create_task(run(looks_up, ctx))
    await asyncio.sleep(0.01)
    stop_requested.set()
    assert await call == "stopped"


async def test_a_call_cancelled_twice_is_abandoned_and_listed_until_it_ends(ctx: Ctx) -> None:
    entered, let_go = threading.Event(), threading.Event()

    @tool
    def deaf() -> None:
        entered.set()
        let_go.wait(10)

    call = asyncio.create_task(run(deaf, ctx))
    await until(entered.is_set)
    call.cancel()
    await asyncio.sleep(0.02)
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (given_up,) = abandoned()
    assert (given_up.tool, given_up.task_id, given_up.call_id) == ("deaf", "t1", "s1-0")
    assert any(thread.name == "treadle-tools: deaf s1-0" for thread in threading.enumerate())
    let_go.set()
    await until(lambda: not abandoned())
    await until(
        lambda: not any(thread.name.startswith("treadle-tools: deaf") for thread in threading.enumerate())
    )


async def test_with_too_many_abandoned_calls_a_new_call_is_refused_with_a_reason(ctx: Ctx) -> None:
    let_go = threading.Event()
    began: list[int] = []

    @tool
    def deaf() -> None:
        began.append(1)
        let_go.wait(10)

    calls = [asyncio.create_task(run(deaf, ctx)) for _ in range(MAX_ABANDONED)]
    await until(
        lambda: len(began) == MAX_ABANDONED
    )  # a call that is cancelled before it begins is not abandoned
    for _ in range(2):
        await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
    await asyncio.wait(calls)
    assert len(abandoned()) == MAX_ABANDONED
    with pytest.raises(ToolError, match=r"16 calls .* still run in threads \(deaf\)"):
        await run(deaf, ctx)
    let_go.set()
    await until(lambda: not abandoned())
    assert await run(deaf, ctx) is None


async def test_a_call_that_waits_for_a_thread_gets_that_of_an_abandoned_call(
    ctx: Ctx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads_module, "_pool", None)
    monkeypatch.setattr(threads_module, "MAX_THREADS", 1)
    let_go = threading.Event()

    @tool
    def deaf() -> None:
        let_go.wait(10)

    @tool
    def quick() -> str:
        return "done"

    stuck = asyncio.create_task(run(deaf, ctx))
    waiting = asyncio.create_task(run(quick, ctx))
    try:
        for _ in range(2):
            await asyncio.sleep(0.02)
            stuck.cancel()
        async with asyncio.timeout(20):
            assert await waiting == "done"
    finally:
        let_go.set()
        await asyncio.wait([stuck])
    await until(lambda: not abandoned())


async def test_calls_beyond_the_threads_wait_and_leave_the_queue_when_cancelled(ctx: Ctx) -> None:
    let_go = threading.Event()
    began: list[int] = []

    @tool
    def slow(n: int) -> int:
        began.append(n)
        let_go.wait(10)
        return n

    calls = [asyncio.create_task(run(slow, ctx, n=n)) for n in range(threads_module.MAX_THREADS + 2)]
    await until(lambda: len(began) == threads_module.MAX_THREADS)
    calls[-1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[-1]
    let_go.set()
    assert await asyncio.gather(*calls[:-1]) == list(range(threads_module.MAX_THREADS + 1))
    assert sorted(began) == list(range(threads_module.MAX_THREADS + 1))


async def test_endless_generators_stop_at_their_cancellation_and_clean_up(
    watched: Ctx, seen: list[Any]
) -> None:
    closed: list[str] = []

    @tool
    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("thread")

    @tool
    async def endless_in_loop() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("loop")

    for endless_tool in (endless, endless_in_loop):
        call = asyncio.create_task(run(endless_tool, watched))
        await until(lambda: len(seen) > 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        seen.clear()
    assert closed == ["thread", "loop"]


def test_a_discarded_unfinished_call_ends_without_a_log(ctx: Ctx) -> None:
    @tool
    async def forever() -> None:
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    call = forever.call({}, ctx)
    loop.call_soon(call.send, None)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    call.close()


async def test_a_timeout_around_a_call_in_a_thread_ends_it_when_it_looks_up(ctx: Ctx) -> None:
    @tool
    def looks_up(ctx: ToolContext) -> Iterator[int]:
        while True:
            yield 1
            time.sleep(0.005)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await run(looks_up, ctx)


def test_tools_in_threads_work_from_one_loop_after_another(ctx: Ctx) -> None:
    @tool
    def plus(a: int) -> int:
        return a + 1

    assert [asyncio.run(run(plus, ctx, a=n)) for n in range(3)] == [1, 2, 3]


def test_a_thread_may_end_after_its_loop(ctx: Ctx) -> None:
    let_go = threading.Event()

    @tool
    def deaf() -> None:
        let_go.wait(10)

    async def leave() -> None:
        call = asyncio.create_task(run(deaf, ctx))
        await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait([call])

    asyncio.run(leave())
    let_go.set()
    deadline = time.monotonic() + 5
    while abandoned() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not abandoned()


# --------------------------------------------------------------------------------- undo and reconcile


CALL = ToolCall("s1-0", "sell", {"item": "a"}, output="sold a")


async def test_undo_and_reconcile_may_be_sync_or_async(ctx: Ctx) -> None:
    undone: list[Any] = []

    async def later(call: ToolCall, ctx: ToolContext) -> None:
        undone.append((call.output, ctx.idempotency_key))

    def now(call: ToolCall, ctx: ToolContext) -> None:
        undone.append((call.output, threading.current_thread() is threading.main_thread()))

    def sell(item: str) -> None: ...

    await tool(sell, undo=later).undo(CALL, ctx)
    await tool(sell, undo=now).undo(CALL, ctx)
    assert undone == [("sold a", "t1:s1-0"), ("sold a", False)]
    both = tool(sell, reconcile=lambda call, ctx: Happened(("sold", call.arguments["item"])))
    assert await both.reconcile(CALL, ctx) == Happened(["sold", "a"])
    for verdict in (NotHappened(), Unknown()):
        assert await tool(sell, reconcile=lambda call, ctx, v=verdict: v).reconcile(CALL, ctx) == verdict


async def test_faults_of_undo_and_reconcile_are_errors_of_theirs(ctx: Ctx) -> None:
    def sell(item: str) -> None: ...

    def leaves(call: ToolCall, ctx: ToolContext) -> None:
        raise SystemExit(1)

    async def leaves_loop(call: ToolCall, ctx: ToolContext) -> None:
        raise KeyboardInterrupt

    for undo in (leaves, leaves_loop):
        with pytest.raises(ToolError, match="the tool raised"):
            await tool(sell, undo=undo).undo(CALL, ctx)
    with pytest.raises(ToolError, match="returned a str"):
        await tool(sell, reconcile=lambda call, ctx: "yes").reconcile(CALL, ctx)  # type: ignore[arg-type, return-value]
    with pytest.raises(ToolError, match="has no undo="):
        await tool(sell).undo(CALL, ctx)
    with pytest.raises(ToolError, match="has no reconcile="):
        await tool(sell).reconcile(CALL, ctx)


async def test_a_tool_may_return_all_three_faces(ctx: Ctx) -> None:
    @tool
    async def look() -> ToolOutput:
        return ToolOutput((1,), "one", "1")

    assert await look.call({}, ctx) == ToolOutput([1], "one", "1")


async def test_an_undo_that_returns_an_awaitable_is_awaited(ctx: Ctx) -> None:
    taken_back: list[str] = []

    async def take_back(call_id: str) -> None:
        await asyncio.sleep(0)
        taken_back.append(call_id)

    book = tool(lambda: "booked", name="book", undo=lambda call, ctx: take_back(call.id))
    await book.undo(ToolCall("s1-0", "book", {}), ctx)
    assert taken_back == ["s1-0"]

"""The golden task: two model turns, a parallel batch of a read, an idempotent and a writing tool, a feedback message,
an undo with compensations. What the crash harness kills, and what it resumes with `--agent tests.crash.golden:NAME`.

All its effects are in the ledger named by GOLDEN_LEDGER, all acknowledgements in GOLDEN_ACKS.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from treadle import Agent, Happened, NotHappened, Runner, ScriptedModel, ToolContext, tool
from treadle.core.messages import Message, ToolCall, ToolResult
from treadle.core.model import ModelRequest
from treadle.errors import UndoUnfinished
from treadle.llm.scripted import call, text
from treadle.ports import Commit, CommitDone, Committed
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.crash import Crash, CrashingStore, name_of, names_of
from treadle.testing.ledger import Ledger

TASK = "golden"
THREAD = "trip"
FEEDBACK = "with a view, please"
OUTPUTS = {"look": "oslo is free", "book": "booked room 12", "pay": "paid 5"}

crash = Crash()
"""Where this process is killed; the process that starts it sets it."""


def ledger() -> Ledger:
    return Ledger(os.environ["GOLDEN_LEDGER"], crash)


# ------------------------------------------------------------------------------------------------ tools


def _work(name: str, ctx: ToolContext) -> str:
    with ledger().call(name, ctx):
        return OUTPUTS[name]


async def _take_back(tool_call: ToolCall, ctx: ToolContext) -> None:
    assert tool_call.output == OUTPUTS[tool_call.name]
    with ledger().call(f"undo {tool_call.name}", ctx):
        match trouble().get(tool_call.name):
            case "raises":
                raise OSError("the line is busy")
            case "hangs":
                await asyncio.sleep(3600)


def trouble() -> dict[str, str]:
    """What goes wrong with the compensation of which tool: `raises` or `hangs`."""
    path = Path(os.environ["GOLDEN_LEDGER"] + ".trouble")
    return json.loads(path.read_text()) if path.exists() else {}


def _did_it_happen(tool_call: ToolCall, ctx: ToolContext) -> Happened | NotHappened:
    crash.reach(crash.numbered(f"reconcile {tool_call.id}"))
    return Happened(OUTPUTS[tool_call.name]) if ledger().happened(ctx.idempotency_key) else NotHappened()


async def look(place: str, ctx: ToolContext) -> str:
    return _work("look", ctx)


async def book(room: int, ctx: ToolContext) -> str:
    return _work("book", ctx)


async def pay(amount: int, ctx: ToolContext) -> str:
    return _work("pay", ctx)


def look_in_thread(place: str, ctx: ToolContext) -> str:
    return _work("look", ctx)


def book_in_thread(room: int, ctx: ToolContext) -> str:
    return _work("book", ctx)


def pay_in_thread(amount: int, ctx: ToolContext) -> str:
    return _work("pay", ctx)


# ------------------------------------------------------------------------------------------------ model


def answer(request: ModelRequest) -> Any:
    """What the model says depends on what it is asked alone; an ill-formed history is written down."""
    ledger().note("asked", f"turn {request.turn}", call=request.step)
    problem = ill_formed(request.messages)
    if problem is not None:
        ledger().note("ill-formed", problem, call=request.step)
    if request.turn == 0:
        return [call("look", place="oslo"), call("book", room=12), call("pay", amount=5)]
    results = [
        part.text for message in request.messages for part in message.parts if type(part) is ToolResult
    ]
    feedback = [message.text for message in request.messages if message.role == "user"][1:]
    return text("; ".join(results + feedback))


def ill_formed(messages: Sequence[Message]) -> str | None:
    """Return what no provider would take: a call without its one result, a result without a call, doubled ids."""
    ids: set[str] = set()
    owed: set[str] = set()
    for message in messages:
        results = [part.call_id for part in message.parts if type(part) is ToolResult]
        if set(results) != owed or len(results) != len(owed):
            return f"results {results} where {sorted(owed)} are owed"
        calls = [part.id for part in message.tool_calls]
        if ids & set(calls) or len(set(calls)) != len(calls):
            return f"calls {calls} asked for twice"
        ids.update(calls)
        owed = set(calls)
    return f"no results of {sorted(owed)}" if owed else None


def _agent(*, threads: bool = False, reconcile: bool = False, lying: bool = False) -> Agent[None]:
    tools = (look_in_thread, book_in_thread, pay_in_thread) if threads else (look, book, pay)
    look_tool, book_tool, pay_tool = tools
    checks = {"reconcile": _did_it_happen} if reconcile else {}
    return Agent(
        ScriptedModel(answer),
        name="golden",
        tools=[
            tool(name="look", read_only=True)(look_tool),
            tool(name="book", idempotent=True, undo=_take_back)(book_tool),
            tool(name="pay", idempotent=lying, undo=_take_back, **checks)(pay_tool),
        ],
    )


inline = _agent()
inline_reconcile = _agent(reconcile=True)
threads = _agent(threads=True)
threads_reconcile = _agent(threads=True, reconcile=True)
VARIANTS = {
    "inline": inline,
    "inline_reconcile": inline_reconcile,
    "threads": threads,
    "threads_reconcile": threads_reconcile,
}

lying = _agent(lying=True)
"""Says of a tool that writes that it may be repeated: what the audit has to notice."""

hasty = _agent()
"""Is run on a store that says of a record that it is durable, and never writes it: so does this."""

AGENTS = {**VARIANTS, "lying": lying, "hasty": hasty}


class HastyStore(SQLiteStore):
    """Acknowledges the end of a compensation without writing it."""

    def commit(self, commit: Commit, done: CommitDone) -> None:
        if "tool_ended s1-2-undo" in names_of(commit):
            # As from a writer thread: a watcher gets it before the task goes on.
            asyncio.get_running_loop().call_soon(done, Committed())
        else:
            super().commit(commit, done)


def opened(store: Path, variant: str) -> Runner:
    """Return a runner on a store that kills this process, if it is to be killed at a write."""
    kind = HastyStore if variant == "hasty" else SQLiteStore
    return Runner(CrashingStore(kind(store), crash), agents=[AGENTS[variant]])


# ----------------------------------------------------------------------------------------------- script


async def _script(store: Path, variant: str) -> None:
    """Run the golden task from its beginning, writing down each event and return value as it is acknowledged."""
    agent = AGENTS[variant]
    async with opened(store, variant) as runner:
        watcher = Acknowledgements(runner)
        await watcher.during("create_task", runner.create_task(agent, "go", task_id=TASK, thread_id=THREAD))
        await watcher.during("run_step", runner.run_step(TASK))
        await watcher.during("undo_step", runner.undo_step(TASK))
        await watcher.during("run_step", runner.run_step(TASK))
        await watcher.during("send", runner.send(TASK, FEEDBACK))
        await watcher.during("resume", runner.resume(TASK))


async def _carry_on(store: Path, variant: str) -> None:
    """Do through the API what the command line does after a crash, so that this process, too, can be killed."""
    async with opened(store, variant) as runner:
        while True:
            try:
                waiting = (await runner.resume(TASK)).pending
            except UndoUnfinished:
                await runner.undo_step(TASK)
                waiting = (await runner.result(TASK)).pending
            else:
                if not waiting:
                    return
            for pending in waiting:
                request_id = pending.request_id
                ledger().note("settled by hand", call=request_id)
                happened = ledger().happened(pending.idempotency_key)
                verdict = Happened(OUTPUTS[pending.tool]) if happened else NotHappened()
                await runner.settle(TASK, request_id, verdict)


async def _undo(store: Path, variant: str) -> None:
    """Take the first step back."""
    async with opened(store, variant) as runner:
        await runner.undo_step(TASK)


def _job(work: Callable[[Path, str], Coroutine[Any, Any, None]]) -> Callable[[str, str], None]:
    """Prepare it for forks: a fork is killed where its environment says."""

    def job(store: str, variant: str) -> None:
        global crash  # noqa: PLW0603  a fork has it to itself
        crash = Crash(os.environ["TREADLE_CRASH_AT"] or None, os.environ["GOLDEN_PLACES"])
        asyncio.run(work(Path(store), variant))

    return job


script, carry_on, undo = _job(_script), _job(_carry_on), _job(_undo)


def cli(*argv: str) -> int:
    """The command line, called as its entry point calls it."""
    from treadle.cli.main import main

    return main(argv)


class Acknowledgements:
    """Writes down each acknowledgement to a user of the runner, at its moment."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._last = 0
        self._file = os.open(os.environ["GOLDEN_ACKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def during(self, name: str, verb: Awaitable[Any]) -> None:
        """Await a verb and watch the task's events meanwhile."""
        work = asyncio.ensure_future(verb)
        while not work.done():
            if self._last:
                await self._read()
            await asyncio.wait([work], timeout=0.002)
        await work
        self._write("returned", name)
        await self._read()

    async def _read(self) -> None:
        async for event in self._runner.handle(TASK).events(after=self._last, deltas=False):
            self._last = event.seq  # type: ignore[union-attr]
            self._write(self._last, name_of(event))

    def _write(self, *args: Any) -> None:
        os.write(self._file, json.dumps(args).encode() + b"\n")

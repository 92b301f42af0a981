"""The acts of one side of a race: one verb on one task, at an instant of the machine's monotonic clock.

A side is a runner with an adopter that looks only on request. Two sides in one process share a runner. In two
processes the second one is `python -m tests.races.acts STORE`: it reads acts and writes what came of them, a line each.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from treadle import Agent, Happened, Message, NotHappened, Runner, ScriptedModel, ToolContext, tool
from treadle.core.messages import Text
from treadle.core.model import ModelRequest
from treadle.drivers.adoption import Adopter, Adoption
from treadle.errors import TreadleError
from treadle.llm.scripted import Turn, call, turn
from treadle.ports import AT_ONCE, Commit, JournalStore

HANGS = 10.0
"""Seconds after which a verb times out."""


@tool(read_only=True)
async def look(seconds: float) -> str:
    """Look."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(undo=lambda call, ctx: None)
async def book(seconds: float) -> str:
    """Book."""
    await asyncio.sleep(seconds)
    return "booked"


def says(request: ModelRequest) -> Turn:
    """Return a turn that asks for a tool, or is the answer; the same each time.

    The turns of half of the tasks take no time at all, so that a step is over within a millisecond or two of its begin;
    those of the others, and what they call, take up to 2 ms each.
    """
    dice = random.Random(f"{request.task_id} {request.turn}")
    is_quick = random.Random(request.task_id).random() < 0.5

    def a_while() -> float:
        return 0.0 if is_quick else dice.choice((0.0, dice.random() * 0.002))

    if request.turn > 3:
        return turn("Done.", delay=a_while())
    name = dice.choice(("look", "look" if is_quick else "book"))
    return turn(calls=call(name, seconds=a_while()), delay=a_while())


def delegates(request: ModelRequest) -> Turn:
    """Return a turn that calls the agent below, or is the answer."""
    return turn("Done.") if request.turn > 2 else call("clerk", input="Go")


@tool(timeout=0.01)
async def doubt(ctx: ToolContext[Any]) -> str:
    """Take too long the first time: whether it took effect is not known."""
    if ctx.attempt == 1:
        await asyncio.sleep(60)
    return "done again"


@tool(read_only=True)
async def echo(text: str, ctx: ToolContext[Any]) -> str:
    """Echo a text."""
    ctx.state["echoed"] = text
    return text


DOUBTER: Agent[Any] = Agent(ScriptedModel([call("doubt"), "Done."], keep=1), name="doubter", tools=[doubt])
ECHO: Agent[Any] = Agent(
    ScriptedModel([call("echo", text="asked"), "Done."], keep=1), name="echo", tools=[echo]
)
CLERK = Agent(ScriptedModel(says, keep=1), name="clerk", tools=[look, book])
BOSS = Agent(ScriptedModel(delegates, keep=1), name="boss", subagents=[CLERK])
AGENTS: dict[str, Agent[Any]] = {agent.name: agent for agent in (CLERK, BOSS, DOUBTER, ECHO)}


@dataclass(slots=True)
class Act:
    """One verb on one task, to be begun at `at`, in seconds of the monotonic clock."""

    verb: str
    task: str
    agent: str
    at: float


@dataclass(slots=True)
class Outcome:
    """What a verb returned, or the name of the error it raised, and when it began and ended."""

    verb: str
    state: str | None = None
    raised: str | None = None
    began: float = 0.0
    ended: float = 0.0


class Side:
    """One side of the races of a store."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.adopter: Adopter | None = None

    async def open(self) -> None:
        await self.runner.store.open()
        self.adopter = Adopter(self.runner._drivers, tell=self._hear)
        self.adopter._scanning.cancel()
        with suppress(asyncio.CancelledError):
            await self.adopter._scanning

    def _hear(self, adoption: Adoption) -> None:
        if adoption.kind in ("failed", "scan_failed"):
            print(adoption.text, file=sys.stderr, flush=True)

    async def do(self, act: Act) -> Outcome:
        """Do an act at its instant; what it raises is an outcome too."""
        outcome = Outcome(act.verb)
        verb = asyncio.ensure_future(self._at(act, outcome))
        await asyncio.wait([verb], timeout=max(0.0, act.at - time.monotonic()) + HANGS)
        outcome.ended = time.monotonic()
        if not verb.done():
            outcome.raised = "hangs"
            verb.cancel()
            await asyncio.wait([verb], timeout=HANGS)
        elif (error := verb.exception()) is None:
            outcome.state = verb.result()
        else:
            outcome.raised = type(error).__name__
            if not isinstance(error, TreadleError):
                traceback.print_exception(error)
        return outcome

    async def _at(self, act: Act, outcome: Outcome) -> str | None:
        await asyncio.sleep(max(0.0, act.at - time.monotonic() - 0.0015))
        while time.monotonic() < act.at:  # noqa: ASYNC110  a timer is too coarse
            await asyncio.sleep(0)
        outcome.began = time.monotonic()
        return await self._verb(act)

    async def _verb(self, act: Act) -> str | None:
        runner, task = self.runner, act.task
        match act.verb:
            case "cancel" | "pause" | "interrupt":
                return (await getattr(runner, act.verb)(task, by="race")).state
            case "run":
                return (await runner.run(AGENTS[act.agent], "Go", task_id=task)).state
            case "run_step":
                return (await runner.run_step(task)).state
            case "resume":
                return (await runner.resume(task)).state
            case "undo":
                return str((await runner.undo_step(task)).complete)
            case "send":
                await runner.send(task, [Message("user", (Text("Hurry"),)).text])
            case "adopt":
                await self._adopt(task)
            case "create":
                await runner.create_task(AGENTS[act.agent], "Go", task_id=task)
            case "happened":
                await runner.settle(task, "s1-0", Happened("told"))
            case "not happened":
                await runner.settle(task, "s1-0", NotHappened())
            case "edit_call":
                await runner.edit_call(task, "s1-0", {"text": "edited"})
            case "delete_thread":
                await runner.delete_thread(task)
            case "submit":
                await runner.submit(AGENTS[act.agent], "Go", task_id=task)
            case "fork":
                await runner.fork(task, task_id=f"{task} forked")
            case "edit what was created":
                await runner.edit_step(task, f"edited at {act.at}", expect=1)
            case "the same undo":
                return str((await runner.undo_step(task, command_id="u1")).complete)
            case "the same message":
                await runner.send(task, "Hurry", command_id="m1")
            case "the same hand on":
                await runner.resume(task, drive=False, command_id="r1")
            case _:
                raise ValueError(act.verb)
        return None

    async def _adopt(self, task: str) -> None:
        """Look once for orphans, and return when the one that it is about is not being adopted here any more."""
        assert self.adopter is not None
        await self.adopter._scan()
        while task in self.adopter._adopting:  # noqa: ASYNC110  it announces no end
            await asyncio.sleep(0.001)


async def leave_behind(store: JournalStore, task: str) -> None:
    """Have a task wait for an adopter, as if its driver had been shut down."""
    claim = await store.claim(task)
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    store.commit(Commit(task, claim.epoch, release=True, due_at=AT_ONCE), done.set_result)
    assert (await done).released


async def serve(store: str) -> None:
    """Do what standard input says, until it ends."""
    loop = asyncio.get_running_loop()
    async with Runner(store, agents=list(AGENTS.values())) as runner:
        side = Side(runner)
        await side.open()
        print("up", flush=True)
        acting: set[asyncio.Task[None]] = set()

        async def answer(number: int, act: Act) -> None:
            print(json.dumps([number, asdict(await side.do(act))]), flush=True)

        while line := await loop.run_in_executor(None, sys.stdin.readline):
            number, act = json.loads(line)
            task = loop.create_task(answer(number, Act(**act)))
            acting.add(task)
            task.add_done_callback(acting.discard)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

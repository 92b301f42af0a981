"""A process that drives a tree of thirteen agents with handoffs, and is killed at the n-th point that it passes.

python -m tests.crash.team FOLDER N

    desk ==> lead ==> closer --> reviewer        ==> hands over, --> calls
             |--> clerk1 ==> expert1 --> hand1
             |--> clerk2 ==> expert2 --> hand2
             |--> clerk3 ==> expert3 --> hand3

The points are before and after each commit, each request to a model, and each payment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.crash.family import write
from treadle import (
    Agent,
    Handoff,
    Happened,
    Limits,
    NotHappened,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    only_user_messages,
    tool,
)
from treadle.core.messages import ToolCall
from treadle.llm.scripted import call, turn
from treadle.stores.sqlite.store import SQLiteStore
from treadle.testing.wrappers import WrappedStore

BRANCHES = 3
REQUESTS = 60
NEEDED = 2 + 1 + 3 * BRANCHES + 2 * BRANCHES + 2 + 1
"""Requests of an undisturbed run: of desk and lead, of closer and reviewer, and of each branch."""

TASKS = 1 + 2 * BRANCHES + 1


class Fate:
    """Kills this process at a point."""

    def __init__(self, die_at: int) -> None:
        self._left = die_at

    def point(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FatalStore(WrappedStore):
    """A store whose commits are points."""

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(SQLiteStore(path))
        self._fate = fate

    def commit(self, commit: Any, done: Any) -> None:
        self._fate.point()

        def told(verdict: Any) -> None:
            self._fate.point()
            done(verdict)

        self._store.commit(commit, told)


class Team:
    """The thirteen agents; `root` is the first."""

    def __init__(self, folder: Path, fate: Fate) -> None:
        self._folder, self._fate = folder, fate
        self.named: dict[str, Agent[Any]] = {}
        experts: list[Agent[Any]] = []
        for n in range(1, BRANCHES + 1):
            hand = self._agent(f"hand{n}", [[call("pay")]], tools=[self._pay()])
            expert = self._agent(f"expert{n}", [[call(f"hand{n}", input="pay")]], subagents=[hand])
            handoff = Handoff(expert, filter=only_user_messages)
            experts.append(self._agent(f"clerk{n}", [[call(f"transfer_to_expert{n}")]], handoffs=[handoff]))
        reviewer = self._agent("reviewer", [])
        closer = self._agent("closer", [[call("reviewer", input="look")]], subagents=[reviewer])
        spread = [call(clerk.name, input=f"go, {clerk.name}") for clerk in experts]
        close = [call("transfer_to_closer", reason="all is paid")]
        lead = self._agent("lead", [spread, close], subagents=experts, handoffs=[closer])
        self.root = self._agent("desk", [[call("transfer_to_lead")]], handoffs=[lead])

    def _agent(self, name: str, script: list[list[Any]], **options: Any) -> Agent[Any]:
        async def say(request: Any) -> Any:
            write(self._folder / "requests", f"{request.task_id} {request.step}")
            self._fate.point()
            await asyncio.sleep(0.002)
            self._fate.point()
            if request.turn < len(script) and request.tools:
                return turn("", script[request.turn])
            return turn(f"{name} is done")

        self.named[name] = agent = Agent(
            ScriptedModel(say), name=name, instructions=f"You are {name}.", **options
        )
        return agent

    def _pay(self) -> Any:
        effects = self._folder / "effects"

        async def reconcile(lost: ToolCall, ctx: ToolContext) -> Happened | NotHappened:
            done = effects.exists() and ctx.idempotency_key in effects.read_text().split()
            return Happened("paid") if done else NotHappened()

        @tool(reconcile=reconcile)
        async def pay(ctx: ToolContext) -> str:
            self._fate.point()
            write(effects, ctx.idempotency_key)
            self._fate.point()
            return "paid"

        return pay


async def drive(folder: Path, die_at: int = 0) -> Any:
    """Run the task, or take it up, until it stops."""
    fate = Fate(die_at)
    team = Team(folder, fate)
    options = RunOptions(limits=Limits(model_calls=REQUESTS))
    async with Runner(FatalStore(folder / "journal.db", fate), agents=[team.root]) as runner:
        return await runner.run(team.root, "All of it", task_id="job", options=options)


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), int(sys.argv[2])))

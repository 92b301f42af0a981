"""A model that plans and carries out its plans, and tools that record what they do."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from json import dumps
from typing import Any

from tests.property.mortal import MortalStore
from treadle import Agent, ScriptedModel, ToolContext, Usage, tool
from treadle.agents.workers.plan_refine import WORKING, PlanRefine
from treadle.core.model import ModelRequest
from treadle.core.tools import EffectClass
from treadle.llm.scripted import Turn, call, text, turn
from treadle.testing.audit import LedgerEntry

USAGE = Usage(100, 7, cached_tokens=30, reasoning_tokens=2)


def sub(name: str, *after: str, task: str = "") -> dict[str, Any]:
    return {"id": name, "task": task or f"do {name}", "after": list(after)}


def a_plan(*sub_tasks: Any) -> str:
    return dumps({"thought": "I plan.", "sub_tasks": sub_tasks})


def an_answer(value: Any) -> str:
    return dumps({"thought": "I know.", "answer": value})


@dataclass
class World:
    """A model, its tools and what they did.

    Args:
        plans: what it writes before plan 1, after it, after plan 2 and so on; of several turns for one place, each is
            written once those before it were told to be wrong.
        works: what it says in a sub-task, turn by turn; by default that it is done.
        meanwhile: called with the id of a sub-task before the model answers in it.
    """

    plans: list[str | list[str]]
    works: dict[str, list[Turn | Exception]] = field(default_factory=dict[str, list[Turn | Exception]])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    worker: Any = field(default_factory=PlanRefine)
    meanwhile: Callable[[str], Awaitable[None]] | None = None
    ledger: list[LedgerEntry] = field(default_factory=list[LedgerEntry])
    asked: list[ModelRequest] = field(default_factory=list[ModelRequest])
    life: MortalStore | None = None
    dies_at: int | None = None
    """how many times code outside the engine is reached before the process dies in it"""

    reached: int = 0
    agent: Agent[Any] = field(init=False)

    def __post_init__(self) -> None:
        tools = list(self.tools())
        settings = {"instructions": "Be brief.", **self.settings}
        self.agent = Agent(ScriptedModel(self.says), tools=tools, worker=self.worker, **settings)

    async def reach(self) -> None:
        self.reached += 1
        if self.reached - 1 == self.dies_at and self.life is not None:
            self.life.die()
            await asyncio.sleep(0)

    async def says(self, request: ModelRequest) -> Turn:
        self.asked.append(request)
        await self.reach()
        content = request.messages[-1].text if request.messages else ""
        if request.instructions.startswith(WORKING):
            name = sub_task_of(request)
            if self.meanwhile is not None:
                await self.meanwhile(name)
            done = sum(message.role == "tool" for message in request.messages)
            script = self.works.get(name, [text(f"{name} is done")])
            said = script[min(done, len(script) - 1)]
            if isinstance(said, Exception):
                raise said
            return turn() + said + Turn(usage=USAGE)
        ran = re.findall(r"^Plan (\d+) has run", "\n".join(m.text for m in request.messages), re.MULTILINE)
        wrong = sum(message.text.startswith("Nothing was done") for message in request.messages)
        written = self.plans[int(ran[-1]) if ran else 0]
        if isinstance(written, list):
            written = written[min(wrong, len(written) - 1)]
        assert content or not ran
        return text(written, chunk=9) + Turn(usage=USAGE)

    async def act(self, ctx: ToolContext[Any], effect: EffectClass, said: str) -> str:
        self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "start", ctx.task_id))
        await self.reach()
        self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "done", ctx.task_id))
        return said

    def tools(self) -> Iterator[Any]:
        async def unbook(booked: Any, ctx: ToolContext[Any]) -> None:
            await self.act(ctx, "write", "unbooked")

        @tool(read_only=True)
        async def look(n: int, ctx: ToolContext[Any]) -> str:
            """Look."""
            return await self.act(ctx, "read", f"seen {n}")

        @tool(undo=unbook)
        async def book(n: int, ctx: ToolContext[Any]) -> str:
            """Book."""
            return await self.act(ctx, "write", f"booked {n}")

        @tool(read_only=True)
        async def break_() -> str:
            """Break."""
            raise RuntimeError("broken")

        yield from (look, book, break_)

    def starts(self, effect: EffectClass = "write") -> list[str]:
        """The keys of the calls that a tool was entered for."""
        return [entry.key for entry in self.ledger if (entry.effect, entry.phase) == (effect, "start")]

    def asked_in(self, name: str) -> list[ModelRequest]:
        """Return the requests of one sub-task."""
        return [
            request
            for request in self.asked
            if request.instructions.startswith(WORKING) and sub_task_of(request) == name
        ]

    @property
    def planning(self) -> list[ModelRequest]:
        """The requests for a plan."""
        return [request for request in self.asked if not request.instructions.startswith(WORKING)]


def sub_task_of(request: ModelRequest) -> str:
    heading = re.search(r"^Your sub-task, (\S+):$", request.messages[0].text, re.MULTILINE)
    assert heading is not None
    return heading[1]


def two_plans() -> World:
    """Return a world in which a sub-task of the first plan fails after another has booked."""
    return World(
        plans=[
            a_plan(sub("look"), sub("book"), sub("fail", "book"), sub("sum", "look", "fail")),
            a_plan(sub("fail", "book"), sub("sum", "look", "fail")),
            an_answer("All is booked."),
        ],
        works={
            "1.look": [call("look", n=1) + call("look", n=2), text("I have seen it.")],
            "1.book": [call("book", n=1), text("I have booked it.")],
            "1.fail": [call("book", n=2), RuntimeError("out of luck")],
            "2.fail": [call("book", n=3), text("This time it went well.")],
        },
    )

"""What random histories of the engine happen in: the models' whims, tools that break, and processes that die."""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tests.property.mortal import MortalStore, next_life
from treadle import (
    Agent,
    Happened,
    Limits,
    NotHappened,
    Quorum,
    RequestContext,
    Runner,
    RunOptions,
    ScriptedModel,
    Subagent,
    ToolContext,
    ToolInvocation,
    ToolOutput,
    Unknown,
    tool,
)
from treadle.agents.middleware import NextLayer
from treadle.core.model import ModelRequest
from treadle.core.tools import EffectClass
from treadle.errors import StoreError, TaskNotFound, TreadleError
from treadle.llm.scripted import Turn, call, fail, text, turn
from treadle.ports import TaskFilter
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, LedgerEntry, audit_store
from treadle.wiring import open_store

FIRED: Counter[str] = Counter()
TOOLS = ("look", "put", "save", "book", "pay")


@dataclass
class Answer:
    """What answers are to be, where they are to be of a type."""

    right: bool


class World:
    """The world outside of the engine: models' answers, tools' effects, and the processes that may crash in them."""

    called: tuple[str, ...] = (*TOOLS, "sign", "sign")
    """the tools that models ask for"""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.ledger: list[LedgerEntry] = []
        self.life: MortalStore | None = None
        self.dies_in_tool = False
        self.hangs = False
        """whether calls that may begin again take effect, and then never return"""

        self.tasks: list[str] = []
        self.asks = self.chance("output").choice([None, None, "tool", "prompt"])
        """how typed answers are asked for, if answers are to be of a type"""

        self.family = self.chance("family").randrange(3) == 0
        """whether the agent calls others, which call others"""

        self.terms: dict[str, Any] = {"retries": self.chance("retries").choice([0, 0, 1, 2])}
        """on which it does"""

        self.agents_join = self.chance("join").choice(["all", "all", "any", "optional", Quorum(2)])

        self.offers = 0
        """how often it was asked what to offer"""

    def offer(self, ctx: RequestContext[Any]) -> list[str]:
        """Another choice each time: that a request made again holds the same tools is the journal's doing."""
        self.offers += 1
        chance = self.chance("offer", self.offers)
        if chance.randrange(12) == 0:
            FIRED["offer fails"] += 1
            raise LookupError("no idea")
        return [tool.spec.name for tool in ctx.tools if chance.randrange(4)]

    def chance(self, *place: Any) -> random.Random:
        return random.Random(f"{self.seed}/{'/'.join(map(str, place))}")

    def place(self, task_id: str) -> str:
        """Return a name of a task that is the same whenever the history is repeated: forks have ids by chance."""
        root = next(task for task in self.tasks if task_id == task or task_id.startswith(f"{task}."))
        return f"{self.tasks.index(root)}{task_id.removeprefix(root)}"

    def says(self, request: ModelRequest) -> Any:
        chance = self.chance(self.place(request.task_id), request.step, request.turn, request.attempt)
        kind = chance.randrange(10)
        if kind == 0:
            return fail(500)
        if kind < 4:
            return self.answers(chance)
        return self.calls(chance, finish="length" if kind == 4 else None)

    def calls(self, chance: random.Random, **options: Any) -> Turn:
        names = (*self.called, "nobody", *("helper",) * 3 * self.family)
        answer = Turn()
        for name in chance.choices(names, k=chance.randint(1, 3)):
            answer += call(name, input="go") if name == "helper" else call(name, n=chance.randrange(3))
        return turn("so", answer, **options)

    def answers(self, chance: random.Random) -> Turn:
        right = {"right": True} if chance.randrange(2) else {"right": "perhaps"}
        FIRED[f"answer {self.asks}"] += 1
        if self.asks == "tool" and chance.randrange(4):
            return call("final_answer", **right) + (call("save", n=1) if chance.randrange(3) == 0 else Turn())
        return text(json.dumps(right) if self.asks == "prompt" else "words")

    def agent(self, model: ScriptedModel) -> Agent[Any]:
        """Return who does the tasks."""
        options: dict[str, Any] = (
            {} if self.asks is None else {"output_type": Answer, "output_mode": self.asks}
        )
        if self.chance("offers").randrange(3) == 0:
            options["offer"] = self.offer
        if self.family:
            inner = Subagent(Agent(model, name="helper", tools=self.tools()), **self.terms)
            outer = Agent(model, name="helper", tools=self.tools(), subagents=[inner], join=self.agents_join)
            options |= {"subagents": [Subagent(outer, **self.terms)], "join": self.agents_join}
        return Agent(model, name="any", tools=self.tools(), **options)

    @staticmethod
    def change(state: MutableMapping[str, Any], who: str, chance: random.Random) -> None:
        """Change the task's state, or not; what becomes of it the auditor adds up."""
        key = chance.choice("abc")
        match chance.randrange(5):
            case 0:
                FIRED["state set"] += 1
                state[key] = who
            case 1:
                FIRED["state list grows"] += 1
                if not isinstance(state.setdefault("list", []), list):
                    state["list"] = []
                state["list"].append(who)
            case 2 if key in state:
                FIRED["state key removed"] += 1
                del state[key]
            case 3:
                state[who] = {"n": state.get("n", 0)}
                state["n"] = state.get("n", 0) + 1
            case _:
                pass

    @staticmethod
    def entry(ctx: ToolContext, effect: EffectClass, phase: Literal["start", "done"]) -> LedgerEntry:
        now = time.time_ns() // 1_000
        return LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, phase, ctx.task_id, time=now)

    async def act(self, ctx: ToolContext, effect: EffectClass, n: int) -> str:
        self.ledger.append(self.entry(ctx, effect, "start"))
        chance = self.chance(ctx.call_id, ctx.attempt, n)
        self.change(ctx.state, ctx.call_id, self.chance("state", ctx.call_id, ctx.attempt))
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if self.hangs and effect != "write" and chance.randrange(4):
            FIRED[f"hung in a tool that is {effect}"] += 1
            self.ledger.append(self.entry(ctx, effect, "done"))
            await asyncio.sleep(60)
        if self.dies_in_tool and self.life is not None:
            self.dies_in_tool = False
            FIRED[f"died in a tool that is {effect}"] += 1
            self.life.die()
            await asyncio.sleep(0)
        if chance.randrange(5) == 0:
            raise RuntimeError("broken")
        self.ledger.append(self.entry(ctx, effect, "done"))
        return f"{ctx.call_id} did {n}"

    def tools(self) -> list[Any]:
        @tool(read_only=True, retries=1)
        async def look(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "read", n)

        @tool(idempotent=True)
        async def put(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "idempotent", n)

        async def breaks_late(call: ToolInvocation[Any], next: NextLayer) -> ToolOutput:
            result = await next(call)
            if self.chance("late", call.context.call_id, call.attempt).randrange(6) == 0:
                FIRED["middleware raises after its tool"] += 1
                raise RuntimeError("broken after the tool")
            return result

        @tool(middleware=[breaks_late])
        async def save(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        async def unbook(booked: Any, ctx: ToolContext) -> None:
            await self.act(ctx, "idempotent", 1)

        @tool(undo=unbook, middleware=[breaks_late])
        async def book(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        async def find(lost: Any, ctx: ToolContext) -> Any:
            await asyncio.sleep(0)
            return self.chance("find", ctx.call_id).choice([Happened("paid"), NotHappened(), Unknown()])

        @tool(reconcile=find)
        async def pay(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        @tool(needs_approval=lambda n: n > 0)
        async def sign(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        return [look, put, save, book, pay, sign]


class Host:
    """A process in which tasks are driven, and the processes after it if it crashes."""

    def open(self, world: World, *, durable: bool = False, url: str | None = None) -> None:
        """Begin on a store in memory, on a new SQLite file if it is to be durable, or on an empty one at a URL."""
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory() if durable else None
        self.url = f"sqlite:///{self.folder.name}/journal.db" if self.folder else url
        self.world = world
        self.model = ScriptedModel(world.says, keep=100_000)
        self.agent: Agent[Any] = world.agent(self.model)
        self.tasks = world.tasks
        self.again = partial(open_store, self.url) if self.url is not None else None
        self.be_born(MortalStore(self.again() if self.again is not None else MemoryStore()))

    def be_born(self, life: MortalStore) -> None:
        self.life = self.world.life = life
        self.runner = Runner(life, agents=[self.agent])

    # ------------------------------------------------------------------------------------ doing

    def do(self, what: str, *work: Coroutine[Any, Any, Any]) -> Any:
        """Do something, or several things at once; a task that refuses it is fine, a broken engine is not."""
        FIRED[what] += 1

        async def all_of_it() -> list[Any]:
            pending = [asyncio.ensure_future(pending_task) for pending_task in work]
            _done, late = await asyncio.wait(pending, timeout=10)
            for pending_task in late:
                pending_task.cancel()
            assert not late, f"{what} does not return"
            return [wait.exception() or wait.result() for wait in pending]

        results = self.loop.run_until_complete(all_of_it())
        for result in results:
            if isinstance(result, StoreError):
                assert self.life.dead, f"{what}: {result!r}"
            elif isinstance(result, TreadleError):
                FIRED[f"{what}: {type(result).__name__}"] += 1
            elif isinstance(result, BaseException):
                raise AssertionError(f"{what}: {result!r}") from result
        if self.life.dead:
            FIRED["death"] += 1
            self.be_born(self.loop.run_until_complete(next_life(self.life, self.again)))
        self.meet_children()
        return results[0]

    def meet_children(self) -> None:
        """Let children be spoken to like any other task."""
        if self.world.family and hasattr(self, "runner"):
            rows = self.loop.run_until_complete(self.life.real.rows(TaskFilter(limit=1_000)))
            born_tasks = [row.task_id for row in rows if row.parent and row.task_id not in self.tasks]
            self.tasks += sorted(born_tasks, key=self.world.place)
            FIRED["child"] += len(born_tasks)

    async def cut_off(self, task: str, how: str) -> None:
        """Let a task's calls take effect and hang, and stop it: because its time is up, or because a person says so."""
        if how == "time":
            await self.runner.resume(task, options=RunOptions(limits=Limits(seconds=0.05)))
            return
        running = asyncio.ensure_future(self.runner.resume(task))
        # What is stopped before it is resumed goes on all the same.
        while not (running.done() or self.runner._driver.owned.is_owned(task)):  # noqa: ASYNC110  no event announces it
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        await getattr(self.runner, how)(task)
        await self.outcome(running)

    def hang(self, task: str, how: str) -> None:
        """Cut a task's calls off; what they did is in the ledger, and not in the journal."""
        self.world.hangs = True
        self.do("cut off", self.cut_off(task, how))
        self.world.hangs = False

    def one_of(self, place: int) -> str:
        return self.tasks[place % len(self.tasks)]

    @staticmethod
    async def outcome(running: Any) -> Any:
        await asyncio.wait([running])
        return None if running.cancelled() else running.result()

    # ------------------------------------------------------------------------------------ judging

    def requests(self) -> dict[str, list[Any]]:
        """Return the conversations that models were sent, by task."""
        sent: dict[str, list[Any]] = {task: [] for task in self.tasks}
        for request in self.model.requests:
            sent.setdefault(request.task_id, []).append(request.messages)
        return sent

    def judge(self) -> None:
        """Let the auditor look at all there is."""
        kept = self.runner._driver.cache._cached
        for task in list(kept):
            # The cached state of a task whose drive failed is behind its journal until the next read.
            with suppress(TaskNotFound):  # a child that went with its parent
                self.loop.run_until_complete(self.runner._driver.cache.load(task))
        violations = self.loop.run_until_complete(
            audit_store(
                self.life.real,
                Evidence(requests=self.requests(), ledger=self.world.ledger),
                live=lambda task: next((each.state for each in kept.get(task, {}).values()), None),
            )
        )
        assert violations == [], "\n".join(map(str, violations))
        for task in self.tasks:
            row = self.loop.run_until_complete(self.life.real.row(task))
            FIRED[f"state {row.state}"] += 1
            assert row.driver is None or not row.driver.alive, f"{task} rests and is still owned"

    def close(self) -> None:
        self.loop.run_until_complete(self.life.real.close())
        remaining = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        if self.folder is not None:
            self.folder.cleanup()
        assert remaining == [], f"left behind: {remaining}"

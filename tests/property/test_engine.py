"""Random histories of the whole engine: every verb in any order, commands while it runs, death at any commit."""

import asyncio
import json
import random
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.property.mortal import MortalStore, next_life
from treadle import (
    Agent,
    FailurePolicy,
    Happened,
    Limits,
    NotHappened,
    RequestContext,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolContext,
    Unknown,
    tool,
)
from treadle.core.model import ModelRequest
from treadle.core.tools import EffectClass
from treadle.errors import StoreError, TreadleError
from treadle.llm.scripted import Turn, call, fail, text, turn
from treadle.ports import TaskFilter
from treadle.stores.memory import MemoryStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

FIRED: Counter[str] = Counter()
TOOLS = ("look", "put", "save", "book", "pay")
OPTIONS = st.builds(
    RunOptions,
    limits=st.sampled_from([None, None, Limits(steps=1), Limits(steps=2), Limits(tool_calls=2)]),
    on_limit=st.sampled_from(["final_answer", "fail", "pause"]),
    on_failure=st.builds(
        FailurePolicy,
        model=st.sampled_from(["fail", "degrade", "pause"]),
        tool=st.sampled_from(["continue", "fail", "degrade", "pause"]),
    ),
    on_unknown_outcome=st.sampled_from(["wait", "wait", "tell_model", "fail"]),
    max_parallel_tools=st.sampled_from([1, 2, 64]),
    keep_in_thread=st.sampled_from(["success", "always"]),
)
PLACE = st.integers(0, 50)


@dataclass
class Answer:
    """What answers are to be, where they are to be of a type."""

    right: bool


class World:
    """What is outside of the engine: the models' whims, the tools' effects, and who may die in them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.ledger: list[LedgerEntry] = []
        self.life: MortalStore | None = None
        self.dies_in_tool = False
        self.tasks: list[str] = []
        self.asks = self.chance("output").choice([None, None, "tool", "prompt"])
        """how typed answers are asked for, if answers are to be of a type"""

        self.family = self.chance("family").randrange(3) == 0
        """whether the agent calls others, which call others"""

        self.offers = 0
        """how often it was asked what to offer"""

    def offer(self, ctx: RequestContext[Any]) -> list[str]:
        """Another choice each time: that a request made again holds the same tools is the journal's doing."""
        self.offers += 1
        chance = self.chance("offer", self.offers)
        if chance.randrange(12) == 0:
            FIRED["offer fails"] += 1
            raise LookupError("no idea")
        return [each.spec.name for each in ctx.tools if chance.randrange(4)]

    def chance(self, *place: Any) -> random.Random:
        return random.Random(f"{self.seed}/{'/'.join(map(str, place))}")

    def place(self, task_id: str) -> str:
        """Return a name of a task that is the same whenever the history is told: forks have ids by chance."""
        root = next(task for task in self.tasks if task_id == task or task_id.startswith(f"{task}."))
        return f"{self.tasks.index(root)}{task_id.removeprefix(root)}"

    def says(self, request: ModelRequest) -> Any:
        chance = self.chance(self.place(request.task_id), request.step, request.turn, request.attempt)
        kind = chance.randrange(10)
        if kind == 0:
            return fail(500)
        if kind < 4:
            return self.answers(chance)
        calls = [
            call(name, input="go") if name == "helper" else call(name, n=chance.randrange(3))
            for name in chance.choices(
                (*TOOLS, "nobody", *("helper",) * 3 * self.family), k=chance.randint(1, 3)
            )
        ]
        asked = Turn()
        for one in calls:
            asked += one
        return turn("so", asked, finish="length" if kind == 4 else None)

    def answers(self, chance: random.Random) -> Turn:
        right = {"right": True} if chance.randrange(2) else {"right": "perhaps"}
        FIRED[f"answer {self.asks}"] += 1
        if self.asks == "tool" and chance.randrange(4):
            return call("final_answer", **right) + (call("save", n=1) if chance.randrange(3) == 0 else Turn())
        return text(json.dumps(right) if self.asks == "prompt" else "words")

    async def act(self, ctx: ToolContext, effect: EffectClass, n: int) -> str:
        self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "start", ctx.task_id))
        chance = self.chance(ctx.call_id, ctx.attempt, n)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if self.dies_in_tool and self.life is not None:
            self.dies_in_tool = False
            FIRED[f"died in a tool that is {effect}"] += 1
            self.life.die()
            await asyncio.sleep(0)
        if chance.randrange(5) == 0:
            raise RuntimeError("broken")
        self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, "done", ctx.task_id))
        return f"{ctx.call_id} did {n}"

    def tools(self) -> list[Any]:
        @tool(read_only=True, retries=1)
        async def look(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "read", n)

        @tool(idempotent=True)
        async def put(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "idempotent", n)

        @tool
        async def save(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        async def unbook(booked: Any, ctx: ToolContext) -> None:
            await self.act(ctx, "idempotent", 1)

        @tool(undo=unbook)
        async def book(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        async def find(lost: Any, ctx: ToolContext) -> Any:
            await asyncio.sleep(0)
            return self.chance("find", ctx.call_id).choice([Happened("paid"), NotHappened(), Unknown()])

        @tool(reconcile=find)
        async def pay(n: int, ctx: ToolContext) -> str:
            return await self.act(ctx, "write", n)

        return [look, put, save, book, pay]


class Engine(RuleBasedStateMachine):
    """One machine on the memory store; the SQLite one differs in `durable`."""

    durable = False

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory() if self.durable else None
        self.path = Path(self.folder.name) / "journal.db" if self.folder else None
        self.world = World(seed)
        self.model = ScriptedModel(self.world.says, keep=100_000)
        asks = self.world.asks
        how: dict[str, Any] = {} if asks is None else {"output_type": Answer, "output_mode": asks}
        if self.world.chance("offers").randrange(3) == 0:
            how["offer"] = self.world.offer
        if self.world.family:
            inner = Agent(self.model, name="helper", tools=self.world.tools())
            how["subagents"] = [Agent(self.model, name="helper", tools=self.world.tools(), subagents=[inner])]
        self.agent: Agent[Any] = Agent(self.model, name="any", tools=self.world.tools(), **how)
        self.tasks = self.world.tasks
        self.created = 0
        """how many tasks were made; what may be done next depends on this alone, so that histories can be repeated"""

        self.forks = 0
        real = SQLiteStore(str(self.path)) if self.path else MemoryStore()
        self.be_born(MortalStore(real))

    def be_born(self, life: MortalStore) -> None:
        self.life = self.world.life = life
        self.runner = Runner(life, agents=[self.agent])

    # ------------------------------------------------------------------------------------ doing

    def do(self, what: str, *work: Coroutine[Any, Any, Any]) -> Any:
        """Do something, or several things at once; a task that refuses it is fine, a broken engine is not."""
        FIRED[what] += 1

        async def all_of_it() -> list[Any]:
            pending = [asyncio.ensure_future(one) for one in work]
            _done, late = await asyncio.wait(pending, timeout=10)
            for one in late:
                one.cancel()
            assert not late, f"{what} does not return"
            return [one.exception() or one.result() for one in pending]

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
            self.be_born(self.loop.run_until_complete(next_life(self.life, self.path)))
        self.meet_children()
        return results[0]

    def meet_children(self) -> None:
        """Let children be spoken to like any other task."""
        if self.world.family and hasattr(self, "runner"):
            rows = self.loop.run_until_complete(self.life.real.rows(TaskFilter(limit=1_000)))
            born = [row.task_id for row in rows if row.parent and row.task_id not in self.tasks]
            self.tasks += sorted(born, key=self.world.place)
            FIRED["child"] += len(born)

    def one_of(self, place: int) -> str:
        return self.tasks[place % len(self.tasks)]

    # ------------------------------------------------------------------------------------ rules

    @precondition(lambda self: self.created < 3)
    @rule(options=OPTIONS, shared=st.booleans())
    def create(self, options: RunOptions, shared: bool) -> None:
        key = f"task-{self.created}"
        self.created += 1
        thread = "shared" if shared else None
        made = self.do(
            "create",
            self.runner.create_task(self.agent, "go", task_id=key, options=options, thread_id=thread),
        )
        assert not isinstance(made, Exception), made
        self.tasks.append(key)

    @precondition(lambda self: self.created)
    @rule(place=PLACE, how=st.sampled_from(["step", "step", "step with words", "resume", "resume", "raise"]))
    def work(self, place: int, how: str) -> None:
        task = self.one_of(place)
        if how.startswith("step"):
            words = "more" if how == "step with words" else None
            self.do("step", self.runner.run_step(task, input=words))
        else:
            options = RunOptions(limits=Limits(steps=30)) if how == "raise" else None
            self.do("resume", self.runner.resume(task, options=options))

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        commits=st.integers(0, 6),
        written=st.booleans(),
        where=st.sampled_from(["commit", "tool"]),
        how=st.sampled_from(["step", "resume", "undo", "raise"]),
    )
    def die(self, place: int, commits: int, written: bool, where: str, how: str) -> None:
        """Lose the process while it works on a task."""
        if where == "commit":
            self.life.commits_left, self.life.dies_after_writing = commits, written
        else:
            self.world.dies_in_tool = True
        if how == "undo":
            self.undo(place, None, True)
        else:
            self.work(place, how)
        self.life.commits_left, self.world.dies_in_tool = None, False

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        ticks=st.integers(0, 30),
        verbs=st.lists(
            st.sampled_from(["pause", "interrupt", "cancel", "send", "drop"]), min_size=1, max_size=3
        ),
    )
    def meddle(self, place: int, ticks: int, verbs: list[str]) -> None:
        """Speak to a task while it runs."""
        task = self.one_of(place)
        running: asyncio.Future[Any] = self.loop.create_task(self.run_on(task))

        async def speak(verb: str) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            if verb == "drop":
                running.cancel()
            elif verb == "send":
                await self.runner.send(task, "quick")
            else:
                await getattr(self.runner, verb)(task)

        self.do("meddle", self.outcome(running), *(speak(verb) for verb in verbs))

    async def run_on(self, task: str) -> Any:
        return await self.runner.resume(task)

    @staticmethod
    async def outcome(running: Any) -> Any:
        await asyncio.wait([running])
        return None if running.cancelled() else running.result()

    @precondition(lambda self: self.created)
    @rule(
        place=PLACE,
        verb=st.sampled_from(
            [
                "pause",
                "interrupt",
                "cancel",
                "send",
                "observe",
                "settle",
                "settle",
                "finalize",
                "skip",
                "edit",
            ]
        ),
        choice=st.booleans(),
    )
    def speak(self, place: int, verb: str, choice: bool) -> None:
        """Speak to a task at rest."""
        task = self.one_of(place)
        match verb:
            case "send":
                self.do("send", self.runner.send(task, "a"))
            case "observe":
                self.do("send", self.runner.send(task, "b", role="observation"))
            case "settle":
                for one in (task, *self.tasks):  # few wait for it: any that does is welcome
                    result = self.do("result", self.runner.result(one))
                    for pending in getattr(result, "pending", ())[:1]:
                        verdict = Happened("so") if choice else NotHappened()
                        self.do("settle", self.runner.settle(one, pending.request_id, verdict))
                        return
            case "skip":
                self.do("skip", self.runner.skip_step(task))
            case "edit":
                self.do("edit", self.runner.edit_step(task, "rather this"))
            case _:
                self.do(verb, getattr(self.runner, verb)(task))

    @precondition(lambda self: self.created)
    @rule(place=PLACE, to=st.sampled_from([None, None, 0, 1, 2]), force=st.booleans())
    def undo(self, place: int, to: int | None, force: bool) -> None:
        self.do("undo", self.runner.undo_step(self.one_of(place), to=to, force=force))

    @precondition(lambda self: self.created)
    @rule(place=PLACE, at=st.one_of(st.none(), st.integers(1, 40)), words=st.sampled_from([None, "else"]))
    def fork(self, place: int, at: int | None, words: str | None) -> None:
        if self.forks == 2:
            return
        made = self.do("fork", self.runner.fork(self.one_of(place), at=at, input=words))
        if made is not None and not isinstance(made, Exception):
            self.forks += 1
            self.tasks.append(made.task_id)

    # ------------------------------------------------------------------------------------ judging

    @invariant()
    def honest(self) -> None:
        if not hasattr(self, "runner"):
            return
        requests: dict[str, list[Any]] = {task: [] for task in self.tasks}
        for request in self.model.requests:
            requests.setdefault(request.task_id, []).append(request.messages)
        kept = self.runner.desk._kept
        for task in list(kept):
            # What is kept of a task whose drive failed is behind its journal until somebody asks.
            self.loop.run_until_complete(self.runner.desk.load(task))
        violations = self.loop.run_until_complete(
            audit_store(
                self.life.real,
                Evidence(requests=requests, ledger=self.world.ledger),
                live=lambda task: kept[task].state if task in kept else None,
            )
        )
        assert violations == [], "\n".join(map(str, violations))
        for task in self.tasks:
            row = self.loop.run_until_complete(self.life.real.row(task))
            FIRED[f"state {row.state}"] += 1
            assert row.driver is None or not row.driver.alive, f"{task} rests and is still owned"
            if (
                self.world.asks is not None
                and row.agent == "any"
                and row.state == "completed"
                and task in kept
            ):
                assert kept[task].state.output == {"right": True}

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        self.loop.run_until_complete(self.life.real.close())
        left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        if self.folder is not None:
            self.folder.cleanup()
        assert left == [], f"left behind: {left}"


class DurableEngine(Engine):
    """The same on SQLite files."""

    durable = True


NORMAL = settings(
    max_examples=15,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.explain],
)

TestMemory = Engine.TestCase
TestMemory.settings = NORMAL
TestSQLite = DurableEngine.TestCase
TestSQLite.settings = settings(NORMAL, max_examples=5)


@pytest.mark.full
@pytest.mark.parametrize(("machine", "runs"), [(Engine, 600), (DurableEngine, 100)])
def test_many_histories_and_every_rule_and_state_was_reached(machine: type[Engine], runs: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    FIRED.clear()
    run_state_machine_as_test(machine, settings=settings(NORMAL, max_examples=runs, stateful_step_count=40))
    wanted = {
        "create",
        "step",
        "resume",
        "meddle",
        "send",
        "undo",
        "fork",
        "settle",
        "finalize",
        "edit",
        "skip",
    }
    wanted |= {
        "pause",
        "interrupt",
        "cancel",
        "death",
        "died in a tool that is write",
        "offer fails",
        "child",
    }
    wanted |= {f"state {word}" for word in ("created", "answered", "completed", "degraded", "failed")}
    wanted |= {f"state {word}" for word in ("cancelled", "paused", "interrupted", "waiting", "running")}
    assert {name for name in wanted if FIRED[name] < runs // 50} == set(), FIRED

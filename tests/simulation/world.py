"""A small world in one thread and in virtual time: a store, processes that drive tasks on it, and their faults.

The runners, loops and stores are the real ones; simulated are the way to the store (which takes time, fails, loses
acknowledgements), the processes (which die, or stall until their lease has passed and then wake) and what models and
tools do. All chance comes from one seed, by name of the place it is asked at, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from treadle import (
    Agent,
    AskPerson,
    Deny,
    FailurePolicy,
    Guardrail,
    GuardrailRequest,
    Handoff,
    Happened,
    Limits,
    NotHappened,
    Quorum,
    RequestContext,
    Rewrite,
    Runner,
    RunOptions,
    ScriptedModel,
    Subagent,
    ToolContext,
    Unknown,
    tool,
    without_tool_calls,
)
from treadle.core.events import Join
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tools import EffectClass, ToolSpec
from treadle.errors import ModelError, StoreUnavailable, TaskBusy, ToolsetUnavailable
from treadle.llm.scripted import Turn, call, fail, text, turn
from treadle.policy.guardrails import GuardrailVerdict
from treadle.ports import (
    Commit,
    CommitDone,
    Committed,
    Driver,
    InboxItem,
    StoreChanges,
    TaskFilter,
    TaskRow,
    Tool,
    Wake,
)
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit import LedgerEntry
from treadle.testing.crash import names_of
from treadle.testing.wrappers import WrappedStore

LEASE = 5.0
"""Virtual seconds that a stalled process still counts as alive."""

UNAWARE = 10.0
"""Virtual seconds in which a process that woke has certainly written something: no call takes longer."""


class Chance(random.Random):
    """Dice for one place: quickly made, since there are many places."""

    def __init__(self, path: str) -> None:
        self._state = zlib.crc32(path.encode())

    def seed(self, *args: Any) -> None:
        """Its seed is its place."""

    def random(self) -> float:
        self._state = (self._state * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return (self._state >> 8 & 0xFFFF) / 0x10000

    def getrandbits(self, k: int, /) -> int:
        return int(self.random() * (1 << k))


class Stubborn:
    """A model of which some failures are worth another try, at once, soon, or so late that the task is given back."""

    def __init__(self, world: World) -> None:
        self.scripted, self._world = ScriptedModel(world.says, keep=100_000), world
        self.name = self.scripted.name
        self._not_before: dict[tuple[str, str, int], float] = {}
        """by task, step and number of failures: when it may be asked again"""

    def forget_waits(self) -> None:
        """Forget when requests are due: the clock was set."""
        self._not_before.clear()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        world, now = self._world, asyncio.get_running_loop().time()
        key = (request.task_id, request.step)
        if now < self._not_before.get((*key, len(request.failures)), 0.0) - 0.001:
            world.early.append(f"{world.name(request.task_id)} {request.step} was asked again too early")
        try:
            async for item in self.scripted.stream(request):
                yield item
        except ModelError as error:
            chance = world.chance("again", world.name(request.task_id), request.step, request.attempt)
            if len(request.failures) < 3 and chance.randrange(3):
                error.again_in = chance.choice([0.0, 0.3, 4.0, 90.0])
                world.fired[f"asked again {'late' if error.again_in > 60 else 'soon'}"] += 1
                if not world.was_set_forward:
                    due = asyncio.get_running_loop().time() + error.again_in
                    self._not_before[*key, len(request.failures) + 1] = due
            raise


DRIVER: ContextVar[Process | None] = ContextVar("driver", default=None)


@dataclass(eq=False)
class World:
    """What all processes share."""

    seed: int
    fired: Counter[str] = field(default_factory=Counter)
    ledger: list[LedgerEntry] = field(default_factory=list)
    owners: dict[str, Process] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    lives: int = 0
    log: list[str] = field(default_factory=list)
    offers: int = 0
    system: clock.SystemClock = field(default_factory=clock.SystemClock)
    early: list[str] = field(default_factory=list)
    servers: int = 0
    servers_last: bool = False
    """whether a server can be had from now on, always"""
    was_set: bool = False
    was_set_forward: bool = False
    tickets: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """by task: what the tools handed out, each with its call"""

    def say(self, line: str) -> None:
        """Append a line to the log of the run."""
        self.log.append(f"{asyncio.get_running_loop().time():9.3f} {line}")

    def __post_init__(self) -> None:
        self.store = MemoryStore()
        self.dice = random.Random(self.seed)
        self.trouble = self.chance("trouble").choice([0.0, 0.0, 0.03, 0.1])
        """how often a commit fails or loses its acknowledgement"""

        self.model = Stubborn(self)
        offer = self.offer if self.chance("offers").randrange(4) == 0 else None
        self.tools = [*TOOLS[3:], Server(self)] if self.chance("served").randrange(3) == 0 else TOOLS
        self.agent: Agent[Any] = Agent(self.model, name="agent", tools=self.tools, offer=offer)
        if self.chance("team").randrange(4) == 0:
            self.agent = self.agent.replace(subagents=[self.helper()], join=self.chance("join").choice(JOINS))
        if self.chance("handoffs").randrange(3) == 0:
            other: Agent[Any] = Agent(
                self.model,
                name="other",
                instructions="You are the other.",
                tools=self.tools,
                handoffs=["agent"],
            )
            self.agent = self.agent.replace(handoffs=[Handoff(other, filter=without_tool_calls)])

        if self.chance("guarded").randrange(4) == 0:
            blocking = self.chance("blocking").choice([True, False])
            guardrail = Guardrail(self.guard, on=["input", "output", "result"], blocking=blocking)
            self.agent = self.agent.replace(guardrails=[guardrail])

    async def guard(self, request: GuardrailRequest) -> GuardrailVerdict | None:
        """Decide on a content: mostly let it pass, now and then late."""
        chance = self.chance("guard", self.name(request.task_id), request.place, request.text)
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.3]))
        how = chance.randrange(24)
        if how == 0:
            return Deny(reason="refused")
        if how == 1:
            return AskPerson(reason="asked", expires=chance.choice([None, 30.0]))
        return Rewrite("rewritten") if how == 2 and request.text != "rewritten" else None

    def helper(self) -> Subagent:
        """Return an agent that does the same work as a task of its own, on terms."""
        chance = self.chance("terms")
        helper = Agent(self.model, name="helper", tools=self.tools)
        return Subagent(helper, timeout=chance.choice([None, None, 6.0]), retries=chance.choice([0, 0, 1, 2]))

    def chance(self, *place: Any) -> Chance:
        return Chance(f"{self.seed}/{'/'.join(map(str, place))}")

    def name(self, task_id: str) -> str:
        """Return what a task is called in every run of this seed: ids that runners make are by chance of their own."""
        return self.names.setdefault(task_id, f"t{len(self.names)}")

    # ------------------------------------------------------------------------------- models and tools

    async def says(self, request: ModelRequest) -> Any:
        chance = self.chance(self.name(request.task_id), request.step, request.turn, request.attempt)
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.2, 3]))
        kind = chance.randrange(10)
        if kind == 0:
            return fail(500)
        if kind < 4:
            return text("words")
        answer = Turn()
        has_helper = any(spec.name == "helper" for spec in request.tools)
        for _ in range(chance.randint(1, 3)):
            if has_helper and chance.randrange(2):
                answer += call("helper", input="do it")
            else:
                answer += call(chance.choice(ASKED), n=chance.randrange(3))
        handoffs = [spec.name for spec in request.tools if spec.name.startswith("transfer_to_")]
        if handoffs and chance.randrange(3) == 0:
            answer += call(handoffs[0], reason="so")
        return turn("so", answer, finish="length" if kind == 4 else None)

    def offer(self, ctx: RequestContext[Any]) -> list[str]:
        """Another choice each time: that a request made again holds the same tools is the journal's doing."""
        self.offers += 1
        chance = self.chance("offer", self.offers)
        return [tool.spec.name for tool in ctx.tools if chance.randrange(5)]

    async def act(self, ctx: ToolContext, effect: EffectClass, n: int) -> str:
        me = DRIVER.get()
        assert me is not None
        me.check_alive()
        entry = LedgerEntry(
            ctx.call_id, ctx.idempotency_key, effect, "start", ctx.task_id, ctx.attempt, str(me), clock.now()
        )
        self.ledger.append(entry)
        chance = self.chance(self.name(ctx.task_id), ctx.call_id, ctx.attempt, n)
        if effect != "write" and chance.randrange(3) == 0:
            self.ledger.append(
                replace(entry, phase="done")
            )  # it takes effect, and then takes its time to say so
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.3, 4]))
        me.check_alive()
        if chance.randrange(6) == 0:
            raise RuntimeError("broken")
        self.ledger.append(replace(entry, phase="done"))
        return f"{ctx.call_id} did {n}"

    def options(self, *place: Any) -> RunOptions:
        pick = self.chance("options", *place).choice
        return RunOptions(
            limits=pick(
                [
                    *(None, None, Limits(steps=1), Limits(steps=3), Limits(tool_calls=2)),
                    *(Limits(model_calls=3), Limits(seconds=3)),
                ]
            ),
            on_limit=pick(["final_answer", "fail", "pause"]),
            on_failure=FailurePolicy(
                model=pick(["fail", "degrade", "pause"]),
                tool=pick(["continue", "continue", "fail", "degrade", "pause"]),
            ),
            on_unknown_outcome=pick(["wait", "wait", "tell_model", "fail"]),
            on_busy_thread=pick(["enqueue", "enqueue", "reject", "interrupt", "parallel"]),
            max_parallel_tools=pick([1, 2, 64]),
            keep_in_thread=pick(["success", "always"]),
            approval_expires=pick([None, 2.0, 20.0]),
            at_end=pick(["suspend", "wait", "detach", "cancel"]),
        )

    # ------------------------------------------------------------------------------------- processes

    def set_clock(self, seconds: float) -> None:
        """Set the clock of the machine: forward, and what waits in the store may be due at once; or back."""
        self.say(f"the clock is set by {seconds:+} s")
        self.system.set_forward(seconds)
        self.was_set = True
        if seconds > 0:
            self.was_set_forward = True
            self.model.forget_waits()

    def new_process(self) -> Process:
        self.lives += 1
        process = Process(self, self.lives)
        self.processes.append(process)
        return process

    def lapse(self, process: Process) -> None:
        """From now on others may take what a process owns."""
        for task_id, owner in list(self.owners.items()):
            if owner is process:
                del self.owners[task_id]
                task = self.store._tables.tasks[task_id]
                if task.turn is not None:
                    task.epoch += 1  # another task was in the thread meanwhile
                task.owned, task.turn = False, None
                self.store._tables.note_owner(task)
        self.tell(process, StoreChanges(None))

    def tell(self, source: Process, changes: StoreChanges) -> None:
        for process in self.processes:
            if process is not source:
                process.hear(changes)


class Server:
    """A toolset that takes its time to begin, and now and then cannot be had, as a server does."""

    name = "server"

    def __init__(self, world: World) -> None:
        self._world = world

    def facts(self) -> Any:
        return ["server"]

    def known_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in TOOLS[:3])

    def connect(self) -> Connection:
        self._world.servers += 1
        return Connection(self._world, self._world.servers)


class Connection:
    """What one process has of the server."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number, self._times = world, number, 0

    async def tools(self) -> Sequence[Tool]:
        self._times += 1
        world, chance = self._world, self._world.chance("server", self._number, self._times)
        seconds = chance.choice([0, 0, 0, 0.1, 3])
        world.fired["a server takes its time"] += bool(seconds)
        await asyncio.sleep(seconds)
        if not world.servers_last and chance.randrange(4) == 0:
            world.fired["a server cannot be had"] += 1
            raise ToolsetUnavailable("the server is gone", toolset="server")
        return TOOLS[:3]

    async def close(self) -> None:
        """Nothing is open."""


class Process:
    """One process: a runner, its way to the store, and whether it is running, stalled or crashed."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.dead = self.stalled = self.lapsed = False
        self.woke_at = -UNAWARE
        self.held: list[Callable[[], None]] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """what it is at, in the order in which it began: a set would have another order in each run"""

        self.wakes: list[Wake] = []
        self.context = copy_context()
        self.context.run(DRIVER.set, self)
        self.way = Way(self)
        self.runner = Runner(self.way, agents=[world.agent], clock=world.system)

    def __str__(self) -> str:
        return f"process {self.number}"

    def do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a verb as this process does, and remember it."""
        task = asyncio.get_running_loop().create_task(work, context=self.context)
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Do something as this process, once it has time and unless it has crashed."""

        def now() -> None:
            if self.stalled and not self.dead:
                self.held.append(then)
            else:
                then()

        asyncio.get_running_loop().call_later(seconds, now, context=self.context)

    def check_alive(self) -> None:
        """Let nothing happen in a crashed process, though its coroutines have still to be closed."""
        if self.dead:
            raise StoreUnavailable("the process is dead")

    def die(self) -> None:
        """SIGKILL: nothing of it goes on, and on this host everybody knows at once."""
        phases = {
            (entry.task, entry.call): entry.phase for entry in self.world.ledger if entry.driver == str(self)
        }
        self.world.fired["death between begin and end"] += "start" in phases.values()
        self.world.say(f"{self} dies")
        self.dead, self.stalled = True, False
        self.world.processes.remove(self)
        for task in list(self.tasks):
            task.cancel()
        self.release_held()
        self.world.lapse(self)

    def stall(self) -> None:
        """SIGSTOP: it does nothing more, and its lease runs out."""
        self.stalled = True
        self.world.say(f"{self} stalls")
        asyncio.get_running_loop().call_later(LEASE, self.run_out)

    def run_out(self) -> None:
        if self.stalled and not self.lapsed and not self.dead:
            self.lapsed = True
            self.world.fired["lease ran out"] += 1
            self.world.lapse(self)

    def wake(self) -> None:
        """Go on after a stall, as after SIGCONT."""
        self.stalled = self.lapsed = False
        self.woke_at = asyncio.get_running_loop().time()
        self.world.say(f"{self} wakes")
        self.release_held()

    @property
    def unaware(self) -> bool:
        """Tell whether it may have lost its tasks without knowing: without heartbeats only commits tell."""
        return self.stalled or asyncio.get_running_loop().time() < self.woke_at + UNAWARE

    def release_held(self) -> None:
        held, self.held = self.held, []
        for then in held:
            asyncio.get_running_loop().call_soon(then, context=self.context)

    def hear(self, changes: StoreChanges) -> None:
        for wake in list(self.wakes):
            self.later(0.02, lambda wake=wake: wake(changes))


class Way(WrappedStore):
    """A process' way to the store: it takes time, keeps the order, fails, and ends with the process."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.world.store)
        self._process = process
        self._world = process.world
        self._at = self._answered_at = 0.0
        self._asked = 0

    def _chance(self) -> Chance:
        self._asked += 1
        return self._world.chance("way", self._process.number, self._asked)

    def _arrives(self, chance: Chance) -> float:
        """Return in how many seconds what is sent now arrives: not before what was sent before it."""
        now = asyncio.get_running_loop().time()
        # Timers of one moment fire in no certain order, so no two are.
        self._at = max(self._at + 1e-6, now + chance.choice([0, 0.001, 0.001, 0.01, 0.1]))
        return self._at - now

    def _is_answered(self) -> float:
        """Return in how many seconds an answer is there: not before the one to what was sent before it."""
        now = asyncio.get_running_loop().time()
        self._answered_at = max(self._answered_at + 1e-6, now + 0.001)
        return self._answered_at - now

    def commit(self, commit: Commit, done: CommitDone) -> None:
        process, world, chance = self._process, self._world, self._chance()
        trouble = chance.random()
        results: list[Any] = []

        def write() -> None:
            failed = StoreUnavailable("the store does not answer")
            if process.dead:
                done(failed)
                return
            if trouble < world.trouble / 2:
                world.fired["commit failed"] += 1
                # Not at once: the answer to the commit before is still on its way, and answers keep their order.
                process.later(self._is_answered(), lambda: done(failed))
                return
            kinds = [] if commit.record is None else names_of(commit)
            self._store.commit(commit, written)
            world.say(
                f"{process} {world.name(commit.task_id)} epoch {commit.epoch} {kinds} {commit.state} {results[-1]!r}"
            )

        def written(verdict: Committed | Exception) -> None:
            results.append(verdict)
            if isinstance(verdict, Committed):
                if verdict.released:
                    if world.owners.get(commit.task_id) is process:
                        del world.owners[commit.task_id]
                elif commit.create is not None:
                    world.owners[commit.task_id] = process
                    world.name(commit.task_id)
                world.tell(process, StoreChanges(frozenset((commit.task_id,)), owners=verdict.released))
            if trouble > 1 - world.trouble / 2:
                world.fired["acknowledgement lost"] += 1
                verdict = StoreUnavailable("the connection was lost")
            process.later(self._is_answered(), lambda: done(verdict))

        process.later(self._arrives(chance), write)

    async def _trip(self) -> None:
        """Be at the store."""
        arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process.later(self._arrives(self._chance()), lambda: arrival.done() or arrival.set_result(None))
        await arrival
        if self._process.dead:
            raise StoreUnavailable("the process is dead")

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(attribute):
            return attribute

        async def asked(*args: Any, **options: Any) -> Any:
            await self._trip()
            return await attribute(*args, **options)

        return asked

    async def open(self) -> None:
        """The store is there."""

    async def close(self) -> None:
        """The store is for others too."""

    async def claim(self, task_id: str, *, enter: bool = False) -> Any:
        await self._trip()
        owner = self._world.owners.get(task_id)
        if owner is not None:
            raise TaskBusy(f"task {task_id} is driven by {owner}", task_id=task_id)
        claim = await self._store.claim(task_id, enter=enter)
        self._world.say(f"{self._process} {self._world.name(task_id)} claimed with epoch {claim.epoch}")
        self._world.owners[task_id] = self._process
        return claim

    async def post(self, task_id: str, item: InboxItem) -> bool:
        await self._trip()
        is_new = await self._store.post(task_id, item)
        self._world.tell(self._process, StoreChanges(mail=(task_id,)))
        return is_new

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        await self._trip()
        return self._seen(await self._store.row(task_id, deleted=deleted))

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        await self._trip()
        return [self._seen(row) for row in await self._store.rows(wanted)]

    def _seen(self, row: TaskRow) -> TaskRow:
        owner = self._world.owners.get(row.task_id)
        row.driver = None if owner is None else Driver(str(owner), "here", owner.number, alive=True)
        return row

    def watch(self, wake: Wake) -> Callable[[], None]:
        self._process.wakes.append(wake)
        return lambda: self._process.wakes.remove(wake) if wake in self._process.wakes else None


# ------------------------------------------------------------------------------------------------ tools


def _world() -> World:
    me = DRIVER.get()
    assert me is not None
    return me.world


@tool(read_only=True, retries=1, timeout=2)
async def look(n: int, ctx: ToolContext) -> str:
    return await _world().act(ctx, "read", n)


@tool(idempotent=True, timeout=2)
async def put(n: int, ctx: ToolContext) -> str:
    return await _world().act(ctx, "idempotent", n)


@tool(timeout=2)
async def save(n: int, ctx: ToolContext) -> str:
    return await _world().act(ctx, "write", n)


async def unbook(booked: Any, ctx: ToolContext) -> None:
    await _world().act(ctx, "idempotent", 1)


@tool(undo=unbook)
async def book(n: int, ctx: ToolContext) -> str:
    return await _world().act(ctx, "write", n)


async def find(lost: Any, ctx: ToolContext) -> Any:
    await asyncio.sleep(0.01)
    chance = _world().chance("find", _world().name(ctx.task_id), ctx.call_id)
    return chance.choice([Happened("paid"), NotHappened(), Unknown()])


@tool(reconcile=find)
async def pay(n: int, ctx: ToolContext) -> str:
    return await _world().act(ctx, "write", n)


async def asks(n: int, ctx: ToolContext) -> bool:
    await asyncio.sleep(
        _world().chance("asks", _world().name(ctx.task_id), ctx.call_id).choice([0, 0.01, 0.3])
    )
    return n > 0


@tool(needs_approval=asks)
async def sign(n: int, ctx: ToolContext) -> str:
    return await _world().act(ctx, "write", n)


@tool(idempotent=True, timeout=5)
async def inquire(n: int, ctx: ToolContext) -> str:
    """Does something once, asks once or twice, and may ask anew or without an end to the wait."""
    chance = _world().chance("inquire", _world().name(ctx.task_id), ctx.idempotency_key.rpartition("/")[2])
    kept = await ctx.once("act", lambda: _world().act(ctx, "idempotent", n))
    expires = chance.choice([None, 2.0, 20.0])
    first = await ctx.ask(f"first of {n}?", int, expires=expires, default=0)
    if chance.randrange(2):
        return f"{kept} {first}"
    second = await ctx.ask("second?", Literal["yes", "no"], expires=chance.choice([None, 5.0]))
    return f"{kept} {first} {second} {await _world().act(ctx, 'idempotent', n + 1)}"


@tool(idempotent=True, background=True, timeout=5)
async def render(n: int, ctx: ToolContext) -> Any:
    """Hands its ticket out, and leaves work in the background, or not."""
    world = _world()
    place = world.name(ctx.task_id), ctx.call_id
    world.tickets.setdefault(ctx.task_id, []).append((ctx.call_id, ctx.ticket))
    done = await world.act(ctx, "idempotent", n)
    chance = world.chance("render", *place)
    return ctx.background({"job": n}, expires=chance.choice([2, 20, 300])) if chance.randrange(4) else done


@tool(idempotent=True, timeout=5)
async def nap(n: int, ctx: ToolContext) -> str:
    """Acts, sleeps, and acts once more."""
    chance = _world().chance("nap", _world().name(ctx.task_id), ctx.idempotency_key.rpartition("/")[2])
    first = await ctx.once("act", lambda: _world().act(ctx, "idempotent", n))
    await ctx.sleep(chance.choice([0.5, 3, 30, 80]))
    return f"{first} {await _world().act(ctx, 'idempotent', n + 1)}"


TOOLS = (look, put, save, book, pay, sign, inquire, render, nap)
ASKED = (*(tool.spec.name for tool in TOOLS), "missing")
"""Tools that a model asks for; the last one does not exist."""

JOINS: tuple[Join, ...] = ("all", "all", "any", "optional", Quorum(2))

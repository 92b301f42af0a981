"""Tenants with the same ids, through random verbs in turns: each sees and changes what it would if it were alone.

The verbs of each tenant are drawn from a seed of its own. They run in one store, in a random order between the tenants,
and once more for each tenant in a store of its own. What a tenant was answered, errors included, has to be the same.
"""

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Message, Runner, RunOptions, ScriptedModel, Text, tool
from treadle.errors import TreadleError
from treadle.llm.scripted import call
from treadle.testing.audit import audit_store
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio

TENANTS = ("", "acme", "acme.")
TASKS = [f"task-{number}" for number in range(5)]
THREADS = ["talk", "plan"]
STATES = ["created", "running", "waiting", "paused", "interrupted", "completed", "cancelled"]


@tool(needs_approval=True, undo=lambda call, ctx: None)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(read_only=True)
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: " + "x" * 9_000


AGENTS: list[Agent[Any]] = [
    Agent(ScriptedModel([call("look", place="oslo"), "seen"]), name="looker", tools=[look]),
    Agent(ScriptedModel([call("pay", amount=3), "paid"]), name="payer", tools=[pay]),
    Agent(ScriptedModel(["hello"]), name="sayer"),
]
SUMMARISER: Agent[Any] = Agent(ScriptedModel(["what was said"]), name="summariser")


class Caller:
    """Draws verbs from a seed, calls them on a runner, and keeps what it was answered.

    Args:
        runner: of one tenant.
        seed: decides which verbs, in which order, with which arguments.
    """

    def __init__(self, runner: Runner, seed: int, folder: Path) -> None:
        self.runner = runner
        self.random = random.Random(seed)
        self.folder = folder
        self.answers: list[Any] = []
        self.calls: Counter[str] = Counter()
        self._forks = count(1)

    async def call(self) -> None:
        """Call one verb."""
        name = self.random.choice(sorted(VERBS))
        self.calls[name] += 1
        try:
            answer = await VERBS[name](self)
        except TreadleError as error:
            answer = f"{type(error).__name__}: {error}"
        self.answers.append((name, self._comparable(answer)))

    def _comparable(self, answer: Any) -> Any:
        """Return an answer without what differs from run to run: addresses, and ids and times that are made anew."""
        text = repr(answer).replace(self.runner.store.url, "STORE")
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)
        return re.sub(r"g-[0-9a-f]{8,}", "GRANT", text)

    @property
    def task(self) -> str:
        return self.random.choice([*TASKS, *TASKS, "fork-1", "fork-2"])

    @property
    def thread(self) -> str:
        return self.random.choice(THREADS)

    # --------------------------------------------------------------------------------------- making and driving

    def _new(self) -> tuple[Agent[Any], dict[str, Any]]:
        options = RunOptions(labels={"team": self.random.choice("ab")}, keep_in_thread="always")
        return self.random.choice(AGENTS), {
            "task_id": self.random.choice(TASKS),
            "thread_id": self.random.choice([*THREADS, None]),
            "options": options,
        }

    async def run(self) -> Any:
        agent, more = self._new()
        return shown(await self.runner.run(agent, self.random.choice(["go", "do"]), **more))

    async def create(self) -> Any:
        agent, more = self._new()
        task = await self.runner.create_task(agent, "go", **more)
        return task.task_id, task.state, task.head, task.labels

    async def step(self) -> Any:
        out = await self.runner.run_step(self.task, input=self.random.choice([None, "more"]))
        return out.step.step_id, out.state, out.is_last

    async def resume(self) -> Any:
        return shown(await self.runner.resume(self.task))

    async def stop(self) -> Any:
        verb = self.random.choice([self.runner.pause, self.runner.interrupt, self.runner.cancel])
        return shown(await verb(self.task, by="ann"))

    async def undo(self) -> Any:
        report = await self.runner.undo_step(self.task, to=self.random.choice([None, 0]), force=True)
        return report.complete, report.steps, report.calls

    async def fork(self) -> Any:
        thread_id, fork_id = self.random.choice([*THREADS, None]), f"fork-{next(self._forks)}"
        return str(await self.runner.fork(self.task, thread_id=thread_id, task_id=fork_id))

    async def finalize(self) -> Any:
        return shown(await self.runner.finalize(self.task))

    async def send(self) -> Any:
        return await self.runner.send(self.task, "be quick", by="bob")

    async def edit(self) -> Any:
        return (await self.runner.edit_step(self.task, "other words")).step_id

    async def decide(self) -> Any:
        verb = self.random.choice([self.runner.approve, self.runner.deny])
        scope: Any = (
            {"scope": self.random.choice(["once", "thread", "always"])} if verb == self.runner.approve else {}
        )
        return await verb(self.task, by="ann", **scope)

    async def revoke(self) -> Any:
        grants = await self.runner.list_grants()
        return await self.runner.revoke(grants[0].grant_id if grants else "none", by="ann")

    # --------------------------------------------------------------------------------------------- taking away

    async def delete(self) -> Any:
        return await self.runner.delete_task(self.task)

    async def delete_thread(self) -> Any:
        return await self.runner.delete_thread(self.thread)

    async def prune(self) -> Any:
        report = await self.runner.prune(
            0, states=("completed", "cancelled"), dry_run=self.random.random() < 0.8
        )
        return sorted(report.threads), sorted(report.tasks)

    async def compact(self) -> Any:
        report = await self.runner.compact_thread(self.thread, keep=1, agent=SUMMARISER)
        return report.messages_before, report.messages_after

    async def import_thread(self) -> Any:
        await self.runner.import_thread(self.thread, [Message("user", (Text("from elsewhere"),))])

    async def export(self) -> Any:
        report = await self.runner.export_tasks(self.folder / "export")
        again = await self.runner.import_tasks(self.folder / "export")
        return sorted(report.tasks), report.events, sorted(again.known), again.tasks

    # -------------------------------------------------------------------------------------------------- reading

    async def list(self) -> Any:
        draw = self.random
        wanted: dict[str, Any] = draw.choice(
            [
                {},
                {"state": draw.choice(STATES)},
                {"agent": draw.choice(AGENTS).name},
                {"thread_id": self.thread},
                {"labels": {"team": "a"}},
                {"search": "paid"},
                {"forked_from": self.task},
                {"parent": self.task},
            ]
        )
        page = await self.runner.list_tasks(**wanted, limit=draw.choice([2, 100]))
        totals = await self.runner.count_tasks(**wanted)
        rows = [(item.task_id, item.state, item.steps, item.outcome, item.labels) for item in page.items]
        return rows, page.cursor is None, totals

    async def read(self) -> Any:
        task_id = self.task
        result = await self.runner.result(task_id)
        events = await self.runner.get_events(task_id, limit=500)
        steps = await self.runner.get_completed_steps(task_id)
        kinds = [(event.kind, event.seq) for event in events.items]
        return shown(result), kinds, [step.step.step_id for step in steps]

    async def threads(self) -> Any:
        page = await self.runner.list_threads()
        messages = await self.runner.get_thread(self.thread)
        return [(each.thread_id, each.version, each.turns) for each in page.items], [
            each.text for each in messages
        ]

    async def waiting(self) -> Any:
        pending = [(each.task_id, each.kind, each.tool) for each in await self.runner.list_pending()]
        grants = [
            (each.tool, each.thread_id, each.by, each.revoked is None)
            for each in await self.runner.list_grants()
        ]
        return sorted(map(repr, pending)), grants

    async def usage(self) -> Any:
        return await self.runner.usage(by=self.random.choice(["agent", "label:team"]))

    async def verify(self) -> Any:
        report = await self.runner.verify()
        return report.findings, report.events, len(report.tasks)


def shown(result: Any) -> Any:
    """Return what of a result tells one task from another."""
    return (
        result.task_id,
        result.state,
        result.final_text,
        result.steps,
        [each.text for each in result.messages],
    )


VERBS: dict[str, Callable[[Caller], Awaitable[Any]]] = {
    name: member
    for name, member in vars(Caller).items()
    if not name.startswith("_") and name not in ("call", "task", "thread")
}


async def alone(place: Any, seed: int, times: int, folder: Path) -> Caller:
    """Return what a tenant is answered in a store of its own."""
    async with Runner(place, agents=AGENTS) as runner:
        caller = Caller(runner, seed, folder)
        for _ in range(times):
            await caller.call()
        return caller


async def together(place: Any, seed: int, times: int, folder: Path) -> dict[str, Caller]:
    """Return what each tenant is answered in a store that all share."""
    async with Runner(place, agents=AGENTS) as runner:
        callers = {}
        for number, name in enumerate(TENANTS):
            callers[name] = Caller(runner.scoped(tenant=name), seed + number, folder)
        turns = [name for name in TENANTS for _ in range(times)]
        random.Random(seed).shuffle(turns)
        for name in turns:
            await callers[name].call()
        for name in TENANTS:
            assert await audit_store(callers[name].runner.store) == []
        return callers


async def check(places: Callable[[str], Any], seed: int, times: int, folder: Path) -> Counter[str]:
    shared = await together(places("shared"), seed, times, folder)
    answered: Counter[str] = Counter()
    for number, name in enumerate(TENANTS):
        own = await alone(places(f"own{number}"), seed + number, times, folder)
        for at, (theirs, expected) in enumerate(zip(shared[name].answers, own.answers, strict=True)):
            assert theirs == expected, f"tenant {name!r}, verb {at} of seed {seed}"
        answered.update(
            kind for kind, answer in own.answers if "Error" not in answer and "NotFound" not in answer
        )
    return answered


def places_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> Callable[[str], Any]:
    if kind == "memory":
        return lambda name: "memory:"
    if kind == "sqlite":
        return lambda name: folder / f"{name}.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    digest = sha256(str(folder).encode()).hexdigest()[:12]
    return lambda name: server.in_schema(f"t{digest}{name}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_tenants_are_answered_as_if_they_were_alone(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = random.Random(request.config.getoption("hypothesis_seed")).randrange(10**6)
    answered = await check(places_of(kind, tmp_path, request), seed, 60, tmp_path)
    assert len(answered) > len(VERBS) // 2


@pytest.mark.full
@pytest.mark.parametrize("seed", [10, 20])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
async def test_tenants_are_answered_as_if_they_were_alone_a_thousand_times(
    kind: str, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    answered = await check(places_of(kind, tmp_path, request), seed, 1_000, tmp_path)
    assert set(answered) == set(VERBS), "each verb succeeded at least once"

"""One simulated run: a random story of a few tasks, run to its end and then audited."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.simulation.world import LEASE, Process, World
from treadle import Happened, Limits, NotHappened, RunOptions
from treadle.core import events as e
from treadle.core.events import END_STATES
from treadle.errors import (
    AlreadyDecided,
    ConfigurationError,
    StoreUnavailable,
    TaskNotFound,
    TicketClosed,
    TicketNotFound,
    TreadleError,
)
from treadle.ports import TaskRow
from treadle.results.pending import Pending
from treadle.testing import clock
from treadle.testing.audit import Acknowledged, Evidence, Stream, Violation, all_rows, audit_store, journal_of
from treadle.testing.audit.external_evidence import stopped_for_good

RULES = {
    "create": 3,
    "resume": 9,
    "step": 5,
    "race": 2,
    "pause": 2,
    "interrupt": 2,
    "cancel": 1,
    "send": 3,
    "settle": 5,
    "decide": 8,
    "tell": 8,
    "undo": 4,
    "fork": 2,
    "skip": 1,
    "finalize": 1,
    "raise limits": 1,
    "repeat": 4,
    "hand on": 2,
    "watch": 1,
    "kill": 4,
    "stall": 3,
    "wake": 4,
    "wait": 4,
    "set clock": 2,
}
JUMPS = (-7_200.0, -30.0, 30.0, 7_200.0)
"""By how many seconds the system's clock is set."""

LONGEST_WAIT = 91.0
"""Virtual seconds after which a request is due in any case, also if the clock was set."""
MADE = {"create": "task_created", "step": "step_completed", "undo": "rewound"}
"""The event that is in the journal once a verb has returned."""


@dataclass
class Outcome:
    """The result of a run."""

    seed: int
    fired: Counter[str]
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    log: list[str] = field(default_factory=list)


def simulate(seed: int, ops: int = 22) -> Outcome:
    """Run one seed."""
    story = Story(World(seed))
    with asyncio.Runner(loop_factory=clock.VirtualTimeLoop) as runner:
        return runner.run(story.run(ops))


class Story:
    """A random story of a few tasks, and what was acknowledged to its callers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self.fired = world.fired
        self.tasks: list[str] = []
        self.acknowledged: list[Acknowledged] = []
        self.streams: list[Stream] = []
        self.commands: list[tuple[str, asyncio.Task[Any]]] = []
        self.cancelled: set[str] = set()
        self.repeated = 0
        """how many commands had an id"""

        self.told: set[tuple[str, str]] = set()
        self.problems: list[str] = []

    async def run(self, ops: int) -> Outcome:
        world = self.world
        for _ in range(self.dice.randint(1, 4)):
            world.new_process()
        self.create()
        for rule in self.dice.choices(list(RULES), list(RULES.values()), k=ops):
            self.fire(rule)
            await asyncio.sleep(self.dice.choice([0, 0, 0.001, 0.02, 0.5, 2]))
        for process in list(world.processes):
            process.wake()
        await self.wait_for_commands()
        world.trouble = 0.0
        await self.finish_all()
        await self.audit()
        lines = [f"{world.name(row.task_id)} {row.state} {row.head}" for row in await self.rows()]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
        return Outcome(world.seed, self.fired, self.problems, digest, world.log)

    # ------------------------------------------------------------------------------------------ rules

    def fire(self, rule: str) -> None:
        running = [process for process in self.world.processes if not process.stalled]
        process = self.dice.choice(running) if running else self.world.new_process()
        self.fired[rule] += 1
        match rule:
            case "create":
                self.create()
            case "kill":
                victim = self.dice.choice(self.world.processes)
                victim.die()
                self.world.new_process()
            case "stall":
                process.stall()
                self.world.new_process() if len(self.world.processes) < 4 else None
            case "wake":
                for stalled in [process for process in self.world.processes if process.stalled][:1]:
                    stalled.wake()
            case "set clock":
                self.world.set_clock(self.dice.choice(JUMPS))
            case "wait":
                self.command("wait", process, lambda: asyncio.sleep(LEASE))
            case _ if self.tasks:
                self.about(rule, process, self.dice.choice(self.with_children(self.tasks[-3:])))

    def with_children(self, tasks: list[str]) -> list[str]:
        """Return these tasks, and those of the agents that they called."""
        stored = list(self.world.store._tables.tasks)
        return [
            one for task in tasks for one in (task, *[row for row in stored if row.startswith(f"{task}.")])
        ]

    def create(self) -> None:
        if len(self.tasks) < 4:
            running = [process for process in self.world.processes if not process.stalled]
            process = self.dice.choice(running) if running else self.world.new_process()
            name = f"t{len(self.tasks)}"
            self.tasks.append(name)
            thread = self.dice.choice([None, "shared"])
            options = self.world.options(name)

            def make() -> Any:
                agent = self.world.agent
                return process.runner.create_task(
                    agent, "go", task_id=name, thread_id=thread, options=options
                )

            self.command("create", process, make, name)

    def about(self, rule: str, process: Process, task: str) -> None:
        runner = process.runner
        verbs: dict[str, Any] = {
            "resume": lambda: runner.resume(task),
            "race": lambda: runner.resume(task),
            "step": lambda: runner.run_step(task),
            "send": lambda: runner.send(task, "words"),
            "settle": lambda: self.settle(process, task),
            "decide": lambda: self.decide(process, task),
            "tell": lambda: self.tell(process, task),
            "undo": lambda: runner.undo_step(task, to=to, force=force),
            "fork": lambda: self.fork(process, task),
            "skip": lambda: runner.skip_step(task),
            "raise limits": lambda: runner.resume(task, options=RunOptions(limits=Limits(steps=20))),
            "watch": lambda: self.watch(process, task),
            "hand on": lambda: runner.resume(task, drive=False),
        }
        if rule == "repeat":
            self.repeat(process, task)
            return
        to, force = self.dice.choice([None, None, 0, 1]), self.dice.choice([True, False])
        verb = verbs.get(rule) or (lambda: getattr(runner, rule)(task))
        self.command(rule, process, verb, task)
        if rule == "race":
            other = self.dice.choice(self.world.processes)
            self.command("race", other, lambda: other.runner.resume(task), task)

    def repeat(self, process: Process, task: str) -> None:
        """Give one command three times, at one process and at another, as a caller does that gets no answer."""
        self.repeated += 1
        named: dict[str, Any] = {"command_id": f"c{self.repeated}", "by": "ada"}
        verbs: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            "send": lambda runner: runner.send(task, "words", **named),
            "edit": lambda runner: runner.edit_step(task, "rather this", **named),
            "pause": lambda runner: runner.pause(task, **named),
            "interrupt": lambda runner: runner.interrupt(task, **named),
            "resume": lambda runner: runner.resume(task, **named),
            "hand on": lambda runner: runner.resume(task, drive=False, **named),
            "undo": lambda runner: runner.undo_step(task, force=True, **named),
            "skip": lambda runner: runner.skip_step(task, **named),
        }
        verb, other = self.dice.choice(list(verbs.values())), self.dice.choice(self.world.processes)
        for each in (process, other, process):
            self.command("repeat", each, partial(verb, each.runner), task)

    async def settle(self, process: Process, task: str) -> None:
        """Settle a call of a task, or of one below it, which is told at either."""
        waits_for = (await process.runner.list_pending(task)).items
        for pending in [wait for wait in waits_for if wait.kind == "settlement"][:1]:
            chance = self.world.chance("settle", self.world.name(pending.task_id), pending.request_id)
            verdict = chance.choice([Happened("so"), NotHappened()])
            at = chance.choice([task, pending.task_id])
            if sum(other.request_id == pending.request_id for other in waits_for) > 1:
                at = pending.task_id  # the id alone does not tell which is meant
            self.fired["settled above a child"] += at != pending.task_id
            await process.runner.settle(at, pending.request_id, verdict)

    async def decide(self, process: Process, task: str) -> int:
        """Approve, deny or answer what a task or one below it asks for, with other arguments, or a second time.

        Return how many requests there were.
        """
        runner, root = process.runner, task
        listed = (await runner.list_pending(root)).items
        waits_for = [wait for wait in listed if wait.kind != "background"]
        for pending in waits_for:
            task = self.world.chance("at", pending.task_id, pending.request_id).choice(
                [root, pending.task_id]
            )
            if sum(other.request_id == pending.request_id for other in waits_for) > 1:
                task = pending.task_id  # the id alone does not tell which is meant
            self.fired["a child asks"] += pending.task_id != root
            self.fired["decided above a child"] += pending.task_id != task
            if pending.kind == "question":
                await self.answer(process, task, pending)
            if pending.kind == "approval":
                chance = self.world.chance("decide", self.world.name(pending.task_id), pending.request_id)
                how = chance.randrange(6)
                if how < 2:
                    await runner.deny(task, pending.request_id)
                elif how == 2:
                    is_content = pending.tool.startswith("the ")
                    edited = dict.fromkeys(pending.arguments, "edited") if is_content else {"n": 7}
                    await runner.approve(task, pending.request_id, arguments=edited)
                else:
                    scope = chance.choice(["once", "once", "task", "thread", "always"])
                    await asyncio.gather(
                        *[runner.approve(task, pending.request_id, scope=scope) for _ in range(how - 2)]
                    )
        for grant in await runner.list_grants():
            self.fired["a grant stands"] += 1
            if self.world.chance("revoke", grant.grant_id, len(waits_for)).randrange(3):
                await asyncio.gather(*[runner.revoke(grant.grant_id) for _ in range(2)])
                self.fired["a grant is revoked"] += 1
        return len(waits_for)

    async def answer(self, process: Process, task: str, asked: Pending) -> None:
        """Answer a question, now and then by what does not fit, or a second time, or differently."""
        chance = self.world.chance("answer", self.world.name(task), asked.request_id)
        value = chance.randrange(9) if asked.text.startswith("first") else chance.choice(["yes", "no"])
        if chance.randrange(4) == 0:
            with suppress(ConfigurationError):
                await process.runner.answer(task, asked.request_id, value="maybe")
                self.problems.append(f"{asked.request_id} of {task} takes an answer that does not fit")
            self.fired["answer that does not fit"] += 1
        again = [value] * chance.randrange(2)
        await asyncio.gather(
            *[process.runner.answer(task, asked.request_id, value=each) for each in (value, *again)]
        )

    async def tell(self, process: Process, task: str, *, completes: bool = False) -> None:
        """Complete calls in the background: the newest ticket or an older one, twice, differently, or by a forgery."""
        for below in [each for each in self.world.tickets if each == task or each.startswith(f"{task}.")]:
            await self.tell_of(process, below, completes=completes)

    async def tell_of(self, process: Process, task: str, *, completes: bool) -> None:
        """Do so for one task; with `completes`, all that is left."""
        for call_id in dict.fromkeys([call_id for call_id, _ in self.world.tickets[task]]):
            tickets = [ticket for other, ticket in self.world.tickets[task] if other == call_id]
            chance = self.world.chance("tell", self.world.name(task), call_id, len(tickets))
            ticket, how = chance.choice(tickets), chance.randrange(8)
            if completes and how in (1, 2):
                how = 3
            if how == 0:
                with suppress(TicketNotFound):
                    await process.runner.complete(f"forged{ticket}", "no result")
                    self.problems.append(f"a forged ticket of {task} is accepted")
                self.fired["forged ticket"] += 1
            with suppress(TicketClosed):
                if how == 1:
                    await process.runner.progress(ticket, how)
                    continue
                if how == 2:
                    with suppress(AlreadyDecided):
                        await process.runner.fail(ticket, f"{call_id} failed")
                    continue
                try:
                    await process.runner.complete(ticket, f"result of {call_id}")
                except AlreadyDecided:
                    continue
                self.completed(process, task, call_id)
                if how == 3:
                    with suppress(AlreadyDecided):
                        await process.runner.complete(ticket, "another result")
                        self.problems.append(f"{call_id} of {task} is completed twice")
                    self.fired["double completion"] += 1

    def completed(self, process: Process, task: str, call_id: str) -> None:
        """Note that a completion was acknowledged: it is never lost."""
        if not process.dead and (task, call_id) not in self.told:
            self.told.add((task, call_id))
            self.acknowledged.append(Acknowledged(task, "ticket_completed"))

    async def fork(self, process: Process, task: str) -> None:
        if len(self.tasks) < 6:
            at = self.dice.choice([None, None, 5, 9, 14])
            forked = await process.runner.fork(task, at=at, input=self.dice.choice([None, "else"]))
            self.tasks.append(forked.task_id)

    async def watch(self, process: Process, task: str) -> None:
        seen: list[tuple[int, str]] = []
        self.streams.append(Stream(task, seen))
        async for event in process.runner.handle(task).events(deltas=False):
            assert isinstance(event, e.Event)
            seen.append((event.seq, event.kind))

    # ---------------------------------------------------------------------------------------- asking

    def command(
        self, name: str, process: Process, work: Callable[[], Coroutine[Any, Any, Any]], task: str = ""
    ) -> None:
        self.world.say(f"{process}: {name} {self.world.name(task) if task else ''}")

        async def run() -> Any:
            try:
                answer = await work()
            except TreadleError as error:
                self.fired[f"{name}: {type(error).__name__}"] += 1
                self.world.say(f"{process}: {name} {task}: {error!r}")
                if isinstance(error, StoreUnavailable) and not (process.dead or self.world.trouble):
                    self.problems.append(f"{name} of {task}: {error!r}")
                return None
            if process.dead:
                return None
            kind = MADE.get(name)
            if kind and (name == "create" or (answer.complete if name == "undo" else not answer.is_last)):
                acknowledged = Acknowledged(task, kind)
                # Two callers that request the same undo at once both get an acknowledgement of the one undo.
                if name != "undo" or acknowledged not in self.acknowledged:
                    self.acknowledged.append(acknowledged)
            if name == "cancel" and answer.state == "cancelled" and task not in self.cancelled:
                self.cancelled.add(task)
                # A process that is cut off from the store learns of it later: until then it may begin reads.
                unaware = any(process.unaware for process in self.world.processes)
                self.acknowledged.append(
                    Acknowledged(task, "cancel_requested", time=0 if unaware else clock.now())
                )
                self.fired["cancel that all may know of"] += not unaware
            return answer

        self.commands.append((name, process.do(run())))

    async def wait_for_commands(self) -> None:
        """Wait until every command returned an answer or an error, or its process has crashed."""
        waiting = {task for _, task in self.commands}
        if waiting:
            await asyncio.wait(waiting, timeout=3_600)
        for name, task in self.commands:
            if not task.done():
                self.problems.append(f"{name} does not return: {task.get_stack()}")
                task.cancel()
            elif not task.cancelled() and task.exception() is not None:
                self.problems.append(f"{name}: {task.exception()!r}")
        self.commands.clear()

    # ----------------------------------------------------------------------------------------- the end

    async def rows(self) -> list[TaskRow]:
        return sorted(await all_rows(self.world.store), key=lambda row: self.world.name(row.task_id))

    async def finish_all(self) -> None:
        """Bring every task to an end in one process; that has to be possible after any story."""
        for process in list(self.world.processes):
            process.die()
        process = self.world.new_process()
        self.world.servers_last = True
        for row in await self.rows():
            self.fired[f"state {row.state}"] += 1
            task = row.task_id
            if row.parent is not None:
                self.fired["child"] += 1
                continue
            if self.dice.randrange(4) == 0:
                jump = self.dice.choice(JUMPS)
                asyncio.get_running_loop().call_later(
                    self.dice.choice([0, 1, 20]), self.world.set_clock, jump
                )
            for _ in range(80):
                result = await process.do(process.runner.result(task))
                if result.state in END_STATES:
                    break
                self.command("finish", process, partial(self.go_on, process, task, result))
                await self.wait_for_commands()
            else:
                self.problems.append(f"{task} does not come to an end: {result.state}, {result.pending}")
        for row in await self.rows():
            if row.state not in END_STATES and row.parent is not None and await self.was_reopened(row):
                # It was undone after its parent had given it up, so nothing waits for its end.
                self.fired["child given up"] += 1
                await process.do(process.runner.cancel(row.task_id))

    async def was_reopened(self, row: TaskRow) -> bool:
        events = (await journal_of(self.world.store, row)).events
        return any(isinstance(event, e.TaskReopened) for event in events)

    async def go_on(self, process: Process, task: str, result: Any) -> None:
        runner = process.runner
        below = [wait.request_id for wait in result.pending if wait.kind == "subagent"]
        with suppress(AlreadyDecided):
            await self.tell(process, task, completes=True)
        timers = [wait for wait in result.pending if wait.due is not None]
        for child in below:
            with suppress(TaskNotFound):  # the parent stopped before it made the task
                timers += [wait for wait in (await runner.result(child)).pending if wait.due is not None]
        if timers:
            # by the clock as it stands, which may have been set
            wanted = (await self.world.store.row(timers[0].task_id or task)).due_at
            due = ((wanted or timers[0].due) - self.world.system()) / 1e6
            await asyncio.sleep(min(max(0.0, due), LONGEST_WAIT))
        elif any(wait.kind not in ("background", "undo") for wait in result.pending):
            await self.settle(process, task)
            with suppress(AlreadyDecided):
                if await self.decide(process, task) or not below:
                    return  # else the request has expired: a resume goes on without it
        try:
            options = RunOptions(limits=Limits(steps=30, tool_calls=60, model_calls=60), on_limit="fail")
            await runner.resume(task, options=options)
        except TreadleError:
            await runner.undo_step(task, force=True)

    async def in_the_journal(self) -> list[Acknowledged]:
        """Return what was acknowledged and has to be in the journals of the tasks that are there.

        A completion that no driver reads in time may meet an expiry or a cancel before it: it is refused on record.
        """
        left = [item for item in self.acknowledged if await self.exists(item.task)]
        for row in await self.rows():
            for event in (await journal_of(self.world.store, row)).events:
                item = Acknowledged(row.task_id, "ticket_completed")
                if isinstance(event, e.CommandRejected) and event.command == "complete" and item in left:
                    left.remove(item)
        return left

    async def audit(self) -> None:
        world = self.world
        requests: dict[str, list[Any]] = {}
        for request in world.model.scripted.requests:
            requests.setdefault(request.task_id, []).append(request.messages)
        evidence = Evidence(
            # Without times: the clock was set, so what is earlier in the world may be later in a journal.
            ledger=[replace(entry, time=0) for entry in world.ledger],
            requests=requests,
            acknowledged=await self.in_the_journal(),
            streams=self.streams,
            ended=True,
            clocks_agree=not world.was_set,
        )
        violations: list[Violation] = await audit_store(world.store, evidence)
        for task in self.cancelled:
            entries = [entry for entry in world.ledger if f"{entry.task}.".startswith(f"{task}.")]
            violations += stopped_for_good(
                task, [item for item in self.acknowledged if item.task == task], entries
            )
        self.problems += [*map(str, violations), *world.early]
        self.fired["fenced commit"] += world.store.fenced
        for row in await self.rows():
            carried_out: Counter[str] = Counter()
            for event in (await journal_of(world.store, row)).events:
                self.fired[f"event {event.kind}"] += 1
                if event.seq > row.base_seq and (getattr(event, "inbox", None) or "").startswith("command-"):
                    carried_out[event.inbox.rpartition("-")[2]] += 1  # type: ignore[attr-defined]
                if isinstance(event, e.ToolEnded):
                    self.fired[f"call {event.outcome}"] += 1
            self.fired["repeated command carried out"] += len(carried_out)
            self.problems += [
                f"command {name} of {row.task_id} was carried out {times} times"
                for name, times in carried_out.items()
                if times > 1
            ]

    async def exists(self, task: str) -> bool:
        return any(row.task_id == task for row in await self.rows())

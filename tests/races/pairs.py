"""Pairs of verbs that begin within a millisecond of each other, and whether their answers are true.

The first of each pair stops the task (cancel, pause, interrupt); the second drives it, sends to it or undoes a step.
What must hold, by the journal and the row as they are read afterwards:

- the verb returns within 2 seconds;
- cancel: the task has ended, and the returned state is the state it ended in;
- pause and interrupt: the requested state is returned and the journal holds the request; or the task ended in the
  returned state; or the journal lifts the request, and the returned state is the next state it stopped in;
- afterwards the task has stopped: no owner, nothing unread, its children ended if it was cancelled.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from dataclasses import asdict, dataclass, field
from itertools import count, cycle, product
from typing import Self

from tests.races.acts import AGENTS, HANGS, Act, Outcome, Side, leave_behind
from treadle import Runner
from treadle.core import events as e
from treadle.core.events import END_STATES
from treadle.ports import JournalStore, TaskFilter
from treadle.testing.audit import audit_store, journal_of

STOPS = ("cancel", "pause", "interrupt")
OTHERS = ("run", "run_step", "resume", "send", "undo", "adopt")
APART = 0.001
"""Seconds by which the two begin apart, at most."""

SOON = 2.0
"""Seconds within which a stop is reached, on a machine that is not busy with other things."""

BATCH = 24

ASKED: dict[str, type[e.Event]] = {
    "cancel": e.CancelRequested,
    "pause": e.PauseRequested,
    "interrupt": e.InterruptRequested,
}
REACHED = {"cancel": "cancelled", "pause": "paused", "interrupt": "interrupted"}
EXPECTED = frozenset(
    {"TaskBusy", "TaskParked", "TaskFinished", "UndoUnfinished", "StepNotFound", "ChildTask"}
)
"""What the verb beside a stop may raise."""


@dataclass(slots=True)
class Pair:
    """One race."""

    stop: str
    other: str
    agent: str
    task: str
    gap: float
    """seconds from the stop to the other verb; below 0 the other comes first"""

    behind: bool
    """whether a drive is under way already"""

    sides: tuple[int, int]
    outcomes: list[Outcome] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def apart(self) -> float:
        first, second = self.outcomes[:2]
        return abs(first.began - second.began)

    def __str__(self) -> str:
        outcomes = ", ".join(
            f"{outcome.verb}: {outcome.raised or outcome.state}" for outcome in self.outcomes
        )
        where = "one process" if self.sides[0] == self.sides[1] else "two processes"
        problems = "; ".join(self.wrong)
        return f"{self.task} ({self.agent}, {where}, {self.gap * 1e3:+.2f} ms) {outcomes}: {problems}"


@dataclass(slots=True)
class Report:
    """What came of the races."""

    pairs: int = 0
    late: int = 0
    """pairs that began further apart than they were to: they are judged too, and do not count"""

    kinds: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    wrong: list[Pair] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong and not self.violations

    def __str__(self) -> str:
        fewest = min(self.kinds.values(), default=0)
        lines = [
            f"{self.pairs} pairs within {APART * 1e3:g} ms, {fewest} or more of each of {len(self.kinds)} kinds",
            f"{self.late} pairs further apart; the slowest stop took {self.slowest:.2f} s",
            "told: " + ", ".join(f"{state} {number}" for state, number in self.told.most_common()),
            f"{len(self.wrong)} pairs with something wrong, {len(self.violations)} violations of the auditor",
            *[str(pair) for pair in self.wrong[:12]],
            *self.violations[:12],
        ]
        return "\n".join(lines)


class Far:
    """A side in a process of its own."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}

    async def __aenter__(self) -> Self:
        command = [sys.executable, "-m", "tests.races.acts", self._store]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"up\n", "the second process did not begin"
        self._listening = asyncio.ensure_future(self._listen(self._process.stdout))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 20)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._listening.cancel()

    async def _listen(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            number, outcome = json.loads(line)
            self._waiting.pop(number).set_result(Outcome(**outcome))

    async def do(self, act: Act) -> Outcome:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([number, asdict(act)]).encode() + b"\n")
        return await asyncio.wait_for(answer, 3 * HANGS)


class Races:
    """Pairs of verbs on the tasks of one store.

    Args:
        runner: whose store it is; a store's URL makes the second side a process of its own.
        seed: what all chance comes from; the machine adds its own.
        second: URL of the store for the second process, None for one process.
        soon: seconds within which a stop is to be reached.
        only: these verbs alone, such as `cancel` and `run_step`; all others of the same sort by default.
    """

    def __init__(
        self,
        runner: Runner,
        seed: int,
        second: str | None = None,
        *,
        soon: float = SOON,
        only: Collection[str] = (),
    ) -> None:
        self._soon = soon
        self._runner = runner
        self._dice = random.Random(seed)
        self._seed = seed
        self._second = second
        self._far: Far | None = None
        self._near = Side(runner)
        stops = [verb for verb in STOPS if verb in only] or STOPS
        kinds = list(product(stops, [verb for verb in OTHERS if verb in only] or OTHERS))
        self._dice.shuffle(kinds)
        self._kinds = cycle(kinds)
        self._number = count()
        self.report = Report()

    async def run(self, pairs: int, seconds: float = 1e9) -> Report:
        """Run so many pairs, or for so many seconds."""
        end = time.monotonic() + seconds
        await self._near.open()
        if self._second is None:
            await self._run(pairs, end)
        else:
            async with Far(self._second) as self._far:
                await self._run(pairs, end)
        violations = await audit_store(self._runner.store)
        self.report.violations = [str(violation) for violation in violations]
        return self.report

    async def _run(self, pairs: int, end: float) -> None:
        report = self.report
        while report.pairs < pairs and time.monotonic() < end:
            batch = [self._draw() for _ in range(min(BATCH, pairs - report.pairs))]
            await asyncio.gather(*[self._prepare(pair) for pair in batch])
            for pair in batch:
                await self._race(pair)
            await asyncio.gather(*[self._judge(pair) for pair in batch])

    def _draw(self) -> Pair:
        dice = self._dice
        stop, other = next(self._kinds)
        sides = (0, 0) if self._far is None else dice.choice(((0, 1), (1, 0)))
        agent = "boss" if dice.random() < 0.2 and other != "undo" else "clerk"
        on_child = other == "send" and dice.random() < 0.7
        gap = dice.uniform(-APART, APART)
        return Pair(stop, other, agent, f"race{self._seed}-{next(self._number)}", gap, on_child, sides)

    async def _prepare(self, pair: Pair) -> None:
        runner, agent = self._runner, AGENTS[pair.agent]
        await runner.create_task(agent, "Go", task_id=pair.task)
        steps = self._dice.choice((0, 0, 1, 2))
        if pair.other == "undo":
            steps = max(steps, 1)
        if pair.agent == "boss":
            steps = 0
        for _ in range(steps):
            await runner.run_step(pair.task)
        if pair.other == "adopt":
            await leave_behind(runner.store, pair.task)
        elif pair.other in ("resume", "run_step") and self._dice.random() < 0.3:
            await runner.interrupt(pair.task)

    async def _race(self, pair: Pair) -> None:
        sides = [self._near if side == 0 or self._far is None else self._far for side in pair.sides]
        lead = 0.003 + abs(pair.gap) + (0.004 if pair.behind else 0.0)
        at = time.monotonic() + lead
        first = self._dice.uniform(0.0, 0.006)
        acts = [sides[0].do(Act(pair.stop, pair.task, pair.agent, at + max(0.0, -pair.gap)))]
        acts.append(sides[1].do(Act(pair.other, pair.task, pair.agent, at + max(0.0, pair.gap))))
        if pair.behind:
            acts.append(self._dice.choice(sides).do(Act("resume", pair.task, pair.agent, at - first)))
        pair.outcomes = list(await asyncio.gather(*acts))

    async def _judge(self, pair: Pair) -> None:
        report, stop = self.report, pair.outcomes[0]
        pair.wrong += [text async for text in problems_of(self._runner.store, pair, self._soon)]
        if pair.wrong:
            report.wrong.append(pair)
        report.told[f"{stop.verb} {stop.raised or stop.state}"] += 1
        report.slowest = max(report.slowest, stop.ended - stop.began)
        if pair.apart <= APART * 1.5:
            report.pairs += 1
            report.kinds[f"{pair.stop} {pair.other}"] += 1
        else:
            report.late += 1


async def problems_of(store: JournalStore, pair: Pair, soon: float) -> AsyncIterator[str]:
    """Yield each contradiction to the answers of a pair's callers, and each task left in a wrong state."""
    stop, sent = pair.outcomes[0], pair.outcomes[1:]
    for other in sent:
        if other.raised is not None and other.raised not in EXPECTED:
            yield f"{other.verb} raised {other.raised}"
    row = await store.row(pair.task)
    events = (await journal_of(store, row)).events
    if stop.raised is not None:
        yield f"{stop.verb} raised {stop.raised}"
    elif (text := contradiction(stop, row.state, events)) is not None:
        yield text
    if stop.ended - stop.began > soon:
        yield f"{stop.verb} took {stop.ended - stop.began:.2f} s"
    below = await store.rows(TaskFilter(parent=pair.task))
    for candidate in (row, *below):
        if candidate.driver is not None and not await _is_released(store, candidate.task_id):
            yield f"{candidate.task_id} still has an owner"
        if unread := await store.inbox(candidate.task_id):
            yield f"{candidate.task_id} has unread mail: {[item.kind for item in unread]}"
        if pair.stop == "cancel" and candidate.state not in END_STATES:
            yield f"{candidate.task_id} is {candidate.state} after its cancel"


async def _is_released(store: JournalStore, task_id: str) -> bool:
    """Return whether an owner that looks at the task for a last time lets it go."""
    end = time.monotonic() + HANGS
    while (await store.row(task_id)).driver is not None:
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True


def contradiction(told: Outcome, state: str, events: list[e.Event]) -> str | None:
    """Return how a journal contradicts the answer to the caller of a stop, None if it does not."""
    verb = told.verb
    ends = [event.state for event in events if isinstance(event, e.TaskEnded)]
    if told.state in END_STATES:
        return None if told.state in ends else f"{verb} was told {told.state} and the task never was"
    if verb == "cancel":
        return f"cancel was told {told.state}, and the task is {state}"
    requested_at = next((index for index, event in enumerate(events) if type(event) is ASKED[verb]), None)
    if requested_at is None:
        return f"{verb} was told {told.state} and was never recorded"
    if told.state == REACHED[verb]:
        return None
    lifted = next(
        (p for p, event in enumerate(events) if p > requested_at and type(event) is e.Resumed), None
    )
    if lifted is None:
        return f"{verb} was told {told.state}, the task is {state}, and nothing lifted the {verb}"
    if not runs(events[:lifted]):
        return f"{verb} was told {told.state} although nothing ran when it was lifted"
    return None if told.state == state else f"{verb} was told {told.state} and the task is {state}"


def runs(events: list[e.Event]) -> set[tuple[str, str | None]]:
    """Return the calls and requests that have begun and not ended."""
    begun: set[tuple[str, str | None]] = set()
    for event in events:
        if isinstance(event, (e.ModelStarted, e.ToolStarted)):
            begun.add((event.step, event.call))
        elif isinstance(event, (e.ModelReturned, e.ModelFailed, e.ModelStopped, e.ToolEnded, e.ToolStopped)):
            begun.discard((event.step, event.call))
    return begun

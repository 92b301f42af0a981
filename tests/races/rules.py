"""Pairs of verbs that a rule lets only one of, or both in an order: begun at once, in two processes or in one.

Each rule prepares a task, and says afterwards, by the store and what the callers were told, whether the rule was kept.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.races.acts import AGENTS, Act, Outcome, Side
from tests.races.pairs import Far
from treadle import Breakpoint, Runner, RunOptions, RunResult
from treadle.core import events as e
from treadle.errors import TaskNotFound
from treadle.ports import TaskFilter
from treadle.testing.audit import audit_store, journal_of

APART = 0.004
"""Seconds by which the two begin apart, at most: about what a step takes."""


@dataclass(slots=True)
class Told:
    """A task after a race, and what the two callers were told."""

    runner: Runner
    task: str
    first: Outcome
    second: Outcome

    async def events(self) -> list[e.Event]:
        store = self.runner.store
        return (await journal_of(store, await store.row(self.task))).events

    async def count(self, kind: type[e.Event]) -> int:
        return sum(isinstance(event, kind) for event in await self.events())

    async def is_there(self) -> bool:
        try:
            await self.runner.store.row(self.task)
        except TaskNotFound:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Rule:
    """Two verbs, what the second may raise beside the first, and what holds afterwards."""

    first: str
    second: str
    agent: str
    prepare: Callable[[Runner, str, str], Awaitable[object]]
    kept: Callable[[Told], Awaitable[bool]]
    may_raise: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.first} beside {self.second}"


async def created(runner: Runner, agent: str, task: str) -> None:
    await runner.create_task(AGENTS[agent], "Go", task_id=task, thread_id=task)


async def before_its_call(runner: Runner, agent: str, task: str) -> None:
    options = RunOptions(break_on=[Breakpoint(before_tool="echo")])
    result = await runner.run(AGENTS[agent], "Go", task_id=task, thread_id=task, options=options)
    assert result.state == "paused", result


async def in_doubt(runner: Runner, agent: str, task: str) -> None:
    result = await runner.run(AGENTS[agent], "Go", task_id=task, thread_id=task)
    assert result.state == "waiting", result


async def one_step_done(runner: Runner, agent: str, task: str) -> None:
    await created(runner, agent, task)
    await runner.run_step(task)


async def nothing(runner: Runner, agent: str, task: str) -> None:
    """Leave the task to be made."""


# ------------------------------------------------------------------------------- what holds afterwards


async def is_made_once(told: Told) -> bool:
    return await told.count(e.TaskCreated) == 1 and (await told.runner.resume(told.task)).state == "completed"


async def is_forked_once(told: Told) -> bool:
    forks = await told.runner.store.rows(TaskFilter(base=told.task))
    return [fork.task_id for fork in forks] == [f"{told.task} forked"]


async def is_edited_once(told: Told) -> bool:
    """Of two who edit what both saw, one does, and the other is told."""
    refused = [outcome for outcome in (told.first, told.second) if outcome.raised is not None]
    return len(refused) == 1 and await told.count(e.InputEdited) == 1


async def is_undone_once(told: Told) -> bool:
    """Both are told that the undo is complete, and one step was taken back."""
    states = (told.first.state, told.second.state)
    return states == ("True", "True") and await told.count(e.UndoRequested) == 1


async def is_told_once(told: Told) -> bool:
    return await told.count(e.InputReceived) == 1


async def is_resumed_once(told: Told) -> bool:
    """It goes on to its end, by the adopter of the process that handed it on, or by any later driver."""
    row = await told.runner.store.row(told.task)
    is_to_go_on = bool(row.due_at) or row.driver is not None or row.state == "completed"
    result = await told.runner.resume(told.task)
    return is_to_go_on and await told.count(e.Resumed) == 1 and result.state == "completed"


async def is_whole_or_gone(told: Told) -> bool:
    """A thread that was deleted has no task, thread or message left; one that was not has its task whole."""
    if told.first.raised is None:
        left = await told.runner.store.rows(TaskFilter(thread_id=told.task))
        return not await told.is_there() and not left and not tuple(await told.runner.get_thread(told.task))
    return told.second.state == "completed" and await told.is_there()


async def is_settled_once(told: Told) -> bool:
    """One verdict stands and is carried out; the caller of the other one is told."""
    verdicts = [event.verdict for event in await told.events() if isinstance(event, e.OutcomeSettled)]
    refused = [outcome.verb for outcome in (told.first, told.second) if outcome.raised == "AlreadyDecided"]
    if len(verdicts) != 1 or refused != [
        {"happened": "not happened", "not_happened": "happened"}[verdicts[0]]
    ]:
        return False
    result = await told.runner.resume(told.task)
    return outputs(result) == ["told" if verdicts[0] == "happened" else "done again"]


async def goes_on_from_its_verdict(told: Told) -> bool:
    result = await told.runner.resume(told.task)
    return (
        told.first.raised is None
        and await told.count(e.OutcomeSettled) == 1
        and (result.state, outputs(result)) == ("completed", ["told"])
    )


async def is_called_as_it_was_told(told: Told) -> bool:
    """A call runs with the edited arguments if its editor was told so, and its change of the state is that call's."""
    result = await told.runner.resume(told.task)
    text = "edited" if told.first.raised is None else "asked"
    return (result.state, outputs(result), result.extra_state) == ("completed", [text], {"echoed": text})


async def is_delivered_once(told: Told) -> bool:
    """A message that was accepted is in the journal once, and no message lies unread beside an end."""
    result = await told.runner.resume(told.task) if told.first.raised is None else None
    received = await told.count(e.InputReceived)
    unread = await told.runner.store.inbox(told.task)
    return (
        not unread
        and received == (told.first.raised is None)
        and (result is None or result.state == "completed")
    )


async def has_the_state_of_its_steps(told: Told) -> bool:
    """What an undone step changed is gone until it runs again; the auditor adds the changes up."""
    if await told.runner.resume(told.task) is None:
        return False
    return (await told.runner.get_task(told.task)).extra_state == {"echoed": "asked"}


def outputs(result: RunResult) -> list[object]:
    return [call.output for call in result.tool_executions]


BUSY = frozenset({"TaskBusy"})
RULES = (
    Rule("create", "create", "clerk", nothing, is_made_once),
    Rule("create", "run", "clerk", nothing, is_made_once),
    Rule("submit", "submit", "clerk", nothing, is_made_once),
    Rule("submit", "run", "clerk", nothing, is_made_once),
    Rule("fork", "fork", "clerk", one_step_done, is_forked_once),
    Rule(
        "edit what was created",
        "edit what was created",
        "clerk",
        created,
        is_edited_once,
        frozenset({"TaskBusy", "TaskMoved"}),
    ),
    Rule("the same undo", "the same undo", "clerk", one_step_done, is_undone_once),
    Rule("the same message", "the same message", "clerk", one_step_done, is_told_once),
    Rule("the same hand on", "the same hand on", "clerk", one_step_done, is_resumed_once),
    Rule(
        "delete_thread", "resume", "clerk", created, is_whole_or_gone, frozenset({"TaskBusy", "TaskNotFound"})
    ),
    Rule("happened", "not happened", "doubter", in_doubt, is_settled_once, frozenset({"AlreadyDecided"})),
    Rule("happened", "resume", "doubter", in_doubt, goes_on_from_its_verdict, BUSY),
    Rule(
        "edit_call",
        "resume",
        "echo",
        before_its_call,
        is_called_as_it_was_told,
        frozenset({"TaskBusy", "CallNotFound", "TaskFinished"}),
    ),
    Rule("send", "resume", "clerk", one_step_done, is_delivered_once, frozenset({"TaskFinished"})),
    Rule(
        "undo",
        "resume",
        "echo",
        one_step_done,
        has_the_state_of_its_steps,
        frozenset({"TaskBusy", "UndoUnfinished", "StepNotFound", "AlreadyFinalized"}),
    ),
)


async def race(runner: Runner, times: int, seed: int, second: str | None = None) -> list[str]:
    """Race each rule so many times; return what went wrong.

    Args:
        runner: of the first caller.
        times: how often, for each rule.
        seed: what all chance comes from; the machine adds its own.
        second: URL of the store for a second process; None lets one process make both calls.
    """
    near, chance = Side(runner), random.Random(seed)
    await near.open()
    if second is None:
        return await _race(near, near, times, chance)
    async with Far(second) as far:
        return await _race(near, far, times, chance)


async def _race(near: Side, far: Side | Far, times: int, chance: random.Random) -> list[str]:
    wrong: list[str] = []
    for number in range(times):
        for rule in RULES:
            task = f"{rule} {number} {chance.random()}"
            await rule.prepare(near.runner, rule.agent, task)
            sides = chance.choice(((near, far), (far, near)))
            at, gap = time.monotonic() + 0.003, chance.uniform(-APART, APART)
            begins = (at + max(0.0, -gap), at + max(0.0, gap))
            outcomes = await asyncio.gather(
                sides[0].do(Act(rule.first, task, rule.agent, begins[0])),
                sides[1].do(Act(rule.second, task, rule.agent, begins[1])),
            )
            told = Told(near.runner, task, *outcomes)
            raised = {outcome.raised for outcome in outcomes} - {None} - rule.may_raise
            if raised or not await rule.kept(told):
                wrong.append(f"{task}: {outcomes}")
    return wrong + [str(violation) for violation in await audit_store(near.runner.store)]

"""A verb reads a task and then acquires it. A change in between must not make it do what it would have refused.

Each verb is called while another runner does something to the same task just before this one owns it, writes to it or
deletes it. What both were told, and how the task stands, has to be as if one had come after the other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from treadle import (
    Agent,
    Happened,
    Node,
    NotHappened,
    Pipeline,
    Runner,
    ScriptedModel,
    StepContext,
    Text,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.errors import AlreadyDecided, TaskFinished, TreadleError
from treadle.models import call, fail, text
from treadle.ports import InboxItem
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

Act = Callable[..., Awaitable[Any]]


class Crossroads(MemoryStore):
    """A store in which another caller acts just before the first claim, post or delete."""

    other: Act | None = None

    async def _cross(self) -> None:
        other, self.other = self.other, None
        if other is not None:
            await other()

    async def claim(self, task_id: str, *, enter: bool = False) -> Any:
        await self._cross()
        return await super().claim(task_id, enter=enter)

    async def post(self, task_id: str, item: Any) -> bool:
        await self._cross()
        return await super().post(task_id, item)

    async def delete(self, task_id: str) -> None:
        await self._cross()
        await super().delete(task_id)


def take_back(call: ToolCall, ctx: Any) -> None:
    """Nothing was done."""


@tool(undo=take_back)
async def book() -> str:
    """Book a room."""
    return "booked"


def porter(*then: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("book"), *then]), name="porter", tools=[book])


AGENTS = {"well": porter(text("One."), text("Two."), text("Three.")), "ill": porter(fail(400))}

ACTS: dict[str, Act] = {
    "cancel": lambda runner: runner.cancel("t"),
    "resume": lambda runner: runner.resume("t"),
    "send": lambda runner: runner.send("t", "Hello?"),
    "undo": lambda runner: runner.undo_step("t"),
    "edit": lambda runner: runner.edit_step("t", "Other input"),
    "finalize": lambda runner: runner.finalize("t"),
    "delete": lambda runner: runner.delete_task("t"),
}
VERBS: dict[str, Act] = {
    **ACTS,
    "step": lambda runner: runner.run_step("t"),
    "skip": lambda runner: runner.skip_step("t"),
}


async def begin(runner: Runner, agent: Agent[Any], state: str) -> None:
    await runner.create_task(agent, "Hi", task_id="t")
    await runner.run_step("t")
    if state == "answered":
        await runner.run_step("t")
    elif state == "failed":
        await runner.resume("t")
    elif state == "paused":
        await runner.pause("t")


async def answer_of(work: Awaitable[Any]) -> str:
    """Return a caller's answer: a state, whether an undo is complete, or a Treadle error; others are raised."""
    try:
        got = await work
    except TreadleError as error:
        return type(error).__name__
    return str(getattr(got, "state", getattr(got, "complete", None)))


async def cross(state: str, act: str, verb: str, moment: str) -> tuple[str, ...]:
    """Return both answers and the state of the task."""
    store, agent = Crossroads(), AGENTS["ill" if state in ("failed", "doomed") else "well"]
    here, there = Runner(store, agents=[agent]), Runner(store, agents=[agent])
    run = VERBS[verb] if verb != "run" else lambda runner: runner.run(agent, "Hi", task_id="t")
    await begin(here, agent, state)
    theirs = "it did not come to that"

    async def other() -> None:
        nonlocal theirs
        theirs = await answer_of(ACTS[act](there))

    if moment == "before":
        await other()
    elif moment == "between":
        store.other = other
    ours = await answer_of(run(here))
    if moment == "after":
        await other()
    left = await answer_of(here.get_task("t"))
    if left == "TaskNotFound":
        return theirs, ours, left
    journal = [event.kind async for event in here.handle("t").events(deltas=False)]
    thread = await here.get_thread((await here.get_task("t")).thread_id)
    return theirs, ours, left, f"{journal.count('task_ended')} ends", f"{len(thread)} messages"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", [*VERBS, "run"])
async def test_a_verb_of_another_driver_just_before_a_claim_counts_as_before_or_after(verb: str) -> None:
    crossed = 0
    for state in ("stepped", "doomed", "answered", "paused", "failed"):
        for act in ACTS:
            outcome = await cross(state, act, verb, "between")
            if outcome[0] == "it did not come to that" or (verb, act) == ("run", "delete"):
                continue  # a caller that resumes a deleted task gets TaskNotFound
            crossed += 1
            if outcome != await cross(state, act, verb, "before"):
                assert outcome == await cross(state, act, verb, "after"), (state, act)
    assert crossed, "something can come between"


async def test_of_two_different_settlements_of_a_call_at_once_one_is_refused() -> None:
    store = Crossroads()

    @tool
    async def pay() -> str:
        """Pay."""
        await asyncio.sleep(60)
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), text("Done.")]), name="payer", tools=[pay])
    here, there = Runner(store, agents=[agent]), Runner(store, agents=[agent])
    handle = await here.start(agent, "Pay")
    async for event in handle.events(deltas=False):
        if event.kind == "tool_started":
            break
    await handle.interrupt()
    call_id = (await handle.result()).pending[0].request_id
    store.other = lambda: there.settle(handle.task_id, call_id, NotHappened())
    with pytest.raises(AlreadyDecided):
        await here.settle(handle.task_id, call_id, Happened("paid"))
    await here.settle(handle.task_id, call_id, NotHappened())  # the same verdict again says nothing new


@tool(timeout=0.01)
async def doubt(ctx: ToolContext[Any]) -> str:
    """Take too long the first time: whether it took effect is not known."""
    if ctx.attempt == 1:
        await asyncio.sleep(60)
    return "done again"


@pytest.mark.parametrize("verdict", [Happened("told"), NotHappened()], ids=["other", "same"])
async def test_a_settlement_behind_another_that_drove_the_task_to_its_end_is_told_what_was_settled(
    verdict: Happened | NotHappened,
) -> None:
    store = Crossroads()
    agent = Agent(ScriptedModel([call("doubt"), text("Done.")]), name="doubter", tools=[doubt])
    here, there = Runner(store, agents=[agent]), Runner(store, agents=[agent])
    assert (await here.run(agent, "Go", task_id="t")).state == "waiting"

    async def settle_and_drive() -> None:
        await there.settle("t", "s1-0", NotHappened())
        assert (await there.resume("t")).state == "completed"

    store.other = settle_and_drive
    if isinstance(verdict, NotHappened):
        await here.settle("t", "s1-0", verdict)
    else:
        with pytest.raises(AlreadyDecided, match="not_happened"):
            await here.settle("t", "s1-0", verdict)
    assert (await here.result("t")).tool_executions[0].output == "done again"


@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_a_decision_behind_another_that_drove_the_task_to_its_end_is_told_what_was_decided(
    word: str,
) -> None:
    store = Crossroads()

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), text("Done.")]), name="payer", tools=[pay])
    here, there = Runner(store, agents=[agent]), Runner(store, agents=[agent])
    assert (await here.run(agent, "Pay", task_id="t")).state == "waiting"

    async def approve_and_drive() -> None:
        await there.approve("t")
        assert (await there.resume("t")).state == "completed"

    store.other = approve_and_drive
    if word == "approve":
        await here.approve("t", "s1-0-ask1")
    else:
        with pytest.raises(AlreadyDecided, match="was approved already"):
            await here.deny("t", "s1-0-ask1")


async def test_an_edit_returns_the_step_that_was_edited_also_when_the_task_is_cancelled_right_after() -> None:
    store, agent = MemoryStore(), AGENTS["well"]
    runner = Runner(store, agents=[agent])
    await runner.create_task(agent, "Hi", task_id="t")
    await store.post("t", InboxItem("c", "cancel", {}, 0))
    assert (await runner.edit_step("t", "Other input")).input == (Text("Other input"),)
    assert (await runner.get_task("t")).state == "cancelled"


async def test_a_failed_step_of_a_cancelled_task_cannot_be_skipped() -> None:
    async def fails(ctx: StepContext) -> None:
        raise ValueError("no")

    async def waits(ctx: StepContext) -> None:
        await asyncio.sleep(60)

    agent = Agent(
        AGENTS["well"].model, name="both", worker=Pipeline([Node("a", run=fails), Node("b", run=waits)])
    )
    runner = Runner("memory:", agents=[agent])
    handle = await runner.start(agent, "Go")
    async for event in handle.events(deltas=False):
        if event.kind == "step_failed":
            break
    await handle.cancel()
    with pytest.raises(TaskFinished):
        await runner.skip_step(handle.task_id)


async def test_a_task_deleted_and_created_again_elsewhere_is_another_task() -> None:
    store, agent = MemoryStore(), AGENTS["well"]
    here, there = Runner(store, agents=[agent]), Runner(store, agents=[agent])
    for known_state in ("created", "completed"):
        await here.create_task(agent, "Hi", task_id="t")
        if known_state == "completed":
            await here.run(agent, "Hi", task_id="t")
        assert (await here.get_task("t")).state == known_state
        await there.delete_thread((await there.get_task("t")).thread_id)
        await there.create_task(agent, "Hi again", task_id="t")
        assert (await here.result("t")).state == "created"
        assert (await here.get_upcoming_steps("t"))[0].input[0].text == "Hi again"
        await there.run(agent, "Hi again", task_id="t")
        assert (await here.result("t")).messages[0].text == "Hi again"
        await there.delete_thread((await there.get_task("t")).thread_id)


class Glance(MemoryStore):
    """A store in which another driver owns a task during the first attempt to claim it."""

    other: Runner | None = None

    async def claim(self, task_id: str, *, enter: bool = False) -> Any:
        other, self.other = self.other, None
        if other is None:
            return await super().claim(task_id, enter=enter)
        async with other._driver.ownership.acquire(task_id):
            return await super().claim(task_id, enter=enter)


async def test_a_task_that_another_driver_owned_for_a_moment_is_resumed_all_the_same() -> None:
    store = Glance()
    async with Runner(store, agents=[AGENTS["well"]]) as runner, Runner(store) as other:
        task = await runner.create_task(AGENTS["well"], "A room, please")
        store.other = other
        assert (await runner.resume(task)).state == "completed"

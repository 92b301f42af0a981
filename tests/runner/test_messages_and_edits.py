"""Messages, edits and settlements that a task accepts, and those that come too late: a refusal changes nothing."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, Ledger, calculator, sayer
from tests.runner.acts import kinds, roles_and_texts
from treadle import (
    Agent,
    Breakpoint,
    Runner,
    RunOptions,
    ScriptedModel,
    tool,
)
from treadle.core.codec import encode_part
from treadle.core.messages import Text
from treadle.errors import (
    CallNotFound,
    ConfigurationError,
    IrreversibleStep,
    TaskFinished,
    UndoUnfinished,
)
from treadle.llm.scripted import call, fail
from treadle.ports import Commit, CommitDone, InboxItem
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

FIRST_TOOL = RunOptions(break_on=[Breakpoint(before_tool="*")])


async def unknown_payment(runner: Runner, **how: Any) -> Any:
    """A task that waits for a settlement of whether it has paid."""
    gate = Gate("pay", **how)
    agent = Agent(ScriptedModel([call("pay"), "done"]), name="payer", tools=[gate.tool])
    handle = await runner.start(agent, "Pay.")
    await gate.entered.wait()
    await handle.interrupt()
    gate.let_go.set()
    assert (await runner.resume(handle.task_id)).state == "waiting"
    return handle


async def stuck_undo(runner: Runner) -> Any:
    """Return a task whose undo stopped at a compensation that failed."""
    ledger = Ledger(lambda entry: entry.startswith("unbook"))
    task = await runner.create_task(ledger.agent(call("book", what="a"), "done"), "?")
    await runner.run_step(task)
    assert not (await runner.undo_step(task)).complete
    return task


def left(kind: str, **data: Any) -> InboxItem:
    """A command whose sender crashed just after it was posted."""
    return InboxItem(f"left-{kind}", kind, data, 1)


async def test_only_a_call_that_has_not_begun_can_be_edited(runner: Runner) -> None:
    handle = await unknown_payment(runner)
    for name in ("s1-0", "s9-0"):
        with pytest.raises(CallNotFound, match=f"no call '{name}' that has not begun"):
            await runner.edit_call(handle.task_id, name, {})
    with pytest.raises(ConfigurationError, match="arguments must be a dict"):
        await runner.edit_call(handle.task_id, "s1-0", "x")  # type: ignore[arg-type]


async def test_nothing_is_edited_or_skipped_while_an_undo_is_under_way(runner: Runner) -> None:
    task = await stuck_undo(runner)
    events = await kinds(runner, task)
    with pytest.raises(UndoUnfinished):
        await runner.edit_step(task, "other input")
    with pytest.raises(UndoUnfinished):
        await runner.edit_call(task, "s1-0", {})
    with pytest.raises(UndoUnfinished):
        await runner.skip_step(task)
    assert await kinds(runner, task) == events


@pytest.mark.parametrize("verb", ["edit_step", "run_step", "finalize"])
async def test_an_unread_settlement_ends_the_undo_before_the_next_verb(runner: Runner, verb: str) -> None:
    """The caller that settled the compensation crashed before it was carried out: nothing else is waited for."""
    entered = asyncio.Event()

    async def hang(made: Any, ctx: Any) -> None:
        entered.set()
        await asyncio.sleep(30)

    @tool(undo=hang)
    async def book() -> str:
        """Book."""
        return "booked"

    owned: list[bool] = []

    def reply(request: Any) -> Any:
        owned.append(runner._driver.owned.is_owned(request.task_id))
        return ["Hello.", call("book"), "done"][request.turn]

    agent = Agent(ScriptedModel(reply), name="clerk", tools=[book])
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.run_step(task, input="Book.")
    undo = asyncio.ensure_future(runner.undo_step(task))
    await entered.wait()
    undo.cancel()
    await asyncio.wait([undo])
    assert not (await runner.undo_step(task)).complete
    await runner.store.post(task.task_id, left("settle", request_id="s2-0-undo", verdict="happened"))
    if verb == "edit_step":
        with pytest.raises(TaskFinished, match="has answered"):
            await runner.edit_step(task, "again")
    elif verb == "run_step":
        assert (await runner.run_step(task, input="Book it.")).step.index == 2
        assert owned == [True] * 3, "its driver owns it, also after the undo"
    else:
        assert (await runner.finalize(task)).final_text == "Hello."
    assert "rewound" in await kinds(runner, task)


async def test_unread_messages_are_read_before_an_answer_becomes_final(runner: Runner) -> None:
    agent = sayer("Hi.", "Hi Ann.")
    task = await runner.create_task(agent, "Hello")
    await runner.run_step(task)
    await runner.store.post(task.task_id, left("send", parts=[encode_part(Text("I am Ann."))]))
    result = await runner.finalize(task)
    assert (result.state, len(agent.model.requests)) == ("running", 1), "it does not go on by itself either"
    assert (await runner.resume(task)).final_text == "Hi Ann."
    assert roles_and_texts(agent.model.requests[-1].messages)[-1] == ("user", "I am Ann.")


async def test_an_inbox_item_for_an_ended_attempt_does_not_stop_the_next_attempt(runner: Runner) -> None:
    task = await runner.create_task(calculator(fail(400)), "?")
    assert (await runner.resume(task)).state == "failed"
    await runner.store.post(task.task_id, left("pause", reason="too late"))
    again = await runner.resume(task, agent=calculator())
    assert again.state == "completed"


async def test_a_version_of_an_agent_without_instructions_does_not_get_those_of_another(
    runner: Runner,
) -> None:
    task = await runner.create_task(calculator(instructions="Be rude."), "?")
    await runner.run_step(task)
    after = calculator()
    assert (await runner.resume(task, agent=after)).state == "completed"
    assert [request.instructions for request in after.model.requests] == ["", ""]


async def test_a_message_that_reaches_a_task_just_after_its_end_is_refused() -> None:
    class Slow(MemoryStore):
        async def post(self, task_id: str, item: InboxItem) -> bool:
            if item.kind == "send":
                await runner.cancel(task_id)
            return await super().post(task_id, item)

    async with Runner(Slow()) as runner:
        task = await runner.create_task(sayer("Hi."), "Hello")
        with pytest.raises(TaskFinished, match="before it could read this"):
            await runner.send(task, "Wait!")
        assert (await runner.result(task)).state == "cancelled"


async def test_a_step_with_an_unsettled_call_is_not_taken_back_unless_by_force(runner: Runner) -> None:
    handle = await unknown_payment(runner)
    with pytest.raises(IrreversibleStep, match="settle unknown outcomes"):
        await runner.undo_step(handle.task_id)
    report = await runner.undo_step(handle.task_id, force=True)
    assert [(undone.call, undone.verdict) for undone in report.calls] == [("s1-0", "unknown")]


async def undo_arrived(runner: Runner, task_id: str) -> None:
    """Return once the driver of a task has read the request to undo a step, which waits for a running call."""
    drive = runner._driver.owned.tasks[task_id].drive
    while not drive._inbox.undo_waits:  # noqa: ASYNC110  the driver announces it nowhere
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("stopped", [None, "pause"], ids=["running", "being paused"])
async def test_a_task_whose_step_is_undone_from_elsewhere_goes_no_further(store: Any, stopped: Any) -> None:
    """A step that is undone is not done again at once."""
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), "done"]), name="worker", tools=[gate.tool])
    async with Runner(store, agents=[agent]) as runner, Runner(store, agents=[agent]) as other:
        handle = await runner.start(agent, "Go.")
        await gate.entered.wait()
        pausing = asyncio.ensure_future(runner.pause(handle.task_id)) if stopped else None
        await asyncio.sleep(0.02)
        undoing = asyncio.ensure_future(other.undo_step(handle.task_id))
        await asyncio.wait_for(undo_arrived(runner, handle.task_id), 5)
        assert not undoing.done(), "what runs may end first, so that what is undone is known"
        gate.let_go.set()
        assert (await asyncio.wait_for(undoing, 5)).complete
        result = await asyncio.wait_for(handle.result(), 5)
        assert (result.state, result.steps, gate.starts) == ("running", 0, 1)
        assert len(agent.model.requests) == 1  # type: ignore[union-attr]
        if pausing is not None:
            await pausing
        assert (await runner.resume(handle.task_id)).state == "completed"


@pytest.mark.parametrize("ends", [False, True], ids=["is given back", "ends"])
async def test_a_message_that_crosses_with_the_release_of_a_task_is_read_first(ends: bool) -> None:
    class Crossing(MemoryStore):
        crossed = True

        def commit(self, commit: Commit, done: CommitDone) -> None:
            if commit.release and not self.crossed:
                self.crossed = True
                task = self._tables.tasks[commit.task_id]
                task.waiting["late"] = InboxItem("late", "send", {"parts": ["And this."]}, 1)
            super().commit(commit, done)

    agent = calculator(call("add", a=1, b=2), "3", "Both.")
    store = Crossing()
    async with asyncio.timeout(5), Runner(store) as runner:
        task = await runner.create_task(agent, "?")
        if ends:
            await runner.run_step(task)
        store.crossed = False
        if ends:
            assert (await runner.resume(task)).final_text == "Both."
        else:
            await runner.run_step(task)
            assert (await kinds(runner, task))[-1] == "input_received"
            await runner.run_step(task)
        assert ("user", "And this.") in roles_and_texts(agent.model.requests[-1].messages)  # type: ignore[union-attr]
        assert await runner.store.inbox(task.task_id) == []

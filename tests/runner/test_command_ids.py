"""`command_id=`: a command that is repeated, since its answer was lost, is one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cast import Ledger, calculator, sayer
from tests.runner.acts import journal, kinds, only
from treadle import (
    Agent,
    Breakpoint,
    CallerTool,
    File,
    Happened,
    Message,
    NotHappened,
    Runner,
    RunOptions,
    ScriptedModel,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
    untrusted,
)
from treadle.errors import (
    AlreadyDecided,
    ConfigurationError,
    IrreversibleStep,
    StepNotFound,
    TaskBusy,
    TaskFinished,
    TaskMoved,
    TaskNotFound,
)
from treadle.llm.scripted import call, fail
from treadle.ports import InboxItem

pytestmark = pytest.mark.anyio

Verb = Callable[..., Awaitable[Any]]


async def stepped(runner: Runner) -> str:
    """Return a task with one step done, and two to go."""
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    await runner.run_step(task)
    return task.task_id


async def answered(runner: Runner) -> str:
    """Return a task that has answered."""
    task = await runner.create_task(sayer(), "Hi")
    await runner.run_step(task)
    return task.task_id


async def failed_step(runner: Runner) -> str:
    """Return a task whose step failed."""
    return (await runner.run(sayer(fail(400), "Never mind."), "Hi")).task_id


async def proposed_call(runner: Runner) -> str:
    """Return a task with a call that has not begun."""
    options = RunOptions(break_on=[Breakpoint(tool="multiply")])
    return (await runner.run(calculator(), "What is (121 * 3) + 42?", options=options)).task_id


async def asked(runner: Runner) -> str:
    """Return a task with a call that waits for an approval."""

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"{amount} paid"

    agent = Agent(ScriptedModel([call("pay", amount=3), "Paid."]), name="payer", tools=[pay])
    return (await runner.run(agent, "Pay")).task_id


async def questioned(runner: Runner) -> str:
    """Return a task with a question."""

    @tool(read_only=True)
    async def choose(ctx: ToolContext[None]) -> str:
        """Choose."""
        return str(await ctx.ask("Which?", str))

    agent = Agent(ScriptedModel([call("choose"), "Chosen."]), name="chooser", tools=[choose])
    return (await runner.run(agent, "Choose")).task_id


async def unknown_outcome(runner: Runner) -> str:
    """Return a task with a call whose outcome is not known."""
    return await Endless().cut_off(runner)


class Endless:
    """An agent with a tool that writes and does not end."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()

        @tool
        async def work() -> str:
            """Work."""
            self.entered.set()
            await asyncio.sleep(60)
            return "worked"

        self.agent = Agent(ScriptedModel([call("work"), "Done."]), name="writer", tools=[work])

    async def cut_off(self, runner: Runner) -> str:
        """Return a task whose call was interrupted, so that its outcome is not known."""
        handle = await runner.start(self.agent, "Go")
        await self.entered.wait()
        await handle.interrupt()
        await handle.resume()
        return handle.task_id


CASES: dict[str, tuple[Callable[[Runner], Awaitable[str]], str, Verb, str]] = {
    "send": (
        stepped,
        "send",
        lambda runner, task, **more: runner.send(task, "And?", **more),
        "input_received",
    ),
    "send to a failed task": (
        failed_step,
        "send",
        lambda runner, task, **more: runner.send(task, "And?", **more),
        "task_reopened",
    ),
    "pause": (stepped, "pause", lambda runner, task, **more: runner.pause(task, **more), "pause_requested"),
    "interrupt": (
        stepped,
        "interrupt",
        lambda runner, task, **more: runner.interrupt(task, **more),
        "interrupt_requested",
    ),
    "cancel": (
        stepped,
        "cancel",
        lambda runner, task, **more: runner.cancel(task, **more),
        "cancel_requested",
    ),
    "edit_step": (
        stepped,
        "edit_step",
        lambda runner, task, **more: runner.edit_step(task, "And?", **more),
        "input_edited",
    ),
    "edit_call": (
        proposed_call,
        "edit_call",
        lambda runner, task, **more: runner.edit_call(task, "s1-0", {"a": 1, "b": 2}, **more),
        "call_edited",
    ),
    "skip_step": (
        failed_step,
        "skip_step",
        lambda runner, task, **more: runner.skip_step(task, **more),
        "step_skipped",
    ),
    "finalize": (
        answered,
        "finalize",
        lambda runner, task, **more: runner.finalize(task, **more),
        "answer_finalized",
    ),
    "run_step": (
        stepped,
        "run_step",
        lambda runner, task, **more: runner.run_step(task, input="And?", **more),
        "step_requested",
    ),
    "run_ready_steps": (
        stepped,
        "run_ready_steps",
        lambda runner, task, **more: runner.run_ready_steps(task, **more),
        "step_requested",
    ),
    "resume": (stepped, "resume", lambda runner, task, **more: runner.resume(task, **more), "resumed"),
    "resume of a failed task": (
        failed_step,
        "resume",
        lambda runner, task, **more: runner.resume(task, **more),
        "task_reopened",
    ),
    "resume elsewhere": (
        stepped,
        "resume",
        lambda runner, task, **more: runner.resume(task, drive=False, **more),
        "resumed",
    ),
    "undo_step": (
        stepped,
        "undo_step",
        lambda runner, task, **more: runner.undo_step(task, **more),
        "undo_requested",
    ),
    "settle": (
        unknown_outcome,
        "settle",
        lambda runner, task, **more: runner.settle(task, "s1-0", Happened("worked"), **more),
        "outcome_settled",
    ),
    "approve": (
        asked,
        "approve",
        lambda runner, task, **more: runner.approve(task, **more),
        "approval_given",
    ),
    "deny": (asked, "deny", lambda runner, task, **more: runner.deny(task, **more), "approval_denied"),
    "answer": (
        questioned,
        "answer",
        lambda runner, task, **more: runner.answer(task, value="this", **more),
        "question_answered",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_same_command_again_changes_nothing_and_returns_what_the_first_did(
    runner: Runner, name: str
) -> None:
    prepare, _, verb, kind = CASES[name]
    task_id = await prepare(runner)
    before = len(await only(runner, task_id, kind))
    first = await verb(runner, task_id, by="ada", command_id="c1")
    events = await kinds(runner, task_id)
    for _ in range(2):
        again = await verb(runner, task_id, by="ada", command_id="c1")
        assert repr(again) == repr(first)
    assert await kinds(runner, task_id) == events
    assert len(await only(runner, task_id, kind)) == before + 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("cancel", "finalize")])
async def test_a_command_that_comes_again_once_its_task_has_ended_changes_nothing(
    runner: Runner, name: str
) -> None:
    prepare, _, verb, kind = CASES[name]
    task_id = await prepare(runner)
    await verb(runner, task_id, command_id="c1")
    await runner.resume(task_id)
    before = await kinds(runner, task_id)
    await verb(runner, task_id, command_id="c1")
    assert await kinds(runner, task_id) == before
    assert len([each for each in before if each == kind]) >= 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
async def test_a_command_under_another_id_is_another_command_or_does_not_fit(
    runner: Runner, name: str
) -> None:
    """What another id does is what no id does: the first command is what it comes after."""
    prepare, _, verb, _ = CASES[name]
    outcomes: list[Any] = []
    for second in ("c2", None):
        task_id = await prepare(runner)
        await verb(runner, task_id, command_id="c1")
        try:
            await verb(runner, task_id, **({"command_id": second} if second else {}))
        except Exception as error:  # noqa: BLE001  whichever it is
            outcomes.append(type(error))
        else:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "name", ["send", "edit_step", "edit_call", "skip_step", "undo_step", "settle", "deny"]
)
async def test_of_ten_of_one_command_over_two_runners_one_is_carried_out(store: Any, name: str) -> None:
    prepare, _, verb, kind = CASES[name]
    async with Runner(store) as one, Runner(store) as two:
        task_id = await prepare(one)
        before = len(await only(one, task_id, kind))

        async def repeat(runner: Runner) -> None:
            while True:
                try:
                    return await verb(runner, task_id, command_id="c1")
                except Exception as error:
                    if type(error).__name__ != "TaskBusy":
                        raise
                    await asyncio.sleep(0.01)

        async with asyncio.timeout(20):
            await asyncio.gather(*[repeat(runner) for runner in (one, two) * 5])
        assert len(await only(one, task_id, kind)) == before + 1


async def test_a_finalize_that_comes_again_while_the_first_is_under_way_waits_for_it(store: Any) -> None:
    async with Runner(store) as one, Runner(store) as two:
        task_id = await answered(one)
        finalizing = [runner.finalize(task_id, command_id="c1") for runner in (one, two) * 3]
        async with asyncio.timeout(20):
            results = await asyncio.gather(*finalizing)
        assert [result.state for result in results] == ["completed"] * 6
        assert len(await only(one, task_id, "answer_finalized")) == 1


async def test_a_finalize_does_not_wait_for_a_step_under_way(runner: Runner) -> None:
    endless = Endless()
    handle = await runner.start(endless.agent, "Go")
    await endless.entered.wait()
    with pytest.raises(TaskBusy):
        await runner.finalize(handle.task_id, command_id="c1")
    await handle.cancel()


async def test_a_message_whose_sender_crashed_before_it_was_read_is_delivered_once(runner: Runner) -> None:
    task_id = await stepped(runner)
    await runner.store.post(task_id, InboxItem("command-1-c1", "send", {"parts": ["And?"]}, 0))
    await runner.send(task_id, "And?", command_id="c1")
    assert len(await only(runner, task_id, "input_received")) == 1


async def test_a_command_whose_caller_crashed_before_it_was_recorded_is_carried_out_when_it_comes_again(
    runner: Runner,
) -> None:
    task_id = await stepped(runner)
    await runner.store.post(task_id, InboxItem("command-1-c1", "noted", {}, 0))
    head = (await runner.get_task(task_id)).head
    await runner.send(task_id, "And?")
    assert await runner.store.inbox(task_id) == [], "the next owner dismissed it"
    await runner.edit_step(task_id, "Or?", command_id="c1")
    await runner.edit_step(task_id, "Or?", command_id="c1")
    assert [event.kind for event in (await journal(runner, task_id))[head:]] == [
        "input_received",
        "input_edited",
    ]


async def test_a_command_that_was_refused_is_tried_when_it_comes_again(runner: Runner) -> None:
    task_id = await stepped(runner)
    for _ in range(2):
        with pytest.raises(StepNotFound):
            await runner.skip_step(task_id, command_id="c1")
    assert await runner.store.inbox(task_id) == []
    assert "command_rejected" not in await kinds(runner, task_id)


async def test_a_late_pause_does_not_stop_a_task_that_went_on(runner: Runner) -> None:
    task_id = await stepped(runner)
    assert (await runner.pause(task_id, command_id="c1")).state == "paused"
    await runner.resume(task_id)
    assert (await runner.pause(task_id, command_id="c1")).state == "paused", "as it stood then"
    assert (await runner.get_task(task_id)).state == "completed"


async def test_a_late_cancel_does_not_end_a_later_attempt(runner: Runner) -> None:
    """It came when its task had just failed, which dismissed it."""
    task_id = await failed_step(runner)
    assert (await runner.cancel(task_id, command_id="c1")).state == "failed"
    await runner.store.post(task_id, InboxItem("command-1-c1", "cancel", {}, 0))
    await runner.send(task_id, "Once more")
    assert (await runner.cancel(task_id, command_id="c1")).state == "running"
    assert (await runner.resume(task_id)).state == "completed"


@pytest.mark.parametrize("verb", ["cancel", "pause", "interrupt"])
async def test_a_stop_that_came_after_the_end_does_not_stop_a_later_attempt(
    runner: Runner, verb: str
) -> None:
    task_id = (await runner.run(calculator(), "What is (121 * 3) + 42?")).task_id
    before = await kinds(runner, task_id)
    for _ in range(2):
        assert (await getattr(runner, verb)(task_id, command_id="c1")).state == "completed"
    assert await kinds(runner, task_id) == before, "nothing follows the end"
    assert await runner.store.inbox(task_id) == []
    await runner.undo_step(task_id)
    assert (await getattr(runner, verb)(task_id, command_id="c1")).state == "running"
    assert (await runner.resume(task_id)).state == "completed"


async def test_a_message_that_a_failing_task_dismissed_is_sent_again_to_the_next_attempt(
    runner: Runner,
) -> None:
    task_id = await failed_step(runner)
    await runner.store.post(task_id, InboxItem("command-1-c1", "send", {"parts": ["And?"]}, 0))
    await runner.send(task_id, "And?", command_id="c1")
    assert [event.parts[0].text for event in await only(runner, task_id, "input_received")] == ["And?"]
    before = await kinds(runner, task_id)
    await runner.send(task_id, "And?", command_id="c1")
    assert await kinds(runner, task_id) == before


async def test_a_repeated_undo_reports_what_the_first_one_did_also_after_another(runner: Runner) -> None:
    ledger = Ledger()
    script = [call("book", what="room"), call("book", what="car"), "Booked."]
    agent = Agent(ScriptedModel(script), name="clerk", tools=ledger.tools())
    task = await runner.create_task(agent, "Book")
    await runner.run_step(task)
    await runner.run_step(task)
    first = await runner.undo_step(task, command_id="c1")
    second = await runner.undo_step(task, command_id="c2")
    assert (first.to, second.to) == (1, 0)
    assert await runner.undo_step(task, command_id="c1") == first
    assert await runner.undo_step(task, command_id="c2") == second
    assert [each for each in ledger.entries if each.startswith("unbook")] == [
        "unbook car (car booked)",
        "unbook room (room booked)",
    ]


async def test_an_undo_whose_compensation_failed_goes_on_when_it_comes_again(runner: Runner) -> None:
    failing = {"unbook room (room booked)"}
    ledger = Ledger(lambda entry: entry in failing)
    agent = Agent(ScriptedModel([call("book", what="room"), "Booked."]), name="clerk", tools=ledger.tools())
    task = await runner.create_task(agent, "Book")
    await runner.run_step(task)
    assert not (await runner.undo_step(task, command_id="c1")).complete
    failing.clear()
    assert (await runner.undo_step(task, command_id="c1")).complete
    assert (await runner.get_task(task)).steps == 0


async def test_an_undo_that_was_refused_changes_nothing_and_is_tried_again_with_force(runner: Runner) -> None:
    ledger = Ledger()
    agent = Agent(ScriptedModel([call("mail", to="ann"), "Sent."]), name="clerk", tools=ledger.tools())
    task = await runner.create_task(agent, "Mail")
    await runner.run_step(task)
    with pytest.raises(IrreversibleStep):
        await runner.undo_step(task, command_id="c1")
    assert (await runner.undo_step(task, force=True, command_id="c1")).complete


async def test_a_task_that_answered_again_is_not_finalized_by_the_command_about_its_first_answer(
    runner: Runner,
) -> None:
    task_id = await answered(runner)
    await runner.finalize(task_id, command_id="c1")
    await runner.undo_step(task_id)
    await runner.run_step(task_id, agent=sayer("Hello again."))
    assert (await runner.finalize(task_id, command_id="c1")).state == "answered"
    assert (await runner.finalize(task_id, command_id="c2")).state == "completed"


async def test_a_repeated_command_is_not_held_against_the_head_that_its_first_sending_moved(
    runner: Runner,
) -> None:
    task_id = await stepped(runner)
    head = (await runner.get_task(task_id)).head
    step = await runner.edit_step(task_id, "Or?", expect=head, command_id="c1")
    assert await runner.edit_step(task_id, "Or?", expect=head, command_id="c1") == step
    with pytest.raises(TaskMoved):
        await runner.edit_step(task_id, "Or?", expect=head, command_id="c2")


async def test_an_id_belongs_to_one_command_of_one_task(runner: Runner) -> None:
    task_id, other = await stepped(runner), await stepped(runner)
    await runner.edit_step(task_id, "Or?", command_id="c1")
    with pytest.raises(ConfigurationError, match=r"'c1' belongs to another command, .* input_edited"):
        await runner.undo_step(task_id, command_id="c1")
    await runner.edit_step(other, "Or?", command_id="c1")
    fork = await runner.fork(task_id)
    await runner.edit_step(fork, "Or?", command_id="c1")
    assert len(await only(runner, fork, "input_edited")) == 1


@pytest.mark.parametrize("name", ["pause", "interrupt", "cancel"])
async def test_a_stop_with_the_id_of_a_message_is_refused_and_does_not_spin_for_ever(
    runner: Runner, name: str
) -> None:
    task_id = await stepped(runner)
    await runner.send(task_id, "And?", command_id="c1")
    with pytest.raises(ConfigurationError, match=r"'c1' belongs to another command, .* input_received"):
        await getattr(runner, name)(task_id, command_id="c1")
    await runner.pause(task_id, command_id="c2")
    with pytest.raises(ConfigurationError, match=r"'c2' belongs to another command, .* pause_requested"):
        await runner.cancel(task_id, command_id="c2")
    await runner.cancel(task_id, command_id="c3")
    with pytest.raises(ConfigurationError, match=r"'c1' belongs to another command, .* input_received"):
        await getattr(runner, name)(task_id, command_id="c1")


async def test_a_stop_whose_id_a_message_under_way_has_is_refused_once_that_is_read(runner: Runner) -> None:
    task_id = await stepped(runner)
    await runner.store.post(task_id, InboxItem("command-1-c1", "send", {"parts": ["And?"]}, 0))
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await runner.pause(task_id, command_id="c1")


async def test_a_denial_with_the_id_of_an_approval_is_not_taken_for_done(runner: Runner) -> None:
    task_id = await asked(runner)
    await runner.approve(task_id, "s1-0-ask1", command_id="c1")
    with pytest.raises(ConfigurationError, match=r"'c1' belongs to another command, .* approval_given"):
        await runner.deny(task_id, "s1-0-ask1", command_id="c1")


async def test_a_failure_with_the_id_of_a_result_is_not_taken_for_done(runner: Runner) -> None:
    agent = Agent(ScriptedModel([call("look"), "Seen."]), name="watcher")
    options = RunOptions(caller_tools=[CallerTool("look")])
    task_id = (await runner.run(agent, "Look", options=options)).task_id
    for _ in range(2):
        await runner.complete("s1-0", {"seen": 1}, task=task_id, command_id="c1")
    with pytest.raises(ConfigurationError, match=r"'c1' belongs to another command, .* question_answered"):
        await runner.fail("s1-0", "It is dark.", task=task_id, command_id="c1")


async def backgrounded(runner: Runner) -> str:
    """Return a task with a call in the background, whose ticket is the task's label."""
    tickets: list[str] = []

    @tool(background=True, idempotent=True)
    async def grow(ctx: ToolContext[None]) -> Any:
        """Grow."""
        tickets.append(ctx.ticket)
        return ctx.background(expires=60)

    agent = Agent(ScriptedModel([call("grow"), "It grows.", "Grown."]), name="farmer", tools=[grow])
    task_id = (await runner.run(agent, "Grow")).task_id
    TICKETS[task_id] = tickets[0]
    return task_id


async def twice_stepped(runner: Runner) -> str:
    """Return a task with two steps done."""
    task_id = await stepped(runner)
    await runner.run_step(task_id)
    return task_id


TICKETS: dict[str, str] = {}
"""The tickets of the tasks of `backgrounded`."""

OTHER_CONTENT: dict[str, tuple[Callable[[Runner], Awaitable[str]], Verb, Verb]] = {
    "send": (
        stepped,
        lambda runner, task: runner.send(task, "One", command_id="c1"),
        lambda runner, task: runner.send(task, "Two", command_id="c1"),
    ),
    "send in another role": (
        stepped,
        lambda runner, task: runner.send(task, "One", command_id="c1"),
        lambda runner, task: runner.send(task, "One", role="observation", command_id="c1"),
    ),
    "edit_step": (
        stepped,
        lambda runner, task: runner.edit_step(task, "One", command_id="c1"),
        lambda runner, task: runner.edit_step(task, "Two", command_id="c1"),
    ),
    "run_step": (
        stepped,
        lambda runner, task: runner.run_step(task, input="One", command_id="c1"),
        lambda runner, task: runner.run_step(task, input="Two", command_id="c1"),
    ),
    "run_step without input": (
        stepped,
        lambda runner, task: runner.run_step(task, input="One", command_id="c1"),
        lambda runner, task: runner.run_ready_steps(task, command_id="c1"),
    ),
    "run_step by name": (
        stepped,
        lambda runner, task: runner.run_step(task, step="s2", command_id="c1"),
        lambda runner, task: runner.run_step(task, step="s3", command_id="c1"),
    ),
    "a step after a resume": (
        stepped,
        lambda runner, task: runner.resume(task, command_id="c1"),
        lambda runner, task: runner.run_step(task, command_id="c1"),
    ),
    "edit_call": (
        proposed_call,
        lambda runner, task: runner.edit_call(task, "s1-0", {"a": 1, "b": 2}, command_id="c1"),
        lambda runner, task: runner.edit_call(task, "s1-0", {"a": 2, "b": 1}, command_id="c1"),
    ),
    "skip_step": (
        failed_step,
        lambda runner, task: runner.skip_step(task, command_id="c1"),
        lambda runner, task: runner.skip_step(task, step="s2", command_id="c1"),
    ),
    "undo_step": (
        twice_stepped,
        lambda runner, task: runner.undo_step(task, to=1, command_id="c1"),
        lambda runner, task: runner.undo_step(task, to=0, command_id="c1"),
    ),
    "settle": (
        unknown_outcome,
        lambda runner, task: runner.settle(task, "s1-0", Happened("worked"), command_id="c1"),
        lambda runner, task: runner.settle(task, "s1-0", NotHappened(), command_id="c1"),
    ),
    "approve": (
        asked,
        lambda runner, task: runner.approve(task, command_id="c1"),
        lambda runner, task: runner.approve(task, arguments={"amount": 4}, command_id="c1"),
    ),
    "answer": (
        questioned,
        lambda runner, task: runner.answer(task, value="this", command_id="c1"),
        lambda runner, task: runner.answer(task, value="that", command_id="c1"),
    ),
    "complete": (
        backgrounded,
        lambda runner, task: runner.complete(TICKETS[task], "all", command_id="c1"),
        lambda runner, task: runner.complete(TICKETS[task], "half", command_id="c1"),
    ),
    "progress": (
        backgrounded,
        lambda runner, task: runner.progress(TICKETS[task], "half", command_id="c1"),
        lambda runner, task: runner.progress(TICKETS[task], "all", command_id="c1"),
    ),
}


@pytest.mark.parametrize("name", OTHER_CONTENT)
async def test_an_id_that_comes_again_with_other_content_is_refused_and_not_taken_for_done(
    runner: Runner, name: str
) -> None:
    prepare, first, second = OTHER_CONTENT[name]
    task_id = await prepare(runner)
    await first(runner, task_id)
    before = await kinds(runner, task_id)
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await second(runner, task_id)
    assert await kinds(runner, task_id) == before
    await first(runner, task_id)
    assert await kinds(runner, task_id) == before, "the first one may still be repeated"


@pytest.mark.parametrize("verb", ["send", "edit_step"])
async def test_an_id_is_refused_while_a_message_of_that_id_is_unread(runner: Runner, verb: str) -> None:
    """The task did not hear the second message, and both senders heard that theirs was sent."""
    task_id = await stepped(runner)
    item = InboxItem("command-1-c1", "send", {"parts": ["One"], "role": "user", "observation": False}, 0)
    await runner.store.post(task_id, item)
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await getattr(runner, verb)(task_id, "Two", command_id="c1")
    await runner.send(task_id, "One", command_id="c1")
    (received,) = await only(runner, task_id, "input_received")
    assert received.parts == (Text("One"),)


async def test_a_message_of_any_content_may_be_sent_again(store: Any) -> None:
    async with Runner(store) as one, Runner(store) as two:
        task_id = await stepped(one)
        messages: list[Any] = [
            [File(data=bytes(range(256)) * 400, media_type="application/pdf"), "And this."],
            untrusted("Hi", origin="mail"),
            "\U0001f600 caf\u00e9 \0",
        ]
        for number, message in enumerate(messages):
            for runner in (one, two, one):
                await runner.send(task_id, message, role="observation", command_id=f"c{number}")
                await runner.edit_step(task_id, message, command_id=f"e{number}")
        assert len(await only(one, task_id, "input_received")) == len(messages)
        assert len(await only(one, task_id, "input_edited")) == len(messages)


async def test_an_id_that_looks_like_one_of_a_driver_is_none(runner: Runner) -> None:
    task_id = await stepped(runner)
    await runner.send(task_id, "And?", command_id="survived-1")
    (received,) = await only(runner, task_id, "input_received")
    assert received.inbox == "command-1-survived-1"


async def test_a_decision_that_comes_again_is_not_taken_for_one_on_the_next_request(runner: Runner) -> None:
    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"{amount} paid"

    agent = Agent(ScriptedModel([call("pay", amount=3), call("pay", amount=4), "Paid."]), tools=[pay])
    result = await runner.run(agent, "Pay")
    await runner.approve(result.task_id, command_id="c1")
    assert (await runner.resume(result.task_id)).state == "waiting"
    await runner.approve(result.task_id, command_id="c1")
    assert [item.request_id for item in (await runner.result(result.task_id)).pending] == ["s2-0-ask1"]


async def test_of_two_decisions_the_first_counts_and_the_other_is_told_so_each_time(runner: Runner) -> None:
    task_id = await asked(runner)
    await runner.deny(task_id, "s1-0-ask1", command_id="c1")
    for _ in range(2):
        with pytest.raises(AlreadyDecided):
            await runner.approve(task_id, "s1-0-ask1", command_id="c2")


async def test_a_settlement_that_comes_again_does_not_settle_the_same_call_anew(runner: Runner) -> None:
    endless = Endless()
    task_id = await endless.cut_off(runner)
    await runner.settle(task_id, "s1-0", NotHappened(), command_id="c1")
    endless.entered.clear()
    resuming = asyncio.ensure_future(runner.resume(task_id))
    await endless.entered.wait()
    await runner.interrupt(task_id)
    await resuming
    assert (await runner.resume(task_id)).pending
    await runner.settle(task_id, "s1-0", NotHappened(), command_id="c1")
    assert (await runner.result(task_id)).pending, "it waits for another settlement"


async def test_progress_of_a_call_is_told_once_and_may_be_repeated_after_its_end(runner: Runner) -> None:
    tickets: list[str] = []

    @tool(background=True, idempotent=True)
    async def grow(ctx: ToolContext[None]) -> Any:
        """Grow."""
        tickets.append(ctx.ticket)
        return ctx.background(expires=60)

    agent = Agent(ScriptedModel([call("grow"), "It grows.", "Grown."]), name="farmer", tools=[grow])
    result = await runner.run(agent, "Grow")
    for _ in range(2):
        await runner.progress(tickets[0], "half", command_id="c1")
    for _ in range(2):
        await runner.complete(tickets[0], "all", command_id="c2")
    with pytest.raises(ConfigurationError, match=r"'c2' belongs to another command, .* ticket_completed"):
        await runner.fail(tickets[0], "It withered.", command_id="c2")
    await runner.resume(result.task_id)
    await runner.progress(tickets[0], "half", command_id="c1")
    await runner.complete(tickets[0], "all", command_id="c2")
    told = [kind for kind in await kinds(runner, result.task_id) if kind.startswith("ticket_")]
    assert told == ["ticket_issued", "ticket_progressed", "ticket_completed"]


# -------------------------------------------------------------------------------------- new tasks


async def test_messages_are_imported_once(runner: Runner) -> None:
    asking = Message("assistant", (ToolCall("t1", "look", {"at": [1, 2.0, None]}),))
    told = Message("tool", (ToolResult("t1", "look", (Text("Seen."),)),))
    messages = [Message("user", (Text("Hi"),)), asking, told]
    first = await runner.import_thread("talk", messages, command_id="c1")
    assert await runner.import_thread("talk", messages, command_id="c1") == first
    assert await runner.import_thread("other", messages, command_id="c1") != first
    assert [len(await runner.get_thread(thread)) for thread in ("talk", "other")] == [3, 3]


async def test_other_messages_are_not_taken_for_those_imported_under_their_id(runner: Runner) -> None:
    await runner.import_thread("talk", [Message("user", (Text("Hi"),))], command_id="c1")
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await runner.import_thread("talk", [Message("user", (Text("Bye"),))], command_id="c1")


# -------------------------------------------------------------------------------------- arguments


async def test_what_cannot_be_the_id_of_a_command_is_refused(runner: Runner) -> None:
    task_id = await stepped(runner)
    for wrong in ("", "c" * 201, 7, "a\0b"):
        with pytest.raises(ConfigurationError, match="send: command_id must"):
            await runner.send(task_id, "And?", command_id=wrong)  # type: ignore[arg-type]
    await runner.send(task_id, "And?", command_id="c" * 200)


async def test_an_error_of_the_first_sending_is_raised_again(runner: Runner) -> None:
    done = await runner.run(sayer(), "Hi")
    for _ in range(2):
        with pytest.raises(TaskFinished):
            await runner.send(done.task_id, "And?", command_id="c1")
        with pytest.raises(TaskNotFound):
            await runner.send("nothing", "And?", command_id="c1")


def test_commands_have_ids_without_asyncio_too(tmp_path: Any) -> None:
    with Runner(tmp_path / "journal.db").sync as runner:
        task = runner.create_task(sayer(), "Hi")
        for verbs in (runner, runner):
            verbs.send(task, "And?", command_id="c1")
        runner.handle(task).send("And?", command_id="c1")
        runner.handle(task).fork(task_id="f")
        assert runner.get_task(task).head == 2

"""`command_id=`: a command that is repeated, since its answer was lost, is one command."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, Jobs, Ledger, calculator, gate_agent, pay, sayer, scripted_agent
from tests.runner.acts import journal, kinds, only
from tests.verbs import situations as s
from treadle import (
    Agent,
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
    ToolResult,
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
from treadle.llm.scripted import call
from treadle.ports import InboxItem

pytestmark = pytest.mark.anyio

MESSAGE = {"message": "And?"}
INPUT = {"input": "And?"}
SUM = {"call_id": "s1-0", "arguments": {"a": 1, "b": 2}}
WORKED = {"request_id": "s1-0", "verdict": Happened("worked")}

CASES: dict[str, tuple[s.Prepare, str, dict[str, Any], str]] = {
    "send": (s.stepped, "send", MESSAGE, "input_received"),
    "send to a failed task": (s.failed_step, "send", MESSAGE, "task_reopened"),
    "pause": (s.stepped, "pause", {}, "pause_requested"),
    "interrupt": (s.stepped, "interrupt", {}, "interrupt_requested"),
    "cancel": (s.stepped, "cancel", {}, "cancel_requested"),
    "edit_step": (s.stepped, "edit_step", INPUT, "input_edited"),
    "edit_call": (s.proposed_call, "edit_call", SUM, "call_edited"),
    "skip_step": (s.failed_step, "skip_step", {}, "step_skipped"),
    "finalize": (s.answered, "finalize", {}, "answer_finalized"),
    "run_step": (s.stepped, "run_step", INPUT, "step_requested"),
    "run_ready_steps": (s.stepped, "run_ready_steps", {}, "step_requested"),
    "resume": (s.stepped, "resume", {}, "resumed"),
    "resume of a failed task": (s.failed_step, "resume", {}, "task_reopened"),
    "resume elsewhere": (s.stepped, "resume", {"drive": False}, "resumed"),
    "undo_step": (s.stepped, "undo_step", {}, "undo_requested"),
    "settle": (s.unknown_outcome, "settle", WORKED, "outcome_settled"),
    "approve": (s.awaiting_approval, "approve", {}, "approval_given"),
    "deny": (s.awaiting_approval, "deny", {}, "approval_denied"),
    "answer": (s.awaiting_answer, "answer", {"value": "this"}, "question_answered"),
}
"""Each command: the situation, the verb with its arguments, and the event that it records."""


async def send_command(runner: Runner, name: str, task_id: str, **more: Any) -> Any:
    _, verb, arguments, _ = CASES[name]
    return await getattr(runner, verb)(task_id, **arguments, **more)


@pytest.mark.parametrize("name", CASES)
async def test_the_same_command_again_changes_nothing_and_returns_what_the_first_did(
    runner: Runner, name: str
) -> None:
    prepare, _, _, kind = CASES[name]
    task_id = (await prepare(runner)).task
    before = len(await only(runner, task_id, kind))
    first = await send_command(runner, name, task_id, by="ada", command_id="c1")
    events = await kinds(runner, task_id)
    for _ in range(2):
        again = await send_command(runner, name, task_id, by="ada", command_id="c1")
        assert repr(again) == repr(first)
    assert await kinds(runner, task_id) == events
    assert len(await only(runner, task_id, kind)) == before + 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("cancel", "finalize")])
async def test_a_command_that_comes_again_once_its_task_has_ended_changes_nothing(
    runner: Runner, name: str
) -> None:
    prepare, _, _, kind = CASES[name]
    task_id = (await prepare(runner)).task
    await send_command(runner, name, task_id, command_id="c1")
    await runner.resume(task_id)
    before = await kinds(runner, task_id)
    await send_command(runner, name, task_id, command_id="c1")
    assert await kinds(runner, task_id) == before
    assert len([each for each in before if each == kind]) >= 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
async def test_a_command_under_another_id_is_another_command_or_does_not_fit(
    runner: Runner, name: str
) -> None:
    """What another id does is what no id does: the first command is what it comes after."""
    outcomes: list[Any] = []
    for second in ("c2", None):
        task_id = (await CASES[name][0](runner, f"then {second}")).task
        await send_command(runner, name, task_id, command_id="c1")
        try:
            await send_command(runner, name, task_id, **({"command_id": second} if second else {}))
        except Exception as error:  # noqa: BLE001  whichever it is
            outcomes.append(type(error))
        else:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "name", ["send", "edit_step", "edit_call", "skip_step", "undo_step", "settle", "deny"]
)
async def test_of_ten_of_one_command_over_two_runners_one_is_carried_out(store: Any, name: str) -> None:
    prepare, _, _, kind = CASES[name]
    async with Runner(store) as one, Runner(store) as two:
        task_id = (await prepare(one)).task
        before = len(await only(one, task_id, kind))

        async def repeat(runner: Runner) -> None:
            while True:
                try:
                    return await send_command(runner, name, task_id, command_id="c1")
                except Exception as error:
                    if type(error).__name__ != "TaskBusy":
                        raise
                    await asyncio.sleep(0.01)

        async with asyncio.timeout(20):
            await asyncio.gather(*[repeat(runner) for runner in (one, two) * 5])
        assert len(await only(one, task_id, kind)) == before + 1


async def test_a_finalize_that_comes_again_while_the_first_is_under_way_waits_for_it(store: Any) -> None:
    async with Runner(store) as one, Runner(store) as two:
        task_id = (await s.answered(one)).task
        finalizing = [runner.finalize(task_id, command_id="c1") for runner in (one, two) * 3]
        async with asyncio.timeout(20):
            results = await asyncio.gather(*finalizing)
        assert [result.state for result in results] == ["completed"] * 6
        assert len(await only(one, task_id, "answer_finalized")) == 1


async def test_a_finalize_does_not_wait_for_a_step_under_way(runner: Runner) -> None:
    gate = Gate()
    handle = await runner.start(gate_agent(gate), "Go")
    await gate.entered.wait()
    with pytest.raises(TaskBusy):
        await runner.finalize(handle.task_id, command_id="c1")
    await handle.cancel()


async def test_a_message_whose_sender_crashed_before_it_was_read_is_delivered_once(runner: Runner) -> None:
    task_id = (await s.stepped(runner)).task
    await runner.store.post(task_id, InboxItem("command-1-c1", "send", {"parts": ["And?"]}, 0))
    await runner.send(task_id, "And?", command_id="c1")
    assert len(await only(runner, task_id, "input_received")) == 1


async def test_a_command_whose_caller_crashed_before_it_was_recorded_is_carried_out_when_it_comes_again(
    runner: Runner,
) -> None:
    task_id = (await s.stepped(runner)).task
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
    task_id = (await s.stepped(runner)).task
    for _ in range(2):
        with pytest.raises(StepNotFound):
            await runner.skip_step(task_id, command_id="c1")
    assert await runner.store.inbox(task_id) == []
    assert "command_rejected" not in await kinds(runner, task_id)


async def test_a_late_pause_does_not_stop_a_task_that_went_on(runner: Runner) -> None:
    task_id = (await s.stepped(runner)).task
    assert (await runner.pause(task_id, command_id="c1")).state == "paused"
    await runner.resume(task_id)
    assert (await runner.pause(task_id, command_id="c1")).state == "paused", "as it stood then"
    assert (await runner.get_task(task_id)).state == "completed"


async def test_a_late_cancel_does_not_end_a_later_attempt(runner: Runner) -> None:
    """It came when its task had just failed, which dismissed it."""
    task_id = (await s.failed_step(runner)).task
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
    task_id = (await s.failed_step(runner)).task
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
    task_id = (await s.answered(runner)).task
    await runner.finalize(task_id, command_id="c1")
    await runner.undo_step(task_id)
    await runner.run_step(task_id, agent=sayer("Hello again."))
    assert (await runner.finalize(task_id, command_id="c1")).state == "answered"
    assert (await runner.finalize(task_id, command_id="c2")).state == "completed"


async def test_a_repeated_command_is_not_held_against_the_head_that_its_first_sending_moved(
    runner: Runner,
) -> None:
    task_id = (await s.stepped(runner)).task
    head = (await runner.get_task(task_id)).head
    step = await runner.edit_step(task_id, "Or?", expect=head, command_id="c1")
    assert await runner.edit_step(task_id, "Or?", expect=head, command_id="c1") == step
    with pytest.raises(TaskMoved):
        await runner.edit_step(task_id, "Or?", expect=head, command_id="c2")


async def test_an_id_belongs_to_one_command_of_one_task(runner: Runner) -> None:
    task_id, other = (await s.stepped(runner)).task, (await s.stepped(runner, "other")).task
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
    task_id = (await s.stepped(runner)).task
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
    task_id = (await s.stepped(runner)).task
    await runner.store.post(task_id, InboxItem("command-1-c1", "send", {"parts": ["And?"]}, 0))
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await runner.pause(task_id, command_id="c1")


async def test_a_denial_with_the_id_of_an_approval_is_not_taken_for_done(runner: Runner) -> None:
    task_id = (await s.awaiting_approval(runner)).task
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


OTHER_CONTENT: dict[str, tuple[s.Prepare, str, dict[str, Any], str, dict[str, Any]]] = {
    "send": (s.stepped, "send", {"message": "One"}, "send", {"message": "Two"}),
    "send in another role": (
        *(s.stepped, "send", {"message": "One"}),
        *("send", {"message": "One", "role": "observation"}),
    ),
    "edit_step": (s.stepped, "edit_step", {"input": "One"}, "edit_step", {"input": "Two"}),
    "run_step": (s.stepped, "run_step", {"input": "One"}, "run_step", {"input": "Two"}),
    "run_step without input": (s.stepped, "run_step", {"input": "One"}, "run_ready_steps", {}),
    "run_step by name": (s.stepped, "run_step", {"step": "s2"}, "run_step", {"step": "s3"}),
    "a step after a resume": (s.stepped, "resume", {}, "run_step", {}),
    "edit_call": (s.proposed_call, "edit_call", SUM, "edit_call", {**SUM, "arguments": {"a": 2, "b": 1}}),
    "skip_step": (s.failed_step, "skip_step", {}, "skip_step", {"step": "s2"}),
    "undo_step": (s.twice_stepped, "undo_step", {"to": 1}, "undo_step", {"to": 0}),
    "settle": (s.unknown_outcome, "settle", WORKED, "settle", {**WORKED, "verdict": NotHappened()}),
    "approve": (s.awaiting_approval, "approve", {}, "approve", {"arguments": {"amount": 4}}),
    "answer": (s.awaiting_answer, "answer", {"value": "this"}, "answer", {"value": "that"}),
    "complete": (s.awaiting_job, "complete", {"value": "all"}, "complete", {"value": "half"}),
    "progress": (s.awaiting_job, "progress", {"value": "half"}, "progress", {"value": "all"}),
}
"""Two commands that differ: the situation, and the verbs with their arguments."""


@pytest.mark.parametrize("name", OTHER_CONTENT)
async def test_an_id_that_comes_again_with_other_content_is_refused_and_not_taken_for_done(
    runner: Runner, name: str
) -> None:
    prepare, first, arguments, second, others = OTHER_CONTENT[name]
    prepared = await prepare(runner)
    which: dict[str, Any] = {"task": prepared.task, **prepared.ids, "command_id": "c1"}
    await getattr(runner, first)(**which, **arguments)
    before = await kinds(runner, prepared.task)
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await getattr(runner, second)(**which, **others)
    assert await kinds(runner, prepared.task) == before
    await getattr(runner, first)(**which, **arguments)
    assert await kinds(runner, prepared.task) == before, "the first one may still be repeated"


@pytest.mark.parametrize("verb", ["send", "edit_step"])
async def test_an_id_is_refused_while_a_message_of_that_id_is_unread(runner: Runner, verb: str) -> None:
    """The task did not hear the second message, and both senders heard that theirs was sent."""
    task_id = (await s.stepped(runner)).task
    item = InboxItem("command-1-c1", "send", {"parts": ["One"], "role": "user", "observation": False}, 0)
    await runner.store.post(task_id, item)
    with pytest.raises(ConfigurationError, match="'c1' belongs to another command"):
        await getattr(runner, verb)(task_id, "Two", command_id="c1")
    await runner.send(task_id, "One", command_id="c1")
    (received,) = await only(runner, task_id, "input_received")
    assert received.parts == (Text("One"),)


async def test_a_message_of_any_content_may_be_sent_again(store: Any) -> None:
    async with Runner(store) as one, Runner(store) as two:
        task_id = (await s.stepped(one)).task
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
    task_id = (await s.stepped(runner)).task
    await runner.send(task_id, "And?", command_id="survived-1")
    (received,) = await only(runner, task_id, "input_received")
    assert received.inbox == "command-1-survived-1"


async def test_a_decision_that_comes_again_is_not_taken_for_one_on_the_next_request(runner: Runner) -> None:
    agent = scripted_agent(call("pay", amount=3), call("pay", amount=4), "Paid.", tools=[pay])
    result = await runner.run(agent, "Pay")
    await runner.approve(result.task_id, command_id="c1")
    assert (await runner.resume(result.task_id)).state == "waiting"
    await runner.approve(result.task_id, command_id="c1")
    assert [item.request_id for item in (await runner.result(result.task_id)).pending] == ["s2-0-ask1"]


async def test_of_two_decisions_the_first_counts_and_the_other_is_told_so_each_time(runner: Runner) -> None:
    task_id = (await s.awaiting_approval(runner)).task
    await runner.deny(task_id, "s1-0-ask1", command_id="c1")
    for _ in range(2):
        with pytest.raises(AlreadyDecided):
            await runner.approve(task_id, "s1-0-ask1", command_id="c2")


async def test_a_settlement_that_comes_again_does_not_settle_the_same_call_anew(runner: Runner) -> None:
    prepared = await s.unknown_outcome(runner)
    task_id, gate = prepared.task, prepared.gate
    assert gate is not None
    await runner.settle(task_id, "s1-0", NotHappened(), command_id="c1")
    gate.entered.clear()
    resuming = asyncio.ensure_future(runner.resume(task_id))
    await gate.entered.wait()
    await runner.interrupt(task_id)
    await resuming
    assert (await runner.resume(task_id)).pending
    await runner.settle(task_id, "s1-0", NotHappened(), command_id="c1")
    assert (await runner.result(task_id)).pending, "it waits for another settlement"


async def test_progress_of_a_call_is_told_once_and_may_be_repeated_after_its_end(runner: Runner) -> None:
    jobs = Jobs()
    agent = scripted_agent(call("render"), "It goes on.", "Rendered.", tools=[jobs.tool])
    result = await runner.run(agent, "Render")
    (ticket,) = jobs.tickets
    for _ in range(2):
        await runner.progress(ticket, "half", command_id="c1")
    for _ in range(2):
        await runner.complete(ticket, "all", command_id="c2")
    with pytest.raises(ConfigurationError, match=r"'c2' belongs to another command, .* ticket_completed"):
        await runner.fail(ticket, "It withered.", command_id="c2")
    await runner.resume(result.task_id)
    await runner.progress(ticket, "half", command_id="c1")
    await runner.complete(ticket, "all", command_id="c2")
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
    task_id = (await s.stepped(runner)).task
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

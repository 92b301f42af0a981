"""Undo: messages and pending work are restored, effects are compensated, and the report is true."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, Ledger, calculator, look, sayer
from tests.runner.acts import (
    assert_well_formed,
    both,
    happened,
    journal,
    kinds,
    only,
    roles_and_texts,
    step_to_answer,
    stepped,
    until,
    verdicts,
)
from treadle import (
    Agent,
    Breakpoint,
    FailurePolicy,
    Happened,
    Limits,
    NotHappened,
    Runner,
    RunOptions,
    ScriptedModel,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.core.events import TaskCreated
from treadle.core.messages import Text
from treadle.errors import (
    AgentUnknown,
    AlreadyDecided,
    AlreadyFinalized,
    IrreversibleStep,
    StepFailed,
    TaskFinished,
    UndoUnfinished,
)
from treadle.llm.scripted import call, fail, text
from treadle.ports import Commit, CommitDone, InboxItem
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


def keeper(done: list[str], version: str) -> Agent[Any]:
    """Return an agent whose tool is undone by the same version of the agent."""

    async def unput(made: ToolCall, ctx: Any) -> None:
        done.append(f"{version} {made.arguments['what']}")

    @tool(undo=unput)
    async def put(what: str) -> str:
        """Put."""
        return what

    model = ScriptedModel([both(call("put", what="a"), call("put", what="b")), "Done."])
    return Agent(model, name="keeper", instructions=version, tools=[put])


async def test_a_call_is_taken_back_by_the_version_of_its_agent_that_made_it(runner: Runner) -> None:
    done: list[str] = []
    task = await runner.create_task(keeper(done, "old"), "?")
    await runner.run_step(task)
    await runner.create_task(keeper(done, "new"), "?")
    assert (await runner.undo_step(task)).complete
    assert done == ["old b", "old a"]


async def test_a_compensation_that_is_tried_again_knows_that_it_is(runner: Runner) -> None:
    attempts: list[int] = []

    async def unput(made: ToolCall, ctx: Any) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise ValueError("not now")

    @tool(undo=unput)
    async def put() -> str:
        """Put."""
        return "put"

    task = await runner.create_task(Agent(ScriptedModel([call("put")]), tools=[put]), "?")
    await runner.run_step(task)
    assert [(await runner.undo_step(task)).complete for _ in range(2)] == [False, True]
    started = [event.attempt for event in await only(runner, task, "tool_started") if event.undoes]
    assert (attempts, started) == ([1, 2], [1, 2])


async def test_an_undo_of_a_task_at_a_limit_restores_the_step_that_reached_it(runner: Runner) -> None:
    once = RunOptions(limits=Limits(steps=1), on_limit="pause")
    task = await runner.run(keeper([], "new"), "?", options=once)
    assert (task.state, task.steps) == ("paused", 1)
    await runner.undo_step(task.task_id)
    again = await runner.resume(task.task_id)
    assert (again.state, again.steps) == ("paused", 1)


# ---------------------------------------------------------------------------------------- what comes back


async def test_undo_takes_back_the_last_step_and_the_step_can_run_again_under_a_new_id(
    runner: Runner,
) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    before = await runner.result(task)
    await runner.run_step(task)
    report = await runner.undo_step(task)
    assert (report.complete, report.to, report.steps) == (True, 1, ("s2",))
    after, now = await runner.result(task), await runner.get_task(task)
    assert (after.messages, after.steps) == (before.messages, before.steps)
    assert after.tool_executions == before.tool_executions
    assert (now.state, now.driven) == ("running", False)
    (upcoming,) = await runner.get_upcoming_steps(task)
    assert upcoming.index == 2
    out = await runner.run_step(task)
    assert (out.step.step_id, out.tool_executions[0].call_id) == ("s2b1", "s2b1-0")
    assert agent.model.requests[-1].turn == 1, "a script is read again from where the task is"
    await runner.undo_step(task)
    assert (await runner.run_step(task)).step.step_id == "s2b2"
    assert (await step_to_answer(runner, task))[-1].output == "405"


async def test_undone_to_before_the_first_step_the_input_is_pending_again(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "What is it?")
    await step_to_answer(runner, task)
    await runner.undo_step(task, to=0)
    (upcoming,) = await runner.get_upcoming_steps(task)
    assert [part.text for part in upcoming.input] == ["What is it?"]
    assert (await runner.result(task)).messages == ()
    await runner.run_step(task)
    assert roles_and_texts(agent.model.requests[-1].messages) == [("user", "What is it?")]


async def test_undo_removes_nothing_from_the_journal(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, task)
    before = await journal(runner, task)
    await runner.undo_step(task, to=0)
    after = await journal(runner, task)
    assert after[: len(before)] == before
    assert [event.kind for event in after[len(before) :]] == ["undo_requested", "rewound"]


async def test_an_undo_restores_steps_and_tool_calls_and_the_limit_on_tokens_counts_what_was_spent(
    runner: Runner,
) -> None:
    agent = calculator(limits=Limits(steps=3, tool_calls=2))
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    spent = (await runner.result(task)).usage
    await runner.undo_step(task, to=0)
    now = (await runner.result(task)).usage
    assert (now.tool_calls, now.model_calls, now.total_tokens) == (0, 3, spent.total_tokens)
    outputs = await step_to_answer(runner, task)
    assert outputs[-1].output == "405", "the limits on steps and tool calls are free again"
    result = await runner.finalize(task)
    assert result.state == "completed"
    assert (result.steps, result.usage.tool_calls, result.usage.model_calls) == (3, 2, 6)
    assert result.usage.total_tokens == 2 * spent.total_tokens
    await runner.undo_step(task, to=0)
    limited = RunOptions(limits=Limits(tokens=2 * spent.total_tokens), on_limit="fail")
    result = await runner.resume(task, options=limited)
    assert (result.state, result.error and result.error.kind) == ("failed", "tokens")


async def test_messages_sent_before_the_undone_step_are_pending_again(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.run_step(task, input="Hurry.")
    await runner.run_step(task)
    await runner.undo_step(task, to=2)
    assert ("user", "Hurry.") in roles_and_texts((await runner.result(task)).messages)
    await runner.undo_step(task, to=1)
    assert ("user", "Hurry.") not in roles_and_texts((await runner.result(task)).messages)


async def test_a_failed_step_can_be_taken_back(runner: Runner) -> None:
    task = await runner.create_task(sayer(fail(500), "Hi."), "Hello")
    with pytest.raises(StepFailed):
        await runner.run_step(task)
    report = await runner.undo_step(task)
    assert (report.complete, report.to) == (True, 0)
    (upcoming,) = await runner.get_upcoming_steps(task)
    assert (upcoming.index, upcoming.attempt, upcoming.status) == (1, 1, "next")


# ---------------------------------------------------------------------------------------- ended tasks


async def test_undo_of_a_completed_task_removes_its_messages_from_its_thread(runner: Runner) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    before = await runner.get_thread("talk")
    result = await stepped(runner, calculator(), "?", thread_id="talk")
    await runner.undo_step(result.task_id)
    assert await runner.get_thread("talk") == before
    assert (await runner.get_task(result.task_id)).state == "running"
    seen = await kinds(runner, result.task_id)
    assert seen[-4:] == ["task_ended", "task_reopened", "undo_requested", "rewound"]
    again = await runner.resume(result.task_id)
    assert (again.final_text, again.attempt) == ("405", 2)
    assert len(await runner.get_thread("talk")) == len(before) + 6


async def test_undo_of_a_task_with_newer_turns_after_it_is_refused(runner: Runner) -> None:
    first = await runner.run(calculator(), "?", thread_id="talk")
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    thread = await runner.get_thread("talk")
    before = await journal(runner, first.task_id)
    with pytest.raises(AlreadyFinalized, match="fork"):
        await runner.undo_step(first.task_id)
    assert await runner.get_thread("talk") == thread
    assert await journal(runner, first.task_id) == before
    task = await runner.get_task(first.task_id)
    assert (task.state, task.driven) == ("completed", False)
    assert (await runner.fork(first.task_id, at="s1")).state == "created"


async def test_what_is_foreseen_of_an_undo_is_what_it_is_refused_for_first(runner: Runner) -> None:
    @tool
    async def send() -> str:
        """Send."""
        return "sent"

    first = await runner.run(
        Agent(ScriptedModel([call("send"), "Sent."]), tools=[send]), "?", thread_id="talk"
    )
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    foreseen = await runner.undo_step(first.task_id, to=0, dry_run=True)
    with pytest.raises(IrreversibleStep) as refused:
        await runner.undo_step(first.task_id, to=0)
    assert (foreseen.complete, foreseen.problem) == (False, str(refused.value))
    for dry_run in (True, False):
        with pytest.raises(AlreadyFinalized, match="fork"):
            await runner.undo_step(first.task_id, to=0, force=True, dry_run=dry_run)


async def test_a_refused_undo_releases_a_task_with_unread_messages() -> None:
    class Counting(MemoryStore):
        left = 30

        def commit(self, commit: Commit, done: CommitDone) -> None:
            self.left -= 1
            assert self.left, "it is given back again and again"
            super().commit(commit, done)

    async with Runner(Counting()) as runner:
        agent = sayer()
        first = await runner.run(agent, "1", thread_id="talk")
        await runner.run(agent, "2", thread_id="talk")
        # As one leaves them whose process dies before it has seen that the task has ended.
        await runner.store.post(first.task_id, InboxItem("late", "send", {"parts": ["And?"]}, 0))
        with pytest.raises(AlreadyFinalized):
            await runner.undo_step(first.task_id)
        assert await runner.store.inbox(first.task_id) == []
        assert (await runner.get_task(first.task_id)).driven is False


async def test_undo_of_a_degraded_or_failed_task_opens_it_in_a_new_attempt(runner: Runner) -> None:
    result = await runner.run(calculator(limits=Limits(steps=1)), "?", task_id="d")
    assert result.state == "degraded"
    await runner.undo_step("d", to=0)
    again = await runner.resume("d", options=RunOptions(limits=Limits(steps=5)))
    assert (again.state, again.final_text, again.degraded_reasons) == ("completed", "405", ())
    result = await runner.run(calculator(call("add", a=1, b=1), fail(500), "2"), "?", task_id="f")
    assert result.state == "failed"
    assert (await runner.undo_step("f", to=0, by="ann")).steps == ("s1", "s2")
    (reopened,) = await only(runner, "f", "task_reopened")
    assert (reopened.attempt, reopened.reason, reopened.by) == (2, "undo", "ann")
    assert (await runner.get_task("f")).state == "running"


async def test_a_cancelled_task_is_not_undone(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    await runner.cancel(task)
    with pytest.raises(TaskFinished, match="is cancelled, for good: fork it"):
        await runner.undo_step(task)


# ------------------------------------------------------------------------------------------ compensation


async def test_calls_are_compensated_newest_first_each_journalled(runner: Runner) -> None:
    ledger = Ledger()
    agent = ledger.agent(
        both(call("book", what="1"), call("look", what="a"), call("book", what="2")),
        call("book", what="3"),
        "done",
    )
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    ledger.entries.clear()
    report = await runner.undo_step(task, to=0)
    assert ledger.entries == ["unbook 3 (3 booked)", "unbook 2 (2 booked)", "unbook 1 (1 booked)"]
    assert verdicts(report) == [
        ("s2-0", "compensated"),
        ("s1-2", "compensated"),
        ("s1-1", "nothing_to_compensate"),
        ("s1-0", "compensated"),
    ]
    assert report.left == ()
    events = await journal(runner, task)
    begin = next(n for n, event in enumerate(events) if event.kind == "undo_requested")
    assert [event.kind for event in events[begin:]] == [
        "undo_requested",
        *("tool_started", "tool_ended") * 3,
        "rewound",
    ]
    assert [e.undoes for e in events[begin:] if e.kind == "tool_started"] == ["s2-0", "s1-2", "s1-0"]


async def test_a_compensation_gets_the_call_and_a_context_of_its_own(runner: Runner) -> None:
    seen: list[Any] = []

    def take_back(made: Any, ctx: ToolContext) -> None:
        seen.append((made.name, made.arguments, made.output, ctx.context, ctx.call_id, ctx.idempotency_key))

    @tool(undo=take_back)
    async def make(n: int) -> dict[str, int]:
        """Make."""
        return {"made": n}

    agent = Agent(ScriptedModel([call("make", n=1), "done"]), name="maker", tools=[make])
    task = await runner.create_task(agent, "?", task_id="m")
    await runner.run_step(task)
    await runner.undo_step(task, context="the context")
    created = (await journal(runner, "m"))[0]
    assert isinstance(created, TaskCreated)
    key = f"m/{created.incarnation}/s1-0-undo"
    assert seen == [("make", {"n": 1}, {"made": 1}, "the context", "s1-0-undo", key)]


async def test_undo_without_effects_needs_no_agent_and_one_with_effects_does(store: Any) -> None:
    ledger = Ledger()
    async with Runner(store) as runner:
        await runner.run(calculator(), "?", task_id="reads")
        await runner.run(ledger.agent(call("book", what="1"), "done"), "?", task_id="writes")
    async with Runner(store) as runner:
        assert (await runner.undo_step("reads", to=0)).complete
        with pytest.raises(AgentUnknown, match="clerk"):
            await runner.undo_step("writes", to=0)
        assert (await runner.get_task("writes")).state == "completed"
        assert (await runner.undo_step("writes", to=0, agent=ledger.agent())).complete
    assert ledger.entries == ["book 1", "unbook 1 (1 booked)"]


async def test_a_compensation_that_raises_stops_the_undo_until_the_next_undo_resumes_it(
    runner: Runner,
) -> None:
    broken = {"unbook 2 (2 booked)": True}
    ledger = Ledger(fails=lambda entry: broken.get(entry, False))
    agent = ledger.agent(*(call("book", what=str(n)) for n in (1, 2, 3)), "done")
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    ledger.entries.clear()
    report = await runner.undo_step(task, to=0)
    assert report.complete is False
    assert verdicts(report) == [
        ("s3-0", "compensated"),
        ("s2-0", "not_compensated"),
        ("s1-0", "not_compensated"),
    ]
    assert report.problem is not None
    assert "compensation of book (s2-0) failed" in report.problem
    assert "cannot unbook 2" in report.problem
    now = await runner.get_task(task)
    assert (now.state, now.driven) == ("waiting", False)
    for verb in (runner.run_step, runner.resume, runner.finalize):
        with pytest.raises(UndoUnfinished, match="call undo_step again"):
            await verb(task)
    broken.clear()
    report = await runner.undo_step(task)
    assert report.complete
    assert verdicts(report) == [("s3-0", "compensated"), ("s2-0", "compensated"), ("s1-0", "compensated")]
    assert ledger.entries == ["unbook 3 (3 booked)", "unbook 2 (2 booked)", "unbook 1 (1 booked)"]
    assert (await runner.get_task(task)).steps == 0
    assert (await step_to_answer(runner, task))[-1].output == "done"


async def test_a_compensation_that_raises_can_be_skipped_by_force(runner: Runner) -> None:
    ledger = Ledger(fails=lambda entry: entry.startswith("unbook 2"))
    agent = ledger.agent(call("book", what="1"), call("book", what="2"), "done")
    task = await runner.create_task(agent, "?")
    await step_to_answer(runner, task)
    assert (await runner.undo_step(task, to=0)).complete is False
    report = await runner.undo_step(task, force=True)
    assert report.complete
    assert verdicts(report) == [("s2-0", "not_compensated"), ("s1-0", "compensated")]
    assert report.calls[0].why is not None
    assert "cannot unbook 2" in report.calls[0].why
    assert report.left == ("s2-0",)


async def test_undo_of_a_call_of_unknown_outcome_is_refused_or_forced_as_unknown(runner: Runner) -> None:
    ledger = Ledger()

    async def unbook(booked: ToolCall, ctx: Any) -> None:
        ledger.enter("unbook")

    @tool(undo=unbook, timeout=0.05)
    async def book() -> str:
        """Book something, and hang."""
        await asyncio.sleep(30)
        return "booked"

    agent = Agent(ScriptedModel([call("book"), "done"]), name="clerk", tools=[book])
    task = await runner.create_task(agent, "?", options=RunOptions(on_unknown_outcome="tell_model"))
    assert [item.outcome for item in (await runner.run_step(task)).tool_executions] == ["unknown"]
    with pytest.raises(IrreversibleStep, match=r"book \(s1-0\)"):
        await runner.undo_step(task)
    report = await runner.undo_step(task, force=True)
    assert (verdicts(report), report.left) == ([("s1-0", "unknown")], ("s1-0",))
    assert ledger.entries == []


async def test_a_writing_call_that_raised_is_reported_as_not_compensated(runner: Runner) -> None:
    ledger = Ledger(fails=lambda entry: entry == "book 1")
    task = await runner.create_task(ledger.agent(call("book", what="1"), "done"), "?")
    await step_to_answer(runner, task)
    report = await runner.undo_step(task, to=0)
    assert report.complete
    assert verdicts(report) == [("s1-0", "not_compensated")]
    assert "waiting" not in str(report.calls[0].why)
    assert ledger.entries == []


async def test_a_redone_call_has_another_idempotency_key(runner: Runner) -> None:
    keys: list[str] = []

    @tool(idempotent=True, undo=lambda made, ctx: None)
    async def put(ctx: ToolContext) -> None:
        """Put."""
        keys.append(ctx.idempotency_key)

    agent = Agent(ScriptedModel([call("put"), "done"]), name="putter", tools=[put])
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.undo_step(task)
    await runner.run_step(task)
    assert keys == [f"{task}/s1-0", f"{task}/s1b1-0"]


async def test_an_undo_in_the_middle_of_a_paused_batch_closes_its_open_calls(runner: Runner) -> None:
    ledger = Ledger()
    options = RunOptions(break_on=[Breakpoint(before_tool="book")])
    task = await runner.create_task(ledger.agent(call("book", what="1"), "done"), "?", options=options)
    assert (await runner.resume(task)).state == "paused"
    report = await runner.undo_step(task)
    assert (report.complete, verdicts(report)) == (True, [("s1-0", "nothing_to_compensate")])
    assert ledger.entries == []
    assert (await runner.get_task(task)).state == "running"


async def test_undone_again_and_again_a_task_can_be_verified_and_its_conversation_is_well_formed(
    runner: Runner,
) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?")
    for keep in (2, 1, 0):
        await step_to_answer(runner, task)
        await runner.undo_step(task, to=keep)
    report = await runner.verify(task)
    assert (report.findings, report.events) == ((), len(await journal(runner, task)))
    result = await runner.resume(task)
    for messages in (*[request.messages for request in agent.model.requests], result.messages):
        assert_well_formed(messages)


async def lost_compensation(store: Any, ledger: Ledger) -> str:
    """Return a task whose undo was cut off during a compensation, whose outcome is unknown."""
    entered = asyncio.Event()

    async def hang(made: Any, ctx: Any) -> None:
        ledger.enter("unbook")
        entered.set()
        await asyncio.sleep(30)

    @tool(name="book", undo=hang)
    async def book(what: str) -> str:
        """Book."""
        ledger.enter("book")
        return what

    agent = Agent(ScriptedModel([call("book", what="1"), "done"]), name="clerk", tools=[book])
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "?")
        await runner.run_step(task)
        undo = asyncio.ensure_future(runner.undo_step(task))
        await entered.wait()
        undo.cancel()
        with pytest.raises(asyncio.CancelledError):
            await undo
        return task.task_id


@pytest.mark.parametrize("verdict", [Happened(), NotHappened()], ids=["happened", "not happened"])
async def test_a_compensation_that_was_cut_is_not_repeated_but_settled(store: Any, verdict: Any) -> None:
    ledger = Ledger()
    task_id = await lost_compensation(store, ledger)
    async with Runner(store, agents=[ledger.agent()]) as runner:
        report = await runner.undo_step(task_id)
        assert report.complete is False
        assert verdicts(report) == [("s1-0", "unknown")]
        assert ledger.entries == ["book", "unbook"]
        pending = (await runner.result(task_id)).pending
        assert [(item.request_id, item.kind) for item in pending] == [("s1-0-undo", "settlement")]
        with pytest.raises(UndoUnfinished):
            await runner.run_step(task_id)
        await runner.settle(task_id, "s1-0-undo", verdict, by="ann")
        again = []
        if isinstance(verdict, NotHappened):
            report = await runner.undo_step(task_id)
            assert (report.complete, verdicts(report)) == (True, [("s1-0", "compensated")])
            again = ["unbook 1 (1)"]
        assert ledger.entries == ["book", "unbook", *again]
        (rewound,) = await only(runner, task_id, "rewound")
        assert [undone.verdict for undone in rewound.calls] == ["compensated"]
        assert (await runner.get_task(task_id)).steps == 0
        assert pending[0].idempotency_key == f"{task_id}/s1-0-undo"
        await runner.settle(task_id, "s1-0-undo", verdict)  # a second settlement changes nothing
        with pytest.raises(AlreadyDecided, match="s1-0-undo is settled as"):
            await runner.settle(
                task_id, "s1-0-undo", Happened() if isinstance(verdict, NotHappened) else NotHappened()
            )


def clerk_whose_undo_waits() -> tuple[Agent[Any], asyncio.Event, asyncio.Event]:
    """An agent that books, and two events: its compensation was entered, and it may end."""
    entered, opened = asyncio.Event(), asyncio.Event()

    async def unbook(booked: Any, ctx: Any) -> None:
        entered.set()
        await opened.wait()

    @tool(undo=unbook)
    async def book() -> str:
        """Book."""
        return "booked"

    agent = Agent(ScriptedModel([call("book"), "done"]), name="clerk", tools=[book])
    return agent, entered, opened


async def test_a_message_sent_during_a_compensation_is_read_after_the_undo(runner: Runner) -> None:
    agent, entered, opened = clerk_whose_undo_waits()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    undoing = asyncio.ensure_future(runner.undo_step(task))
    await entered.wait()
    await runner.send(task, "Another hotel.")
    await happened(runner.handle(task), "input_received")
    opened.set()
    assert (await undoing).complete
    assert roles_and_texts((await runner.resume(task)).messages)[:2] == [
        ("user", "?"),
        ("user", "Another hotel."),
    ]


async def test_a_message_sent_after_an_undo_request_is_read_after_the_undo(runner: Runner) -> None:
    """Also when the undo waits for a call in flight, for which a message need not wait."""
    gate = Gate()
    agent = Agent(ScriptedModel([call("work"), "done"]), name="clerk", tools=[gate.tool])
    handle = await runner.start(agent, "?")
    await gate.entered.wait()
    undoing = asyncio.ensure_future(handle.undo_step(force=True))
    while not await runner.store.inbox(handle.task_id):  # noqa: ASYNC110  it is on its way there
        await asyncio.sleep(0.001)
    await handle.send("Another way.")
    gate.let_go.set()
    assert (await undoing).complete
    assert roles_and_texts((await handle.resume()).messages)[:2] == [("user", "?"), ("user", "Another way.")]


async def test_a_message_sent_between_two_attempts_of_an_undo_is_read_after_it(runner: Runner) -> None:
    broken = [True]
    ledger = Ledger(lambda entry: entry.startswith("unbook") and broken[0])
    task = await runner.create_task(ledger.agent(call("book", what="room"), "done"), "?")
    await runner.run_step(task)
    assert not (await runner.undo_step(task)).complete
    await runner.send(task, "Another hotel.")
    broken[0] = False
    assert (await runner.undo_step(task)).complete
    assert (await runner.get_upcoming_steps(task))[0].input == (Text("?"), Text("Another hotel."))
    assert await audit_store(runner.store) == []


async def test_a_pause_during_an_undo_lets_the_compensation_end(runner: Runner) -> None:
    agent, entered, opened = clerk_whose_undo_waits()
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    undoing = asyncio.ensure_future(runner.undo_step(task))
    await entered.wait()
    pausing = asyncio.ensure_future(runner.pause(task))
    await happened(runner.handle(task), "pause_requested")
    opened.set()
    report = await undoing
    assert (report.complete, verdicts(report)) == (True, [("s1-0", "compensated")])
    assert (await pausing).state == "paused"
    assert (await runner.resume(task)).state == "completed"


async def test_a_compensation_that_takes_too_long_has_an_unknown_outcome(runner: Runner) -> None:
    async def hang(made: Any, ctx: Any) -> None:
        await asyncio.sleep(30)

    @tool(undo=hang, timeout=0.05)
    async def book(what: str) -> str:
        """Book."""
        return what

    agent = Agent(ScriptedModel([call("book", what="1"), "done"]), name="clerk", tools=[book])
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    async with asyncio.timeout(5):
        report = await runner.undo_step(task)
    assert (report.complete, verdicts(report)) == (False, [("s1-0", "unknown")])
    stopped = await only(runner, task.task_id, "tool_stopped")
    assert [(event.call, event.reason) for event in stopped] == [("s1-0-undo", "timeout")]


async def test_a_policy_that_degrades_is_undone_with_its_reason(runner: Runner) -> None:
    ledger = Ledger(fails=lambda entry: entry == "look a")
    options = RunOptions(on_failure=FailurePolicy(tool="degrade"))
    agent = ledger.agent(call("look", what="a"), "done")
    task = await runner.create_task(agent, "?", options=options)
    await step_to_answer(runner, task)
    assert (await runner.result(task)).degraded_reasons == ("look failed: RuntimeError: cannot look a",)
    await runner.undo_step(task, to=0)
    assert (await runner.result(task)).degraded_reasons == ()


async def test_a_task_undone_by_its_driver_to_its_answer_does_not_end(runner: Runner) -> None:
    model = ScriptedModel([text("One."), text("Two.", delay=60)])
    agent = Agent(model, name="speaker")
    task = await runner.create_task(agent, "First")
    await runner.run_step(task)
    await runner.send(task, "And then?")
    driven = asyncio.ensure_future(runner.resume(task, agent=agent))
    await until(lambda: len(model.requests) == 2)
    report = await runner.undo_step(task)
    assert (report.complete, report.steps) == (True, ("s2",))
    assert ((await driven).state, (await runner.get_task(task)).state) == ("answered", "answered")
    assert (await runner.finalize(task)).final_text == "One."


async def test_an_undo_request_to_another_driver_names_the_step(runner: Runner) -> None:
    model = ScriptedModel([call("look"), call("look"), text("Late.", delay=60)])
    handle = await runner.start(Agent(model, name="looker", tools=[look]), "Go")
    await until(lambda: len(model.requests) == 3)
    report = await handle.undo_step(step=2)
    assert (report.to, report.steps) == (1, ("s2", "s3"))


async def test_a_failed_call_was_reported_to_lack_a_compensation(runner: Runner) -> None:
    ledger = Ledger(fails=lambda entry: entry.startswith("mail"))
    task = await runner.create_task(ledger.agent(call("mail", to="ann"), "done"), "?")
    await step_to_answer(runner, task)
    report = await runner.undo_step(task, to=0)
    assert report.complete
    assert report.calls[0].why == "the call ended as error, so there is no result to take back"

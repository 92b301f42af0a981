"""A call that had begun, and had taken effect, was recorded as "was not run" when it was cut off."""

import asyncio
from typing import Any

import pytest

from tests.runner.acts import results_seen, until
from treadle import (
    Agent,
    FailurePolicy,
    Limits,
    NextStep,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.rules.fold import fold
from treadle.core.state import start
from treadle.engine import undo_plan
from treadle.errors import CallNotFound, ForkPointBusy, IrreversibleStep
from treadle.llm.scripted import call
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


class Rooms:
    """A tool that books a room at once, and then takes its time to say so."""

    def __init__(self, *, takes: float = 30, **declared: Any) -> None:
        self.booked: list[str] = []
        self.ledger: list[LedgerEntry] = []
        self.takes = takes
        self.declared = declared or {"idempotent": True}
        effect = "read" if "read_only" in self.declared else "idempotent"

        async def book(ctx: ToolContext) -> str:
            self.booked.append(ctx.idempotency_key)
            for phase in ("start", "done"):
                self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, effect, phase, ctx.task_id))
            await asyncio.sleep(self.takes)
            return "room 7"

        self.tool = tool(book, **self.declared)

    async def agree(self, runner: Runner) -> None:
        assert await audit_store(runner.store, Evidence(ledger=self.ledger)) == []


def clerk(rooms: Rooms, *turns: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("book"), *turns, "Done."]), name="clerk", tools=[rooms.tool], **options)


async def cancelled(runner: Runner, rooms: Rooms, **options: Any) -> Any:
    """Return how a task stands that was cancelled while its call was at work."""
    handle = await runner.start(clerk(rooms), "A room", **options)
    await until(lambda: bool(rooms.booked))
    return await handle.cancel()


async def test_a_cancelled_task_reports_its_cut_off_call_as_unknown() -> None:
    rooms = Rooms()
    async with Runner(MemoryStore()) as runner:
        result = await cancelled(runner, rooms)
        execution = result.tool_executions[0]
        assert (result.state, execution.outcome) == ("cancelled", "unknown")
        assert execution.error.message.startswith("outcome_unknown: book began")
        await rooms.agree(runner)


async def test_the_next_model_on_the_thread_does_not_read_that_the_call_was_not_run() -> None:
    rooms = Rooms()
    async with Runner(MemoryStore()) as runner:
        await cancelled(runner, rooms, thread_id="trip", options=RunOptions(keep_in_thread="always"))
        next_one = Agent(ScriptedModel(["I see."]))
        await runner.run(next_one, "Have I a room?", thread_id="trip")
        results = results_seen(next_one.model.requests[0].messages)  # type: ignore[union-attr]
        assert [text[:27] for text in results] == ["outcome_unknown: book began"]


async def test_a_cancelled_read_is_reported_as_stopped() -> None:
    rooms = Rooms(read_only=True)
    async with Runner(MemoryStore()) as runner:
        execution = (await cancelled(runner, rooms)).tool_executions[0]
        assert execution.outcome == "cancelled"
        assert "book was stopped after it began" in execution.error.message
        assert "was not run" not in execution.error.message
        await rooms.agree(runner)


@pytest.mark.parametrize("on_limit", ["fail", "final_answer"])
async def test_an_undo_after_a_limit_on_time_is_refused_and_names_the_unknown_call(
    on_limit: Any,
) -> None:
    rooms = Rooms()
    agent = clerk(rooms)
    options = RunOptions(limits=Limits(seconds=0.2), on_limit=on_limit)
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        result = await runner.run(agent, "A room", options=options)
        assert (len(rooms.booked), result.tool_executions[0].outcome) == (1, "unknown")
        with pytest.raises(IrreversibleStep, match="book"):
            await runner.undo_step(result.task_id)
        report = await runner.undo_step(result.task_id, force=True)
        assert [(call.tool, call.verdict) for call in report.calls] == [("book", "unknown")]
        await rooms.agree(runner)


async def test_a_step_that_lost_a_race_reports_its_cut_off_call_as_unknown() -> None:
    rooms = Rooms()

    async def work(ctx: StepContext) -> StepResult:
        match ctx.name:
            case "start":
                both = (NextStep("slow"), NextStep("quick"))
                return StepResult(next_steps=[*both, NextStep("end", after=("slow", "quick"), join="any")])
            case "slow":
                await ctx.call_tool("book", {})
            case "quick":
                while not rooms.booked:  # noqa: ASYNC110  the other step is elsewhere
                    await asyncio.sleep(0.001)
            case _:
                return StepResult("done", is_last=True)
        return StepResult()

    agent = Agent(ScriptedModel([]), name="racer", tools=[rooms.tool], worker=work)
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        result = await runner.run(agent, "A room", options=RunOptions(max_parallel_steps=2))
        assert result.state == "completed"
        assert [execution.outcome for execution in result.tool_executions] == ["unknown"]
        with pytest.raises(IrreversibleStep, match="book"):
            await runner.undo_step(result.task_id, to=0)
        report = await runner.undo_step(result.task_id, to=0, force=True)
        assert [(call.tool, call.verdict) for call in report.calls] == [("book", "unknown")]
        await rooms.agree(runner)


async def test_a_repeatable_call_that_took_too_long_is_unknown_and_its_undo_is_refused() -> None:
    rooms = Rooms(idempotent=True, timeout=0.05)
    agent = clerk(rooms)
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        result = await runner.run(agent, "A room")
        execution = result.tool_executions[0]
        assert (result.state, execution.outcome, execution.error.kind) == ("completed", "unknown", "timeout")
        assert "book took longer than 0.05 s" in execution.error.message
        with pytest.raises(IrreversibleStep, match="book"):
            await runner.undo_step(result.task_id, to=0)
        await rooms.agree(runner)


async def test_a_failure_policy_still_takes_a_repeatable_call_that_took_too_long_for_a_failure() -> None:
    rooms = Rooms(idempotent=True, timeout=0.05)
    agent = clerk(rooms)
    options = RunOptions(on_failure=FailurePolicy(tool="fail"))
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        result = await runner.run(agent, "A room", options=options)
        assert result.state == "failed"
        rooms.takes = 0
        second_result = await runner.resume(result.task_id)
        assert (second_result.state, second_result.tool_executions[0].outcome) == ("completed", "ok")
        assert (len(rooms.booked), len(set(rooms.booked))) == (2, 1), "one key for one call"


async def test_a_failed_second_attempt_leaves_the_outcome_of_the_first_unknown() -> None:
    booked: list[int] = []

    @tool(idempotent=True)
    async def book(ctx: ToolContext) -> str:
        booked.append(ctx.attempt)
        if ctx.attempt > 1:
            raise ConnectionError("no route to the hotel")
        await asyncio.sleep(30)
        return "room 7"

    agent = Agent(ScriptedModel([call("book"), "Done."]), name="clerk", tools=[book])
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        handle = await runner.start(agent, "A room")
        await until(lambda: bool(booked))
        await handle.interrupt()
        execution = (await handle.resume()).tool_executions[0]
        assert (booked, execution.outcome, execution.error.kind) == ([1, 2], "unknown", "error")
        assert "no route to the hotel" in execution.error.message
        assert "begun 2 times, each time with the same idempotency key" in execution.error.message


async def test_a_call_that_was_cut_off_stays_unknown_after_its_tool_was_removed() -> None:
    rooms = Rooms()
    agent = clerk(rooms)
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        handle = await runner.start(agent, "A room")
        await until(lambda: bool(rooms.booked))
        await handle.interrupt()
        newer = Agent(ScriptedModel(["Done.", "Done."]), name="clerk")
        result = await runner.resume(handle.task_id, agent=newer)
        assert result.tool_executions[0].outcome == "unknown"
        await rooms.agree(runner)


async def test_the_arguments_of_a_call_that_was_cut_off_are_not_changed_under_its_key() -> None:
    rooms = Rooms()
    agent = clerk(rooms)
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        handle = await runner.start(agent, "A room")
        await until(lambda: bool(rooms.booked))
        await handle.interrupt()
        with pytest.raises(CallNotFound):
            await runner.edit_call(handle.task_id, "s1-0", {"city": "Oslo"})


async def test_a_fork_does_not_begin_a_call_again_that_was_cut_off() -> None:
    rooms = Rooms()
    agent = clerk(rooms)
    async with Runner(MemoryStore(), agents=[agent]) as runner:
        handle = await runner.start(agent, "A room")
        await until(lambda: bool(rooms.booked))
        await handle.interrupt()
        task = await runner.get_task(handle.task_id)
        with pytest.raises(ForkPointBusy):
            await runner.fork(handle.task_id, at=task.head)


async def test_a_subagent_that_a_limit_ended_may_have_changed_something() -> None:
    rooms = Rooms()
    below = clerk(rooms)
    boss = Agent(
        ScriptedModel([call("clerk", input="Book"), "Done."]), name="boss", tools=[], subagents=[below]
    )
    options = RunOptions(limits=Limits(seconds=0.3), on_limit="fail")
    async with Runner(MemoryStore(), agents=[boss]) as runner:
        result = await runner.run(boss, "A room", options=options)
        assert (len(rooms.booked), result.state) == (1, "failed")
        execution = result.subagent_executions[0]
        assert execution.outcome == "cancelled"
        with pytest.raises(IrreversibleStep, match="clerk"):
            await runner.undo_step(result.task_id)
        report = await runner.undo_step(result.task_id, force=True)
        assert [call.verdict for call in report.calls] == ["not_compensated"]
        await rooms.agree(runner)


def test_a_start_that_never_reached_the_tool_leaves_only_earlier_ones_in_doubt() -> None:
    first, second = e.ToolStarted("s1", "s1-0", "idempotent"), e.ToolStopped("s1", "s1-0", "interrupted")
    unentered = e.OutcomeSettled("s1", "s1-0", "not_happened", by="runner")
    call_state = fold(start("t"), story(first, second, unentered)).find_call("s1-0")
    repeated = fold(start("t"), story(first, second, first, second, unentered)).find_call("s1-0")
    assert (call_state and call_state.in_doubt, repeated and repeated.in_doubt) == (False, True)


@pytest.mark.parametrize("harmless", [False, True])
def test_a_subagent_that_runs_again_may_have_changed_something_before(harmless: bool) -> None:
    run = e.ToolStarted("s1", "s1-0", "agent", child="t.s1-0")
    error = e.Failure("subagent", "error", "clerk failed: no", "s1-0")
    failed = e.ToolEnded("s1", "s1-0", "error", error=error, harmless=harmless)
    second_attempt = [e.StepFailed("s1", error), e.StepStarted("s1", 1, 2)]
    anew = fold(start("t"), story(run, failed, *second_attempt)).find_call("s1-0r2")
    assert anew is not None
    assert anew.in_doubt != harmless


def story(*then: e.Event) -> list[e.Event]:
    """Return the events of a task whose model asked for a booking, and what followed."""
    message = Message("assistant", (ToolCall("s1-0", "book", {}),))
    events: list[e.Event] = [
        e.TaskCreated("clerk", (Text("A room"),), "trip"),
        e.StepStarted("s1", 1),
        e.ModelStarted("s1", "m"),
        e.ModelReturned("s1", message, "tool_calls"),
        *then,
    ]
    fresh = [type(event)(**{name: getattr(event, name) for name in event.__slots__}) for event in events]
    for seq, event in enumerate(fresh, 1):
        event.seq = seq
    return fresh


@pytest.mark.parametrize("outcome", ["cancelled", "refused", "timeout", "invalid"])
def test_an_older_journal_that_calls_it_not_run_is_not_believed_by_an_undo(outcome: Any) -> None:
    begun = e.ToolStarted("s1", "s1-0", "idempotent")
    cut = [] if outcome == "timeout" else [e.ToolStopped("s1", "s1-0", "interrupted")]
    error = e.Failure("tool", outcome, "book was not run: the limit on seconds was reached.", "s1-0")
    ended = e.ToolEnded("s1", "s1-0", outcome, error=error)
    state = fold(start("t"), story(begun, *cut, ended, e.StepCompleted("s1")))
    with pytest.raises(IrreversibleStep, match="book"):
        undo_plan.plan(state, None, force=False, by=None)


async def test_a_call_that_a_person_settled_as_not_happened_can_be_undone() -> None:
    begun, lost = e.ToolStarted("s1", "s1-0", "write"), e.ToolStopped("s1", "s1-0", "crash")
    settled = e.OutcomeSettled("s1", "s1-0", "not_happened", by="me")
    state = fold(start("t"), story(begun, lost, settled))
    assert undo_plan.plan(state, None, force=False, by=None).event.calls == ()

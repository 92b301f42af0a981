"""Every effect has exactly one end that says what happened, also if it cancels itself or never began."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cast import Gate, Ledger, calculator
from tests.runner.acts import both, only, until
from treadle import Agent, Happened, Limits, NotHappened, Runner, RunOptions, ScriptedModel, tool
from treadle.core.tools import ToolSpec
from treadle.llm.scripted import call
from treadle.ports import Commit, CommitDone, ToolOutput
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Foreign:
    """A tool of a custom class with a method that cancels itself, or raises."""

    def __init__(self, cancels: str, **declared: Any) -> None:
        self.spec = ToolSpec(name="foreign", **declared)
        self.cancels = cancels
        self.gate: asyncio.Event | None = None
        self.error: BaseException = asyncio.CancelledError()
        self.entered: list[str] = []

    def validate(self, arguments: Any) -> Any:
        return arguments

    def enter(self, method: str, ctx: Any) -> None:
        self.entered.append(f"{method} {ctx.call_id} {ctx.attempt}")
        if method == self.cancels:
            raise self.error

    async def call(self, arguments: Any, ctx: Any) -> ToolOutput:
        self.enter("call", ctx)
        if self.gate is not None:
            await self.gate.wait()
        return ToolOutput("done")

    async def undo(self, made: Any, ctx: Any) -> None:
        self.enter("undo", ctx)

    async def reconcile(self, lost: Any, ctx: Any) -> Any:
        self.enter("reconcile", ctx)
        raise ValueError("who knows")


class Quitter:
    """A model whose adapter cancels itself."""

    name = "quitter"

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        raise asyncio.CancelledError
        yield


async def test_a_model_that_cancels_itself_fails_its_task(runner: Runner) -> None:
    result = await runner.run(Agent(Quitter()), "Go.")
    assert result.error is not None
    assert (result.state, result.error.source) == ("failed", "model")
    assert "cancelled itself" in result.error.message


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_tool_that_cancels_itself_has_failed_and_its_sibling_has_not(
    runner: Runner, calls: int
) -> None:
    @tool(read_only=True)
    async def stay() -> str:
        """Stay."""
        await asyncio.sleep(0.01)
        return "stayed"

    calls_made = [call("foreign"), call("stay")][:calls]
    agent = Agent(ScriptedModel([both(*calls_made), "done"]), tools=[Foreign("call", read_only=True), stay])
    result = await runner.run(agent, "Go.")
    assert (result.state, [run.outcome for run in result.tool_executions]) == (
        "completed",
        ["error", "ok"][:calls],
    )
    assert "cancelled itself" in result.tool_executions[0].error.message  # type: ignore[union-attr]


async def test_a_compensation_that_cancels_itself_has_failed_and_can_be_tried_again(runner: Runner) -> None:
    foreign = Foreign("undo", undoable=True)
    agent = Agent(ScriptedModel([call("foreign"), "done"]), tools=[foreign])
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    report = await runner.undo_step(task)
    assert not report.complete
    assert "cancelled itself" in str(report.problem)
    foreign.cancels = ""
    assert (await runner.undo_step(task)).complete
    assert foreign.entered == ["call s1-0 1", "undo s1-0-undo 1", "undo s1-0-undo 2"]


async def test_an_undo_with_an_agent_whose_tool_lost_its_undo_is_an_error(runner: Runner) -> None:
    ledger = Ledger()
    task = await runner.create_task(ledger.agent(call("book", what="a"), "done"), "?")
    await runner.run_step(task)

    @tool
    async def book(what: str) -> str:
        """Book."""
        return what

    forgetful = Agent(ScriptedModel(["done"]), name="clerk", tools=[book])
    async with Runner(runner.store, agents=[forgetful]) as other:
        report = await other.undo_step(task.task_id)
    assert (report.complete, ledger.entries) == (False, ["book a"])
    assert "no tool book with undo=" in str(report.problem)
    assert (await runner.undo_step(task)).complete
    assert ledger.entries == ["book a", "unbook a (a booked)"]


@pytest.mark.parametrize("cancels", [True, False], ids=["cancels itself", "raises"])
async def test_a_call_whose_reconcile_fails_waits_to_be_settled(runner: Runner, cancels: bool) -> None:
    foreign = Foreign("reconcile" if cancels else "", reconcilable=True)
    foreign.gate = asyncio.Event()
    handle = await runner.start(Agent(ScriptedModel([call("foreign"), "done"]), tools=[foreign]), "Go.")
    await until(lambda: bool(foreign.entered))
    await handle.interrupt()
    foreign.gate.set()
    result = await handle.resume()
    (pending,) = result.pending
    assert ("cancelled itself" if cancels else "who knows") in pending.text
    await handle.settle(pending.request_id, NotHappened())
    assert (await handle.resume()).state == "completed"
    assert foreign.entered == ["call s1-0 1", "reconcile s1-0 1", "call s1-0 2"]


class Slow(MemoryStore):
    """A store whose disk stands still while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Commit, CommitDone]] | None = None
        self.reached = asyncio.Event()

    def commit(self, commit: Commit, done: CommitDone) -> None:
        if self.held is None:
            super().commit(commit, done)
        else:
            self.held.append((commit, done))
            self.reached.set()

    def go_on(self) -> None:
        held, self.held = self.held or [], None
        for commit, done in held:
            super().commit(commit, done)


@pytest.mark.parametrize("undoes", [False, True], ids=["a call", "a compensation"])
async def test_a_call_stopped_before_its_entry_has_not_happened(undoes: bool) -> None:
    """The begin was not durable yet, so the tool never ran and its call needs no settlement."""
    store, ledger = Slow(), Ledger()
    async with Runner(store) as runner:
        task = await runner.create_task(ledger.agent(call("book", what="a"), "done"), "?")
        if undoes:
            await runner.run_step(task)
        before = list(ledger.entries)
        store.held = []
        verb = runner.undo_step if undoes else runner.run_step
        working = asyncio.ensure_future(verb(task))
        await asyncio.wait_for(store.reached.wait(), 5)
        await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.sleep(0.01)
        store.go_on()
        await asyncio.wait([working])
        assert ledger.entries == before
        assert (await runner.result(task)).pending == ()
        if undoes:
            assert (await runner.undo_step(task)).complete
            assert ledger.entries == [*before, "unbook a (a booked)"]
        else:
            assert (await runner.resume(task)).state == "completed"
            assert ledger.entries == ["book a"]
        (settled,) = await only(runner, task, "outcome_settled")
        assert (settled.verdict, settled.by) == ("not_happened", "runner")


async def test_the_instructions_say_how_many_steps_are_left_if_so_configured(runner: Runner) -> None:
    agent = calculator(instructions="Be precise.")
    options = RunOptions(tell_steps_left=True, limits=Limits(steps=2))
    result = await runner.run(agent, "?", options=options)
    assert (result.state, result.final_text) == ("degraded", "405")
    assert [request.instructions.removeprefix("Be precise.\n\n") for request in agent.model.requests] == [
        "Steps left after this one: 1.",
        "Steps left after this one: 0.",
        "Steps left after this one: 0.",
    ]
    other = calculator()
    await runner.run(other, "?", options=RunOptions(tell_steps_left=True, limits=Limits(steps=9)))
    assert other.model.requests[0].instructions == "Steps left after this one: 8."


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_settlement_is_not_overruled_by_a_reconcile_in_flight(runner: Runner, stubborn: bool) -> None:
    looking, go = asyncio.Event(), asyncio.Event()

    async def look(lost: Any, ctx: Any) -> Any:
        looking.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            if not stubborn:
                raise
        return NotHappened()

    gate = Gate("pay", reconcile=look)
    handle = await runner.start(Agent(ScriptedModel([call("pay"), "done"]), tools=[gate.tool]), "Pay.")
    await gate.entered.wait()
    await handle.interrupt()
    gate.let_go.set()
    resumed = asyncio.ensure_future(handle.resume())
    await looking.wait()
    await handle.settle("s1-0", Happened("paid by hand"))
    result = await asyncio.wait_for(resumed, 5)
    assert (result.state, gate.starts) == ("completed", 1), "it is not started again"
    assert [(run.outcome, run.output) for run in result.tool_executions] == [("ok", "paid by hand")]


@pytest.mark.parametrize("read_only", [True, False], ids=["reads", "writes"])
async def test_only_calls_that_may_run_again_are_retried(runner: Runner, read_only: bool) -> None:
    for beside in ([], ["stay"]):
        foreign = Foreign("call", read_only=read_only, retries=1)

        @tool(read_only=True)
        async def stay() -> str:
            """Stay a while."""
            await asyncio.sleep(0.02)
            return "stayed"

        foreign.error = ValueError("no")
        calls_made = [call("foreign"), *[call(name) for name in beside]]
        agent = Agent(ScriptedModel([both(*calls_made), "done"]), tools=[foreign, stay])
        result = await runner.run(agent, "Go.")
        assert [run.outcome for run in result.tool_executions] == ["error", *["ok" for _ in beside]]
        tries = ["call s1-0 1", "call s1-0 2"] if read_only else ["call s1-0 1"]
        assert foreign.entered == tries

"""Steps that depend on each other: when each begins, what it sees, and what happens to the rest."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cast import last, look
from tests.engine.function_workers import agent_of, echo, planned, planning, sound
from tests.property.mortal import MortalStore, next_life
from tests.runner.acts import assert_well_formed
from tests.runner.gates import Gates, shown
from treadle import (
    Agent,
    Breakpoint,
    Limits,
    NextStep,
    Quorum,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    TaskStepOutput,
    ToolContext,
    tool,
)
from treadle.core.model import ModelRequest
from treadle.errors import StepNotFound, StoreError
from treadle.llm.scripted import Turn, text
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import Evidence, LedgerEntry, audit_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    async with Runner("memory:") as runner:
        yield runner


async def test_a_step_begins_as_soon_as_its_own_dependencies_end(runner: Runner) -> None:
    gates = Gates()

    @planning(
        NextStep("quick"),
        NextStep("slow"),
        NextStep("after quick", after=("quick",)),
        NextStep("end", after=("slow", "after quick")),
    )
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "end":
            return StepResult(list(ctx.results), is_last=True)
        await gates.pass_(ctx.name)
        return StepResult(ctx.name)

    handle = await runner.start(agent_of(worker), "go")
    await gates.let("quick")
    await gates.let("after quick")
    assert "slow ends" not in gates.log
    await gates.let("slow")
    result = await sound(runner, await handle.result())
    assert (result.state, result.output) == ("completed", ["start", "slow", "after quick"])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("order", list(itertools.permutations("abcd")), ids="".join)
async def test_the_outcome_of_four_steps_does_not_depend_on_the_order_of_their_ends(
    runner: Runner, order: tuple[str, ...]
) -> None:
    gates = Gates()

    @tool
    async def note(what: str) -> str:
        """Note."""
        return f"noted {what}"

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            await ctx.call_model()
            return planned(*[NextStep(name) for name in "abcd"], NextStep("join", after=tuple("abcd")))
        if ctx.name == "join":
            answer = await ctx.call_model()
            return StepResult({**ctx.results, "said": answer.message.text}, is_last=True)
        await gates.pass_(ctx.name)
        noted = await ctx.call_tool("note", {"what": ctx.name})
        answer = await ctx.call_model()
        return StepResult([noted, answer.message.text])

    model = ScriptedModel(lambda request: text(f"{request.step} of {len(request.messages)}"))
    handle = await runner.start(Agent(model, worker=worker, tools=[note]), "go")
    for name in order:
        await gates.let(name)
        await shown(runner, handle.task_id, f"noted {name}")
    result = await sound(runner, await handle.result())
    input_of = dict(zip("abcd", ("s2", "s3", "s4", "s5"), strict=True))
    assert result.output == {
        "start": None,
        **{name: [f"noted {name}", f"{step} of 2"] for name, step in input_of.items()},
        "said": "s6 of 6",
    }
    steps = await runner.get_completed_steps(result.task_id)
    assert [step.step.name for step in steps] == ["start", *"abcd", "join"]
    assert [run.output for run in result.tool_executions] == [f"noted {name}" for name in "abcd"]
    assert [run.call_id for run in result.tool_executions] == ["s2-c1", "s3-c1", "s4-c1", "s5-c1"]
    texts = [message.text for message in result.messages]
    assert texts[:7] == ["go", "s1 of 1", "s2 of 2", "s3 of 2", "s4 of 2", "s5 of 2", "s6 of 6"]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("order", list(itertools.permutations(("a", "b", "a1", "b1", "b2"))), ids=" ".join)
async def test_the_order_of_planned_steps_does_not_depend_on_which_sibling_was_faster(
    runner: Runner, order: tuple[str, ...]
) -> None:
    more = {"a": ("a1",), "b": ("b1", "b2"), "a1": ("a2",)}
    gates = Gates()

    @planning(NextStep("a"), NextStep("b"), NextStep("last"))
    async def worker(ctx: StepContext) -> StepResult:
        await gates.pass_(ctx.name)
        answer = await ctx.call_model()
        nexts = [NextStep(name) for name in more.get(ctx.name, ())]
        return StepResult(answer.message.text, ctx.name == "last", nexts)

    handle = await runner.start(agent_of(worker), "go")
    for gate in (*order, "a2"):
        gates.open.setdefault(gate, asyncio.Event()).set()
        for _ in range(12):
            await asyncio.sleep(0)
    while len(await runner.get_completed_steps(handle.task_id)) < 7:  # noqa: ASYNC110  no event tells of the last end
        await asyncio.sleep(0)
    await gates.let("last")
    result = await sound(runner, await handle.result())
    steps = await runner.get_completed_steps(result.task_id)
    assert [(step.step.step_id, step.step.name) for step in steps] == [
        ("s1", "start"),
        ("s2", "a"),
        ("s2.1", "a1"),
        ("s2.2", "a2"),
        ("s3", "b"),
        ("s3.1.1", "b1"),
        ("s3.2.1", "b2"),
        ("s4", "last"),
    ]
    first, second, third = "heard 1: go", "heard 2: heard 1: go", "heard 3: heard 2: heard 1: go"
    texts = [first, second, third, first, second, second, first]
    assert [step.output for step in steps] == [None, *texts]
    assert [message.text for message in result.messages] == ["go", *texts]


async def test_fifty_steps_run_beside_each_other(runner: Runner) -> None:
    all_run = asyncio.Barrier(50)

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            names = [f"p{i}" for i in range(50)]
            return planned(*[NextStep(name) for name in names], NextStep("join", after=tuple(names)))
        if ctx.name == "join":
            return last(len(ctx.results))
        await all_run.wait()
        return StepResult(ctx.name)

    async with asyncio.timeout(20):
        assert (await runner.run(agent_of(worker), "go")).output == 51


async def test_no_more_steps_run_at_a_time_than_allowed(runner: Runner) -> None:
    running, most = 0, 0

    async def worker(ctx: StepContext) -> StepResult:
        nonlocal running, most
        if ctx.name == "start":
            return planned(
                *[NextStep(f"p{i}") for i in range(9)],
                NextStep("join", after=tuple(f"p{i}" for i in range(9))),
            )
        if ctx.name == "join":
            return StepResult(None, is_last=True)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return StepResult()

    result = await runner.run(agent_of(worker), "go", options=RunOptions(max_parallel_steps=3))
    assert (result.state, most) == ("completed", 3)
    await sound(runner, result)


@pytest.mark.parametrize(
    ("join", "ends"),
    [("any", ["b"]), (Quorum(2), ["b", "c"]), ("all", ["b", "c", "a"]), ("optional", ["b", "c", "a"])],
)
async def test_a_join_is_decided_by_as_many_as_it_needs_and_the_rest_is_stopped(
    runner: Runner, join: Any, ends: list[str]
) -> None:
    gates = Gates()
    stopped: list[str] = []

    @planning(*[NextStep(name) for name in "abc"], NextStep("join", after=tuple("abc"), join=join))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "join":
            return StepResult({k: v for k, v in ctx.results.items() if v is not None}, is_last=True)
        try:
            await gates.pass_(ctx.name)
        except asyncio.CancelledError:
            stopped.append(ctx.name)
            raise
        return StepResult(f"from {ctx.name}")

    handle = await runner.start(agent_of(worker), "go")
    await gates.until("a begins", "b begins", "c begins")
    for name in ends:
        await gates.let(name)
    result = await sound(runner, await handle.result())
    assert (result.state, result.output) == ("completed", {name: f"from {name}" for name in sorted(ends)})
    assert stopped == sorted(set("abc") - set(ends))
    statuses = {info.step.name: info.step.status for info in await runner.get_completed_steps(result.task_id)}
    assert [name for name, status in statuses.items() if status == "skipped"] == stopped


async def test_a_writing_call_of_an_unneeded_step_ends_as_unknown(runner: Runner) -> None:
    begun = asyncio.Event()

    @tool
    async def write() -> None:
        """Write."""
        begun.set()
        await asyncio.sleep(60)

    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b"), join="any"))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "join":
            return StepResult("done", is_last=True)
        if ctx.name == "a":
            await ctx.call_tool("write")
        await begun.wait()
        return StepResult()

    result = await sound(runner, await runner.run(agent_of(worker, write), "go"))
    assert (result.state, [run.outcome for run in result.tool_executions]) == ("completed", ["unknown"])


async def test_one_failing_step_loses_nothing_of_its_siblings(runner: Runner) -> None:
    ran: list[str] = []
    broken = True

    @planning(*[NextStep(name) for name in "abc"], NextStep("join", after=tuple("abc")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "join":
            return StepResult(list(ctx.results.values()), is_last=True)
        ran.append(ctx.name)
        if ctx.name == "b" and broken:
            raise ValueError("b is broken")
        await asyncio.sleep(0.002)
        return StepResult(f"{ctx.name} {ctx.attempt}")

    first = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert (first.state, first.error and first.error.message) == ("failed", "ValueError: b is broken")
    assert sorted(ran) == ["a", "b", "c"]
    broken = False
    again = await sound(runner, await runner.resume(first.task_id))
    assert (again.state, again.output) == ("completed", [None, "a 1", "b 2", "c 1"])
    assert ran[3:] == ["b"]


async def test_an_optional_step_may_fail(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b"), join="optional"))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "a":
            raise ValueError("no")
        return StepResult(
            list(ctx.results.values()) if ctx.name == "join" else "b", is_last=ctx.name == "join"
        )

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert (result.state, result.output) == ("degraded", [None, "b"])
    assert result.degraded_reasons == ("step 'a' failed: ValueError: no",)


async def test_a_quorum_that_cannot_be_reached_fails_the_task(runner: Runner) -> None:
    @planning(*[NextStep(n) for n in "abc"], NextStep("join", after=tuple("abc"), join=Quorum(2)))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name in "ab":
            raise ValueError(f"{ctx.name} fails")
        return StepResult("c")

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert result.state == "failed"
    assert result.error is not None
    assert "fails" in result.error.message


async def test_a_failed_step_is_skipped_with_its_reason_and_the_other_steps_run(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("join", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "a":
            raise ValueError("never")
        return StepResult(ctx.results if ctx.name == "join" else "b", is_last=ctx.name == "join")

    failed = await runner.run(agent_of(worker), "go")
    await runner.skip_step(failed.task_id)
    skipped = await runner.get_step(failed.task_id, "s2")
    assert (skipped.step.status, skipped.error and skipped.error.message) == ("skipped", "ValueError: never")
    result = await sound(runner, await runner.resume(failed.task_id))
    assert (result.state, result.output) == ("completed", {"start": None, "b": "b"})


class TaskCache:
    """Tools that take down what they did and can be taken back."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.ledger: list[LedgerEntry] = []

    def tool(self) -> Any:
        async def unwrite(call: Any, ctx: ToolContext) -> None:
            self.done.append(f"un{call.output}")

        @tool(undo=unwrite)
        async def write(what: str, ctx: ToolContext) -> str:
            """Write."""
            self.ledger.append(LedgerEntry(ctx.call_id, ctx.idempotency_key, "write", "start", ctx.task_id))
            self.done.append(what)
            return what

        return write


@planning(*[NextStep(name) for name in "abc"], NextStep("join", after=tuple("abc")))
async def fan(ctx: StepContext) -> StepResult:
    if ctx.name == "join":
        await ctx.call_tool("write", {"what": "joined"})
        return StepResult(ctx.results, is_last=True)
    await ctx.call_tool("write", {"what": ctx.name})
    answer = await ctx.call_model()
    return StepResult(f"{ctx.name}: {answer.message.text}")


async def test_one_of_three_siblings_is_undone_and_only_it_and_the_join_run_again(runner: Runner) -> None:
    desk = TaskCache()
    agent = agent_of(fan, desk.tool())
    first = await runner.run(agent, "go")
    assert sorted(desk.done) == ["a", "b", "c", "joined"]
    desk.done.clear()
    report = await runner.undo_step(first.task_id, step="b")
    assert (report.complete, desk.done) == (True, ["unjoined", "unb"])
    assert [step.step.name for step in await runner.get_completed_steps(first.task_id)] == ["start", "a", "c"]
    assert [(info.name, info.status) for info in await runner.get_upcoming_steps(first.task_id)] == [
        ("b", "next"),
        ("join", "blocked"),
    ]
    desk.done.clear()
    again = await sound(runner, await runner.resume(first.task_id))
    assert (again.state, again.output, desk.done) == ("completed", first.output, ["b", "joined"])
    assert [request.turn for request in agent.model.requests] == [0, 0, 0, 2]  # type: ignore[union-attr]
    assert [message.text for message in again.messages] == [message.text for message in first.messages]
    with pytest.raises(StepNotFound, match="no step 'missing'"):
        await runner.undo_step(first.task_id, step="missing")


async def test_an_undo_of_all_steps_starts_the_task_from_the_beginning(runner: Runner) -> None:
    desk = TaskCache()
    first = await runner.run(agent_of(fan, desk.tool()), "go")
    await runner.undo_step(first.task_id, to=0)
    again = await sound(runner, await runner.resume(first.task_id))
    assert (again.output, again.messages[0].text) == (first.output, "go")
    assert desk.done[4:8] == ["unjoined", "unc", "unb", "una"]


async def test_a_fork_after_one_of_three_sibling_steps_runs_the_other_two_again(runner: Runner) -> None:
    desk = TaskCache()
    gates = Gates()

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name in "abc":
            await gates.pass_(ctx.name)
        return await fan(ctx)

    handle = await runner.start(agent_of(worker, desk.tool()), "go")
    for name in "bca":
        await gates.let(name)
        await shown(runner, handle.task_id, f"{name}: ")
    parent = await handle.result()
    b = next(step for step in await runner.get_completed_steps(parent.task_id) if step.step.name == "b")
    desk.done.clear()
    fork = await runner.fork(parent.task_id, at=b.step.step_id)
    for name in "abc":
        gates.open[name].set()
    result = await sound(runner, await runner.resume(fork))
    assert (result.output, desk.done) == (parent.output, ["a", "c", "joined"])
    with pytest.raises(StepNotFound):
        await runner.undo_step(fork, step="b")


async def test_an_undone_step_frees_its_index_and_removes_its_planned_steps(runner: Runner) -> None:
    task = await runner.create_task(
        agent_of(fan, TaskCache().tool()), "go", options=RunOptions(limits=Limits(steps=1))
    )
    for _ in range(2):
        await runner.run_step(task)
        await runner.undo_step(task)
        assert [info.name for info in await runner.get_upcoming_steps(task)] == ["start"]


async def puts(ctx: StepContext) -> StepResult:
    """Make a call that counts, and answer."""
    return StepResult(await ctx.call_tool("put"), is_last=True)


async def unput(made: Any, ctx: Any) -> None:
    """Take it back."""


@tool(undo=unput)
async def put() -> str:
    """Put."""
    return "put"


async def test_an_undone_step_releases_its_calls_and_the_messages_it_read(runner: Runner) -> None:
    options = RunOptions(limits=Limits(tool_calls=1), on_limit="fail")
    task = await runner.create_task(agent_of(puts, put), "go", options=options)
    first = await runner.run_step(task, input="now")
    assert (await runner.undo_step(task)).complete
    [upcoming] = await runner.get_upcoming_steps(task)
    assert upcoming.input == first.step.input
    assert [part.text for part in upcoming.input] == ["go", "now"]  # type: ignore[union-attr]
    assert (await runner.run_step(task)).output == "put"


async def test_messages_read_by_parallel_steps_are_restored_in_the_order_they_were_sent(
    runner: Runner,
) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        return StepResult(ctx.name, is_last=ctx.name == "end")

    task = await runner.create_task(agent_of(worker), "go")
    await runner.run_step(task)
    a, b = [info.step_id for info in (await runner.get_upcoming_steps(task))[:2]]
    await runner.run_step(task, step=b, input="one")
    await runner.run_step(task, step=a, input="two")
    await runner.undo_step(task, to=0)
    [upcoming] = await runner.get_upcoming_steps(task)
    assert [part.text for part in upcoming.input] == ["go", "one", "two"]  # type: ignore[union-attr]
    assert await audit_store(runner.store) == []


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("when", ["while the last step runs", "after the answer"])
async def test_messages_that_no_step_read_start_another_round_of_the_worker(
    runner: Runner, when: str, most: int
) -> None:
    gates, seen = Gates(), list[tuple[str, list[str]]]()

    async def worker(ctx: StepContext) -> StepResult:
        seen.append((ctx.name, [message.text for message in ctx.messages]))
        if ctx.name == "start":
            return planned(NextStep("quick"), NextStep("slow"))
        if ctx.name == "quick":
            await gates.pass_(f"quick {len(ctx.messages)}")
            return StepResult(f"answer to {len(ctx.messages)}", is_last=True)
        await asyncio.sleep(60)
        return StepResult("nothing that could be gone on from")

    options = RunOptions(max_parallel_steps=most)
    task = await runner.create_task(agent_of(worker), "go", options=options)
    await runner.run_step(task)
    quick = asyncio.create_task(runner.run_step(task, step="s2"))
    await gates.until("quick 1 begins")
    if when == "while the last step runs":
        await runner.send(task, "and?")
    await gates.let("quick 1")
    assert (await quick).is_last == (when == "after the answer")
    if when == "after the answer":
        await runner.send(task, "and?")
    begun = asyncio.create_task(runner.resume(task))
    await gates.let("quick 3")
    result = await sound(runner, await begun)
    assert (result.state, result.output) == ("completed", "answer to 3")
    assert [message.text for message in result.messages] == ["go", "answer to 1", "and?", "answer to 3"]
    assert seen[:2] == [("start", ["go"]), ("quick", ["go"])]
    assert [name for name, texts in seen if texts[-1] == "and?"][:2] == ["start", "quick"]
    assert sum(texts[-1] != "and?" for _, texts in seen) == 2, "what was left of the first plan never begins"


async def test_a_breakpoint_after_a_step_holds_also_if_a_later_one_was_quicker(runner: Runner) -> None:
    gates = Gates()

    @planning(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name != "end":
            await gates.pass_(ctx.name)
        return StepResult(ctx.name, is_last=ctx.name == "end")

    options = RunOptions(break_on=[Breakpoint(after_step=2)])
    handle = await runner.start(agent_of(worker), "go", options=options)
    await gates.let("b")
    await shown(runner, handle.task_id, "b")
    await gates.let("a")
    paused = await handle.result()
    assert (paused.state, paused.steps) == ("paused", 3)
    assert (await runner.resume(paused.task_id)).output == "end"


async def test_at_a_limit_an_answer_that_a_message_overtook_is_the_result(runner: Runner) -> None:
    gates = Gates()

    async def worker(ctx: StepContext) -> StepResult:
        await gates.pass_(str(len(ctx.messages)))
        return StepResult({"heard": len(ctx.messages)}, is_last=True)

    options = RunOptions(limits=Limits(steps=1))
    handle = await runner.start(agent_of(worker), "go", options=options)
    await gates.until("1 begins")
    await handle.send("and?")
    await gates.let("1")
    result = await sound(runner, await handle.result())
    assert (result.state, result.output) == ("degraded", {"heard": 1})
    again = asyncio.create_task(runner.resume(result.task_id, options=RunOptions(limits=Limits(steps=2))))
    await gates.let("3")
    assert ((await again).state, (await again).output) == ("completed", {"heard": 3})


async def test_a_message_after_a_failure_that_the_answer_outran_starts_another_round(runner: Runner) -> None:
    gates = Gates()

    @planning(NextStep("fails"), NextStep("answers"))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "fails" and len(ctx.messages) == 1:
            await gates.until("answers begins")
            raise ValueError("no")
        if ctx.name == "fails":
            return StepResult("well", is_last=True)
        await gates.pass_("answers")
        return StepResult("first", is_last=True)

    handle = await runner.start(agent_of(worker), "go")
    await gates.until("answers begins")
    await handle.send("and?")
    await gates.let("answers")
    result = await sound(runner, await handle.result())
    assert (result.state, result.error) == ("completed", None)
    assert [message.text for message in result.messages][:3] == ["go", "first", "and?"]


async def test_the_steps_that_lead_to_an_unneeded_step_are_stopped_with_it(runner: Runner) -> None:
    stopped = asyncio.Event()

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            first = [NextStep("slow"), NextStep("quick"), NextStep("behind", after=("slow",))]
            return planned(*first, NextStep("any", after=("quick", "behind"), join="any"))
        if ctx.name == "slow":
            try:
                await asyncio.sleep(5)
            finally:
                stopped.set()
        if ctx.name == "any":
            assert stopped.is_set(), "before the step begins that could do without it"
        return StepResult(ctx.name, is_last=ctx.name == "any")

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert (result.state, result.output) == ("completed", "any")
    await runner.undo_step(result.task_id, to=0)
    assert await audit_store(runner.store) == []


async def test_a_step_that_gave_itself_up_still_counts_as_no_success_when_the_join_is_undone(
    runner: Runner,
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        match ctx.name:
            case "start":
                ends = (NextStep("any", after=("a", "b"), join="any"), NextStep("end", after=("any",)))
                return planned(NextStep("a"), NextStep("b"), *ends)
            case "a":
                return StepResult(skipped="not today")
            case "any":
                return StepResult(ctx.results["b"])
        return StepResult(ctx.results.get("any") if ctx.name == "end" else "b", is_last=ctx.name == "end")

    result = await sound(runner, await runner.run(agent_of(worker), "go"))
    assert result.output == "b"
    await runner.undo_step(result.task_id, step="b")
    again = await sound(runner, await runner.resume(result.task_id))
    assert (again.state, again.output) == ("completed", "b")


async def test_a_step_may_plan_a_step_that_waits_for_it(runner: Runner) -> None:
    message_read = asyncio.Event()

    async def worker(ctx: StepContext) -> StepResult:
        match ctx.name:
            case "start":
                return planned(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
            case "a":
                return StepResult("mine", next_steps=[NextStep("next", after=("a",))])
            case "next":
                assert ctx.results == {"a": "mine"}
                message_read.set()
            case "b":
                await asyncio.wait_for(message_read.wait(), 5)
        return StepResult(ctx.name, is_last=ctx.name == "end")

    assert (await sound(runner, await runner.run(agent_of(worker), "go"))).output == "end"


async def test_a_limit_waits_for_the_request_of_a_sibling_that_is_out(runner: Runner) -> None:
    @planning(*map(NextStep, "abc"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "c":
            await asyncio.sleep(0.005)
            return StepResult("c")
        return StepResult((await ctx.call_model(ctx.name)).message.text)

    async def slowly(request: ModelRequest) -> Turn:
        await asyncio.sleep(0.02)
        return echo(request)

    agent = agent_of(worker).replace(model=ScriptedModel(slowly), limits=Limits(model_calls=1))
    result = await sound(runner, await runner.run(agent, "go"))
    events = [event.kind async for event in runner.handle(result.task_id).events(deltas=False)]
    assert (result.state, events.count("model_returned"), events.count("model_stopped")) == ("degraded", 1, 0)


async def test_run_step_retries_the_named_one_of_two_failed_steps(runner: Runner) -> None:
    @planning(NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b")))
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.attempt == 1 and ctx.name != "end":
            raise ValueError("not yet")
        return StepResult(ctx.name, is_last=ctx.name == "end")

    failed = await runner.run(agent_of(worker), "go")
    begun = [info for info in await runner.get_upcoming_steps(failed.task_id) if info.status == "failed"]
    assert [info.name for info in begun] == ["a", "b"]
    out = await runner.run_step(failed.task_id, step=begun[1].step_id)
    assert (out.step.name, out.output) == ("b", "b")
    left = (await runner.get_step(failed.task_id, begun[0].step_id)).step
    assert (left.status, left.attempt) == ("failed", 1)


async def test_a_step_that_was_at_work_at_the_point_of_a_fork_is_its_parents(runner: Runner) -> None:
    parent = await runner.run(agent_of(puts, put), "go")
    events = [event async for event in runner.handle(parent.task_id).events(deltas=False)]
    [ended] = [event for event in events if event.kind == "tool_ended"]
    fork = await runner.fork(parent.task_id, at=ended.seq)  # type: ignore[union-attr]
    assert (await runner.resume(fork)).state == "completed"
    with pytest.raises(StepNotFound, match="taken over"):
        await runner.undo_step(fork)


async def test_a_fork_begins_by_default_after_the_step_that_ended_last(runner: Runner) -> None:
    gates = Gates()

    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name in "ab":
            await gates.pass_(ctx.name)
        steps = NextStep("a"), NextStep("b"), NextStep("end", after=("a", "b"))
        return planned(*steps) if ctx.name == "start" else StepResult(ctx.name)

    task = await runner.create_task(agent_of(worker), "go")
    await runner.run_step(task)
    both = asyncio.ensure_future(runner.run_ready_steps(task))
    for name in "ba":
        await gates.let(name)
    await both
    fork = await runner.fork(task)
    assert [step.step.name for step in await runner.get_completed_steps(fork)] == ["start", "a", "b"]


async def test_in_a_fork_a_step_makes_something_else_of_another_result(runner: Runner) -> None:
    @planning(NextStep("a"))
    async def worker(ctx: StepContext) -> StepResult:
        seen = await ctx.call_tool("look")
        return StepResult({"seen": seen}, is_last=True)

    parent = await runner.run(agent_of(worker, look), "go")
    fork = await runner.fork(parent.task_id, replace={parent.tool_executions[0].call_id: 2})
    result = await sound(runner, await runner.resume(fork))
    assert (parent.output, result.output) == ({"seen": "seen"}, {"seen": 2})


async def test_ready_steps_are_run_together_and_what_they_make_ready_is_not(runner: Runner) -> None:
    desk = TaskCache()
    task = await runner.create_task(agent_of(fan, desk.tool()), "go")
    assert [info.step_id for info in await runner.get_upcoming_steps(task)] == ["s1"]
    [start] = await runner.run_ready_steps(task)
    assert (start.step.name, [info.name for info in start.next_steps]) == ("start", ["a", "b", "c", "join"])
    outputs = await runner.run_ready_steps(task)
    assert [output.step.name for output in outputs] == ["a", "b", "c"]
    assert sorted(desk.done) == ["a", "b", "c"]
    last = await runner.run_step(task)
    assert (last.step.name, last.is_last) == ("join", True)
    result = await sound(runner, await runner.finalize(task))
    free = await runner.run(agent_of(fan, desk.tool()), "go")
    assert (result.output, result.messages) == (free.output, free.messages)


async def test_any_ready_step_may_be_run_next(runner: Runner) -> None:
    desk = TaskCache()
    task = await runner.create_task(agent_of(fan, desk.tool()), "go")
    await runner.run_step(task)
    output = await runner.run_step(task, step="s3")
    assert (output.step.name, desk.done) == ("b", ["b"])
    with pytest.raises(StepNotFound):
        await runner.run_step(task, step="s5")
    for name in ("a", "c", "join"):
        assert (await runner.run_step(task)).step.name == name


@pytest.mark.parametrize("at_once", [False, True], ids=["run_step", "run_ready_steps"])
async def test_an_optional_step_that_fails_when_stepped_is_followed_by_the_next(
    runner: Runner, at_once: bool
) -> None:
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            join = NextStep("join", after=("a", "b"), join="optional")
            return StepResult(next_steps=[NextStep("a"), NextStep("b"), join])
        if ctx.name == "a":
            raise ValueError("no luck")
        return StepResult(dict(ctx.failures), is_last=ctx.name == "join")

    task = await runner.create_task(agent_of(worker), "go")
    outputs: list[TaskStepOutput] = []
    while not outputs or not outputs[-1].is_last:
        outputs += await runner.run_ready_steps(task) if at_once else [await runner.run_step(task)]
    assert [(output.step.name, output.step.status) for output in outputs] == [
        ("start", "completed"),
        ("a", "failed"),
        ("b", "completed"),
        ("join", "completed"),
    ]
    assert (outputs[1].error.message, outputs[1].state) == ("ValueError: no luck", "running")  # type: ignore[union-attr]
    assert (await runner.finalize(task)).output == {"a": "ValueError: no luck"}


@pytest.mark.parametrize("after", [False, True], ids=["before writing", "after writing"])
async def test_a_crash_at_any_commit_repeats_no_call_that_ended(after: bool) -> None:
    outcomes: set[str] = set()
    for at in itertools.count():
        desk = TaskCache()
        agent = agent_of(fan, desk.tool())
        life = MortalStore(MemoryStore())
        await life.real.open()
        life.commits_left, life.dies_after_writing = at, after
        options = RunOptions(on_unknown_outcome="tell_model")
        died = False
        try:
            async with Runner(life, options=options, agents=[agent]) as runner:
                await runner.run(agent, "go", task_id="t1")
        except StoreError:
            died = True
        second = await next_life(life, None)
        async with Runner(second, options=options, agents=[agent]) as runner:
            result = await runner.run(agent, "go", task_id="t1")
        async with Runner(second.real) as reader:
            assert await audit_store(reader.store, Evidence(ledger=desk.ledger)) == []
        keys = [entry.key for entry in desk.ledger]
        assert len(keys) == len(set(keys)), (at, desk.done)
        assert result.state in ("completed", "failed"), result.error
        outcomes.add(result.state)
        if not died:
            break
    assert at > 6
    assert "completed" in outcomes


async def test_a_cancel_at_any_event_leaves_a_history_that_a_provider_takes(runner: Runner) -> None:
    states: set[str] = set()
    for place in itertools.count():
        handle = await runner.start(agent_of(fan, TaskCache().tool()), "go")
        count = 0
        async for _ in handle.events():
            count += 1
            if count > place:
                await handle.cancel()
                break
        result = await handle.result()
        states.add(result.state)
        assert_well_formed(result.messages)
        if result.state == "completed":
            break
    assert states == {"cancelled", "completed"}
    assert await audit_store(runner.store, Evidence()) == []


async def test_a_pause_lets_calls_end_and_resume_enters_the_steps_again(runner: Runner) -> None:
    release, entered = asyncio.Event(), 0

    @tool
    async def slow(n: int) -> int:
        """Take a while."""
        await release.wait()
        return n

    async def worker(ctx: StepContext) -> StepResult:
        nonlocal entered
        if ctx.name == "start":
            return planned(NextStep("a", 1), NextStep("b", 2), NextStep("join", after=("a", "b")))
        if ctx.name == "join":
            return StepResult([ctx.results["a"], ctx.results["b"]], is_last=True)
        entered += 1
        first = await ctx.call_tool("slow", {"n": ctx.input})
        second = await ctx.call_tool("slow", {"n": 10 * first})
        return StepResult([first, second])

    handle = await runner.start(agent_of(worker, slow), "go")
    while entered < 2 or (await runner.get_task(handle.task_id)).head < 8:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.001)
    pausing = asyncio.create_task(handle.pause())
    await asyncio.sleep(0.01)
    release.set()
    paused = await pausing
    assert (paused.state, [run.output for run in paused.tool_executions]) == ("paused", [1, 2])
    result = await sound(runner, await runner.resume(handle.task_id))
    assert (result.state, result.output, entered) == ("completed", [[1, 10], [2, 20]], 4)
    assert len(result.tool_executions) == 4


async def test_limits_hold_over_all_steps_that_run_beside_each_other(runner: Runner) -> None:
    @planning(
        *[NextStep(f"p{i}") for i in range(6)], NextStep("join", after=tuple(f"p{i}" for i in range(6)))
    )
    async def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "join":
            return StepResult("all", is_last=True)
        await ctx.call_model("hello")
        return StepResult()

    for most in range(8):
        agent = agent_of(worker)
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(model_calls=most)))
        assert len(agent.model.requests) <= most  # type: ignore[union-attr]
        assert result.state == ("completed" if most >= 6 else "degraded")
        assert_well_formed(result.messages)
    for steps in range(9):
        result = await runner.run(agent_of(worker), "go", options=RunOptions(limits=Limits(steps=steps)))
        assert result.steps <= steps
        assert result.state == ("completed" if steps >= 8 else "degraded")
    paused = await runner.run(
        agent_of(worker), "go", options=RunOptions(limits=Limits(model_calls=2), on_limit="pause")
    )
    assert paused.state == "paused"
    result = await runner.resume(paused.task_id, options=RunOptions(limits=Limits(model_calls=9)))
    assert (result.state, result.usage.model_calls) == ("completed", 6)
    assert await audit_store(runner.store, Evidence(ended=False)) == []


async def test_a_thread_holds_the_messages_of_all_steps_in_order(runner: Runner) -> None:
    await runner.run(agent_of(fan, TaskCache().tool()), "go", thread_id="talk")
    texts = [message.text for message in await runner.get_thread("talk")]
    assert texts[:4] == ["go", "heard 1: go", "heard 1: go", "heard 1: go"]
    later = await runner.run(Agent(ScriptedModel(echo)), "more", thread_id="talk")
    assert later.final_text == "heard 6: more"


async def test_a_late_step_of_a_chain_costs_what_an_early_one_does(runner: Runner) -> None:
    calls, at = 0, dict[int, int]()

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async def worker(ctx: StepContext) -> StepResult:
        at[ctx.index] = calls
        await ctx.call_model()
        return StepResult(ctx.index, ctx.index == 330, () if ctx.index == 330 else [NextStep("on", after=())])

    sys.setprofile(count)
    try:
        agent = Agent(
            ScriptedModel(lambda request: text("on")), worker=worker
        )  # no answer is longer than others
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(steps=400)))
    finally:
        sys.setprofile(None)
    assert result.output == 330
    early, late = at[40] - at[20], at[320] - at[300]
    assert late < 1.1 * early

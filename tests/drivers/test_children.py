"""Agents that call agents: each call is a task of its own, driven, stopped and resumed with the task that called."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.cast import Gate, add
from tests.drivers.agent_trees import Tree, answering, by_task, calling, requests, states
from tests.runner.acts import assert_journal_makes_sense, both, happened, journal, only, results_seen, until
from treadle import (
    Agent,
    FailurePolicy,
    Happened,
    NextStep,
    Node,
    NodeContext,
    Pipeline,
    Policy,
    Rule,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    Subagent,
    ToolContext,
    tool,
)
from treadle.core.events import ChildEvent, Delta, Event, Failure, ToolStopped
from treadle.drivers import adoption
from treadle.engine import in_flight
from treadle.engine.agent_calls import AgentCallInFlight
from treadle.errors import (
    ChildTask,
    ConfigurationError,
    ForkPointBusy,
    IrreversibleStep,
    SubagentFailed,
    TaskBusy,
    TaskConflict,
    TaskFinished,
    TaskNotFound,
    WorkerError,
)
from treadle.llm.scripted import call, fail, text
from treadle.ports import AT_ONCE, Commit
from treadle.stores.memory import MemoryStore
from treadle.testing.audit.store import audit_store
from treadle.testing.conformance.owner import send

pytestmark = pytest.mark.anyio


# -------------------------------------------------------------------------------------- call and return


async def test_an_agent_that_is_called_answers_as_a_task_of_its_own(runner: Runner) -> None:
    writer = answering("writer", description="Writes poems.")
    boss = calling("boss", writer)
    result = await runner.run(boss, "go")
    assert (result.state, result.final_text) == ("completed", "a poem")
    offered = requests(boss)[0].tools
    assert [spec.name for spec in offered] == ["writer"]
    assert offered[0].description.startswith("Writes poems.")
    child = f"{result.task_id}.s1-0"
    assert [task.task_id for task in (await runner.list_tasks(parent=result.task_id)).items] == [child]
    below = await runner.result(child)
    assert (below.state, below.final_text) == ("completed", "a poem")
    created = (await journal(runner, child))[0]
    assert (created.parent, created.parent_call, created.depth) == (result.task_id, "s1-0", 1)  # type: ignore[attr-defined]
    [ended] = await only(runner, result.task_id, "tool_ended")
    assert (ended.outcome, ended.output, ended.harmless) == ("ok", "a poem", True)
    for task_id in (result.task_id, child):
        await assert_journal_makes_sense(runner, task_id)


async def test_a_child_sees_its_input_and_nothing_of_the_conversation(runner: Runner) -> None:
    writer, secret = answering("writer"), "a secret of the conversation"
    boss = calling("boss", writer)
    await runner.run(boss, secret)
    [request] = requests(writer)
    assert [message.text for message in request.messages] == ["boss asks 0"]
    assert secret not in repr(request)


async def test_a_child_has_the_context_that_its_parent_has(runner: Runner) -> None:
    seen: list[Any] = []

    @tool(read_only=True)
    def look(ctx: Any) -> str:
        return "looked"

    writer = Agent(
        ScriptedModel([text("a poem")]),
        name="writer",
        instructions=lambda ctx: seen.append(ctx.context) or "Write.",
    )
    await runner.run(calling("boss", writer), "go", context={"user": 7})
    assert seen == [{"user": 7}]


async def test_children_of_one_answer_run_beside_each_other(runner: Runner) -> None:
    gates = [Gate(f"gate{n}", read_only=True) for n in range(3)]
    below = [
        Agent(ScriptedModel([call(gate.name), text(f"poem {n}")]), name=f"writer{n}", tools=[gate.tool])
        for n, gate in enumerate(gates)
    ]
    handle = await runner.start(calling("boss", *below), "go")
    await until(lambda: all(gate.starts for gate in gates))
    for gate in reversed(gates):
        gate.let_go.set()
    assert (await handle.result()).final_text == "poem 0 + poem 1 + poem 2"


async def test_children_have_children(runner: Runner) -> None:
    leaf = answering("leaf", "leaf")
    result = await runner.run(calling("root", calling("middle", leaf, times=2), times=2), "go")
    assert result.final_text == "leaf + leaf + leaf + leaf"
    assert len((await runner.list_tasks()).items) == 7


async def test_an_agent_may_call_itself_by_its_name(runner: Runner) -> None:
    def say(request: Any) -> Any:
        prompt = request.messages[0].text
        if request.turn or prompt == "down down":
            return text(f"({' '.join(results_seen(request.messages))})")
        return call("digger", input=f"{prompt} down" if prompt == "down" else "down")

    digger = Agent(ScriptedModel(say), name="digger", subagents=["digger"])
    assert (await runner.run(digger, "go")).final_text == "((()))"


async def test_a_subagent_that_is_not_registered_is_an_error_before_any_request(
    runner: Runner,
) -> None:
    boss = Agent(ScriptedModel([text("never")]), name="boss", subagents=["missing"])
    with pytest.raises(LookupError, match="'missing', which this process was not given"):
        await runner.run(boss, "go")
    assert not requests(boss)


async def test_spending_of_children_is_in_the_usage_of_all_tasks_above_by_agent(runner: Runner) -> None:
    leaf = answering("leaf", "leaf")
    result = await runner.run(calling("root", calling("middle", leaf, times=2), times=2), "go")
    usage = result.usage
    assert (usage.model_calls, usage.tool_calls, usage.total_tokens) == (2 + 4 + 4, 2 + 4, 50 + 100 + 60)
    each = {
        name: (one.model_calls, one.tool_calls, one.total_tokens) for name, one in usage.per_agent.items()
    }
    assert each == {"root": (2, 2, 50), "middle": (4, 4, 100), "leaf": (4, 0, 60)}
    assert [one.task_id for one in result.subagent_executions] == [f"{result.task_id}.s1-{n}" for n in (0, 1)]
    first = result.subagent_executions[0]
    assert (first.name, first.input, first.outcome, first.output) == (
        "middle",
        "root asks 0",
        "ok",
        "leaf + leaf",
    )
    assert (first.usage.model_calls, first.usage.per_agent["leaf"].model_calls) == (4, 2)
    assert (first.depth, first.path) == (1, ("root", "middle"))
    [child] = (await runner.result(first.task_id)).subagent_executions[:1]
    assert (child.name, child.depth) == ("leaf", 2)
    page = await runner.list_tasks(parent=first.task_id)
    assert {task.parent for task in page.items} == {first.task_id}


async def test_spending_of_interrupted_children_counts_as_far_as_it_is_known(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.interrupt(root)
    result = await runner.result(root)
    assert {name: one.model_calls for name, one in result.usage.per_agent.items()} == {
        "root": 1,
        "middle": 1,
        "leaf": 1,
    }
    assert [one.outcome for one in result.subagent_executions] == [None]


async def test_a_watcher_of_a_task_sees_what_happens_below_it_with_the_path_to_it(runner: Runner) -> None:
    root = calling("root", calling("middle", answering("leaf", "leaf")))
    seen: list[ChildEvent] = []
    async with runner.run_stream(root, "go") as stream:
        seen.extend([event async for event in stream if isinstance(event, ChildEvent)])
    task_id = stream.result.task_id
    below = [event for event in seen if isinstance(event.event, Event)]
    assert {event.path for event in below} == {("middle",), ("middle", "leaf")}
    for child in (f"{task_id}.s1-0", f"{task_id}.s1-0.s1-0"):
        child_events = [event.event for event in below if event.task_id == child]
        assert child_events == await journal(runner, child)
    assert {event.call for event in seen} == {"s1-0"}
    deltas = [event.event for event in seen if isinstance(event.event, Delta)]
    assert "".join([delta.text for delta in deltas if delta.channel != "arguments"]) == "leafleaf"
    quiet = [event async for event in runner.handle(task_id).events(deltas=False)]
    assert not [event for event in quiet if isinstance(event, ChildEvent)]


# ---------------------------------------------------------------------------------------------- failing


async def test_a_failed_child_is_a_new_task_when_its_step_is_tried_again(runner: Runner) -> None:
    requests_seen: list[Any] = []

    def say(request: Any) -> Any:
        requests_seen.append(request.task_id)
        return fail(500) if len(requests_seen) == 1 else text("a poem")

    boss = calling("boss", Agent(ScriptedModel(say), name="writer"))
    options = RunOptions(on_failure=FailurePolicy(subagent="fail"))
    first = await runner.run(boss, "go", options=options)
    assert first.state == "failed"
    assert (await runner.resume(first.task_id)).final_text == "a poem"
    assert requests_seen == [f"{first.task_id}.s1-0", f"{first.task_id}.s1-0r2"]


# ------------------------------------------------------------------------------- stopping and going on


async def test_cancel_ends_the_children_first(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    begun = time.monotonic()
    result = await runner.cancel(root, reason="enough")
    assert time.monotonic() - begun < 10
    assert result.state == "cancelled"
    assert await states(runner, tree.ids(root)) == ["cancelled"] * 3
    assert tree.gate.cancelled == 1
    ends = [(await journal(runner, task_id))[-1].time for task_id in tree.ids(root)]
    assert ends == sorted(ends, reverse=True)
    [ended] = await only(runner, root, "tool_ended")
    assert (ended.outcome, [part.agent for part in ended.spent]) == ("cancelled", ["middle", "leaf"])
    for task_id in tree.ids(root):
        await assert_journal_makes_sense(runner, task_id)
    assert (await runner.cancel(root)).state == "cancelled"


async def test_cancel_of_an_interrupted_tree_needs_no_agents(store: Any) -> None:
    tree = Tree()
    async with Runner(store) as runner:
        root = await tree.begun(runner)
        await runner.interrupt(root)
        assert await states(runner, tree.ids(root)) == ["interrupted"] * 3
    async with Runner(store) as other:
        assert (await other.cancel(root)).state == "cancelled"
        assert await states(other, tree.ids(root)) == ["cancelled"] * 3


async def test_interrupt_stops_the_tree_and_resume_of_the_root_goes_on_with_all_of_it(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.interrupt(root)
    assert await states(runner, tree.ids(root)) == ["interrupted"] * 3
    tree.gate.let_go.set()
    assert (await runner.resume(root)).final_text == "done"
    assert await states(runner, tree.ids(root)) == ["completed"] * 3
    assert [len(requests(agent)) for agent in (tree.root, tree.middle, tree.leaf)] == [2, 2, 2]
    assert [event.attempt for event in await only(runner, root, "tool_started")] == [1, 2]
    for task_id in tree.ids(root):
        await assert_journal_makes_sense(runner, task_id)


async def test_pause_lets_calls_end_and_starts_nothing_new_in_the_whole_tree(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    pausing = asyncio.ensure_future(runner.pause(root))
    await happened(runner.handle(tree.ids(root)[2]), "pause_requested")
    assert not pausing.done()
    tree.gate.let_go.set()
    assert (await pausing).state == "paused"
    assert await states(runner, tree.ids(root)) == ["paused"] * 3
    assert len(requests(tree.leaf)) == 1
    assert (await runner.resume(root)).final_text == "done"
    for task_id in tree.ids(root):
        await assert_journal_makes_sense(runner, task_id)


async def test_a_caller_that_is_gone_leaves_the_whole_tree_interrupted(runner: Runner) -> None:
    tree = Tree()
    running = asyncio.ensure_future(runner.run(tree.root, "go", task_id="job"))
    await tree.gate.entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await states(runner, tree.ids("job")) == ["interrupted"] * 3
    tree.gate.let_go.set()
    assert (await runner.run(tree.root, "go", task_id="job")).final_text == "done"


async def test_a_child_is_not_resumed_alone(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.interrupt(root)
    child = tree.ids(root)[1]
    for verb in (runner.resume, runner.run_step):
        with pytest.raises(ChildTask, match=f"child of task {root}") as refused:
            await verb(child)
        assert refused.value.parent == root
    with pytest.raises(TaskBusy, match="which waits for it"):
        await runner.delete_task(child)


# ------------------------------------------------------------------------------------- a child alone


class Booking:
    """A root above an agent that books a seat, which can be taken back, and then waits at a gate."""

    def __init__(self) -> None:
        self.booked: list[str] = []
        self.gate = Gate("work", read_only=True)

        def take_back(call: Any, ctx: Any) -> None:
            self.booked.remove(call.output)

        @tool(undo=take_back)
        def book(ctx: ToolContext[Any]) -> str:
            """Book a seat."""
            seat = f"seat {len(self.booked) + 1}"
            self.booked.append(seat)
            return seat

        script = [call("book"), call("work"), text("done")]
        self.clerk = Agent(ScriptedModel(script), name="clerk", tools=[book, self.gate.tool])
        self.root = calling("root", self.clerk)

    async def begun(self, runner: Runner) -> tuple[str, str]:
        handle = await runner.start(self.root, "go")
        await self.gate.entered.wait()
        return handle.task_id, f"{handle.task_id}.s1-0"


async def undone_and_audited(runner: Runner, root: str, child: str) -> None:
    for task_id in (root, child):
        await assert_journal_makes_sense(runner, task_id)
    assert await audit_store(runner.store) == []


async def test_a_child_at_rest_is_undone_alone_and_goes_on_from_there_with_its_parent(runner: Runner) -> None:
    booking = Booking()
    root, child = await booking.begun(runner)
    await runner.interrupt(root)
    assert booking.booked == ["seat 1"]
    report = await runner.undo_step(child, to=0)
    assert [(item.tool, item.verdict) for item in report.calls] == [
        ("work", "nothing_to_compensate"),
        ("book", "compensated"),
    ]
    assert (booking.booked, (await runner.get_task(root)).state) == ([], "interrupted")
    booking.gate.let_go.set()
    result = await runner.resume(root)
    assert (result.final_text, booking.booked) == ("done", ["seat 1"])
    assert [item.name for item in result.tool_executions] == ["clerk", "book", "work"]
    await undone_and_audited(runner, root, child)


async def test_a_child_at_work_is_undone_by_its_driver_and_its_parent_waits(runner: Runner) -> None:
    booking = Booking()
    root, child = await booking.begun(runner)
    undoing = asyncio.ensure_future(runner.undo_step(child, step=2))
    await asyncio.sleep(0.02)
    booking.gate.let_go.set()
    await undoing
    assert (await runner.handle(root).result()).state == "waiting"
    assert (await runner.resume(root)).final_text == "done"
    assert (booking.booked, booking.gate.starts) == (["seat 1"], 2)
    await undone_and_audited(runner, root, child)


async def test_a_child_whose_result_its_parent_has_is_undone_after_the_step_that_has_it(
    runner: Runner,
) -> None:
    booking = Booking()
    booking.gate.let_go.set()
    result = await runner.run(booking.root, "go")
    root, child = result.task_id, f"{result.task_id}.s1-0"
    with pytest.raises(ChildTask, match=f"whose step s1 has its result: undo that step of task {root} first"):
        await runner.undo_step(child, to=0)
    assert booking.booked == ["seat 1"]
    with pytest.raises(IrreversibleStep, match="clerk"):
        await runner.undo_step(root, to=0)
    await runner.undo_step(root, to=0, force=True)
    report = await runner.undo_step(child, to=0)
    assert [item.verdict for item in report.calls] == ["nothing_to_compensate", "compensated"]
    assert booking.booked == []
    with pytest.raises(ChildTask, match="goes on only with it"):
        await runner.resume(child)
    assert (await runner.resume(root)).final_text == "done"
    assert booking.booked == ["seat 1"]
    await undone_and_audited(runner, root, child)


async def test_what_a_failed_child_changed_is_taken_back_after_the_call_was_tried_again(
    runner: Runner,
) -> None:
    booking = Booking()
    model = by_task([call("book"), fail(400)], [text("well")])
    boss = calling("boss", Subagent(booking.clerk.replace(model=model), retries=1))
    result = await runner.run(boss, "go")
    assert (result.final_text, booking.booked) == ("well", ["seat 1"])
    child = f"{result.task_id}.s1-0"
    await runner.undo_step(child, to=0)
    assert booking.booked == []
    await undone_and_audited(runner, result.task_id, child)


async def test_a_child_that_ended_before_its_parent_knew_is_undone_and_answers_anew(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = AgentCallInFlight._run

    async def lost(self: AgentCallInFlight, subagents: Any) -> ToolStopped:
        call = (await run(self, subagents)).call
        subagents.resting.add(call)
        why = Failure("subagent", "waiting", "its driver crashed before the end was recorded")
        return ToolStopped("s1", call, "parked", why)

    booking = Booking()
    booking.gate.let_go.set()
    with monkeypatch.context() as crash:
        crash.setattr(AgentCallInFlight, "_run", lost)
        result = await runner.run(booking.root, "go")
    root, child = result.task_id, f"{result.task_id}.s1-0"
    assert await states(runner, (root, child)) == ["waiting", "completed"]
    await runner.undo_step(child, to=0)
    assert booking.booked == []
    assert (await runner.resume(root)).final_text == "done"
    assert (booking.booked, booking.gate.starts) == (["seat 1"], 2)
    await undone_and_audited(runner, root, child)


async def test_a_cancelled_child_is_not_undone(runner: Runner) -> None:
    booking = Booking()
    root, child = await booking.begun(runner)
    await runner.interrupt(root)
    await runner.cancel(child)
    with pytest.raises(TaskFinished):
        await runner.undo_step(child, to=0)


async def test_a_child_is_shown_cancelled_and_forked_alone(runner: Runner) -> None:
    booking = Booking()
    root, child = await booking.begun(runner)
    assert (await runner.get_task(child)).parent == root
    fork = await runner.fork(child, at="s1")
    booking.gate.let_go.set()
    assert (fork.parent, (await runner.resume(fork)).final_text) == (None, "done")
    assert (await runner.handle(root).result()).state == "completed"
    assert [item.task_id for item in (await runner.list_tasks(parent=root)).items] == [child]
    assert booking.booked == ["seat 1"]


async def test_a_child_is_stepped_with_its_parents_step(runner: Runner) -> None:
    boss = calling("boss", answering("writer"))
    task = await runner.create_task(boss, "go")
    first = await runner.run_step(task)
    assert [done.output for done in first.tool_executions] == ["a poem"]
    assert (await runner.run_step(task)).is_last
    assert (await runner.finalize(task)).final_text == "a poem"


async def test_a_child_that_cannot_be_driven_is_resumed_once_it_can(store: Any) -> None:
    middle = Agent(ScriptedModel([call("late", input="go"), "said"]), name="middle", subagents=["late"])
    root = calling("root", middle)
    async with Runner(store) as runner:
        result = await runner.run(root, "go")
        assert result.state == "waiting"
        [pending] = result.pending
        assert "middle cannot go on: agent 'middle' may call the agent 'late'" in pending.text
        late = answering("late")
    if hasattr(store, "open"):
        return  # what is in memory ends with its runner
    async with Runner(store, agents=[root, late]) as runner:
        assert (await runner.resume(result.task_id)).final_text == "said"


async def test_a_settlement_in_a_child_lets_the_whole_tree_go_on(store: Any) -> None:
    gate = Gate("send")
    leaf = Agent(ScriptedModel([call("send"), text("sent")]), name="leaf", tools=[gate.tool])
    root = calling("root", leaf)
    async with Runner(store) as runner:
        handle = await runner.start(root, "go")
        await gate.entered.wait()
        await handle.interrupt()
        result = await runner.resume(handle.task_id)
        assert result.state == "waiting"
        [pending] = result.pending
        child = pending.request_id
        [lost] = (await runner.result(child)).pending
        await runner.settle(child, lost.request_id, Happened("sent it"))
        assert (await runner.resume(handle.task_id)).final_text == "sent"
        assert gate.starts == 1


async def test_an_adopter_resumes_the_root_when_a_child_was_settled(store: Any) -> None:
    gate = Gate("send")
    leaf = Agent(ScriptedModel([call("send"), text("sent")]), name="leaf", tools=[gate.tool])
    root = calling("root", calling("middle", leaf))
    async with Runner(store, agents=[root], adopt=True) as runner:
        handle = await runner.start(root, "go")
        await gate.entered.wait()
        await handle.interrupt()
        await runner.resume(handle.task_id)
        child = f"{handle.task_id}.s1-0.s1-0"
        [lost] = (await runner.result(child)).pending
        await runner.settle(child, lost.request_id, Happened("sent it"))
        async with asyncio.timeout(5):
            while (await runner.get_task(handle.task_id)).state != "completed":  # noqa: ASYNC110  another drives it
                await asyncio.sleep(0.02)
        assert gate.starts == 1


@pytest.mark.virtual_time
async def test_an_adopter_does_not_claim_a_child_below_a_stopped_task_repeatedly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adoption, "SCAN_SECONDS", 0.25)
    tree, store = Tree(), MemoryStore()
    async with Runner(store, agents=[tree.root]) as runner:
        root = await tree.begun(runner)
        await runner.interrupt(root)
        child = tree.ids(root)[1]
        claim = await store.claim(child)
        await send(store, Commit(child, claim.epoch, release=True, due_at=AT_ONCE))
        runner.begin_adopting()
        await asyncio.sleep(0.7)
        assert (await store.row(child)).epoch == claim.epoch
        assert (await runner.get_task(root)).state == "interrupted"


# ------------------------------------------------------------------------------- steps that are functions


async def test_a_function_runs_agents_beside_each_other_and_finds_their_answers_when_it_is_entered_again(
    runner: Runner,
) -> None:
    entered: list[int] = []
    gates = [Gate(f"gate{n}", read_only=True) for n in range(2)]
    below = [
        Agent(ScriptedModel([call(gate.name), text(f"poem {n}")]), name=f"writer{n}", tools=[gate.tool])
        for n, gate in enumerate(gates)
    ]

    async def step(ctx: StepContext[Any]) -> StepResult:
        entered.append(1)
        poems = await asyncio.gather(
            ctx.run_agent(below[0], "one"), ctx.run_agent("writer1", "two", key="second")
        )
        return StepResult(" + ".join(map(str, poems)), is_last=True)

    boss = Agent(ScriptedModel([]), name="boss", worker=step, subagents=below)
    handle = await runner.start(boss, "go")
    await until(lambda: all(gate.starts for gate in gates))
    gates[1].let_go.set()
    await happened(handle, "tool_ended")
    await handle.interrupt()
    gates[0].let_go.set()
    assert (await runner.resume(handle.task_id)).final_text == "poem 0 + poem 1"
    assert len(entered) == 2
    assert [len(requests(agent)) for agent in below] == [2, 2]
    for task in (await runner.list_tasks()).items:
        await assert_journal_makes_sense(runner, task.task_id)


@pytest.mark.parametrize("policy", ["continue", "fail", "degrade", "pause"])
async def test_the_failure_of_an_agent_raises_in_the_step_function(runner: Runner, policy: Any) -> None:
    async def step(ctx: StepContext[Any]) -> StepResult:
        with pytest.raises(SubagentFailed, match="writer failed: scripted failure: 500"):
            await ctx.run_agent("writer", "one")
        with pytest.raises(WorkerError, match="not among the agent's subagents"):
            await ctx.run_agent("missing", "one")
        return StepResult(await ctx.run_agent("writer", "two"), is_last=True)

    writer = Agent(ScriptedModel([fail(500)]), name="writer")
    boss = Agent(ScriptedModel([]), name="boss", worker=step, subagents=[writer])
    options = RunOptions(on_failure=FailurePolicy(subagent=policy))
    result = await runner.run(boss, "go", options=options)
    states = {"continue": "failed", "fail": "failed", "degrade": "degraded", "pause": "paused"}
    assert result.state == states[policy]
    [*_, failed] = await only(runner, result.task_id, "step_failed")
    assert failed.error.source == "subagent"


@dataclass
class City:
    name: str
    founded: date


async def test_a_step_function_gets_the_answer_of_an_agent_as_its_output_type(runner: Runner) -> None:
    answer = call("final_answer", name="Rome", founded="0001-04-21")
    historian = Agent(ScriptedModel([answer]), name="historian", output_type=City)
    outputs: list[Any] = []

    async def ask(ctx: NodeContext[Any]) -> City:
        city = await ctx.step.run_agent(historian, "Which city is the oldest?")
        outputs.append(
            (city, await ctx.step.run_agent("historian", "Which city is the oldest?", key="again"))
        )
        return city

    pipeline = Pipeline([Node("ask", ask)])
    boss = Agent(ScriptedModel([]), name="boss", worker=pipeline, subagents=[historian], output_type=City)
    result = await runner.run(boss, "go")
    city = City("Rome", date(1, 4, 21))
    assert outputs == [(city, {"name": "Rome", "founded": "0001-04-21"})]
    assert result.output == city


async def test_a_function_whose_agent_is_paused_waits_with_it(runner: Runner) -> None:
    tree = Tree()

    async def step(ctx: StepContext[Any]) -> StepResult:
        return StepResult(await ctx.run_agent("leaf", "go"), is_last=True)

    boss = Agent(ScriptedModel([]), name="boss", worker=step, subagents=[tree.leaf])
    handle = await runner.start(boss, "go")
    await tree.gate.entered.wait()
    child = (await runner.list_tasks(parent=handle.task_id)).items[0].task_id
    pausing = asyncio.ensure_future(runner.pause(child))
    await happened(runner.handle(child), "pause_requested")
    tree.gate.let_go.set()
    await pausing
    assert (await handle.result()).state == "waiting"
    assert (await runner.resume(handle.task_id)).final_text == "done"
    assert len(requests(tree.leaf)) == 2


async def test_an_agent_whose_step_is_not_needed_any_more_is_ended(runner: Runner) -> None:
    tree = Tree()

    async def step(ctx: StepContext[Any]) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=[NextStep("slow"), NextStep("quick")])
        if ctx.name == "slow":
            return StepResult(await ctx.run_agent("leaf", "go"), is_last=True)
        await tree.gate.entered.wait()
        return StepResult("quick", is_last=True)

    boss = Agent(ScriptedModel([]), name="boss", worker=step, subagents=[tree.leaf])
    result = await runner.run(boss, "go")
    assert result.final_text == "quick"
    [child] = (await runner.list_tasks(parent=result.task_id)).items
    assert child.state == "cancelled"
    assert tree.gate.cancelled == 1


# ---------------------------------------------------------------------------------- undo, fork, delete


async def test_a_fork_shares_results_of_children_and_calls_children_of_its_own(runner: Runner) -> None:
    writer = answering("writer")
    result = await runner.run(calling("boss", writer), "go")
    fork = await runner.fork(result.task_id, at="s1")
    assert (await runner.resume(fork)).final_text == "a poem"
    assert len(requests(writer)) == 1
    again = await runner.fork(result.task_id, at=2)
    assert (await runner.resume(again)).final_text == "a poem"
    assert len(requests(writer)) == 2
    assert [task.task_id for task in (await runner.list_tasks(parent=again.task_id)).items] == [
        f"{again.task_id}.s1-0"
    ]


async def test_a_fork_of_a_child_has_no_parent(runner: Runner) -> None:
    result = await runner.run(calling("boss", answering("writer")), "go")
    fork = await runner.fork(f"{result.task_id}.s1-0", at=1)
    assert fork.parent is None
    assert (await runner.resume(fork)).final_text == "a poem"


async def test_no_fork_begins_where_a_child_is_at_rest(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.interrupt(root)
    with pytest.raises(ForkPointBusy):
        await runner.fork(root, at=(await runner.get_task(root)).head)


async def test_deleting_a_task_deletes_all_below_it(runner: Runner) -> None:
    result = await runner.run(calling("root", calling("middle", answering("leaf"))), "go", task_id="job")
    assert result.state == "completed"
    await runner.delete_task("job")
    for task_id in Tree().ids("job"):
        with pytest.raises(TaskNotFound):
            await runner.get_task(task_id)
    with pytest.raises(TaskConflict, match="its thread or its forks keep what it said"):
        await runner.run(calling("root", calling("middle", answering("leaf"))), "go again", task_id="job")
    await runner.delete_thread(result.thread_id)
    again = await runner.run(calling("root", calling("middle", answering("leaf"))), "go again", task_id="job")
    assert again.state == "completed"


async def test_a_child_that_ended_is_not_pruned_before_its_parent_has_recorded_its_end(
    runner: Runner,
) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.interrupt(root)
    _, middle, leaf = tree.ids(root)
    await runner.cancel(leaf, reason="too slow")
    assert (await runner.prune(0, dry_run=True)).tasks == ()
    assert (await runner.prune(0)).tasks == ()
    with pytest.raises(TaskBusy, match=f"child of task {middle}"):
        await runner.delete_thread(leaf)
    assert "leaf was cancelled: too slow" in (await runner.resume(root)).final_text
    assert {root, middle, leaf} == {*(await runner.prune(0)).tasks}


async def test_a_task_is_exported_and_imported_with_all_below_it(runner: Runner, tmp_path: Path) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.interrupt(root)
    for name, task_id in (("whole", root), ("from below", tree.ids(root)[2])):
        file = tmp_path / f"{name}.jsonl"
        report = await runner.export_tasks(file, task_id)
        assert sorted(report.tasks) == sorted(tree.ids(root))
        async with Runner(tmp_path / f"{name}.db", agents=[tree.root]) as other:
            await other.import_tasks(file)
            assert not (await other.verify()).findings
            tree.gate.let_go.set()
            assert (await other.resume(root)).final_text == "done"
            assert await states(other, tree.ids(root)) == ["completed"] * 3
    assert not (await runner.verify()).findings


class Branches:
    """A root above two middles: the leaf of the first works, the second is at rest with its leaf."""

    def __init__(self) -> None:
        self.busy, self.stopped = Gate("busy", read_only=True), Gate("stopped")
        leaves = [
            Agent(ScriptedModel([call(gate.name), text("done")]), name=f"{gate.name}_leaf", tools=[gate.tool])
            for gate in (self.busy, self.stopped)
        ]
        middles = [calling(f"{leaf.name}_boss", leaf) for leaf in leaves]
        self.root = calling("root", *middles)

    async def begun(self, runner: Runner) -> tuple[str, str]:
        """Return the ids of the root, which is driven, and of the leaf that waits for a verdict."""
        handle = await runner.start(self.root, "go")
        await self.stopped.entered.wait()
        await self.busy.entered.wait()
        await handle.interrupt()
        self.busy.entered.clear()
        self.again = asyncio.ensure_future(
            runner.resume(handle.task_id)
        )  # referred to, so it is not collected
        await self.busy.entered.wait()
        leaf = f"{handle.task_id}.s1-1.s1-0"
        await until_state(runner, f"{handle.task_id}.s1-1", "waiting")
        return handle.task_id, leaf


async def until_state(runner: Runner, task_id: str, state: str) -> None:
    async with asyncio.timeout(5):
        while (task := await runner.get_task(task_id)).state != state or task.driven:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("verb", ["settle", "cancel"])
async def test_a_message_to_a_waiting_leaf_reaches_its_tree_at_work(runner: Runner, verb: str) -> None:
    branches = Branches()
    root, leaf = await branches.begun(runner)
    if verb == "settle":
        [lost] = (await runner.result(leaf)).pending
        await runner.settle(leaf, lost.request_id, Happened("sent it"))
    else:
        await runner.cancel(leaf)
    await until_state(runner, f"{root}.s1-1", "completed")  # while the other branch is still busy
    branches.busy.let_go.set()
    await until_state(runner, root, "completed")
    assert (await branches.again).state == "completed"


async def test_a_child_is_paused_with_its_parent_as_often_as_that_is_paused(runner: Runner) -> None:
    gate = Gate(read_only=True)
    leaf = Agent(
        ScriptedModel([*[call("work") for _ in range(4)], text("done")]), name="leaf", tools=[gate.tool]
    )
    handle = await runner.start(calling("root", leaf), "go")
    resumed: list[asyncio.Future[Any]] = []
    for times in (1, 2, 3):
        await gate.entered.wait()
        pausing = asyncio.ensure_future(handle.pause())
        async with asyncio.timeout(20):
            while not (await runner._driver.cache.load(f"{handle.task_id}.s1-0")).state.pausing:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        gate.entered.clear()
        gate.let_go.set()
        assert (await pausing).state == "paused"
        assert (gate.starts, await states(runner, (f"{handle.task_id}.s1-0",))) == (times, ["paused"])
        gate.let_go.clear()
        resumed.append(asyncio.ensure_future(handle.resume()))
    gate.let_go.set()
    await until_state(runner, handle.task_id, "completed")


async def test_only_the_call_that_ignores_its_cancellation_is_given_up_and_not_the_agents_above_it(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.05)
    monkeypatch.setattr(in_flight, "INSIST", 0.02)
    begun, end = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def deaf() -> str:
        """Ignore every notification."""
        begun.set()
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()
        return "ended"

    leaf = Agent(ScriptedModel([call("deaf"), text("done")]), name="leaf", tools=[deaf])
    handle = await runner.start(calling("root", calling("middle", leaf)), "go")
    await begun.wait()
    try:
        assert (await asyncio.wait_for(handle.interrupt(), 5)).state == "interrupted"
        assert [left.name for left in runner.abandoned if left.task_id.startswith(handle.task_id)] == ["deaf"]
        ids = Tree().ids(handle.task_id)
        stopped = [event.reason for each in ids for event in await only(runner, each, "tool_stopped")]
        assert stopped == ["interrupted", "interrupted"], "a read that was given up has ended"
        assert await states(runner, ids) == ["interrupted"] * 3
    finally:
        end.set()


async def test_an_undo_of_a_step_whose_agent_is_at_work_does_not_wait_for_it(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    report = await asyncio.wait_for(runner.undo_step(root, force=True), 5)
    assert (report.complete, report.steps, tree.gate.cancelled) == (True, ("s1",), 1)
    assert await states(runner, tree.ids(root)[1:]) == ["cancelled"] * 2


# --------------------------------------------------------------------------------------- terms of a call


async def test_a_child_gets_of_the_context_what_its_terms_let_through(runner: Runner) -> None:
    seen: dict[str, Any] = {}

    def writer(name: str) -> Agent[Any]:
        def note(ctx: Any) -> str:
            seen[name] = ctx.context
            return "Write."

        return Agent(ScriptedModel([text("a poem")]), name=name, instructions=note)

    boss = calling(
        "boss",
        writer("trusted"),
        Subagent(writer("narrow"), context=["tenant"]),
        Subagent(writer("mapped"), context=lambda context: context["tenant"].upper()),
        Subagent(calling("between", writer("below")), context=["key"]),
        Subagent(writer("blind"), context=None),
    )
    await runner.run(boss, "go", context={"tenant": "acme", "key": 7})
    assert seen == {
        "trusted": {"tenant": "acme", "key": 7},
        "narrow": {"tenant": "acme"},
        "mapped": "ACME",
        "below": {"key": 7},
        "blind": None,
    }


async def test_a_context_that_a_child_cannot_be_given_is_an_error_before_any_request(runner: Runner) -> None:
    writer = answering("writer", context_type=City)
    for terms, problem in (
        (["tenant"], r"agent 'boss': Subagent 'writer': context= names tenant, which"),
        (lambda _: 3, "agent 'writer': it needs a context of type City"),
    ):
        boss = calling("boss", Subagent(writer, context=terms))
        with pytest.raises(ConfigurationError, match=problem):
            await runner.run(boss, "go", context={"name": "Rome"})
        assert requests(boss) == []


async def test_a_function_of_the_context_fails_before_any_request_where_the_caller_passed_none(
    runner: Runner,
) -> None:
    boss = calling("boss", Subagent(answering("writer"), context=lambda context: context["x"]))
    with pytest.raises(
        ConfigurationError, match="Subagent 'writer': the function of context= failed: TypeError"
    ):
        await runner.run(boss, "go")
    assert requests(boss) == []


async def test_a_function_of_the_context_that_raises_fails_the_call_and_not_the_run(runner: Runner) -> None:
    boss = calling("boss", Subagent(answering("writer"), context=lambda context: context["x"]))
    result = await runner.run(boss, "go", context={"name": "Rome"})
    (execution,) = result.tool_executions
    assert (result.state, execution.outcome) == ("completed", "error")
    assert "Subagent 'writer': the function of context= failed: KeyError: 'x'" in execution.error.message
    assert execution.error.traceback.endswith("KeyError: 'x'")


async def test_a_child_begins_with_the_state_that_its_terms_name(runner: Runner) -> None:
    seen: list[Any] = []

    @tool(read_only=True)
    def look(ctx: ToolContext[Any]) -> str:
        """Look at the state."""
        seen.append(dict(ctx.state))
        return "looked"

    @tool(read_only=True)
    def book(ctx: ToolContext[Any]) -> str:
        """Change the state."""
        ctx.state["ticket"] = 8
        return "booked"

    writer = Agent(by_task([call("look"), text("a poem")]), name="writer", tools=[look])
    script = [call("book"), both(call("plain", input="x"), call("writer", input="x")), text("done")]
    plain = writer.replace(name="plain")
    boss = Agent(
        ScriptedModel(script),
        name="boss",
        tools=[book],
        subagents=[plain, Subagent(writer, state=["ticket", "missing"])],
    )
    result = await runner.run(boss, "go", extra_state={"ticket": 7, "secret": 1})
    assert result.state == "completed"
    assert sorted(seen, key=len) == [{}, {"ticket": 8}]
    assert result.extra_state == {"ticket": 8, "secret": 1}


@pytest.mark.parametrize("is_resumed", [False, True], ids=["at once", "after a restart"])
async def test_children_have_the_labels_of_their_parent_so_that_rules_by_label_hold_for_their_calls(
    store: Any, is_resumed: bool
) -> None:
    gold = {"labels.tier": {"is_not": "gold"}}
    policy = Policy(Rule("gold-only", "deny", tool="add", when=gold))
    child = Agent(ScriptedModel([call("add", a=1, b=2), "3"]), name="child", tools=[add])
    deep = Agent(ScriptedModel([call("child", input="1 + 2?"), "3"]), name="deep", subagents=[child])
    boss = Agent(ScriptedModel([call("deep", input="1 + 2?"), "3"]), name="boss", subagents=[deep])
    for tier, outcome in (("gold", "ok"), ("lead", "denied")):
        options = RunOptions(labels={"tier": tier})
        if is_resumed:
            async with Runner(store, agents=[boss], policy=policy) as runner:
                await runner.create_task(boss, "Go", task_id=tier, options=options)
            async with Runner(store, agents=[boss], policy=policy) as runner:
                await runner.resume(tier)
        async with Runner(store, agents=[boss], policy=policy) as runner:
            await runner.run(boss, "Go", task_id=tier, options=options)
            (below,) = (await runner.list_tasks(agent="child", labels={"tier": tier})).items
            assert below.labels == {"tier": tier}
            (execution,) = (await runner.result(below.task_id)).tool_executions
            assert execution.outcome == outcome

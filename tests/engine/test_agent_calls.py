"""Calls of agents: how the end of a task becomes the end of the call."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, pay
from tests.drivers.agent_trees import Tree, answering, by_task, calling, states
from tests.runner.acts import assert_journal_makes_sense, happened, journal, only
from treadle import (
    Agent,
    FailurePolicy,
    Limits,
    NextLayer,
    Quorum,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    Subagent,
    ToolInvocation,
    ToolOutput,
    tool,
)
from treadle.errors import IrreversibleStep, StoreUnavailable
from treadle.llm import providers
from treadle.llm.scripted import call, fail, text
from treadle.ports import InboxItem
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit.store import audit_store
from treadle.testing.wrappers import WrappedStore

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

POLICIES: dict[Any, tuple[str, str]] = {
    "continue": ("completed", "writer failed: scripted failure: 500"),
    "degrade": ("degraded", "writer failed: scripted failure: 500"),
    "fail": ("failed", ""),
    "pause": ("paused", ""),
}


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_failed_child_is_handled_by_the_failure_policy(runner: Runner, policy: Any) -> None:
    writer = Agent(ScriptedModel([fail(500), text("a poem")]), name="writer")
    boss = calling("boss", writer)
    options = RunOptions(on_failure=FailurePolicy(subagent=policy))
    result = await runner.run(boss, "go", options=options)
    state, said = POLICIES[policy]
    assert result.state == state
    assert said in result.final_text
    [ended] = await only(runner, result.task_id, "tool_ended")
    assert (ended.outcome, ended.error.source) == ("error", "subagent")


async def test_the_answer_of_a_degraded_child_is_marked_as_a_best_effort(runner: Runner) -> None:
    writer = Agent(ScriptedModel([text("half a poem")]), name="writer", limits=Limits(steps=0))
    boss = calling("boss", writer)
    result = await runner.run(boss, "go")
    assert "[A best effort: limit reached: steps]" in result.final_text


async def test_a_child_that_is_paused_alone_makes_its_parent_wait(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    leaf = tree.ids(root)[2]
    pausing = asyncio.ensure_future(runner.pause(leaf, reason="look at it"))
    await happened(runner.handle(leaf), "pause_requested")
    tree.gate.let_go.set()
    assert (await pausing).state == "paused"
    result = await runner.handle(root).result()
    assert result.state == "waiting"
    [pending] = result.pending
    assert (pending.kind, pending.request_id) == ("subagent", tree.ids(root)[1])
    assert "look at it" in pending.text
    assert await states(runner, tree.ids(root)) == ["waiting", "waiting", "paused"]
    assert (await runner.resume(root)).final_text == "done"


async def test_the_model_sees_that_a_child_was_cancelled_alone(runner: Runner) -> None:
    tree = Tree()
    root = await tree.begun(runner)
    await runner.cancel(tree.ids(root)[2], reason="too slow")
    result = await runner.handle(root).result()
    assert result.state == "completed"
    assert "leaf was cancelled: too slow" in result.final_text
    for task_id in tree.ids(root):
        await assert_journal_makes_sense(runner, task_id)


async def test_a_subagent_without_its_model_is_an_error_that_the_caller_sees(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "installed", lambda _: False)
    result = await runner.run(calling("boss", Agent("groq:none", name="writer")), "go")
    assert result.state == "completed"
    assert "treadle[groq]" in result.final_text
    assert not (await runner.list_tasks(parent=result.task_id)).items


# ------------------------------------------------------------------------------------ timeouts and retries


@tool(read_only=True)
async def sleep(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "awake"


def sleeper(*seconds: float, **more: Any) -> Agent[Any]:
    """Return an agent of which the nth task sleeps so many seconds, and answers."""
    scripts = [[call("sleep", seconds=nap), text("rested")] for nap in seconds]
    return Agent(by_task(*scripts), name="sleeper", tools=[sleep], **more)


async def test_a_subagent_that_takes_too_long_is_cancelled_and_its_call_fails(runner: Runner) -> None:
    began = clock.now()
    result = await runner.run(calling("boss", Subagent(sleeper(3_600), timeout=60)), "go")
    assert clock.now() - began < 61_000_000
    assert await states(runner, (f"{result.task_id}.s1-0",)) == ["cancelled"]
    await assert_journal_makes_sense(runner, result.task_id)
    [execution] = result.subagent_executions
    assert (result.state, execution.outcome) == ("completed", "timeout")
    assert result.final_text == "sleeper was stopped: it took longer than 60 s."


class SilentToStops(WrappedStore):
    """A store that does not take the first requests to cancel a child."""

    def __init__(self, silences: int) -> None:
        super().__init__(MemoryStore())
        self.silences = silences

    async def post(self, task_id: str, item: InboxItem) -> bool:
        if item.kind == "cancel" and item.data.get("by") == "parent" and self.silences:
            self.silences -= 1
            raise StoreUnavailable("the store does not answer")
        return await self._store.post(task_id, item)


@pytest.mark.parametrize("outcome", ["timeout", "cancelled"])
async def test_the_call_of_an_agent_ended_without_its_spending_when_the_store_failed_its_stop(
    outcome: str,
) -> None:
    store = SilentToStops(5)
    async with clock.runner(store) as runner:
        boss = calling("boss", Subagent(sleeper(3_600), timeout=60))
        handle = await runner.start(boss, "go")
        await asyncio.sleep(40)
        if outcome == "cancelled":
            await runner.interrupt(handle.task_id)
            await runner.cancel(handle.task_id)
        await handle.result()
        [ended] = await only(runner, handle.task_id, "tool_ended")
        assert (ended.outcome, ended.error.source) == (outcome, "subagent")
        assert [(part.agent, part.model_calls) for part in ended.spent] == [("sleeper", 1)]
        assert ended.harmless
        assert await states(runner, (f"{handle.task_id}.s1-0",)) == ["cancelled"]
        assert await audit_store(store) == []
    assert store.silences == 0


async def test_the_stop_of_an_agent_held_its_drive_for_ever_while_the_store_was_silent() -> None:
    store = SilentToStops(1_000_000)
    async with clock.runner(store) as runner:
        boss = calling("boss", Subagent(sleeper(3_600), timeout=60))
        handle = await runner.start(boss, "go")
        with pytest.raises(StoreUnavailable, match="the store does not answer"):
            await handle.result()
        assert await only(runner, handle.task_id, "tool_ended") == []
        store.silences = 0
        await runner.resume(handle.task_id)
        [ended] = await only(runner, handle.task_id, "tool_ended")
        assert (ended.outcome, [part.model_calls for part in ended.spent]) == ("timeout", [1])
        assert await audit_store(store) == []


async def test_time_in_which_a_subagent_waits_for_a_person_does_not_count(runner: Runner) -> None:
    @tool(needs_approval=True, read_only=True)
    async def look() -> str:
        """Look."""
        await asyncio.sleep(40)
        return "seen"

    looker = Agent(ScriptedModel([call("look"), text("ok"), text("ok")]), name="looker", tools=[look])
    result = await runner.run(calling("boss", Subagent(looker, timeout=60)), "go")
    await asyncio.sleep(600)
    await runner.approve(result.task_id)
    result = await runner.resume(result.task_id)
    assert [call.outcome for call in result.subagent_executions] == ["ok"]


async def test_time_in_which_a_subagent_ran_before_an_interruption_counts(runner: Runner) -> None:
    handle = await runner.start(calling("boss", Subagent(sleeper(100), timeout=60)), "go")
    await asyncio.sleep(40)
    await runner.interrupt(handle.task_id)
    await asyncio.sleep(600)
    began = clock.now()
    result = await runner.resume(handle.task_id)
    assert 19 < (clock.now() - began) / 1e6 < 22
    assert [call.outcome for call in result.subagent_executions] == ["timeout"]


@pytest.mark.parametrize(
    ("seconds", "outcomes", "said"),
    [
        ((100, 1), ["timeout", "ok"], "rested"),
        ((100, 100, 1), ["timeout", "timeout", "ok"], "rested"),
        ((100,), ["timeout"] * 3, "sleeper was stopped: it took longer than 60 s."),
    ],
)
async def test_a_subagent_that_took_too_long_is_tried_again_as_a_new_task(
    runner: Runner, seconds: tuple[float, ...], outcomes: list[str], said: str
) -> None:
    result = await runner.run(calling("boss", Subagent(sleeper(*seconds), timeout=60, retries=2)), "go")
    for task_id in [result.task_id, *[made.task_id for made in result.subagent_executions]]:
        await assert_journal_makes_sense(runner, task_id)
    assert [call.outcome for call in result.subagent_executions] == outcomes
    ends = ["", "t2", "t3"][: len(outcomes)]
    assert [call.task_id for call in result.subagent_executions] == [
        f"{result.task_id}.s1-0{end}" for end in ends
    ]
    assert result.final_text == said
    assert result.usage.per_agent["sleeper"].model_calls == sum(
        1 if outcome == "timeout" else 2 for outcome in outcomes
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("retries", [0, 1, 2])
@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_a_subagent_that_failed_is_tried_again_as_often_as_its_terms_say(
    runner: Runner, retries: int, failures: int
) -> None:
    writer = Agent(by_task(*[[fail(400)]] * failures, [text("a poem")]), name="writer")
    result = await runner.run(calling("boss", Subagent(writer, retries=retries)), "go")
    tasks = [call.outcome for call in result.subagent_executions]
    assert tasks == ["error"] * min(failures, retries + 1) + ["ok"] * (retries >= failures)
    assert ("a poem" in result.final_text) is (retries >= failures)
    [ended] = await only(runner, result.task_id, "tool_ended")
    assert ended.outcome == ("ok" if retries >= failures else "error")
    await assert_journal_makes_sense(runner, result.task_id)


async def test_a_limit_on_children_ends_a_call_that_would_be_tried_again_with_its_failure(
    runner: Runner,
) -> None:
    writer = Agent(by_task([fail(400)], [text("a poem")]), name="writer")
    boss = calling("boss", Subagent(writer, retries=3), limits=Limits(children=1))
    result = await runner.run(boss, "go")
    [ended] = await only(runner, result.task_id, "tool_ended")
    assert ended.outcome == "error"
    assert ended.error.message.startswith("writer failed: scripted failure: 400; it was not tried again: the")
    assert [call.outcome for call in result.subagent_executions] == ["error"]
    assert await audit_store(runner.store) == []


async def test_a_step_function_gets_the_answer_of_the_subagent_that_was_tried_again(runner: Runner) -> None:
    writer = Agent(by_task([fail(400)], [text("a poem")]), name="writer")

    async def ask(ctx: StepContext[Any]) -> StepResult:
        return StepResult(await ctx.run_agent("writer", "go"), is_last=True)

    boss = Agent(ScriptedModel([]), name="boss", worker=ask, subagents=[Subagent(writer, retries=1)])
    result = await runner.run(boss, "go")
    assert (result.state, result.final_text) == ("completed", "a poem")


async def test_what_a_failed_subagent_changed_keeps_its_step_from_being_taken_back(runner: Runner) -> None:
    gate = Gate("send")
    gate.let_go.set()
    sender = Agent(by_task([call("send"), fail(400)], [text("all well")]), name="sender", tools=[gate.tool])
    result = await runner.run(calling("boss", Subagent(sender, retries=1)), "go")
    assert [call.outcome for call in result.subagent_executions] == ["error", "ok"]
    assert [call.name for call in result.tool_executions] == ["sender", "send"]
    with pytest.raises(IrreversibleStep, match="may have changed"):
        await runner.undo_step(result.task_id, to=0)


async def test_a_failed_subagent_has_a_policy_of_its_own(runner: Runner) -> None:
    broken = Agent(ScriptedModel([fail(400), fail(400)]), name="broken")
    boss = calling("boss", Subagent(broken, on_failure="degrade"), answering("writer"))
    result = await runner.run(boss, "go", options=RunOptions(on_failure=FailurePolicy(subagent="fail")))
    assert result.state == "degraded"
    assert "broken failed" in result.degraded_reasons[0]


# ------------------------------------------------------------------------------------------------- joins


@pytest.mark.parametrize(("join", "stopped"), [("any", 2), (Quorum(2), 1), ("all", 0)])
async def test_once_enough_agents_answered_the_others_are_stopped_for_good(
    runner: Runner, join: Any, stopped: int
) -> None:
    naps = [
        Agent(ScriptedModel([call("sleep", seconds=s), text(f"{s:g} s")]), name=f"nap{n}", tools=[sleep])
        for n, s in enumerate((30.0, 10.0, 20.0))
    ]
    began = clock.now()
    result = await runner.run(calling("boss", *naps, join=join), "go")
    assert clock.now() - began < {"any": 11, Quorum(2): 21, "all": 31}[join] * 1_000_000
    assert result.state == "completed"
    ids = tuple(call.task_id for call in result.subagent_executions)
    for task_id in (result.task_id, *ids):
        await assert_journal_makes_sense(runner, task_id)
    ended = await states(runner, ids)
    assert ended.count("cancelled") == stopped
    assert ended[1] == "completed"


@pytest.mark.parametrize(
    ("join", "policy", "state"),
    [
        ("any", "fail", "completed"),
        (Quorum(2), "fail", "failed"),
        (Quorum(2), "degrade", "degraded"),
        ("optional", "fail", "completed"),
        ("all", "fail", "failed"),
    ],
)
async def test_a_join_decides_whether_failures_count(
    runner: Runner, join: Any, policy: Any, state: str
) -> None:
    broken = [Agent(ScriptedModel([fail(400)] * 3), name=f"broken{n}") for n in range(2)]
    boss = calling("boss", *broken, answering("writer"), join=join)
    result = await runner.run(boss, "go", options=RunOptions(on_failure=FailurePolicy(subagent=policy)))
    assert result.state == state
    if state == "failed" and isinstance(join, int):
        assert result.error is not None
        assert "1 of 3 agents answered, and 2 had to: broken0 failed" in result.error.message


async def test_an_agent_that_waits_for_a_person_is_stopped_when_enough_others_answered(
    runner: Runner,
) -> None:
    gate = Gate("look", read_only=True, needs_approval=True)
    looker = Agent(ScriptedModel([call("look"), text("seen")]), name="looker", tools=[gate.tool])
    result = await runner.run(calling("boss", looker, answering("writer"), join="any"), "go")
    assert (result.state, gate.starts) == ("completed", 0)
    assert [call.outcome for call in result.subagent_executions] == ["cancelled", "ok"]


async def test_a_step_that_called_a_harmless_agent_is_taken_back(runner: Runner) -> None:
    result = await runner.run(calling("boss", answering("writer")), "go")
    report = await runner.undo_step(result.task_id, to=0)
    assert [call.verdict for call in report.calls] == ["nothing_to_compensate"]
    assert (await runner.resume(result.task_id)).final_text == "a poem"
    below = (await runner.list_tasks(parent=result.task_id)).items
    assert sorted(task.task_id for task in below) == [f"{result.task_id}.s1-0", f"{result.task_id}.s1b1-0"]


async def test_a_step_whose_agent_changed_something_is_taken_back_only_by_force(runner: Runner) -> None:
    gate = Gate("send")
    gate.let_go.set()
    sender = Agent(ScriptedModel([call("send"), "sent"]), name="sender", tools=[gate.tool])
    result = await runner.run(calling("root", calling("middle", sender)), "go")
    with pytest.raises(
        IrreversibleStep, match=rf"middle \(task {result.task_id}\.s1-0\) may have changed"
    ) as refused:
        await runner.undo_step(result.task_id, to=0)
    assert refused.value.calls == ("s1-0",)
    report = await runner.undo_step(result.task_id, to=0, force=True)
    assert [one.verdict for one in report.calls] == ["not_compensated"]


# ------------------------------------------------------------------------------------ in middleware


def chief_with(*middleware: Any, worker: Agent[Any], **options: Any) -> Agent[Any]:
    script = [call("worker", input="Go."), "Done."]
    return Agent(
        ScriptedModel(script), name="chief", subagents=[worker], middleware=list(middleware), **options
    )


async def redacts(called: ToolInvocation, next: NextLayer) -> ToolOutput:
    result = await next(called)
    return ToolOutput(str(result.output).replace("4711", "[number]"))


async def test_a_subagent_is_called_through_the_middleware_of_its_caller_and_keeps_its_spending() -> None:
    worker = Agent(ScriptedModel(["account 4711"]), name="worker")
    async with Runner("memory:") as runner:
        result = await runner.run(chief_with(redacts, worker=worker), "Go.")
        plain = await runner.run(
            chief_with(worker=worker.replace(model=ScriptedModel(["account 4711"]))), "Go."
        )
    (execution,) = [each for each in result.tool_executions if each.depth == 0]
    assert (result.state, execution.output) == ("completed", "account [number]")
    assert result.usage.total_tokens > 0
    assert result.usage.input_tokens <= plain.usage.input_tokens + 50


async def test_middleware_sees_no_rest_of_a_subagent_and_its_whole_answer_later() -> None:
    seen: list[str] = []

    async def looks(called: ToolInvocation, next: NextLayer) -> ToolOutput:
        seen.append("in")
        try:
            result = await next(called)
        except BaseException as error:  # noqa: BLE001  what is tested
            seen.append(type(error).__name__)
            return ToolOutput("made up") if isinstance(error, Exception) else await next(called)
        seen.append(str(result.output))
        return result

    worker = Agent(ScriptedModel([call("pay", amount=1), "It is paid."]), name="worker", tools=[pay])
    async with Runner("memory:") as runner:
        result = await runner.run(chief_with(looks, worker=worker), "Go.")
        assert result.state == "waiting"
        await runner.approve(result.task_id)
        result = await runner.resume(result.task_id)
    assert (result.state, seen) == ("completed", ["in", "_AtRest", "in", "It is paid."])


async def test_a_middleware_may_answer_for_a_subagent_whose_task_is_then_never_made() -> None:
    async def answers(called: ToolInvocation, next: NextLayer) -> ToolOutput:
        return ToolOutput("from elsewhere")

    async with Runner("memory:") as runner:
        result = await runner.run(chief_with(answers, worker=Agent(ScriptedModel([]), name="worker")), "Go.")
        tasks = (await runner.list_tasks()).items
    (execution,) = result.tool_executions
    assert (execution.output, [task.agent for task in tasks]) == ("from elsewhere", ["chief"])
    assert execution.report is not None
    assert execution.report.answered_by == "answers"


async def test_the_input_of_a_subagent_is_rewritten_once_and_stays_on_record() -> None:
    async def rewrites(called: ToolInvocation, next: NextLayer) -> ToolOutput:
        return await next(called.with_arguments({"input": called.arguments["input"] + " Be brief."}))

    worker = Agent(ScriptedModel(["Brief."]), name="worker")
    async with Runner("memory:") as runner:
        result = await runner.run(chief_with(rewrites, worker=worker), "Go.")
        child = next(task for task in (await runner.list_tasks()).items if task.agent == "worker")
        (created,) = [each for each in await journal(runner, child.task_id) if each.kind == "task_created"]
    (execution,) = result.tool_executions
    assert (execution.arguments, execution.rewritten) == ({"input": "Go."}, {"input": "Go. Be brief."})
    assert "Go. Be brief." in repr(created)


async def test_a_failed_subagent_fails_its_call_through_middleware_as_ever() -> None:
    worker = Agent(ScriptedModel([fail()]), name="worker")
    async with Runner("memory:") as runner:
        result = await runner.run(chief_with(redacts, worker=worker), "Go.")
    (execution,) = result.tool_executions
    assert (execution.outcome, execution.error.source) == ("error", "subagent")
    assert execution.error.message.startswith("worker failed: ")

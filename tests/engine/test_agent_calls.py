"""Calls of agents: how the end of a task becomes the end of the call."""

import asyncio
from typing import Any

import pytest

from tests.drivers.agent_trees import Tree, answering, calling, states
from tests.runner.acts import Gate, assert_journal_makes_sense, happened, only
from treadle import (
    Agent,
    FailurePolicy,
    Runner,
    RunOptions,
    ScriptedModel,
)
from treadle.errors import (
    IrreversibleStep,
)
from treadle.llm import providers
from treadle.llm.scripted import call, fail, text

pytestmark = pytest.mark.anyio

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
    from treadle import Limits

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

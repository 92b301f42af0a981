"""A resume that `on_version_change="refuse"` refused reopened its task, emptied its thread and stored the option."""

from typing import Any

import pytest

from tests.cast import look
from tests.runner.acts import journal
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, StepContext, StepResult
from treadle.errors import StepFailed, VersionRefused
from treadle.models import call, fail

pytestmark = pytest.mark.anyio

REFUSE = RunOptions(on_version_change="refuse")


def looker(*script: Any, instructions: str = "") -> Agent[Any]:
    turns = script or (call("look"), "Seen.")
    return Agent(ScriptedModel(list(turns)), name="looker", tools=[look], instructions=instructions)


async def facts(runner: Runner, task_id: str) -> tuple[Any, ...]:
    """All that a reader can see of a task and its thread, and the journal itself."""
    task = await runner.get_task(task_id)
    messages = tuple(await runner.get_thread(task.thread_id)) if task.state == "degraded" else ()
    return task, messages, await runner.result(task_id), await journal(runner, task_id)


async def test_a_refused_resume_of_a_degraded_task_changes_nothing(runner: Runner) -> None:
    result = await runner.run(looker(), "Look.", options=RunOptions(limits=Limits(steps=1)))
    assert (result.state, len(await runner.get_thread(result.thread_id))) == ("degraded", 4)
    before = await facts(runner, result.task_id)
    with pytest.raises(VersionRefused, match="'looker'"):
        await runner.resume(result.task_id, agent=looker(instructions="Twice."), options=REFUSE)
    assert await facts(runner, result.task_id) == before
    # The refused option was not stored, so a resume without it accepts the other version.
    again = await runner.resume(
        result.task_id,
        agent=looker(call("look"), "Seen.", "Seen twice.", instructions="Twice."),
        options=RunOptions(limits=Limits(steps=9)),
    )
    assert again.state == "completed"


async def test_a_refused_resume_of_a_paused_task_leaves_it_paused(runner: Runner) -> None:
    task = await runner.create_task(looker(), "Look.")
    await runner.run_step(task)
    await runner.pause(task)
    before = await facts(runner, task.task_id)
    with pytest.raises(VersionRefused):
        await runner.resume(task, agent=looker(instructions="Twice."), options=REFUSE)
    assert await facts(runner, task.task_id) == before
    assert (await runner.resume(task, agent=looker(instructions="Twice."))).state == "completed"


@pytest.mark.parametrize("verb", ["resume", "run_step"])
async def test_a_refused_verb_leaves_a_failed_task_failed(runner: Runner, verb: str) -> None:
    task = await runner.create_task(looker(fail(400)), "Look.", options=REFUSE)
    with pytest.raises(StepFailed):
        await runner.run_step(task)
    before = await facts(runner, task.task_id)
    with pytest.raises(VersionRefused):
        await getattr(runner, verb)(task, agent=looker(instructions="Twice."))
    assert await facts(runner, task.task_id) == before


async def test_a_worker_of_another_kind_is_refused_before_the_task_is_reopened(runner: Runner) -> None:
    def step(ctx: StepContext[Any]) -> StepResult:
        return StepResult("done", is_last=True)

    result = await runner.run(looker(), "Look.", options=RunOptions(limits=Limits(steps=1)))
    before = await facts(runner, result.task_id)
    other = Agent(ScriptedModel(["x"]), name="looker", worker=step)
    with pytest.raises(VersionRefused, match="its steps are not functions"):
        await runner.resume(result.task_id, agent=other, options=RunOptions(limits=Limits(steps=9)))
    assert await facts(runner, result.task_id) == before

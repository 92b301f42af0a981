"""Custom workers as a runner drives them: which of them are consulted for the first step and for the answer."""

from typing import Any

import pytest

from treadle import (
    Agent,
    NextStep,
    Node,
    Pipeline,
    PlanRefine,
    RunContext,
    Runner,
    ScriptedModel,
    StepContext,
    StepResult,
)
from treadle.agents.workers.worker import FIRST, FunctionWorker
from treadle.core.events import JOURNAL_FORMAT


class Consulted:
    """A worker in three parts."""

    def initialize_step(self, task: RunContext[Any]) -> NextStep:
        return NextStep("first")

    def run_step(self, ctx: StepContext[Any]) -> StepResult:
        return StepResult("done", is_last=True)

    def finalize_task(self, task: RunContext[Any], output: Any) -> None:
        return None


async def one_function(ctx: StepContext[Any]) -> StepResult:
    return StepResult("done", is_last=True)


@pytest.mark.parametrize(
    ("worker", "first", "finalizes", "blocks"),
    [
        (one_function, [FIRST], False, False),
        (Consulted(), [], True, True),
        (Pipeline([Node("a", lambda ctx: 1)]), ["a"], False, False),
        (PlanRefine(), ["plan"], False, False),
    ],
    ids=["function", "three parts", "pipeline", "plan refine"],
)
def test_only_a_worker_in_three_parts_is_consulted_for_the_first_step_and_the_answer(
    worker: Any, first: list[str], finalizes: bool, blocks: bool
) -> None:
    driven = FunctionWorker(worker)
    assert [step.name for step in driven.first_steps] == first
    assert driven.finalizes_answers is finalizes
    assert driven.blocks is blocks


@pytest.mark.anyio
async def test_a_step_that_a_worker_planned_with_retries_is_tried_again() -> None:
    attempts: list[int] = []

    async def plans(ctx: StepContext[Any]) -> StepResult:
        if ctx.name != "flaky":
            return StepResult("planned", next_steps=[NextStep("flaky", retries=1)])
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return StepResult("works", is_last=True)

    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel([]), worker=plans), "go")
        assert (result.output, attempts) == ("works", [1, 2])
        assert (await runner.store.row(result.task_id)).format == JOURNAL_FORMAT


@pytest.mark.anyio
@pytest.mark.parametrize("retries", [-1, 1.5, True])
async def test_a_worker_that_plans_a_wrong_number_of_retries_fails_its_step(retries: Any) -> None:
    async def plans(ctx: StepContext[Any]) -> StepResult:
        return StepResult("planned", next_steps=[NextStep("flaky", retries=retries)])

    async with Runner("memory:") as runner:
        result = await runner.run(Agent(ScriptedModel([]), worker=plans), "go")
    assert "retries of step 'flaky' must be a whole number from 0 up" in str(result.error)

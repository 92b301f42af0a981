"""Custom workers as a runner drives them: which of them are consulted for the first step and for the answer."""

from typing import Any

import pytest

from treadle import NextStep, Node, Pipeline, PlanRefine, RunContext, StepContext, StepResult
from treadle.agents.workers.worker import FIRST, FunctionWorker


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

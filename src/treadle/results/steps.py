"""The steps of a task, without their outputs."""

from __future__ import annotations

from dataclasses import replace

from treadle.core.data import frozen
from treadle.core.display import Displayed, View
from treadle.core.messages import Content, Json
from treadle.core.rules.handoffs import agent_of
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.results.displays import if_repeated, parts_text


@frozen
class StepInfo(Displayed):
    """A step: its id, its index from 1, its input messages, its number of attempts, and its status.

    For a step function, `name` and `given` are its planned name and input. `after` are the ids of the steps it waits
    for. `started_at` and `ended_at` are in microseconds since 1970, UTC, and None before that time. `agent` is the
    agent of the step, once it has begun.
    """

    step_id: str
    index: int
    input: tuple[Content, ...]
    attempt: int
    status: str = "running"
    name: str = ""
    given: Json = None
    after: tuple[str, ...] = ()
    started_at: int | None = None
    ended_at: int | None = None
    agent: str = ""

    def _view(self) -> View:
        facts = (
            ("name", self.name),
            ("attempt", if_repeated(self.attempt)),
            ("after", ", ".join(self.after)),
        )
        values = (("input", parts_text(self.input)), ("given", self.given))
        return View(title="StepInfo", name=self.step_id, state=self.status, facts=facts, values=values)


def all_steps(state: TaskState) -> list[StepState]:
    """Return the steps of the present branch that have begun, in order."""
    if state.graph is not None:
        return state.graph.in_order([*state.steps, *state.under_way()])
    return [*state.steps, state.step] if state.step is not None else state.steps


def step_info(state: TaskState, step: StepState) -> StepInfo:
    """Return the description of a step."""
    times = (step.started or None, step.ended or None)
    info = StepInfo(
        step.id,
        step.index,
        step.input,
        step.attempt,
        step.status,
        started_at=times[0],
        ended_at=times[1],
        agent=agent_of(state, step),
    )
    node = state.node_of(step.id)
    if node is None:  # it is not planned yet
        return info
    return replace(info, name=node.plan.name, given=node.plan.input, after=node.after)

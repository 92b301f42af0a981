"""The calls of tools and of agents, with their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View, Word, seconds
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.core.steps import CallState, FailedChild, StepState
from treadle.core.unknown_names import explains_names
from treadle.results.displays import error_text, if_repeated, output_text
from treadle.results.states import NO_TASKS
from treadle.results.steps import all_steps
from treadle.results.usage import TaskUsage, spending_facts, usage_from

CALL_COLUMNS = ("call", "tool", "arguments", "outcome", "result", "took")


@explains_names("ToolExecution", subscript=True)
@frozen
class ToolExecution(Displayed):
    """One tool call and its outcome. `latency` is in seconds, None if it never started or has not ended.

    `agent` made the call; `depth` is the number of agents above it, and `path` names them. `task_id` is that agent's
    task: `call_id` is unique within it. `rewritten` are the arguments as middleware changed them, and `report` lists
    the other actions of middleware. `host` is where the tool's function ran; None if it ran in the driver's process or
    not at all.
    """

    name: str
    call_id: str
    arguments: dict[str, Json]
    outcome: e.Outcome | None
    output: Json
    error: e.Failure | None
    latency: float | None
    agent: str
    attempt: int = 1
    depth: int = 0
    path: tuple[str, ...] = ()
    display: str | None = None
    task_id: str = ""
    rewritten: dict[str, Json] | None = None
    report: e.CallReport | None = None
    host: str | None = None

    def _view(self) -> View:
        answered_by = self.report.answered_by if self.report is not None else None
        return View(
            title="ToolExecution",
            name=self.name,
            state=self.outcome or "open",
            facts=(
                ("call", self.call_id),
                ("arguments", self.arguments),
                ("rewritten", self.rewritten),
                ("answered_by", answered_by),
                ("host", self.host),
                ("took", seconds(self.latency)),
                ("attempt", if_repeated(self.attempt)),
            ),
            text=error_text(self.error) or (output_text(self.output) if self.output is not None else ""),
            values=(("arguments", self.arguments),),
        )


@frozen
class SubagentExecution(Displayed):
    """One call of an agent, which ran as the task `task_id`, and its outcome.

    `outcome` is None until it has ended. `usage` is the known spending of its task and all tasks below it. `latency` is
    in seconds, from its first start to its end.
    """

    name: str
    task_id: str
    call_id: str
    input: str
    outcome: e.Outcome | None
    output: Json
    error: e.Failure | None
    latency: float | None
    usage: TaskUsage
    depth: int = 1
    path: tuple[str, ...] = ()

    def _view(self) -> View:
        return View(
            title="SubagentExecution",
            name=self.name,
            state=self.outcome or "open",
            facts=(("task", self.task_id), ("took", seconds(self.latency)), *spending_facts(self.usage)),
            values=(("input", self.input), ("output", self.output), ("error", error_text(self.error))),
        )


def calls_table(calls: tuple[ToolExecution, ...]) -> Table:
    """Return calls of tools as a table."""
    return Table("calls", CALL_COLUMNS, calls, call_row)


def call_row(call: ToolExecution | SubagentExecution) -> tuple[Any, ...]:
    """Return the row of a call in a table."""
    arguments = call.arguments if isinstance(call, ToolExecution) else call.input
    result = error_text(call.error) or call.output
    return call.call_id, call.name, arguments, Word(call.outcome or "open"), result, seconds(call.latency)


def execution(state: TaskState, call: CallState, agent: str, above: tuple[str, ...] = ()) -> ToolExecution:
    """Return the public form of an agent's call; `above` are the agents above it, the uppermost first."""
    latency = (call.ended - call.started) / 1e6 if call.started and call.ended else None
    return ToolExecution(
        call.name,
        call.id,
        call.arguments,
        call.outcome,
        call.output,
        call.error,
        latency,
        agent,
        call.attempt,
        state.depth,
        (*above, agent),
        call.display,
        state.task_id,
        call.rewritten,
        call.report,
        call.host,
    )


def executions(
    state: TaskState,
    steps: Iterable[StepState],
    below: Mapping[str, TaskState] = NO_TASKS,
    above: tuple[str, ...] = (),
) -> tuple[ToolExecution, ...]:
    """Return the tool calls of steps in call order. The calls of a subagent's task follow the call of the agent.

    Args:
        state: of the task.
        steps: of the task.
        below: the tasks below it that are known, by id.
        above: the agents above that of the task.
    """
    calls: list[ToolExecution] = []
    for step in steps:
        agent = step.agent or state.created_for
        for call in step.calls:
            if call.answers:
                continue
            calls.append(execution(state, call, agent, above))
            if below:
                for child in [below[task_id] for task_id in call.tasks if task_id in below]:
                    calls += executions(child, all_steps(child), below, (*above, agent))
    return tuple(calls)


def subagent_executions(state: TaskState, steps: Iterable[StepState]) -> tuple[SubagentExecution, ...]:
    """Return the subagent tasks of some steps, in call order. A retried call has several."""
    subagents: list[SubagentExecution] = []
    for step in steps if state.children else ():
        caller = step.agent or state.created_for
        for call in step.calls:
            subagents += [_failed_subagent(state, call, failed, caller) for failed in call.failed_children]
            if call.child is not None:
                subagents.append(_subagent(state, call, call.child, caller))
    return tuple(subagents)


def _failed_subagent(
    state: TaskState, call: CallState, failed: FailedChild, caller: str
) -> SubagentExecution:
    """Return a subagent task that failed before its call was retried."""
    outcome = "timeout" if failed.error is not None and failed.error.kind == "timeout" else "error"
    subagent = _subagent(state, call, failed.task, caller)
    return replace(subagent, outcome=outcome, output=None, error=failed.error, latency=None)


def _subagent(state: TaskState, call: CallState, task_id: str, caller: str) -> SubagentExecution:
    spent = state.children.get(task_id, ())
    usage_by_agent = {part.agent: usage_from(part, part.model_calls, part.tool_calls) for part in spent}
    total = sum(spent[1:], spent[0]) if spent else SpentBy(call.name)
    usage = usage_from(total, total.model_calls, total.tool_calls, usage_by_agent)
    latency = (call.ended - call.started) / 1e6 if call.started and call.ended else None
    name = spent[0].agent if spent else call.name
    return SubagentExecution(
        name,
        task_id,
        call.id,
        str(call.arguments.get("input", "")),
        call.outcome,
        call.output,
        call.error,
        latency,
        usage,
        state.depth + 1,
        (caller, name),
    )

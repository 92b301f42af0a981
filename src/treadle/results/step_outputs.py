"""The outputs of steps, with their calls, messages and usage."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View, money, seconds
from treadle.core.messages import Json, Message, Messages
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.core.unknown_names import explains_names
from treadle.ports import OutputT_co
from treadle.results.calls import ToolExecution, calls_table, executions
from treadle.results.displays import error_text, messages_table, output_text
from treadle.results.pending import Pending, pending_of, pending_table
from treadle.results.states import StateWord
from treadle.results.steps import StepInfo, step_info
from treadle.results.usage import TaskUsage, spending_facts, usage_from

if TYPE_CHECKING:
    from treadle.agents.output import OutputType


@explains_names("TaskStepOutput", subscript=True)
@frozen
class TaskStepOutput(Displayed, Generic[OutputT_co]):
    """The result of one step. `duration` is in seconds; `messages` are those that it added to the conversation.

    `output` of the last step is the task's answer, of the agent's output type. For any other step it is JSON data.
    `started_at` and `ended_at` are in microseconds since 1970, UTC.
    """

    task_id: str
    step: StepInfo
    output: OutputT_co | Json
    is_last: bool
    state: StateWord
    error: e.Failure | None
    pending: tuple[Pending, ...]
    next_steps: tuple[StepInfo, ...]
    messages: tuple[Message, ...]
    tool_executions: tuple[ToolExecution, ...]
    usage: TaskUsage
    duration: float

    @property
    def cost(self) -> Decimal | None:
        """The cost of the step in US dollars; None if some of it is not known."""
        return self.usage.cost

    @property
    def started_at(self) -> int | None:
        """When the newest attempt began."""
        return self.step.started_at

    @property
    def ended_at(self) -> int | None:
        """When it ended; None if it has not."""
        return self.step.ended_at

    def __str__(self) -> str:
        if self.output is not None:
            return output_text(self.output)
        calls = ", ".join(f"{call.name} {call.outcome or 'open'}" for call in self.tool_executions)
        return f"{self.step.step_id} {self.step.status}{': ' if calls else ''}{calls}"

    def _view(self) -> View:
        return View(
            title="TaskStepOutput",
            name=self.step.step_id,
            state=self.step.status,
            facts=(
                ("name", self.step.name),
                ("task", self.task_id),
                ("last", self.is_last),
                ("took", seconds(self.duration)),
                *spending_facts(self.usage),
                ("next", ", ".join([step.step_id for step in self.next_steps])),
            ),
            text=output_text(self.output) if self.output is not None else error_text(self.error),
            tables=(calls_table(self.tool_executions), pending_table(self.pending)),
            values=(("messages", messages_table(self.messages)),),
        )


class StepOutputs(Displayed, tuple[TaskStepOutput[OutputT_co], ...], Generic[OutputT_co]):
    """The results of several steps, in order."""

    __slots__ = ()

    def _view(self) -> View:
        facts = (("task", self[0].task_id),) if self else ()
        return View(title="StepOutputs", facts=facts, tables=(steps_table(self),))


def steps_table(steps: tuple[TaskStepOutput[Any], ...]) -> Table:
    """Return steps as a table."""
    columns = ("step", "name", "text", "calls", "tokens", "cost", "took")
    return Table("steps", columns, steps, _step_row)


def _step_row(step: TaskStepOutput) -> tuple[Any, ...]:
    calls = calls_table(step.tool_executions)
    written = " ".join([message.text for message in step.messages if message.role == "assistant"])
    return (
        step.step.step_id,
        step.step.name,
        output_text(step.output) if step.output is not None else error_text(step.error) or written.strip(),
        replace(calls, title=", ".join([call.name for call in step.tool_executions])),
        f"{step.usage.total_tokens:,}",
        money(step.usage.cost),
        seconds(step.duration),
    )


def step_output(
    state: TaskState,
    step: StepState,
    display_state: StateWord,
    upcoming: tuple[StepInfo, ...],
    typed: OutputType[Any] | None = None,
) -> TaskStepOutput[Any]:
    """Return the output of a step with its calls, messages and usage.

    With the type of the task's output, the output of the last step is an instance of that type.
    """
    end = step.checkpoint.messages if step.checkpoint is not None else len(state.messages)
    newest = not state.steps or step.index >= state.steps[-1].index
    node = state.node_of(step.id)
    messages = state.messages[step.first_message : end] if node is None else node.messages
    return TaskStepOutput(
        state.task_id,
        step_info(state, step),
        step.output if typed is None or not step.last else typed.load(step.output),
        step.last or (newest and state.ended is not None),
        display_state,
        step.error or (state.error if newest and node is None else None),
        pending_of(state) if newest else (),
        upcoming,
        Messages(messages),
        executions(state, [step]),
        usage_from(
            step,
            step.model_call.attempt if node is None else node.answers,
            sum(not call.answers for call in step.calls),
        ),
        max(0, (step.ended or state.time) - step.started) / 1e6,
    )

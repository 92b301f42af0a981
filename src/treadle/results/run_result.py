"""The result of a run: the state of a task where it stopped, with its answer and its spending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from treadle.core import events as e
from treadle.core import origins
from treadle.core.calls_in_text import text_calls_warning
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View
from treadle.core.messages import Json, Message, Messages
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.core.tracebacks import cause_of
from treadle.core.unknown_names import explains_names
from treadle.errors import (
    GuardrailStopped,
    TaskCancelled,
    TaskEndedBadly,
    TaskFailed,
    TaskInterrupted,
    TaskUnfinished,
)
from treadle.ports import OutputT_co
from treadle.results.artifacts import Artifact, artifacts_of, sources_of
from treadle.results.calls import (
    CALL_COLUMNS,
    SubagentExecution,
    ToolExecution,
    call_row,
    calls_table,
    executions,
    subagent_executions,
)
from treadle.results.displays import error_text, if_repeated, messages_table
from treadle.results.pending import Pending, pending_of, pending_table
from treadle.results.states import NO_TASKS, StateWord, state_text
from treadle.results.steps import all_steps
from treadle.results.tasks import state_value
from treadle.results.usage import TaskUsage, spending_facts, usage_of

if TYPE_CHECKING:
    from treadle.agents.output import OutputType


@explains_names("RunResult", subscript=True)
@frozen
class RunResult(Displayed, Generic[OutputT_co]):
    """The state of a task where it stopped, with its answer and its spending.

    `final_text` is the answer as text, never an error message. `output` is the answer, None if there is none, and
    `error` the failure, if any. `degraded_reasons` say why an answer is only a best effort. `pending` lists the open
    requests of the task. `cost` is in US dollars, None if some of it is unknown: `usage.unpriced` names the models
    without a price. `sources`, `artifacts` and `tool_executions` are those of the present branch, in call order. The
    calls of a subagent's task follow the call of the agent.

    `driven` is true if a process was at work on the task. `started_at` is the start of its first step. It and
    `ended_at` are in microseconds since 1970, UTC, and None before that time. `duration` is how many seconds the task
    was driven, over all its attempts. `extra_state` is the JSON object stored with the task, as its calls left it; None
    if it has none. `agent` is the present agent of the task: after an answer, the one that gave it. `untrusted` holds
    the first sixteen origins of untrusted content that the task has read, or that led to it. An origin is a text such
    as `tool:read_mail`. `stop_reason` is why the task was paused or interrupted, if that is known. `warnings` name
    oddities of the answer, for instance that it looks like a tool call that did not run.
    """

    task_id: str
    thread_id: str
    state: StateWord
    final_text: str
    output: OutputT_co | None
    error: e.Failure | None
    degraded_reasons: tuple[str, ...]
    steps: int
    messages: tuple[Message, ...]
    tool_executions: tuple[ToolExecution, ...]
    subagent_executions: tuple[SubagentExecution, ...]
    usage: TaskUsage
    cost: Decimal | None
    pending: tuple[Pending, ...]
    sources: tuple[Json, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    attempt: int = 1
    driven: bool = False
    started_at: int | None = None
    ended_at: int | None = None
    duration: float = 0.0
    extra_state: Json = None
    agent: str = ""
    untrusted: tuple[str, ...] = ()
    stop_reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def state_text(self) -> str:
        """The state for people to read: `between steps` if it is `running` and no process drives it."""
        return state_text(self.state, driven=self.driven)

    def __str__(self) -> str:
        if self.final_text:
            return self.final_text
        reason, verbs = self._reason(), self._next_verbs()
        text = f"{self.state_text}: {reason}" if reason else self.state_text
        return f"{text}. Next: {verbs}" if verbs else text

    def _reason(self) -> str:
        """Return why there is no answer; empty if no reason is known."""
        if self.error is not None:
            return self.error.message
        return "; ".join([item.text for item in self.pending] or self.degraded_reasons) or self.stop_reason

    def _next_verbs(self) -> str:
        """Return the verbs that continue a task without an answer; empty if there are none."""
        if self.error is not None:
            return "`result.error.traceback` shows the line of your code" if self.error.traceback else ""
        if self.driven:
            return "wait: a driver process works on it"
        if self.state == "waiting":
            return " or ".join(dict.fromkeys(_DECIDING_VERBS[item.kind] for item in self.pending))
        if self.state == "degraded" and any(reason.startswith(_LIMIT) for reason in self.degraded_reasons):
            return "`resume` with larger limits goes on"
        return _NEXT_VERBS.get(self.state, "")

    @property
    def answer(self) -> OutputT_co:
        """The answer of the task, of its output type.

        Raises:
            TaskEndedBadly: the task ended without an answer: a `TaskFailed`, `TaskCancelled` or `TaskInterrupted`, as
                `raise_for_state` raises it.
            TaskUnfinished: the task has not answered yet; the message names its requests.
        """
        self.raise_for_state()
        if self.state in ("completed", "answered") or (self.state == "degraded" and self.final_text):
            return cast("OutputT_co", self.output)
        text = f"task {self.task_id} has no answer: it is {self}"
        if self.state == "degraded":
            raise TaskEndedBadly(text, self)
        raise TaskUnfinished(text, task_id=self.task_id, state=self.state)

    def raise_for_state(self) -> RunResult[OutputT_co]:
        """Return this result, or raise `TaskFailed`, `TaskCancelled` or `TaskInterrupted` with it.

        A task that a guardrail stopped raises `GuardrailStopped`, a `TaskFailed`. If the user's own code failed the
        task, the `__cause__` is its error, or else a `StoredTraceback` of it.
        """
        classes = {"failed": TaskFailed, "cancelled": TaskCancelled, "interrupted": TaskInterrupted}
        if self.state in classes:
            reason = f": {self.error.message}" if self.error is not None else ""
            is_refused = self.error is not None and self.error.source == "guardrail"
            error_class = GuardrailStopped if is_refused else classes[self.state]
            error = error_class(f"task {self.task_id} is {self.state}{reason}", self)
            raise error from cause_of(self.error)
        return self

    def _view(self) -> View:
        return View(
            title="RunResult",
            name=self.task_id,
            state=self.state,
            facts=(
                ("steps", self.steps),
                ("attempt", if_repeated(self.attempt)),
                ("because", ", ".join(self.degraded_reasons)),
                ("warning", "; ".join(self.warnings)),
                *spending_facts(self.usage),
            ),
            text=self.final_text or error_text(self.error),
            tables=(
                calls_table(self.tool_executions),
                Table("subagents", CALL_COLUMNS, self.subagent_executions, call_row),
                pending_table(self.pending),
            ),
            values=(
                ("messages", messages_table(self.messages)),
                ("sources", self.sources),
                ("artifacts", [artifact.name for artifact in self.artifacts]),
            ),
        )


_LIMIT: Final = "limit reached"
"""The beginning of a reason that names a limit."""

_NEXT_VERBS: Final = {
    "created": "`resume` begins it",
    "running": "`resume` or `run_step` goes on",
    "paused": "`resume` goes on",
    "interrupted": "`resume` goes on",
    "answered": "`resume` ends it",
    "degraded": "`fork` or `undo_step` tries again",
}
"""The verbs that continue a task without an answer, by its state."""


_DECIDING_VERBS: Final = {
    "approval": "`approve` or `deny` decides it",
    "question": "`answer` answers it",
    "settlement": "`settle` tells the outcome",
    "undo": "`undo_step` tries the compensation again, with force=True it goes without",
    "timer": "`resume` goes on then",
    "subagent": "decide the requests of the subagent, `list_pending` shows them",
    "request": "`resume` lets the request go out, `cancel` does not",
    "background": "`complete` or `fail` brings the result",
    "call": "`complete` or `fail` brings the result",
}
"""The verbs that decide the requests of a task, by the kind of `Pending`."""


def is_disposable(result: RunResult) -> bool:
    """Return whether `RunOptions(delete_on_finish=True)` deletes a task: it has answered, and no call continues."""
    return result.state in ("completed", "degraded") and not result.pending


def run_result(
    state: TaskState,
    display_state: StateWord,
    typed: OutputType[Any] | None,
    below: Mapping[str, TaskState] = NO_TASKS,
    *,
    driven: bool = False,
    calls: tuple[ToolExecution, ...] | None = None,
) -> RunResult[Any]:
    """Return the result of a task.

    Args:
        state: of the task.
        display_state: its state, as callers see it.
        typed: the type of its output, if that is known: the output is then an instance of it.
        below: the tasks below it that are known, by id.
        driven: whether a process is at work on it.
        calls: its executions, if the caller has them.
    """
    steps = all_steps(state)
    has_answer = state.ended in ("completed", "degraded") or (state.answered and state.ended is None)
    output = state.output if has_answer else None
    if typed is not None and has_answer:
        output = typed.load(output)
    reasons = state.end_reasons if state.ended is not None else tuple(state.reasons)
    usage = usage_of(state)
    return RunResult(
        state.task_id,
        state.thread,
        display_state,
        state.output_text if has_answer else "",
        output,
        state.error,
        reasons,
        len(state.steps),
        Messages(state.messages if state.forked_from is not None else state.messages[state.own_from :]),
        executions(state, steps, below) if calls is None else calls,
        subagent_executions(state, steps),
        usage,
        usage.cost,
        pending_of(state, below),
        sources_of(steps),
        artifacts_of(steps),
        state.attempt,
        driven,
        _started_at(state, steps),
        state.end_time if state.ended is not None else None,
        state.driven / 1e6,
        state_value(state) if state.extra_state is not None else None,
        state.agent,
        origins.of_task(state),
        _stop_reason(state, display_state),
        (text_calls_warning(steps[-1].text_calls),) if steps and steps[-1].text_calls else (),
    )


def _stop_reason(state: TaskState, display_state: StateWord) -> str:
    """Return why a task was paused or interrupted; empty if it was not, or no reason is known."""
    if display_state not in ("paused", "interrupted"):
        return ""
    return state.stop_reason or state.limit_detail or ""


def _started_at(state: TaskState, steps: Iterable[StepState]) -> int | None:
    """Return the start of the task's own first step; a fork may continue a step of its parent."""
    if not state.began and state.step is None and state.graph is None:
        return None
    own = [step.started for step in steps if step.started >= state.created]
    return min(own, default=state.created if state.began else None)

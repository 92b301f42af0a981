"""Traces for comparison: the steps of a task with their requests, calls, results and outcomes.

A trace is made from a journal. It omits undone steps, and effects of crashes, waits and people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Final, cast

from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.ids import is_undo
from treadle.core.messages import Content, Json, Message, Text
from treadle.core.observation import as_text
from treadle.core.team import AgentTrack

_WHERE: Final = re.compile(r"(characters cut); [^\n]* \.\.\.\]")


@mutable
class CallTrace:
    """A call: its name and arguments, the error of each failed attempt, and its end."""

    name: str
    arguments: Json
    failures: list[str] = field(default_factory=list[str])
    """errors of the attempts before a retry"""

    end: e.ToolEnded | None = None

    @property
    def text(self) -> str:
        """The call as an expression."""
        arguments = cast("dict[str, Json] | str", self.arguments)
        if not isinstance(arguments, dict):
            return f"{self.name}({arguments!r})"
        return f"{self.name}({', '.join([f'{key}={value!r}' for key, value in arguments.items()])})"

    @property
    def seen(self) -> str | None:
        """The end of the call as the model sees it, or None if it did not end."""
        if self.end is None:
            return None
        if self.end.observation is not None:
            # Versions word the note on the rest of a cut output differently.
            return _WHERE.sub(r"\1 ...]", text_of(self.end.observation))
        return self.end.error.message if self.end.error is not None else as_text(self.end.output)


@mutable
class RequestTrace:
    """A request to the model, without the parts that follow from the conversation."""

    final: bool
    offered: tuple[str, ...] | None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    messages: str | None = None
    """the text of the messages that a step function passes"""


@mutable
class StepTrace:
    """A step."""

    id: str
    index: int
    name: str = ""
    inputs: list[e.InputReceived] = field(default_factory=list[e.InputReceived])
    """the messages that the task received before it"""

    requests: dict[str, RequestTrace] = field(default_factory=dict[str, RequestTrace])
    calls: dict[str, CallTrace] = field(default_factory=dict[str, CallTrace])
    end: e.StepCompleted | e.StepFailed | e.StepSkipped | None = None


@mutable
class TaskTrace:
    """A task."""

    created: e.TaskCreated | None = None
    options: list[Json] = field(default_factory=list[Json])
    """the options at the begin, and each later change"""

    instructions: dict[str, str] = field(default_factory=dict[str, str])
    """the instructions of each agent that had the task, by name"""

    fingerprint: str = ""
    """the version of the agent that the task was created for"""

    steps: dict[str, StepTrace] = field(default_factory=dict[str, StepTrace])
    end: e.TaskEnded | None = None


def trace_of(events: Sequence[e.Event]) -> TaskTrace:
    """Return the trace of a task from its events."""
    trace, unread, track = TaskTrace(), list[e.InputReceived](), AgentTrack()
    for event in events:
        agent = track.note(event)
        match event:
            case e.TaskCreated():
                trace.created, trace.options, trace.fingerprint = event, [event.options], event.fingerprint
            case e.TaskForked():
                trace.options, trace.end = [event.options], None
                trace.fingerprint = event.fingerprint or trace.fingerprint
            case e.OptionsChanged():
                trace.options.append(event.options)
            case e.VersionChanged() if trace.created is not None and agent == trace.created.agent:
                trace.fingerprint = event.fingerprint
            case e.InstructionsSet():
                trace.instructions[agent] = event.text
            case e.InputReceived():
                unread.append(event)
            case e.StepStarted():
                step = trace.steps.setdefault(event.step, StepTrace(event.step, event.index))
                step.inputs += unread
                unread = []
            case e.Rewound():
                trace.steps = {
                    name: step
                    for name, step in trace.steps.items()
                    if (name not in event.steps if event.steps else step.index <= event.to)
                }
            case e.TaskEnded():
                trace.end = event
            case e.TaskReopened():
                trace.end = None
            case _:
                _in_step(trace, event)
    return trace


def _in_step(trace: TaskTrace, event: e.Event) -> None:
    step = trace.steps.get(getattr(event, "step", ""))
    match event:
        case e.ResultReplaced():
            for other in trace.steps.values():
                call = other.calls.get(event.call)
                if call is not None:
                    call.end = e.ToolEnded(other.id, event.call, "ok", event.output)
        case _ if step is None:
            return
        case e.ModelRequested():
            text = None if event.messages is None else "\n".join([text_of(m.parts) for m in event.messages])
            step.requests[event.call] = RequestTrace(False, None, event.instructions, event.tools, text)
        case e.ModelStarted() if event.call is None:
            step.requests[str(len(step.calls))] = RequestTrace(event.final, event.offered)
        case e.ModelReturned() if event.call is None:
            _note_calls(step, event.message)
        case e.RouteChosen() if event.message is not None:
            _note_calls(step, event.message)
        case e.CallRequested():
            step.calls[event.call] = CallTrace(event.name, event.arguments)
        case e.CallEdited() if event.call in step.calls:
            step.calls[event.call].arguments = event.arguments
        case e.CallJudged() | e.ApprovalGiven() if event.call in step.calls and event.arguments is not None:
            step.calls[event.call].arguments = event.arguments
        case e.ToolStopped() if event.call in step.calls and event.error is not None:
            step.calls[event.call].failures.append(event.error.message)
        case e.ToolEnded() if event.call in step.calls and not is_undo(event.call):
            step.calls[event.call].end = event
        case e.StepCompleted() | e.StepFailed() | e.StepSkipped():
            step.end = event
        case _:
            pass


def _note_calls(step: StepTrace, message: Message) -> None:
    for call in message.tool_calls:
        step.calls[call.id] = CallTrace(call.name, call.arguments if call.problem is None else call.raw)


def text_of(parts: Sequence[object] | tuple[Content, ...]) -> str:
    """Return parts as text. A part of another kind becomes the kind in brackets."""
    return "\n".join(
        [part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in parts]
    )

"""The spans of one task while it is driven: which are open, their parents and their attributes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer

from treadle.core import events as e
from treadle.core.ids import undone_call
from treadle.core.messages import Content, Json, Message, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import NO_USAGE
from treadle.core.observation import as_text
from treadle.core.spending import PICODOLLARS
from treadle.ports import DriveBegan, ObservedTask
from treadle.telemetry import semconv as names
from treadle.telemetry.redaction import LONGEST, Redaction

if TYPE_CHECKING:
    from treadle.telemetry.otel_ids import PlannedIds

_NAME_MAX: Final = 64
_GOES_ON_LATER: Final[dict[str, str]] = {
    "question_asked": "asked",
    "sleep_started": "sleeps",
    "call_deferred": "deferred",
}
"""The outcomes of an attempt that did not end its call, by kind of its last event."""

_OTHER_TOOL: Final = "_OTHER"
"""The name in metrics of a tool that never ran: the model may have made its name up."""


class Spans:
    """The open spans of a task, and the data needed to end them."""

    def __init__(self, tracer: Tracer, redaction: Redaction, task: ObservedTask, *, content: bool) -> None:
        self._tracer = tracer
        self._redaction = redaction
        self._content = content
        self._task = task
        self._root: Span | None = None
        self._drive: DriveBegan | None = None
        self._previous: SpanContext | None = None
        self._ids: PlannedIds | None = None
        self._steps: dict[str, Span] = {}
        self._models: dict[str, tuple[Span, int, dict[str, Any]]] = {}
        self._tools: dict[str, tuple[Span, int]] = {}
        self._calls: dict[str, ToolCall] = {}
        self._person_requests: dict[str, tuple[int, str | None]] = {}
        """when a person was asked about a call, and by which rule"""

        self._children: dict[str, str] = {}
        self._usage = NO_USAGE
        self.time = 0
        """the time of the newest event, in microseconds since 1970"""

        self.agent: dict[str, Any] = {names.AGENT: redaction.text(task.agent)}

    @property
    def is_open(self) -> bool:
        """Whether the span of the drive is open."""
        return self._root is not None

    # --------------------------------------------------------------------------------------- the drive

    def begin_drive(self, event: DriveBegan, previous: SpanContext | None, ids: PlannedIds | None) -> None:
        """Store how the drive began; its span opens with the first event, which has a time."""
        self._drive, self._previous, self._ids = event, previous, ids
        self._calls = {call: ToolCall(call, name, {}) for call, name in event.calls.items()}
        self._person_requests = {call: (time, None) for call, time in event.asked.items()}

    def open(self, event: e.Event, parent_task: Spans | None) -> None:
        """Start the drive's span: below the call of the parent task, else below the span of its caller."""
        task, drive = self._task, self._drive
        facts: dict[str, Any] = {
            names.OPERATION: names.INVOKE_AGENT,
            **self.agent,
            names.CONVERSATION: self._redaction.text(task.thread_id),
            names.TASK: self._redaction.text(task.task_id),
            names.TASK_DEPTH: task.depth,
        }
        if task.tenant:
            facts[names.TENANT] = self._redaction.text(task.tenant)
        if drive is not None:
            facts[names.EPOCH] = drive.epoch
            if self._ids is not None:
                self._ids.plan(*self._ids.of_drive(task.full_id, drive.epoch))
        parent = parent_task.context_for(task.task_id) if parent_task is not None else None
        if parent is None and drive is not None:
            parent = drive.context.run(otel_context.get_current)
        self._root = self._tracer.start_span(
            f"{names.INVOKE_AGENT} {self.agent[names.AGENT]}"[: 2 * _NAME_MAX],
            parent if parent is not None else otel_context.Context(),
            SpanKind.INTERNAL,
            facts,
            [Link(self._previous, {names.TASK: facts[names.TASK]})] if self._previous is not None else None,
            start_time=event.time * 1000,
        )

    def context_for(self, child: str) -> otel_context.Context | None:
        """Return the parent context of a child task: the call that runs it, if that is open, else the drive."""
        call = self._children.get(child)
        return _below(self._tools[call][0] if call in self._tools else self._root)

    def input(self, parts: tuple[Content, ...]) -> None:
        """Set the task's input on the drive's span, if content is exported."""
        if self._content and self._root is not None:
            self._root.set_attribute(names.INPUT_MESSAGES, self._messages(Message("user", parts)))

    def instructions(self, text: str) -> None:
        """Set the task's instructions on the drive's span, if content is exported."""
        if self._content and self._root is not None:
            parts = [{"type": "text", "content": self._redaction.text(text)}]
            self._root.set_attribute(names.INSTRUCTIONS, _json(parts))

    def task_ended(self, event: e.TaskEnded) -> None:
        """Set how an attempt of the task ended."""
        if self._root is None:
            return
        if event.error is not None:
            _failed(self._root, event.error.kind, self._text(event.error.message), event.error.status)
        if self._content and event.output is not None:
            answer = Message("assistant", (Text(as_text(event.output)),))
            self._root.set_attribute(names.OUTPUT_MESSAGES, self._messages(answer))

    def route_chosen(self, event: e.RouteChosen) -> None:
        """Note the calls that a router wants, which no model asked for."""
        if event.message is not None:
            self._calls.update({call.id: call for call in event.message.tool_calls})
        self.add_event(event)

    def agent_changed(self, event: e.AgentChanged) -> None:
        """Name the next agent in the spans that begin from now on."""
        self.add_event(event)
        self.agent = {names.AGENT: self._redaction.text(event.agent)}

    def add_event(self, event: e.Event) -> None:
        """Add an event without a span of its own to the drive's span."""
        if self._root is not None:
            facts = self._redaction.event(event, content=self._content)
            plain = {
                f"treadle.{name}": value
                for name, value in facts.items()
                if isinstance(value, (str, int, float, bool)) and name not in ("kind", "time")
            }
            self._root.add_event(event.kind, plain, event.time * 1000)

    def close(self, state: str | None) -> SpanContext:
        """End all spans and return the context of the drive's span.

        `state` is the task's state, None if it is unknown.
        """
        assert self._root is not None
        end = self.time * 1000
        open_spans = [span for span, *_ in (*self._models.values(), *self._tools.values())]
        for span in (*open_spans, *self._steps.values()):
            _failed(span, "interrupted" if state is not None else "missed")
            span.end(end)
        root = self._root
        root.set_attributes(
            {names.INPUT_TOKENS: self._usage.input_tokens, names.OUTPUT_TOKENS: self._usage.output_tokens}
        )
        if state is not None:
            root.set_attribute(names.TASK_STATE, state)
        else:
            root.set_attribute(names.MISSED, True)
        if state == "lost":
            _failed(root, "lost")
        root.end(end)
        return root.get_span_context()

    def _start(
        self,
        name: str,
        parent: Span | None,
        facts: dict[str, Any],
        time: int,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        return self._tracer.start_span(name, _below(parent), kind, facts, start_time=time * 1000)

    # ------------------------------------------------------------------------------------------- steps

    def step_started(self, event: e.StepStarted) -> None:
        """Start a step's span."""
        self._step(event.step, {names.STEP_INDEX: event.index, names.ATTEMPT: event.attempt})

    def _step(self, step: str, facts: dict[str, Any]) -> Span:
        """Return the span of a step; a step that began in an earlier drive gets a new one."""
        span = self._steps.get(step)
        if span is None:
            facts = {names.STEP: step, **self.agent, **facts}
            span = self._steps[step] = self._start(names.STEP_SPAN, self._root, facts, self.time)
        return span

    def step_ended(self, event: e.StepCompleted | e.StepFailed | e.StepSkipped) -> None:
        """End a step's span."""
        span = self._steps.pop(event.step, None)
        if span is None:
            return
        span.set_attribute(names.OUTCOME, event.kind.removeprefix("step_"))
        if isinstance(event, e.StepFailed):
            _failed(span, event.error.kind, self._text(event.error.message), event.error.status)
        span.end(event.time * 1000)

    # ------------------------------------------------------------------------------------------ models

    def model_facts(self, name: str) -> dict[str, Any]:
        """Return the attributes of a request to a model, for spans and metrics."""
        provider, colon, model = name.partition(":")
        return {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.PROVIDERS.get(provider, provider),
            names.REQUEST_MODEL: model if colon else name,
        }

    def model_started(self, event: e.ModelStarted) -> None:
        """Start the span of an attempt of a model call."""
        facts = self.model_facts(event.model)
        span = self._start(
            f"{names.CHAT} {facts[names.REQUEST_MODEL]}",
            self._step(event.step, {}),
            {**facts, **self.agent, names.STEP: event.step, names.ATTEMPT: event.attempt},
            event.time,
            SpanKind.CLIENT,
        )
        self._models[event.call or event.step] = (span, event.time, facts)

    def model_returned(self, event: e.ModelReturned) -> tuple[float | None, dict[str, Any]]:
        """End the span of a request that was answered; return its seconds and attributes."""
        usage = event.usage
        self._usage += usage
        self._calls.update({call.id: call for call in event.message.tool_calls})
        span, seconds, facts = self._end_of_model(event)
        attributes: dict[str, Any] = {
            names.FINISH_REASONS: [event.finish],
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
        }
        if usage.cached_tokens:
            attributes[names.CACHED_TOKENS] = usage.cached_tokens
        if usage.reasoning_tokens:
            attributes[names.REASONING_TOKENS] = usage.reasoning_tokens
        if event.model:
            attributes[names.RESPONSE_MODEL] = event.model.partition(":")[2] or event.model
        if event.cost is not None:
            attributes[names.COST] = event.cost / PICODOLLARS
        if self._content:
            attributes[names.OUTPUT_MESSAGES] = self._messages(event.message, event.finish)
        if span is not None:
            span.set_attributes(attributes)
            span.end(event.time * 1000)
        return seconds, facts

    def model_failed(self, event: e.ModelFailed | e.ModelStopped) -> tuple[float | None, dict[str, Any]]:
        """End the span of a request without an answer; return its seconds and attributes."""
        self._usage += event.usage
        span, seconds, facts = self._end_of_model(event)
        failed = isinstance(event, e.ModelFailed)
        kind = event.error.kind if failed else event.reason
        if span is not None:
            if event.usage != NO_USAGE:
                span.set_attribute(names.INPUT_TOKENS, event.usage.input_tokens)
                span.set_attribute(names.OUTPUT_TOKENS, event.usage.output_tokens)
            if event.cost is not None:
                span.set_attribute(names.COST, event.cost / PICODOLLARS)
            message, status = (self._text(event.error.message), event.error.status) if failed else ("", None)
            _failed(span, kind, message, status)
            span.end(event.time * 1000)
        return seconds, {**facts, names.ERROR_TYPE: kind}

    def _end_of_model(
        self, event: e.ModelReturned | e.ModelFailed | e.ModelStopped
    ) -> tuple[Span | None, float | None, dict[str, Any]]:
        started = self._models.pop(event.call or event.step, None)
        if started is None:
            return None, None, {names.OPERATION: names.CHAT, **self.agent}
        span, began, facts = started
        return span, (event.time - began) / 1e6, {**facts, **self.agent}

    # ------------------------------------------------------------------------------------------- tools

    def tool_started(self, event: e.ToolStarted) -> None:
        """Start the span of a call."""
        call = self._calls.get(event.undoes or event.call)
        name = self._redaction.text(call.name)[:_NAME_MAX] if call is not None else ""
        facts: dict[str, Any] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: name,
            names.TOOL_TYPE: "function",
            names.CALL: event.call,
            names.ATTEMPT: event.attempt,
            names.STEP: event.step,
        }
        if event.child is not None:
            self._children[event.child] = event.call
            facts[names.CHILD] = event.child
        if event.undoes is not None:
            facts[names.UNDOES] = event.undoes
        if self._content and call is not None:
            facts[names.CALL_ARGUMENTS] = _json(self._redaction.json(call.arguments))
        # A compensation belongs to no running step.
        parent = self._root if event.undoes is not None else self._step(event.step, {})
        if self._ids is not None and self._drive is not None:
            epoch, attempt = self._drive.epoch, event.attempt
            self._ids.plan(0, self._ids.of_call(self._task.full_id, epoch, event.call, attempt))
        span = self._start(f"{names.EXECUTE_TOOL} {name}".strip(), parent, facts, event.time)
        self._tools[event.call] = (span, event.time)

    def is_begun(self, call: str) -> bool:
        """Whether the span of a call was started and not ended."""
        return call in self._tools

    def tool_ended(
        self, event: e.ToolEnded | e.ToolStopped | e.QuestionAsked | e.SleepStarted | e.CallDeferred
    ) -> tuple[float | None, dict[str, Any]]:
        """End the span of a call, also of one that never ran; return its seconds and attributes.

        A question to a person, a sleep and a move to the background also end the span of the attempt.
        """
        ran = event.call in self._tools
        if not ran:
            self.tool_started(e.ToolStarted(event.step, event.call, time=event.time))
        span, began = self._tools.pop(event.call)
        outcome = _GOES_ON_LATER.get(event.kind, "")
        if isinstance(event, (e.ToolEnded, e.ToolStopped)):
            outcome = event.outcome if isinstance(event, e.ToolEnded) else f"stopped: {event.reason}"
        span.set_attribute(names.OUTCOME, outcome)
        if isinstance(event, e.ToolEnded) and event.report is not None and event.report.answered_by:
            span.set_attribute(names.ANSWERED_BY, event.report.answered_by)
        if outcome not in ("ok", "stopped: parked") and isinstance(event, (e.ToolEnded, e.ToolStopped)):
            message = self._text(event.error.message) if event.error is not None else ""
            _failed(span, outcome if isinstance(event, e.ToolEnded) else event.reason, message)
        if self._content and isinstance(event, e.ToolEnded) and event.output is not None:
            span.set_attribute(names.CALL_RESULT, _json(self._redaction.json(event.output)))
        span.end(event.time * 1000)
        call = self._calls.get(undone_call(event.call))
        name = self._redaction.text(call.name)[:_NAME_MAX] if ran and call is not None else _OTHER_TOOL
        facts = {names.TOOL: name, **self.agent, names.OUTCOME: outcome}
        return (event.time - began) / 1e6 if ran else None, facts

    # ------------------------------------------------------------------------------------------- waits

    def person_asked(self, event: e.ApprovalRequested | e.QuestionAsked) -> None:
        """Note when a person was asked about a call, or by one."""
        rule = event.rule if isinstance(event, e.ApprovalRequested) else None
        self._person_requests[_request_key(event)] = event.time, rule

    def decided(
        self,
        event: e.ApprovalGiven
        | e.ApprovalDenied
        | e.ApprovalExpired
        | e.QuestionAnswered
        | e.QuestionExpired,
    ) -> tuple[float, dict[str, Any]] | None:
        """Make the span of a wait for a person, from question to answer. It may cover several drives.

        Returns its seconds and attributes; None if the question was not observed.
        """
        request = self._person_requests.pop(_request_key(event), None)
        if request is None:
            return None
        began, rule = request
        call = self._calls.get(event.call)
        facts: dict[str, Any] = {
            names.TOOL: self._redaction.text(call.name)[:_NAME_MAX] if call is not None else "",
            **self.agent,
            names.OUTCOME: event.kind.removeprefix("approval_").removeprefix("question_"),
        }
        call_facts = {
            names.CALL: event.call,
            names.STEP: event.step,
            **({names.RULE: rule} if rule is not None else {}),
        }
        kind = names.ANSWER_SPAN if isinstance(event, e.QuestionOccurrence) else names.WAIT_SPAN
        name = f"{kind} {facts[names.TOOL]}".strip()
        self._start(name, self._step(event.step, {}), {**facts, **call_facts}, began).end(event.time * 1000)
        return (event.time - began) / 1e6, facts

    # ----------------------------------------------------------------------------------------- content

    def _text(self, message: str) -> str:
        """Return an error message; an empty text if content is not exported."""
        return self._redaction.text(message) if self._content else ""

    def _messages(self, message: Message, finish: str | None = None) -> str:
        parts: list[Json] = [self._part(part) for part in message.parts]
        document: dict[str, Json] = {"role": message.role, "parts": parts}
        if finish is not None:
            document["finish_reason"] = finish
        return _json([document])

    def _part(self, part: Any) -> Json:
        match part:
            case Text():
                return {"type": "text", "content": self._redaction.text(part.text)}
            case Reasoning():
                return {"type": "reasoning", "content": self._redaction.text(part.text)}
            case ToolCall():
                arguments = self._redaction.json(part.arguments)
                return {
                    "type": "tool_call",
                    "id": part.id,
                    "name": self._redaction.text(part.name),
                    "arguments": arguments,
                }
            case ToolResult():
                return {"type": "tool_call_response", "id": part.call_id}
            case _:
                return {"type": type(part).__name__.lower(), "media_type": getattr(part, "media_type", None)}


def _below(span: Span | None) -> otel_context.Context:
    """Return a context whose current span is `span`, or none. The caller's own context does not count."""
    empty = otel_context.Context()
    return empty if span is None else trace.set_span_in_context(span, empty)


def _failed(span: Span, kind: str, message: str = "", status: int | None = None) -> None:
    span.set_attribute(names.ERROR_TYPE, kind)
    if status is not None:
        span.set_attribute(names.HTTP_STATUS, status)
    span.set_status(StatusCode.ERROR, message or None)


def _json(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _request_key(event: Any) -> str:
    """Return the key of a request to a person. A call has one request for approval at a time."""
    return event.request_id if isinstance(event, e.QuestionOccurrence) else event.call

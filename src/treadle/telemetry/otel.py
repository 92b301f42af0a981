"""Tasks as OpenTelemetry traces and metrics, made from events alone.

    invoke_agent NAME                one drive of a task: from its begin to its release
      step                           one step
        chat MODEL                   one attempt of one request to a model
        execute_tool NAME            one start of one call
          invoke_agent NAME          the task of a subagent

A drive is linked to the drive before it, and its parent is the span of its caller. All other events become events of
the drive's span. This module maps each event; `otel_spans` holds the spans of a task.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self, cast

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from treadle.core import events as e
from treadle.core.events import END_STATES, Ephemeral
from treadle.core.ids import in_tenant
from treadle.core.model import NO_USAGE, SideCall, Usage
from treadle.core.spending import PICODOLLARS
from treadle.errors import MissingExtra
from treadle.ports import DriveBegan, DriveEnded, Missed, Notice, ObservedTask
from treadle.telemetry import semconv as names
from treadle.telemetry.otel_spans import Spans
from treadle.telemetry.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace.sampling import Sampler

    from treadle.telemetry.otel_ids import PlannedIds

_TASKS_MAX: Final = 10_000
"""The most tasks that can be open at once, and the most released ones that are remembered for links."""

_IGNORED: Final = frozenset({
    *("task_forked", "model_requested", "call_requested", "value_kept", "steps_planned", "thread_entered"),
})  # fmt: skip


class OpenTelemetry:
    """Makes spans and metrics of events, with the names of OpenTelemetry's conventions for generative AI.

    Args:
        tracer_provider: where spans go; by default the global one. With `id_generator=TaskIds()`
            (`treadle.telemetry.TaskIds`), drives are linked across processes too.
        meter_provider: where metrics go; by default the global one.
        content: whether messages, arguments, results and error messages are exported too; secrets never are.
        secrets: values to hide, beside those of environment variables with such names as `OPENAI_API_KEY`.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        library_version = version("treadle")
        provider = tracer_provider or trace.get_tracer_provider()
        self.content = content
        self._redaction = Redaction(secrets)
        self._tracer = provider.get_tracer("treadle", library_version, schema_url=names.SCHEMA_URL)
        self._ids = _planned_ids(self._tracer)
        self._measures = _Measures(meter_provider, library_version)
        self._open: OrderedDict[str, Spans] = OrderedDict()
        self._closed: OrderedDict[str, trace.SpanContext] = OrderedDict()
        self._shutdown: tuple[Callable[[], object], ...] = ()

    @classmethod
    def over_otlp(cls, *, content: bool = False, secrets: Iterable[str] = ()) -> Self:
        """Return an observer that exports over OTLP/HTTP, configured by variables like `OTEL_EXPORTER_OTLP_ENDPOINT`.

        Raises:
            MissingExtra: the SDK or the exporter is not installed.
        """
        try:
            from treadle.telemetry.otel_export import providers
        except ImportError as error:
            raise MissingExtra("otel", "Exporting over OTLP") from error
        tracer_provider, meter_provider = providers()
        observer = cls(tracer_provider, meter_provider, content=content, secrets=secrets)
        observer._shutdown = (tracer_provider.shutdown, meter_provider.shutdown)
        return observer

    # ------------------------------------------------------------------------------------- observing

    def observe(self, notice: Notice) -> None:
        event, task = notice.event, notice.task
        if isinstance(event, Missed):
            self._missed(event)
        if task is None or isinstance(event, (Missed, Ephemeral)):
            return
        if isinstance(event, DriveEnded):
            self._drive_ended(task.full_id, event)
            return
        spans = self._open.get(task.full_id)
        if spans is None:
            self._open[task.full_id] = spans = Spans(
                self._tracer, self._redaction, task, content=self.content
            )
            if len(self._open) > _TASKS_MAX:
                self._abandon(next(iter(self._open)))
        if isinstance(event, DriveBegan):
            spans.begin_drive(event, self._previous_drive(task.full_id, event), self._ids)
            return
        assert isinstance(event, e.Event)
        if not spans.is_open:
            parent = self._open.get(in_tenant(task.tenant, task.parent)) if task.parent is not None else None
            spans.open(event, parent)
        self._record(spans, event)

    def enter_call(self, task: ObservedTask, epoch: int, call: str, attempt: int) -> None:
        """Make the planned span of a call the current one in the context of its tool.

        The tool runs before the span itself is made.
        """
        if self._ids is None:
            return
        sampler = cast("Sampler", cast("Any", self._tracer).sampler)  # a tracer with ids is one of the SDK
        above = trace.get_current_span().get_span_context()
        trace_id = above.trace_id if above.is_valid else self._ids.of_drive(task.full_id, epoch)[0]
        decided = sampler.should_sample(otel_context.get_current(), trace_id, names.EXECUTE_TOOL)
        flags = trace.TraceFlags.SAMPLED if decided.decision.is_sampled() else trace.TraceFlags.DEFAULT
        span_id = self._ids.of_call(task.full_id, epoch, call, attempt)
        here = trace.SpanContext(trace_id, span_id, is_remote=False, trace_flags=trace.TraceFlags(flags))
        otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(here)))

    def _record(self, spans: Spans, event: e.Event) -> None:
        spans.time = event.time
        match event:
            case e.TaskCreated():
                spans.input(event.input)
            case e.InstructionsSet():
                spans.instructions(event.text)
            case e.RouteChosen():
                spans.route_chosen(event)
            case e.AgentChanged():
                spans.agent_changed(event)
            case e.StepStarted():
                spans.step_started(event)
            case e.StepCompleted() | e.StepSkipped() | e.StepFailed():
                self._measures.steps.add(1, spans.agent)
                spans.step_ended(event)
            case e.ModelStarted():
                spans.model_started(event)
            case e.ModelReturned():
                self._measures.model(spans.model_returned(event), event.usage, event.cost)
                self._measure_also(spans, event.also)
            case e.ModelFailed() | e.ModelStopped():
                usage = event.usage if event.usage is not NO_USAGE else None
                self._measures.model(spans.model_failed(event), usage, event.cost)
                self._measure_also(spans, event.also if isinstance(event, e.ModelFailed) else ())
            case e.ToolStarted():
                spans.tool_started(event)
            case e.ToolEnded() | e.ToolStopped():
                self._measures.tool(*spans.tool_ended(event))
            case e.ApprovalRequested():
                spans.person_asked(event)
                spans.add_event(event)
            case e.SleepStarted() | e.CallDeferred():
                if spans.is_begun(event.call):
                    self._measures.tool(*spans.tool_ended(event))
                spans.add_event(event)
            case e.QuestionAsked():
                if spans.is_begun(event.call):
                    self._measures.tool(*spans.tool_ended(event))
                spans.person_asked(event)
                spans.add_event(event)
            case (
                e.ApprovalGiven()
                | e.ApprovalDenied()
                | e.ApprovalExpired()
                | e.QuestionAnswered()
                | e.QuestionExpired()
            ):
                self._measures.wait(spans.decided(event))
                spans.add_event(event)
            case e.TaskEnded():
                spans.task_ended(event)
            case _:
                if event.kind not in _IGNORED:
                    spans.add_event(event)

    def _measure_also(self, spans: Spans, calls: Sequence[SideCall]) -> None:
        """Count side requests, such as a hedge that lost."""
        for call in calls:
            facts = {**spans.model_facts(call.model), **spans.agent}
            if call.error:
                facts[names.ERROR_TYPE] = "side_call"
            self._measures.model((None, facts), call.usage, call.cost)

    def _previous_drive(self, task_id: str, event: DriveBegan) -> trace.SpanContext | None:
        """Return the span of the task's previous drive; None if there was none or its id is unknown."""
        previous = self._closed.pop(task_id, None)
        if previous is not None or not event.previous or self._ids is None or not self._ids.links_processes:
            return previous
        ids = self._ids.of_drive(task_id, event.previous)
        return trace.SpanContext(*ids, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))

    def _drive_ended(self, task_id: str, event: DriveEnded) -> None:
        spans = self._open.pop(task_id, None)
        if spans is None or not spans.is_open:
            return
        if event.state in END_STATES:
            self._measures.tasks.add(1, {**spans.agent, names.TASK_STATE: event.state})
        self._closed[task_id] = spans.close(event.state)
        if len(self._closed) > _TASKS_MAX:
            self._closed.popitem(last=False)

    def _abandon(self, task_id: str) -> None:
        spans = self._open.pop(task_id)
        if spans.is_open:
            spans.close(None)

    def _missed(self, event: Missed) -> None:
        """End all open spans, since their ends may be among the missed events; later events open new spans."""
        self._measures.missed.add(event.events + event.deltas)
        if event.events:
            for task_id in list(self._open):
                self._abandon(task_id)

    def close(self) -> None:
        """End all open spans, and shut the exporter down if this object made it."""
        for task_id in list(self._open):
            self._abandon(task_id)
        for shutdown in self._shutdown:
            shutdown()
        self._shutdown = ()


def _planned_ids(tracer: Any) -> PlannedIds | None:
    """Make a tracer of the SDK use planned ids, and return these; None for any other tracer."""
    inner = getattr(tracer, "id_generator", None)
    if inner is None:
        return None
    from treadle.telemetry.otel_ids import PlannedIds

    tracer.id_generator = planned = inner if isinstance(inner, PlannedIds) else PlannedIds(inner)
    return planned


class _Measures:
    def __init__(self, provider: MeterProvider | None, library_version: str) -> None:
        meter = metrics.get_meter("treadle", library_version, provider, schema_url=names.SCHEMA_URL)
        self._tokens, self._durations, self._tool_durations, self._waits = (
            meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)
            for name, unit, text, buckets in (
                (names.TOKEN_USAGE, "{token}", "Tokens of requests to models.", names.TOKEN_BUCKETS),
                (names.OPERATION_DURATION, "s", "How long requests to models take.", names.DURATION_BUCKETS),
                (names.TOOL_DURATION, "s", "How long calls of tools take.", names.DURATION_BUCKETS),
                (names.WAIT_DURATION, "s", "How long calls wait for a person.", names.WAIT_BUCKETS),
            )
        )
        self._model_calls = meter.create_counter(names.MODEL_CALLS, "{request}", "Requests to models.")
        self._tool_calls = meter.create_counter(names.TOOL_CALLS, "{call}", "Calls of tools that ended.")
        self._cost = meter.create_counter(names.COST, "USD", "The known cost of requests to models.")
        self.tasks = meter.create_counter(names.TASKS, "{task}", "Tasks that ended.")
        self.steps = meter.create_counter(names.STEPS, "{step}", "Steps that ended.")
        self.missed = meter.create_counter(
            names.MISSED_NOTICES, "{notice}", "Events and deltas that the observer missed."
        )

    def model(
        self, measured: tuple[float | None, dict[str, Any]], usage: Usage | None, cost: int | None
    ) -> None:
        """Record a request that ended; its seconds are None if its begin was not observed."""
        seconds, facts = measured
        self._model_calls.add(1, facts)
        if seconds is not None:
            self._durations.record(seconds, facts)
        if usage is not None:
            self._tokens.record(usage.input_tokens, {**facts, names.TOKEN_TYPE: "input"})
            self._tokens.record(usage.output_tokens, {**facts, names.TOKEN_TYPE: "output"})
        if cost is not None:
            self._cost.add(cost / PICODOLLARS, facts)

    def tool(self, seconds: float | None, facts: dict[str, Any]) -> None:
        """Record a tool call that ended."""
        self._tool_calls.add(1, facts)
        if seconds is not None:
            self._tool_durations.record(seconds, facts)

    def wait(self, measured: tuple[float, dict[str, Any]] | None) -> None:
        """Record a wait for a person that ended."""
        if measured is not None:
            self._waits.record(*measured)

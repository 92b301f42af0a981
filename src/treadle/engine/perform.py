"""Performing effects: each runs in an asyncio task of its own and yields exactly one end, whatever it does.

An end is a list of events. Whoever starts an effect records its begin first; a call that may write waits here until
that begin is durable, and only then the tool is entered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from treadle.core import events as e
from treadle.core.codec import flaw
from treadle.core.effects import (
    CallModel,
    CallTool,
    ConsultWorker,
    Reconcile,
    RunAgent,
    RunFunction,
    StopAgent,
    UndoCall,
)
from treadle.core.ends import failed_end
from treadle.core.messages import Content, File, Image, Text
from treadle.core.model import (
    NO_USAGE,
    ModelAnswer,
    ModelRequest,
    RawDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Tries,
)
from treadle.core.model_answer import WrongAnswer, check_answer, check_side_calls, is_usage, with_places
from treadle.core.observation import as_text, error_text, observation
from treadle.core.render import RETRY_MARK
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.tools import Happened, NotHappened
from treadle.engine.abandoned import leave_behind, refuse_if_too_many
from treadle.engine.artifacts import checked_artifacts, checked_sources
from treadle.engine.effect_context import AgentRuntime, EffectContext, EffectInFlight, being_cancelled
from treadle.engine.metering import TokenMeter, cost_of, paid
from treadle.errors import ModelError
from treadle.policy.limits import spare_calls
from treadle.ports import Tool, ToolContext, ToolOutput

LONGEST_WAIT: Final = 366 * 86_400.0
"""Seconds after which a question is asked again at the latest, whatever a layer says."""

# ---------------------------------------------------------------------------------------------- model


async def call_model(context: EffectContext, in_flight: EffectInFlight, effect: CallModel) -> list[e.Event]:
    """Ask the model and return the event its answer or failure is."""
    step = effect.step
    channel = context.channel
    call = effect.call.id
    answer: ModelAnswer | None = None
    request: ModelRequest | None = None
    stream: Any = None
    try:
        if effect.call.request is None:
            request = model_request(context, effect)
        else:
            from treadle.engine.step_functions import asked_request

            request = asked_request(context, effect.call)
        key, text = call or step.id, text_channel(effect, request)
        request.raw = channel.raw
        if context.forget_streamed(key):
            model, seq = context.runtime.model.name, context.state.seq
            channel.tell(e.ModelRestarted(step.id, model, request.attempt, call, seq))
        if context.subagents is not None and context.subagents.account.is_limited:
            await context.durable()  # what a tree may spend together is hard: also of what a crash cuts off
        stream = context.runtime.model.stream(request)
        async for item in stream:
            if isinstance(item, ModelAnswer):
                if answer is not None:
                    raise WrongAnswer("it answered twice")
                answer = item
            elif not isinstance(item, (TextDelta, ReasoningDelta, ToolCallDelta, RawDelta)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise WrongAnswer(f"it yielded a {type(item).__name__}, no delta and no ModelAnswer")
            elif channel.listeners:
                context.note_streamed(key)
                channel.tell(delta(step.id, call, text, item, context.state.seq))
        if answer is not None:
            check_answer(answer)
            context.forget_streamed(key)
    except asyncio.CancelledError:
        if in_flight.cancel_reason is None and not being_cancelled():
            failure = e.Failure("model", "unknown", "the model adapter cancelled itself")
            return [e.ModelFailed(step.id, failure, call)]
        return [e.ModelStopped(step.id, "interrupted", call)]
    except ModelError as error:
        return [_model_failed(context, step.id, call, error, request)]
    except WrongAnswer as error:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
        why = f"{context.runtime.model.name} does not answer as models do: {error}"
        failed = e.ModelFailed(step.id, e.Failure("model", "unknown", why), call)
        return [_with_usage(context, failed, answer.usage if answer is not None else None)]
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a model raises is its failure, not the runner's
        return [e.ModelFailed(step.id, e.Failure("model", "unknown", error_text(error)), call)]
    if answer is None:
        failure = e.Failure(
            "model", "connection", f"{context.runtime.model.name} ended its stream without an answer"
        )
        return [e.ModelFailed(step.id, failure, call)]
    assert request is not None, "it was answered"
    return [_returned(context, effect, request, answer)]


def _returned(
    context: EffectContext, effect: CallModel, request: ModelRequest, answer: ModelAnswer
) -> e.ModelReturned:
    """Return an answer as it is journalled: with ids of our own, read if it is to be of a type, and priced."""
    step, typed = effect.step, None
    call = effect.call.id
    if call is not None:
        message = with_places(answer.message, call, answer.finish)
    else:
        message = with_places(answer.message, step.id, answer.finish, first=len(step.calls))
        reads = context.runtime.typed
        typed = reads.read(message, answer.finish) if reads is not None else None
    usage = answer.usage
    if usage is NO_USAGE:
        context.meter = context.meter or TokenMeter()
        usage = context.meter.estimated(request, message)
    cost = cost_of(context.price, answer.model or context.runtime.model.name, usage)
    also = paid(context.price, answer.also, request) if answer.also else ()
    return e.ModelReturned(step.id, message, answer.finish, usage, typed, call, answer.model, also, cost)


def _with_usage(context: EffectContext, failed: e.ModelFailed, usage: Any) -> e.ModelFailed:
    """Return a failed attempt with the tokens it is known to have taken, and what they cost."""
    if is_usage(usage) and usage != NO_USAGE:
        failed.usage = usage
        failed.cost = cost_of(context.price, failed.model or context.runtime.model.name, usage)
    return failed


def _model_failed(
    context: EffectContext, step: str, call: str | None, error: ModelError, request: ModelRequest | None
) -> e.ModelFailed:
    """Return the end of an attempt that failed, and when another is to follow if a layer of the model says so."""
    failure = e.Failure("model", error.kind, str(error), None, error.status, error.retry_after)
    try:
        check_side_calls(error.also)
    except WrongAnswer as wrong:
        return e.ModelFailed(step, e.Failure("model", "unknown", f"{wrong}; and it failed: {error}"), call)
    also = paid(context.price, error.also, request) if error.also and request is not None else ()
    failed = e.ModelFailed(step, failure, call, None, error.model, error.route, also=also)
    if error.again_in is not None:
        wait = min(max(0.0, error.again_in), LONGEST_WAIT)
        failed.retry_at = context.clock() + int(wait * 1e6)
        failed.model, failed.next_route = error.model or context.runtime.model.name, error.next_route
    return _with_usage(context, failed, error.usage)


def model_request(context: EffectContext, effect: CallModel) -> ModelRequest:
    """Return what the model is asked; the conversation is shared, not copied."""
    state, runtime = context.state, context.runtime
    settings, typed = runtime.agent.model_settings, runtime.typed
    tools = runtime.final_specs if effect.final else runtime.offering(effect.call.offered)
    last = typed.tool.name if typed is not None and typed.tool is not None else "none"
    choice = (
        settings.tool_choice if settings.tool_choice is not None and state.turn == 0 and tools else "auto"
    )
    step = effect.step
    request = ModelRequest(
        state.view if context.select_messages is None else context.select_messages(tools),
        instructions(context, effect),
        tools,
        last if effect.final else choice,
        settings,
        state.task_id,
        step.id,
        state.turn,
        effect.call.attempt,
        typed.output.schema if typed is not None and typed.mode == "native" else None,
    )
    return for_layers(request, context, effect.call.asked_at, effect.call.tries)


def for_layers(
    request: ModelRequest, context: EffectContext, asked_at: int, tries: Tries | None
) -> ModelRequest:
    """Return a request with what layers around the model go by."""
    request.asked_at = asked_at
    if tries is not None:
        request.failures, request.route = tries.failures, tries.route
    if context.subagents is not None:
        request.spare_calls = context.subagents.account.spare_requests()
    else:
        request.spare_calls = spare_calls(context.runtime.rules.limits, context.state)
    return request


def instructions(context: EffectContext, effect: CallModel) -> str:
    """Return the task's instructions, with the number of steps left if the model is to know it."""
    told = standing_instructions(context.runtime, context.state)
    if effect.final and context.state.limit_detail is not None:
        why = f"No tool can be called any more: {context.state.limit_detail}. Answer with what you know."
        told = f"{told}\n\n{why}".strip()
    if context.runtime.tell_steps is None:
        return told
    left = 0 if effect.final else context.runtime.tell_steps - effect.step.index
    return f"{told}\n\nSteps left after this one: {left}.".strip()


def standing_instructions(runtime: AgentRuntime, state: TaskState) -> str:
    """Return the instructions that are the same in every request of a task."""
    told = state.instructions or ""
    return told if runtime.typed is None else f"{told}\n\n{runtime.typed.told}".strip()


def text_channel(effect: CallModel, request: ModelRequest) -> e.Channel:
    """Return what the words of an answer are: final if the model can do nothing but answer, and that ends the task."""
    if effect.call.request is None and (not request.tools or request.tool_choice == "none"):
        return "final"
    return "draft"


def delta(step: str, call: str | None, text: e.Channel, item: Any, after: int) -> e.Ephemeral:
    """Return a model's delta as watchers see it; its words go to the channel `text` if nothing better is known."""
    if type(item) is TextDelta:
        known = "final" if item.final and call is None else text
        return e.Delta(step, known, item.text, after, 0, "", call)
    if type(item) is ReasoningDelta:
        return e.Delta(step, "reasoning", item.text, after, 0, "", call)
    if type(item) is RawDelta:
        return e.RawChunk(step, item.data, call, after)
    return e.Delta(step, "arguments", item.arguments, after, item.index, item.name, call)


# ---------------------------------------------------------------------------------------------- tools


async def call_tool(
    context: EffectContext, in_flight: EffectInFlight, effect: CallTool, arguments: Any
) -> list[e.Event]:
    """Run a tool whose begin is recorded, and return its end."""
    call = effect.call
    tool = context.runtime.tools[call.name]
    ctx = tool_context(context, call, in_flight, call.attempt)
    try:
        refuse_if_too_many()
        if call.effect != "read":
            # Were the answer that asked for it lost, the same place and key might go to another call.
            await context.durable()
        in_flight.enter()
        result = await tool.call(arguments, ctx)
        return [tool_end(call, result, context.runtime.max_chars)]
    except asyncio.CancelledError:
        if in_flight.cancel_reason is None and not being_cancelled():
            return _tool_failed(call, tool, "the tool cancelled itself")
        return _tool_cut(call, tool, in_flight)
    except Exception as error:  # noqa: BLE001  whatever a tool raises is the call's error
        return _tool_failed(call, tool, error_text(error))


def tool_end(call: CallState, result: ToolOutput, max_chars: int) -> e.ToolEnded:
    """Return the end of a call that returned; what the model sees is bounded."""
    _check_output(result)
    sources, artifacts = checked_sources(result.sources), checked_artifacts(result.artifacts)
    seen: Sequence[Content] | None
    if result.observation is None:
        text = as_text(result.output)
        if len(text) <= max_chars:
            return e.ToolEnded(
                call.step, call.id, "ok", result.output, None, result.display, None, sources, artifacts
            )
        seen = (Text(text),)
    elif isinstance(result.observation, str):
        seen = (Text(result.observation),)
    else:
        seen = tuple([Text(part) if isinstance(part, str) else part for part in result.observation])
    return e.ToolEnded(
        call.step,
        call.id,
        "ok",
        result.output,
        observation(seen, call_id=call.id, limit=max_chars),
        result.display,
        None,
        sources,
        artifacts,
    )


def _check_output(result: ToolOutput) -> None:
    """Raise for a result that could not be journalled, as a tool of an own class may give."""
    if (beyond := flaw(result.output)) is not None:
        raise TypeError(f"the tool's output is {beyond}; it is of type {type(result.output).__name__}")
    if result.display is not None and not isinstance(result.display, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the tool's display is no text but of type {type(result.display).__name__}")
    seen = result.observation
    if seen is None or isinstance(seen, str):
        return
    if not all(isinstance(part, (str, Text, Image, File)) for part in seen):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("the tool's observation holds what is neither text nor a content part")


def _tool_failed(call: CallState, tool: Tool, text: str) -> list[e.Event]:
    failure = e.Failure("tool", "error", text, call.id)
    if call.attempt <= tool.spec.retries and call.effect != "write":
        return [e.ToolStopped(call.step, call.id, "error", failure)]
    return [failed_end(call, failure)]


def _tool_cut(call: CallState, tool: Tool | None, in_flight: EffectInFlight) -> list[e.Event]:
    """Return what a call that was stopped comes to: it may run again, or it is not known what it did."""
    cancel_reason = in_flight.cancel_reason or "interrupted"
    if not in_flight.entered:
        stopped = e.ToolStopped(call.step, call.id, cancel_reason)
        if call.effect == "read":
            return [stopped]
        # Its begin was journalled and the tool never entered: that much is known.
        return [stopped, e.OutcomeSettled(call.step, call.id, "not_happened", by="runner")]
    if cancel_reason == "timeout" and tool is not None:
        failure = e.Failure(
            "tool", "timeout", f"{call.name} took longer than {tool.spec.timeout:g} s", call.id
        )
        if call.effect != "write" and call.attempt > tool.spec.retries:
            return [failed_end(call, failure, cut_off=True)]
        return [e.ToolStopped(call.step, call.id, cancel_reason, failure)]
    if cancel_reason == "abandoned":
        failure = e.Failure("tool", "abandoned", f"{call.name} did not stop when it was cancelled", call.id)
        if call.effect != "write":
            return [failed_end(call, failure, cut_off=True)]
        return [e.ToolStopped(call.step, call.id, cancel_reason, failure)]
    return [e.ToolStopped(call.step, call.id, cancel_reason)]


async def undo_call(context: EffectContext, in_flight: EffectInFlight, effect: UndoCall) -> list[e.Event]:
    """Run the compensation of a finished call and return its end."""
    call, call_id = effect.call, effect.id
    tool = context.runtime.tools.get(call.name)
    if tool is None or not tool.spec.undoable:
        failure = e.Failure("tool", "error", f"the agent has no tool {call.name} with undo=", call_id)
        return [e.ToolEnded(call.step, call_id, "error", error=failure)]
    ctx = tool_context(context, call, in_flight, call.undo_attempt)
    ctx = replace(ctx, call_id=call_id, idempotency_key=context.state.key_of(call_id))
    try:
        await context.durable()
        in_flight.enter()
        await tool.undo(call.as_tool_call, ctx)
        return [e.ToolEnded(call.step, call_id, "ok")]
    except asyncio.CancelledError:
        if in_flight.cancel_reason is None and not being_cancelled():
            failure = e.Failure("tool", "error", "the compensation cancelled itself", call_id)
            return [e.ToolEnded(call.step, call_id, "error", error=failure)]
        return _undo_cut(effect, in_flight)
    except Exception as error:  # noqa: BLE001  whatever a compensation raises is reported in the undo's report
        failure = e.Failure("tool", "error", error_text(error), call_id)
        return [e.ToolEnded(call.step, call_id, "error", error=failure)]


def _undo_cut(effect: UndoCall, in_flight: EffectInFlight) -> list[e.Event]:
    step = effect.call.step
    stopped = e.ToolStopped(step, effect.id, in_flight.cancel_reason or "interrupted")
    if in_flight.entered:
        return [stopped]
    return [stopped, e.OutcomeSettled(step, effect.id, "not_happened", by="runner")]


async def reconcile(context: EffectContext, in_flight: EffectInFlight, effect: Reconcile) -> list[e.Event]:
    """Ask a lost call's tool whether it took effect, and return the verdict."""
    call = effect.call
    tool = context.runtime.tools[call.name]
    try:
        in_flight.enter()
        verdict = await tool.reconcile(
            call.as_tool_call, tool_context(context, call, in_flight, call.attempt)
        )
    except asyncio.CancelledError:
        if in_flight.cancel_reason is None and not being_cancelled():
            return [e.OutcomeUnresolved(call.step, call.id, _unresolved(call, "it cancelled itself"))]
        if in_flight.cancel_reason == "timeout":
            late = f"it took longer than {tool.spec.timeout:g} s"
            return [e.OutcomeUnresolved(call.step, call.id, _unresolved(call, late))]
        return []
    except Exception as error:  # noqa: BLE001  a failed look leaves the outcome unknown
        return [e.OutcomeUnresolved(call.step, call.id, _unresolved(call, error_text(error)))]
    if isinstance(verdict, Happened):
        return [e.OutcomeSettled(call.step, call.id, "happened", verdict.output, by="reconcile")]
    if isinstance(verdict, NotHappened):
        return [e.OutcomeSettled(call.step, call.id, "not_happened", by="reconcile")]
    return [e.OutcomeUnresolved(call.step, call.id)]


def given_up(in_flight: EffectInFlight) -> list[e.Event]:
    """Return the end of an effect that cannot tell it: cancelled before it began, or abandoned."""
    effect = in_flight.effect
    if isinstance(effect, CallModel):
        call = effect.call.id
        return [e.ModelStopped(effect.step.id, in_flight.cancel_reason or "interrupted", call)]
    if isinstance(effect, (RunFunction, ConsultWorker, StopAgent)):
        return []
    if isinstance(effect, RunAgent):
        return [e.ToolStopped(effect.call.step, effect.id, in_flight.cancel_reason or "interrupted")]
    if isinstance(effect, UndoCall):
        return _undo_cut(effect, in_flight)
    if isinstance(effect, Reconcile):
        if in_flight.cancel_reason != "abandoned":
            return []
        return [
            e.OutcomeUnresolved(effect.call.step, effect.call.id, _unresolved(effect.call, "it did not stop"))
        ]
    return _tool_cut(effect.call, None, in_flight)


def broken(in_flight: EffectInFlight, error: BaseException) -> list[e.Event]:
    """Return the end of an effect that raised what no effect should: neither an error nor a cancellation."""
    effect, text = in_flight.effect, error_text(error)
    if isinstance(effect, CallModel):
        call = effect.call.id
        return [e.ModelFailed(effect.step.id, e.Failure("model", "unknown", text), call)]
    if isinstance(effect, RunFunction):
        return [e.StepFailed(effect.id, e.Failure("worker", "error", text))]
    if isinstance(effect, ConsultWorker):
        from treadle.engine.step_functions import consulted_in_vain

        return [consulted_in_vain(effect, text)]
    if isinstance(effect, Reconcile):
        return [e.OutcomeUnresolved(effect.call.step, effect.call.id, _unresolved(effect.call, text))]
    failure = e.Failure("tool", "error", text, effect.call.id)
    if isinstance(effect, UndoCall):
        return [e.ToolEnded(effect.call.step, effect.id, "error", error=failure)]
    return [failed_end(effect.call, failure)]


def _unresolved(call: CallState, why: str) -> e.Failure:
    return e.Failure("tool", "error", f"reconcile= of {call.name} failed: {why}", call.id)


def tool_context(
    context: EffectContext, call: CallState, in_flight: EffectInFlight, attempt: int
) -> ToolContext[Any]:
    """Return what a tool may know of the call it serves."""
    state, channel = context.state, context.channel

    def progress(value: Any) -> None:
        if channel.listeners:
            channel.tell(e.ToolProgress(call.step, call.id, value, state.seq))

    def left_behind(still_runs: Callable[[], bool]) -> None:
        leave_behind(still_runs, call.name, state.task_id, call.id)
        if in_flight.cancel_reason == "interrupted":
            in_flight.cancel_reason = "abandoned"

    return ToolContext(
        state.task_id,
        state.thread,
        call.step,
        call.id,
        state.key_of(call.id.partition(RETRY_MARK)[0]),
        state.agent,
        attempt,
        context.user_context,
        on_progress=progress,
        cancelled=lambda: in_flight.cancel_reason is not None,
        on_left_behind=left_behind,
    )

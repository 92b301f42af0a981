"""Build requests to models, of steps and of functions within steps.

Tools. They are chosen once, before the begin of the request is recorded, and journalled with it.

A request that is sent again after a crash, after a failure or in a fork has the same tools. The agent's selection
function is not called again.

Size. An estimate decides whether a request fits into the remaining tokens and cost.

The estimate is reserved until the request ends. Concurrent requests, also of other tasks of the tree, share the
remainder. Then the actual spending replaces the estimate. It does not include the answer, whose size is unknown. So a
task can exceed a limit by its answers, and by errors of the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from treadle.agents.context import RequestContext, read_only
from treadle.agents.tool_selection import selected_names
from treadle.core import events as e
from treadle.core.effects import CallModel
from treadle.core.messages import Message
from treadle.core.model import ModelRequest, Tries
from treadle.core.observation import READ_OUTPUT, unknown_tool_text
from treadle.core.rules.schedule import seen_by
from treadle.core.spending import Spending
from treadle.core.state import TaskState
from treadle.core.steps import ModelCall
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import near_name
from treadle.engine.effect_context import AgentRuntime, EffectContext
from treadle.engine.journal_writer import Recorder
from treadle.engine.metering import TokenMeter, cost_of
from treadle.errors import ConfigurationError, ModelError
from treadle.policy.budget import in_flight
from treadle.policy.limits import Limits, spare_calls, spent, too_large


def request_to_be(context: EffectContext, effect: CallModel, offered: tuple[str, ...] | None) -> ModelRequest:
    """Return the request of an effect that is about to begin. `offered` are its tools, None: all."""
    call = replace(effect.call, offered=offered)
    if call.request is not None:
        return function_request(context, call)
    return step_request(context, replace(effect, call=call))


def step_request(context: EffectContext, effect: CallModel) -> ModelRequest:
    """Return the request of a step, which shares the conversation with the task."""
    state, runtime = context.state, context.runtime
    settings, typed = runtime.settings, runtime.typed
    tools = (
        runtime.final_specs
        if effect.final
        else runtime.offering(effect.call.offered, reads_on=bool(state.cut))
    )
    answer_tool = typed.tool.name if typed is not None and typed.tool is not None else "none"
    choice = (
        settings.tool_choice if settings.tool_choice is not None and state.turn == 0 and tools else "auto"
    )
    step, instructions = effect.step, standing_instructions(runtime, state)
    if effect.final or runtime.tell_steps is not None:
        instructions = _with_limits(instructions, context, effect)
    request = ModelRequest(
        state.view if context.select_messages is None else context.select_messages(tools),
        instructions,
        tools,
        answer_tool if effect.final else choice,
        settings,
        state.task_id,
        step.id,
        state.turn,
        effect.call.attempt,
        typed.output.schema if typed is not None and typed.mode == "native" else None,
    )
    return _for_layers(request, context, effect.call.asked_at, effect.call.tries)


def function_request(context: EffectContext, call: ModelCall) -> ModelRequest:
    """Return the request of a function within a step."""
    state, runtime, requested = context.state, context.runtime, call.request
    assert requested is not None, "the request of a function has its own terms"
    specs = runtime.offering(call.offered, reads_on=bool(state.cut))
    if requested.tools is not None:
        unknown = [name for name in requested.tools if name not in runtime.tools]
        if unknown:
            raise ModelError(unknown_tool_text(unknown[0], list(runtime.tools)), kind="invalid_request")
        specs = tuple([runtime.tools[name].spec for name in requested.tools])
    request = ModelRequest(
        function_messages(context, call, specs),
        requested.instructions
        if requested.instructions is not None
        else standing_instructions(runtime, state),
        specs,
        "auto",
        runtime.settings,
        state.task_id,
        requested.step,
        state.turn,
        call.attempt,
        None,
    )
    request.call = call.id
    return _for_layers(request, context, call.asked_at, call.tries)


def function_messages(
    context: EffectContext, call: ModelCall, specs: tuple[ToolSpec, ...] | None = None
) -> Sequence[Message]:
    """Return the messages of a function's request, after the conversation if it requests that.

    With `specs`, the conversation is reduced to fit the model's context beside these tools.
    """
    state, messages = context.state, call.side_messages()
    if not call.sees_conversation:
        return messages
    assert state.graph is not None, "functions run only in tasks with a graph"
    assert call.request is not None, "the request of a function has its own terms"
    node = state.graph.nodes[call.request.step]
    if specs is not None and node.alone and context.select_messages is not None:
        conversation = context.select_messages(specs)
    else:
        conversation = seen_by(state, node)
    return [*conversation, *messages] if messages else conversation


def _for_layers(
    request: ModelRequest, context: EffectContext, asked_at: int, tries: Tries | None
) -> ModelRequest:
    """Add earlier attempts and the number of remaining calls, for layers of the model."""
    request.asked_at = asked_at
    if tries is not None:
        request.failures, request.route = tries.failures, tries.route
    if context.subagents is not None:
        request.spare_calls = context.subagents.account.spare_requests()
    else:
        request.spare_calls = spare_calls(context.runtime.rules.limits, context.state)
    return request


def _with_limits(text: str, context: EffectContext, effect: CallModel) -> str:
    """Return instructions with the reached limit, and with the number of steps left if the options say so."""
    runtime, state = context.runtime, context.state
    if effect.final and state.limit_detail is not None:
        why = f"No tool can be called any more: {state.limit_detail}. Answer with what you know."
        text = f"{text}\n\n{why}".strip()
    if runtime.tell_steps is None:
        return text
    steps_left = 0 if effect.final else runtime.tell_steps - effect.step.index
    return f"{text}\n\nSteps left after this one: {steps_left}.".strip()


def standing_instructions(runtime: AgentRuntime, state: TaskState) -> str:
    """Return the instructions that all requests of a task share."""
    text = state.instructions or ""
    return text if runtime.typed is None else f"{text}\n\n{runtime.typed.instructions}".strip()


def choose(context: EffectContext, effect: CallModel) -> tuple[tuple[str, ...] | None, e.Failure | None]:
    """Return the names of the tools that a request offers, in the agent's order, or None for all.

    If the selection fails, the request fails without being sent.
    """
    agent, call = context.runtime.agent, effect.call
    if agent.offer is None or effect.final or (call.request is not None and call.request.tools is not None):
        return None, None
    if call.offered is not None:
        return call.offered, None
    state, tools = context.state, context.runtime.tools
    try:
        names = selected_names(agent.offer, _request_context(context, effect))
        if names - tools.keys():
            raise _no_tool(min(names - tools.keys()), tools)
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001  an offer is code of the user, and fails its request alone
        from treadle.engine.user_errors import kept

        why = f"the tools to offer could not be chosen: {context.vault.error_text(error)}"
        function = f"tools_for= of {agent.name}"
        traceback = kept(error, state, context.vault, function=function, step=effect.step.id)
        return None, e.Failure("agent", "offer", why, traceback=traceback)
    if state.cut and context.runtime.reads_cut_outputs:
        names.add(READ_OUTPUT)
    choice = context.runtime.settings.tool_choice
    if choice in tools and state.turn == 0 and call.request is None:
        names.add(choice)
    return tuple([name for name in tools if name in names]), None


def _request_context(context: EffectContext, effect: CallModel) -> RequestContext[Any]:
    state = context.state
    return RequestContext(
        state.task_id,
        state.thread,
        state.task_input,
        context.user_context,
        effect.step.index,
        state.view if effect.call.request is None else function_messages(context, effect.call),
        context.runtime.agent.tools,
        state=read_only(state),
    )


def _no_tool(name: str, tools: Iterable[str]) -> ConfigurationError:
    near = near_name(name, tools)
    hint = f", did you mean {near!r}?" if near else ""
    return ConfigurationError(f"{name!r} is no tool of the agent{hint}")


def limits_size(context: EffectContext) -> bool:
    """Return whether a limit of the task, or of a task above it, depends on the size of a request."""
    return any(limits.tokens is not None or limits.cost is not None for limits in _limits(context))


def size_of_allowed(
    context: EffectContext, effect: CallModel, offered: tuple[str, ...] | None, model: str, record: Recorder
) -> int | None:
    """Reserve the estimate of a request, and return its counted tokens, or None if it does not fit.

    A request that does not fit is recorded as a reached limit. If other requests are in flight, it waits instead, and
    is estimated again when they end.
    """
    state = context.state
    if state.graph is not None and state.limit is not None:
        return None  # a concurrent request reached it
    try:
        size = _size(context, effect, offered)
    except (Exception, SystemExit):  # noqa: BLE001  it is built again when it runs, and then fails only its request
        return 0
    estimate = _estimate(context, size, model)
    reached = _reached(context, effect, estimate)
    if reached is None:
        _reserve(context, effect, estimate)
        return size
    if state.graph is None:
        reached.room = not effect.final and _has_room(context, replace(effect, final=True), model)
        record(reached)
    elif not state.in_flight():
        reached.room = False  # a function has no smaller request
        record(reached)
    return None


def _limits(context: EffectContext) -> list[Limits]:
    """Return the limits of the task and of the tasks above it."""
    subagents = context.subagents
    return [context.runtime.rules.limits] if subagents is None else subagents.account.all_limits


def _size(context: EffectContext, effect: CallModel, offered: tuple[str, ...] | None) -> int:
    context.meter = context.meter or TokenMeter()
    return context.meter.request_tokens(request_to_be(context, effect, offered))


def _estimate(context: EffectContext, size: int, model: str) -> Spending:
    assert context.meter is not None, "it counted the size"
    usage = context.meter.expected(model, size)
    costs = any(limits.cost is not None for limits in _limits(context))
    return Spending(0, 0, usage.total_tokens, cost_of(context.price, model, usage) if costs else 0)


def _reached(context: EffectContext, effect: CallModel, estimate: Spending) -> e.LimitReached | None:
    """Return the limit that a request of an estimated size would exceed, or None if it fits."""
    state, rules, subagents = context.state, context.runtime.rules, context.subagents
    if subagents is not None:
        return subagents.account.forbids_request(final=effect.final, estimate=estimate)
    usual = Spending(0, 0, state.last_request_tokens, state.last_request_cost)
    reserved = in_flight(state, context.estimates, usual)
    if state.graph is None and not effect.final and rules.on_limit == "final_answer" and rules.tools:
        reserved = reserved + usual  # for a last answer
    return too_large(rules.limits, spent(state), reserved, estimate)


def _has_room(context: EffectContext, final: CallModel, model: str) -> bool:
    """Return whether a request for a last answer, without tools, would fit."""
    try:
        size = _size(context, final, None)
    except (Exception, SystemExit):  # noqa: BLE001  it is built again when it runs, and then fails only its request
        return True
    return _reached(context, final, _estimate(context, size, model)) is None


def _reserve(context: EffectContext, effect: CallModel, estimate: Spending) -> None:
    subagents = context.subagents
    estimates = context.estimates if subagents is None else subagents.account.estimates
    begun_keys = {call.id or step.id for step, call in context.state.begun_model_calls()}
    for key in estimates.keys() - begun_keys:
        del estimates[key]
    estimates[effect.call.id or effect.step.id] = estimate

"""Requests to a model: of a step, and of a function within a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.core.effects import CallModel
from treadle.core.messages import Message
from treadle.core.model import ModelRequest, Tries
from treadle.core.observation import unknown_tool_text
from treadle.core.rules.schedule import seen_by
from treadle.core.state import TaskState
from treadle.core.steps import ModelCall
from treadle.core.tools import ToolSpec
from treadle.engine.effect_context import AgentRuntime, EffectContext
from treadle.errors import ModelError
from treadle.policy.limits import spare_calls


def request_to_be(context: EffectContext, effect: CallModel, offered: tuple[str, ...] | None) -> ModelRequest:
    """Return the request of an effect that is about to begin, with the offered tools (None: all)."""
    call = replace(effect.call, offered=offered)
    if call.request is not None:
        return function_request(context, call)
    return step_request(context, replace(effect, call=call))


def step_request(context: EffectContext, effect: CallModel) -> ModelRequest:
    """Return the request of a step; it shares the conversation with the task."""
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
    """Return the messages of a function's request: its own, after the conversation if it wants that.

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
    """Add the facts that layers of the model use: earlier attempts, and the number of calls left."""
    request.asked_at = asked_at
    if tries is not None:
        request.failures, request.route = tries.failures, tries.route
    if context.subagents is not None:
        request.spare_calls = context.subagents.account.spare_requests()
    else:
        request.spare_calls = spare_calls(context.runtime.rules.limits, context.state)
    return request


def _with_limits(text: str, context: EffectContext, effect: CallModel) -> str:
    """Return instructions with the reached limit, and with the number of steps left if the model is to know it."""
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

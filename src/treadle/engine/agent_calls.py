"""Calls of agents as effects: run the task that a call is, or stop it, and tell how the call ended."""

from __future__ import annotations

import asyncio

from treadle.agents.decide.lifecycle import may_have_acted
from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.effects import RunAgent, StopAgent
from treadle.core.observation import as_text, error_text
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.engine.effect_context import EffectContext, EffectInFlight, StopChild, being_cancelled
from treadle.engine.perform import tool_end
from treadle.engine.results import all_steps, pending_of, resting_word
from treadle.errors import StoreError, TaskTooNew
from treadle.policy.budget import spent_by
from treadle.ports import ToolOutput


async def run_agent(
    context: EffectContext, in_flight: EffectInFlight, effect: RunAgent, told: str
) -> list[e.Event]:
    """Run the agent that a call wants, and return the call's end, or that its task is at rest."""
    end = await _run_agent(context, in_flight, effect, told)
    if context.subagents is not None and context.subagents.unseen:
        end.unseen, context.subagents.unseen = context.subagents.unseen, 0
    return [end]


async def _run_agent(
    context: EffectContext, in_flight: EffectInFlight, effect: RunAgent, told: str
) -> e.ToolEnded | e.ToolStopped:
    call, subagents = effect.call, context.subagents
    assert subagents is not None, "agents are wanted only by those who have them"
    spent: tuple[SpentBy, ...] = ()
    try:
        # Were the answer that asked for it lost, the same place, and so the child's name, might go to another call.
        await context.durable()
        in_flight.enter()
        state = await subagents.run(call, told, context.user_context)
    except asyncio.CancelledError:
        if in_flight.cancel_reason is None and not being_cancelled():
            return _failed(call, "it cancelled itself", "cancelled", spent)
        return e.ToolStopped(
            call.step, call.id, in_flight.cancel_reason or "interrupted", spent=subagents.spent_by(call)
        )
    except Exception as error:  # noqa: BLE001  whatever keeps an agent from running is its call's error
        if not isinstance(error, (StoreError, TaskTooNew)) and not subagents.is_open(call):
            return _failed(call, error_text(error), "error", subagents.spent_by(call))
        # Its task is there and has not ended: whoever puts right what keeps it goes on with it.
        subagents.resting.add(call.id)
        why = e.Failure("subagent", "error", f"{call.name} cannot go on: {error_text(error)}", call.id)
        return e.ToolStopped(call.step, call.id, "parked", why, subagents.spent_by(call))
    if state.ended is not None:
        return _end(call, state, context.runtime.max_chars)
    await subagents.note_resting(call, state)
    return e.ToolStopped(call.step, call.id, "parked", _waits_for(call, state), spent_by(state))


async def stop_agent(stop_child: StopChild, effect: StopAgent) -> list[e.Event]:
    """End the task that a call is, for good, and return the call's end."""
    call = effect.call
    end = e.ToolEnded(call.step, call.id, "cancelled" if call.attempt else effect.outcome)
    text = f"{call.name} was stopped: {effect.why}."
    end.error = e.Failure("subagent", effect.outcome, text, call.id)
    try:
        state = await stop_child(call, effect.why)
    except asyncio.CancelledError:
        return []
    if state is None:
        end.harmless = True
    else:
        end.spent, end.harmless = spent_by(state), is_harmless(state)
    return [end]


def _end(call: CallState, state: TaskState, max_chars: int) -> e.ToolEnded:
    """Return the end of a call whose task has ended."""
    if state.ended in ("completed", "degraded"):
        end = tool_end(call, ToolOutput(state.output, _observation(state)), max_chars)
        end.spent = spent_by(state)
    else:
        why = state.error.message if state.error is not None else "no reason was given"
        text = f"{call.name} failed: {why}" if state.ended == "failed" else f"{call.name} was {why}"
        end = _failed(call, text, "error" if state.ended == "failed" else "cancelled", spent_by(state))
    end.harmless = is_harmless(state)
    return end


def _observation(state: TaskState) -> str | None:
    """Return what the model sees of an answer, if it is more than the answer."""
    if state.ended != "degraded":
        return None
    return f"{as_text(state.output)}\n\n[A best effort: {'; '.join(state.end_reasons)}]"


def _failed(call: CallState, text: str, outcome: e.Outcome, spent: tuple[SpentBy, ...]) -> e.ToolEnded:
    error = e.Failure("subagent", outcome, text, call.id)
    return e.ToolEnded(call.step, call.id, outcome, error=error, spent=spent)


def _waits_for(call: CallState, state: TaskState) -> e.Failure:
    """Return why a child is at rest, in words."""
    word = resting_word(state)
    what = "; ".join(item.text for item in pending_of(state)) or state.stop_reason
    text = f"{call.name} (task {state.task_id}) is {word}{f': {what}' if what else ''}"
    return e.Failure("subagent", word, text, call.id)


def is_harmless(state: TaskState) -> bool:
    """Whether none of a task's calls can have changed anything outside."""
    return not any(may_have_acted(call) for step in all_steps(state) for call in step.calls)

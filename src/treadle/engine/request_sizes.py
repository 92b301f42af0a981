"""Whether a request to a model fits into the remaining tokens and cost, by an estimate of its size.

The estimate is reserved until the request ends, and concurrent requests, also of other tasks of the tree, share the
remainder. Then the actual spending replaces it. The answer is not part of the estimate, since its size is unknown: a
task can exceed a limit by its answers, and by errors of the estimate.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core import events as e
from treadle.core.effects import CallModel
from treadle.core.spending import Spending
from treadle.engine.effect_context import EffectContext
from treadle.engine.journal_writer import Recorder
from treadle.engine.metering import TokenMeter, cost_of
from treadle.engine.model_requests import request_to_be
from treadle.policy.budget import in_flight
from treadle.policy.limits import Limits, spent, too_large


def limits_size(context: EffectContext) -> bool:
    """Return whether a limit of the task, or of a task above it, depends on the size of a request."""
    return any(limits.tokens is not None or limits.cost is not None for limits in _limits(context))


def size_of_allowed(
    context: EffectContext, effect: CallModel, offered: tuple[str, ...] | None, model: str, record: Recorder
) -> int | None:
    """Return the tokens counted in a request, and reserve its estimate; None if it does not fit.

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
    """Return the limit that a request of an estimated size would exceed; None if it fits."""
    state, rules, subagents = context.state, context.runtime.rules, context.subagents
    if subagents is not None:
        return subagents.account.forbids_request(final=effect.final, estimate=estimate)
    usual = Spending(0, 0, state.last_request_tokens, state.last_request_cost)
    reserved = in_flight(state, context.estimates, usual)
    if state.graph is None and not effect.final and rules.on_limit == "final_answer" and rules.tools:
        reserved = reserved + usual  # for a last answer
    return too_large(rules.limits, spent(state), reserved, estimate)


def _has_room(context: EffectContext, final: CallModel, model: str) -> bool:
    """Return whether the request for a last answer, without tools, would fit."""
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

"""Requests to models that are judged before they are sent; the same for every worker.

The permit of a model call is the verdict on its next request. It holds until the call is answered or has failed, and
until another of several models is called.
"""

from __future__ import annotations

from treadle.core.effects import CallModel, Decision, Effect, JudgeRequest
from treadle.core.ids import judgement_id


def only_judged(decision: Decision) -> Decision:
    """Return a decision in which each request to a model is first judged by the policies."""
    if not isinstance(decision, tuple):
        return decision
    return tuple([_judged(effect) for effect in decision])


def _judged(effect: Effect) -> Effect:
    if type(effect) is not CallModel or effect.call.status == "begun" or effect.call.permit == "allow":
        return effect
    return JudgeRequest(judgement_id(effect.id), effect.step, effect.call, effect.final)

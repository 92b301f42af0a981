"""Judgements of requests to models before they are sent, as effects.

    JudgeRequest --> rules and functions of all policies --> the strictest verdict
        allow, none    RequestJudged: the request goes out
        deny           RequestJudged, and the attempt fails as `denied` without a request
        ask            RequestJudged, and the task pauses: resumed, it sends the request; in a headless run it is denied

The begin of a judgement is not journalled, and an interrupted judgement is repeated.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from treadle.core import events as e
from treadle.core.effects import JudgeRequest
from treadle.core.state import TaskState
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.judging import surroundings, verdict_of
from treadle.engine.policy_in_force import judges_of
from treadle.policy.requests import model_request
from treadle.policy.verdicts import Allow, AskPerson, Deny, PolicyVerdict, strictest
from treadle.ports import chosen_model

POLICY = "policy"
"""The source of the pause, as `PauseRequested` names it."""


class RequestJudgementInFlight(EffectInFlight[JudgeRequest]):
    """The judgement of a request to a model before it is sent."""

    __slots__ = ("_model", "_policy")

    ends_before_undo: ClassVar[bool] = False

    _model: str
    _policy: str

    @property
    def name(self) -> str:
        return "the policy"

    def begin(self, record: Recorder) -> bool:
        """Begin without an event."""
        tries = self.effect.call.tries
        self._policy = ""
        self._model, _ = chosen_model(self.context.runtime.model, "" if tries is None else tries.route)
        return True

    async def run(self) -> list[e.Event]:
        """Judge the request, and return the events of the decision."""
        try:
            self.enter()
            context = self.context
            in_force = context.policy.in_force
            self._policy = in_force.name
            await context.learn_labels()
            request = model_request(context.state, self._model, self.effect.step.id, surroundings(context))
            judges = judges_of(in_force, context.inherited.judges)
            verdicts = await asyncio.gather(*[verdict_of(judge, request, context) for judge in judges])
            return self._events(strictest(verdicts))
        except asyncio.CancelledError:
            return self.broken("it cancelled itself") if self.cancelled_itself() else []

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the request is judged when the task continues."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        return self._denied(Deny(None, f"it could not be judged: {text}", traceback))

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether the request was sent or is no longer wanted. A task that stops judges it again later."""
        call = self.effect.call
        if state.cancelling or state.interrupting or state.pausing or state.undo is not None:
            return True
        return call.status == "begun" or all(other is not call for _, other in state.open_model_calls())

    def _events(self, verdict: PolicyVerdict | None) -> list[e.Event]:
        if verdict is None or isinstance(verdict, Allow):
            return [self._judged("allow", verdict)]
        if isinstance(verdict, Deny):
            return self._denied(verdict)
        if not isinstance(verdict, AskPerson):
            return self._denied(
                Deny(verdict.rule, "it would change a request to a model, which has no arguments")
            )
        if self.context.runtime.options.interaction == "headless":
            return self._denied(
                Deny(verdict.rule, f"it needs a person, and the run is headless: {verdict.reason}")
            )
        if verdict.approvers or verdict.excluded or verdict.argument or verdict.expires is not None:
            why = "it has terms for approvers, and a request to a model is approved by resuming the task"
            return self._denied(Deny(verdict.rule, why))
        reason = f"a request to {self._model} waits for a person by rule {verdict.rule}: {verdict.reason}"
        return [self._judged("ask", verdict), e.PauseRequested(POLICY, reason)]

    def _denied(self, verdict: Deny) -> list[e.Event]:
        step, call = self.effect.step, self.effect.call
        by = f" by rule {verdict.rule}" if verdict.rule else ""
        text = f"a request to {self._model} was denied{by}: {verdict.reason}"
        return [
            self._judged("deny", verdict),
            e.ModelStarted(step.id, self._model, call.attempt + 1, self.effect.final, call.offered, call.id),
            e.ModelFailed(
                step.id,
                e.Failure("model", "denied", text, model=self._model, traceback=verdict.traceback),
                call.id,
            ),
        ]

    def _judged(self, kind: e.RequestVerdict, verdict: PolicyVerdict | None) -> e.RequestJudged:
        rule, reason = (verdict.rule, verdict.reason) if verdict is not None else (None, "")
        effect = self.effect
        return e.RequestJudged(effect.step.id, kind, self._model, rule, reason, effect.call.id, self._policy)

"""Guardrails as effects, which judge contents and release held answers.

    JudgeContent --> every guardrail on the content --> the strictest verdict
        allow, none    GuardrailJudged: the content goes on
        rewrite        GuardrailJudged: the content is replaced, and judged anew
        ask            GuardrailJudged and ApprovalRequested; in a headless run it is refused
        deny           GuardrailJudged: the task stops

The begin of a judgement is not journalled. An interrupted judgement is repeated, and a journalled one is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from treadle.core import events as e
from treadle.core.checks import JSON_PARTS, NAMES, Check, passed_answer, refusal, standing
from treadle.core.codec import flaw, plain
from treadle.core.effects import JudgeContent, ReleaseAnswer
from treadle.core.ids import (
    answer_place,
    final_place,
    input_place,
    is_final,
    is_input,
    result_call,
)
from treadle.core.messages import Content, Json
from treadle.core.observation import as_text
from treadle.core.permits import digest_of
from treadle.core.rules.deferring import is_arrival
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.steps import ModelCall, StepState
from treadle.engine.effect_context import EffectContext, Guards, JudgedPlace
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.held_deltas import HeldDeltas
from treadle.engine.journal_writer import Recorder
from treadle.engine.judging import answer_of, answered_for, approval_request
from treadle.engine.text_calls import text_calls_of
from treadle.policy.guardrails import MAX_REWRITES, Guardrail, GuardrailRequest, Rewrite
from treadle.policy.verdicts import Allow, AskPerson, Deny, PolicyVerdict, Replace, strictest


class Guarding:
    """The guardrails of one drive.

    Args:
        context: the context of the drive's effects.
        guardrails: the guardrails of the task: the runner's and its agent's.
    """

    def __init__(self, context: EffectContext, guardrails: Sequence[Guardrail]) -> None:
        self._context = context
        self._guardrails = tuple(guardrails)
        self._streams: dict[str, HeldDeltas] = {}
        """the deltas that watchers have not received of held answers, by request"""

    # -------------------------------------------------------------------------------------- answers

    def stream(self, step: StepState, call: ModelCall, label: e.Channel) -> HeldDeltas | None:
        """Return the buffer that holds an answer's deltas until guardrails pass them, or None if they need no check."""
        key = call.id or step.id
        place = JudgedPlace(step.id, answer_place(key, call.attempt), "output")
        guardrails = [each for each in self._guardrails if each.checks("output")]
        if not guardrails and not self._awaits_input(step):
            return None
        pieces = [each.piece for each in guardrails]
        piece = None if None in pieces else max([each for each in pieces if each is not None], default=None)

        async def judge(text: str) -> PolicyVerdict | None:
            return await self._verdict(place, {"text": text}, None, whole=False)

        context = self._context
        held = HeldDeltas(
            context.channel,
            context.state,
            context.streamed,
            key,
            e.Delta(step.id, label, "", call=call.id),
            judge if guardrails else None,
            piece,
            lambda: self._awaits_input(step),
        )
        self._streams[key] = held
        return held

    def holds(self, step: StepState, call: ModelCall) -> bool:
        return (
            call.void or self._awaits_input(step) or any(each.checks("output") for each in self._guardrails)
        )

    def _awaits_input(self, step: StepState) -> bool:
        """Whether a step has input that has not passed yet, so that its answer must wait."""
        if not any(each.checks("input") for each in self._guardrails):
            return False
        state = self._context.state
        return any(
            standing(state.checks.get(input_place(received.seq))) != "passed"
            and not is_arrival(state, received)  # the results of calls are judged before a step reads them
            for received in step.read
        )

    def refused_piece(self, step: StepState, call: ModelCall, held: HeldDeltas) -> list[e.Event]:
        """Return the verdict that refused an unfinished answer, and the end of its attempt."""
        refused = held.refusal
        assert refused is not None, "a piece was refused"
        key = call.id or step.id
        content: dict[str, Json] = {"text": held.text}
        place = answer_place(key, call.attempt)
        judged = e.GuardrailJudged(step.id, place, "output", "deny", refused.rule, refused.reason, content)
        judged.traceback = refused.traceback
        text = f"the guardrail {refused.rule} refused the answer"
        reason = f"{text}: {refused.reason}" if refused.reason else text
        failure = e.Failure("guardrail", "output", reason, rule=refused.rule, traceback=refused.traceback)
        return [judged, e.ModelFailed(step.id, failure, call.id)]

    def release(self, step: StepState, call: ModelCall) -> e.ModelReturned:
        """Return an answer that passed, after watchers received its held deltas."""
        context = self._context
        held = call.held
        assert held is not None, "an answer is held"
        key = call.id or step.id
        check = context.state.checks.get(answer_place(key, call.attempt))
        changed = check is not None and check.changed
        message, typed = passed_answer(held, check.arguments if check is not None and changed else {})
        stream = self._streams.pop(key, None)
        if stream is None:
            label: e.Channel = "draft" if message.tool_calls or call.id is not None else "final"
            none_held = e.Delta(step.id, label, "", call=call.id)
            stream = HeldDeltas(
                context.channel, context.state, context.streamed, key, none_held, None, None, lambda: False
            )
            changed = True
        model = held.model or context.state.model
        restarted = e.ModelRestarted(step.id, model, call.attempt, call.id, context.state.seq)
        stream.finish(message, typed, changed=changed, restarted=restarted)
        context.channel.answers.pop(key, None)
        return e.ModelReturned(
            step.id,
            message,
            held.finish,
            held.usage,
            typed,
            call.id,
            held.model,
            held.also,
            held.cost,
            () if call.id is not None else text_calls_of(context, message, typed),
        )

    # ------------------------------------------------------------------------------------- judgement

    async def judged(self, place: JudgedPlace, content: dict[str, Json]) -> list[e.Event]:
        check = self._context.state.checks.get(place.place)
        verdict = await self._verdict(place, content, check)
        return await self._events(place, content, check, verdict)

    async def judge_final(self, step: str, output: Json) -> tuple[list[e.Event], dict[str, Json] | None]:
        """Judge a function's answer. Return the verdicts, and the content that passed or None.

        When the function returns an answer again that waits for a person or was refused, its digest identifies it.
        """
        place = JudgedPlace(step, final_place(step, digest_of(output)), "output")
        if not any(each.checks("output") for each in self._guardrails):
            return [], {"answer": output}
        check = self._context.state.checks.get(place.place)
        content = check.arguments if check is not None and check.changed else {"answer": output}
        verdicts = list[e.Event]()
        status = standing(check)
        if status == "refused" and check is not None:
            return [e.StepFailed(step, refusal(check))], None
        if status != "open":
            return [], content if status == "passed" else None
        for _ in range(MAX_REWRITES + 1):
            judged = await self.judged(place, content)
            verdicts += judged
            verdict = judged[0]
            assert isinstance(verdict, e.GuardrailJudged), "it comes first"
            if verdict.verdict == "allow":
                return verdicts, content
            if verdict.verdict != "rewrite":
                return verdicts, None  # a person is asked, or the step fails
            content = verdict.content or content
        raise RuntimeError(f"guardrails rewrote the answer {MAX_REWRITES} times")

    async def judge_finalized(self, output: Json) -> list[e.Event]:
        """Judge the answer that a worker changed in `finalize_task`, without asking a person."""
        place = JudgedPlace("", final_place("", digest_of(output)), "output")
        content: dict[str, Json] = {"answer": output}
        verdict = await self._verdict(place, content, None)
        for _ in range(MAX_REWRITES):
            if not isinstance(verdict, Replace):
                break
            content = verdict.arguments
            verdict = await self._verdict(place, content, None)
        if verdict is None or isinstance(verdict, Allow):
            return [e.AnswerFinalized(content["answer"])]
        rule, reason = verdict.rule, verdict.reason
        if isinstance(verdict, AskPerson):
            reason = f"finalize_task changed it, and no person can be asked then: {reason}"
        text = f"the guardrail {rule} refused the answer: {reason}"
        traceback = verdict.traceback if isinstance(verdict, Deny) else ""
        return [e.WorkerFailed(e.Failure("guardrail", "output", text, rule=rule, traceback=traceback))]

    def denied(
        self, place: JudgedPlace, content: dict[str, Json], why: str, traceback: str = ""
    ) -> list[e.Event]:
        """Return the events that refuse a content because it could not be judged."""
        return [_judged(place, "deny", Deny(None, f"it could not be judged: {why}", traceback), content)]

    async def _verdict(
        self, place: JudgedPlace, content: dict[str, Json], check: Check | None, *, whole: bool = True
    ) -> PolicyVerdict | None:
        judgements = [
            self._answer(each, place, content, key, whole=whole)
            for each in self._guardrails
            if each.checks(place.guards, place.tool)
            for key in content
        ]
        return strictest(await asyncio.gather(*judgements)) if judgements else None

    async def _answer(
        self, guardrail: Guardrail, place: JudgedPlace, content: dict[str, Json], part: str, *, whole: bool
    ) -> PolicyVerdict | None:
        """Return the verdict of a guardrail, with its id, on a part of a content."""
        request = self._request(place, content[part], part, whole=whole)
        kinds = (Allow, Rewrite, AskPerson, Deny)
        verdict: Any = await answer_of(
            guardrail.id,
            guardrail.function,
            request,
            guardrail.deadline,
            kinds,
            "the guardrail",
            self._context,
        )
        if isinstance(verdict, Rewrite):
            return self._rewrite(guardrail, content, part, verdict)
        if isinstance(verdict, AskPerson):
            return replace(verdict, rule=guardrail.id, argument=None)
        return verdict if verdict is None else replace(verdict, rule=guardrail.id)

    def _rewrite(
        self, guardrail: Guardrail, content: dict[str, Json], part: str, verdict: Rewrite
    ) -> PolicyVerdict | None:
        value = verdict.value
        if part not in JSON_PARTS and not isinstance(value, str):
            return Deny(guardrail.id, f"the guardrail rewrote a text as a {type(value).__name__}")
        if (beyond := flaw(value)) is not None:
            return Deny(
                guardrail.id, f"the guardrail rewrote a content as data that cannot be stored: {beyond}"
            )
        typed = self._context.runtime.agent.typed
        if part == "answer" and typed is not None:
            try:
                value = typed.read(value)
            except ValueError as error:
                return Deny(
                    guardrail.id, f"the guardrail rewrote the answer as data that is not of its type: {error}"
                )
        if value == content[part]:
            return None
        return Replace({**content, part: plain(value)}, guardrail.id, verdict.reason)

    def _request(self, place: JudgedPlace, value: Json, part: str, *, whole: bool) -> GuardrailRequest:
        context = self._context
        state, origin = context.state, context.channel.origin
        return GuardrailRequest(
            on=place.guards,
            text=as_text(value),
            value=value,
            part="text" if part == "result" else part,
            whole=whole,
            place=place.place,
            tool=place.tool,
            parts=_parts_of(state, place.place) if is_input(place.place) else (),
            task_id=state.task_id,
            thread_id=state.thread,
            step=place.step,
            agent=state.agent,
            agent_path=origin.agent_path if origin is not None else (state.agent,),
            depth=state.depth,
            labels=context.labels or {},
            state=StateView(StateAccess(state, state.seq, "a guardrail", refusal="a guardrail only judges")),
            context=context.user_context,
        )

    async def _events(
        self, place: JudgedPlace, content: dict[str, Json], check: Check | None, verdict: PolicyVerdict | None
    ) -> list[e.Event]:
        context = self._context
        if isinstance(verdict, Replace):
            if check is None or check.replaced < MAX_REWRITES:
                return [_judged(place, "rewrite", verdict, verdict.arguments, content)]
            reason = f"it was rewritten {check.replaced} times, and is not accepted yet"
            verdict = Deny(verdict.rule, reason)
        grant: str | None = None
        name = NAMES[place.guards]
        if isinstance(verdict, AskPerson):
            definition = digest_of([place.guards, verdict.rule])
            permit = check.permit if check is not None else None
            verdict, grant = await answered_for(context, verdict, permit, name, definition)
            if isinstance(verdict, AskPerson):
                number = check.requests + 1 if check is not None else 1
                return [
                    _judged(place, "ask", verdict, content),
                    approval_request(
                        context, verdict, place.step, place.place, number, definition, digest_of(content)
                    ),
                ]
        if isinstance(verdict, Deny):
            return [_judged(place, "deny", verdict, content if check is None else None)]
        allowed = _judged(place, "allow", verdict)
        allowed.grant = grant
        return [allowed]


def _judged(
    place: JudgedPlace,
    kind: e.GuardrailWord,
    verdict: PolicyVerdict | None,
    content: dict[str, Json] | None = None,
    previous: dict[str, Json] | None = None,
) -> e.GuardrailJudged:
    rule, reason = (verdict.rule, verdict.reason) if verdict is not None else (None, "")
    judged = e.GuardrailJudged(place.step, place.place, place.guards, kind, rule, reason, content, previous)
    if isinstance(verdict, Deny):
        judged.traceback = verdict.traceback
    return judged


def _parts_of(state: TaskState, place: str) -> tuple[Content, ...]:
    """Return the content parts of an input that is judged."""
    read = [received for step in state.under_way() for received in step.read]
    matching = (received for received in (*state.unread, *read) if input_place(received.seq) == place)
    received = next(matching, None)
    return received.parts if received is not None else ()


class ContentJudgementInFlight(EffectInFlight[JudgeContent]):
    """The judgement of one content of a task."""

    __slots__ = ()

    ends_before_undo: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return "the guardrails"

    @property
    def _place(self) -> JudgedPlace:
        effect = self.effect
        return JudgedPlace(effect.step, effect.place, effect.guards, effect.tool)

    def begin(self, record: Recorder) -> bool:
        """Begin without an event."""
        return True

    async def run(self) -> list[e.Event]:
        """Judge the content, and return the events of the verdict."""
        try:
            self.enter()
            return await self._guarding.judged(self._place, self.effect.content)
        except asyncio.CancelledError:
            return self.broken("it cancelled itself") if self.cancelled_itself() else []

    def cut_off(self) -> list[e.Event]:
        """Return no event, since the content is judged again when the task continues."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        return self._guarding.denied(self._place, self.effect.content, text, traceback)

    def is_overtaken(self, state: TaskState) -> bool:
        """Whether meanwhile the content was settled, changed or withdrawn, or a person was asked."""
        effect = self.effect
        check = state.checks.get(effect.place)
        if state.ended is not None:
            return True
        if check is not None:
            changed = bool(check.arguments) and check.arguments != effect.content
            return standing(check) != "open" or changed
        if is_input(effect.place):
            return not _parts_of(state, effect.place)
        if is_final(effect.place):
            return all(step.id != effect.step for step in state.under_way())
        return effect.guards == "output" or state.find_call(result_call(effect.place)) is None

    @property
    def _guarding(self) -> Guards:
        return guarding_of(self.context)


class AnswerReleaseInFlight(EffectInFlight[ReleaseAnswer]):
    """The release of an answer that guardrails held and passed. Its begin is also its end."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "the guardrails"

    def begin(self, record: Recorder) -> bool:
        """Send the held deltas to watchers, and record the model's answer."""
        record(guarding_of(self.context).release(self.effect.step, self.effect.call))
        return False

    async def run(self) -> list[e.Event]:
        """Return no event, since the begin is also the end."""
        return []

    def cut_off(self) -> list[e.Event]:
        """Return nothing: it never runs."""
        return []

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return nothing: it never runs."""
        return []


def guarding_of(context: EffectContext) -> Guards:
    """Return the guardrails of a drive. The set is empty for an agent without guardrails that resumes a held answer."""
    if context.guarding is None:
        context.guarding = Guarding(context, ())
    return context.guarding

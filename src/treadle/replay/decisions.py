"""Repeat the decisions of policies and people in a replay, without asking them again.

A replay does not undo, so its ids are those of a task without an undo. It repeats the decisions of the remaining steps
(`on_last_branch`), under ids without a branch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from time import time_ns
from typing import Any

from treadle.core import events as e
from treadle.core.ids import approved_call, base_call_id, without_branch
from treadle.core.json_schema import misfit
from treadle.policy.guardrails import Guardrail, GuardrailRequest, GuardrailVerdict, Rewrite
from treadle.policy.verdicts import (
    Allow,
    AskPerson,
    Deny,
    EffectKind,
    EffectRequest,
    PolicyFunction,
    PolicyVerdict,
    Replace,
)
from treadle.results.pending import Pending
from treadle.results.run_result import RunResult
from treadle.wiring import Runner

Judged = e.CallJudged | e.ApprovalRequested

_UNNAMED = "guardrails"
"""The id for recorded verdicts that name no guardrail."""

_AT_ONCE = 1e-6
"""Seconds until a request expires in a replay, if it expired in the recording."""


def on_last_branch(events: Iterable[e.Event]) -> list[e.Event]:
    """Return events without those of undone steps, since a replay only runs the remaining steps."""
    kept = list[e.Event]()
    indexes = dict[str, int]()
    for event in events:
        if isinstance(event, e.StepStarted):
            indexes[event.step] = event.index
        if isinstance(event, e.Rewound):
            gone = {*event.steps} or {step for step, index in indexes.items() if index > event.to}
            kept = [each for each in kept if getattr(each, "step", None) not in gone]
            indexes = {step: index for step, index in indexes.items() if step not in gone}
        kept.append(event)
    return kept


def _expired(events: Iterable[e.Event]) -> set[tuple[str, int]]:
    """Return the requests for approval that expired, each by its call and number."""
    return {(without_branch(x.call), x.number) for x in events if isinstance(x, e.ApprovalExpired)}


class RecordedVerdicts:
    """A policy that repeats the verdicts of a recorded task, in order for each call.

    A request to a model that a person had to decide is allowed, since the resume is not a decision of the agent.
    """

    deadline = 1.0

    def __init__(self, events: Sequence[e.Event]) -> None:
        self._verdicts: dict[str, deque[Judged]] = {}
        self._expired = _expired(events)
        self._names = {event.tool for event in events if isinstance(event, Judged)}
        self._requests: dict[str, deque[e.RequestJudged]] = {}
        for event in events:
            if isinstance(event, e.RequestJudged):
                self._requests.setdefault(without_branch(event.step), deque()).append(event)
            if isinstance(event, Judged):
                self._verdicts.setdefault(base_call_id(without_branch(event.call)), deque()).append(event)

    def concerns(self, kind: EffectKind, name: str | None, agent: str) -> bool:
        """Return whether calls of this name, any calls, or requests to models were judged."""
        if kind == "model":
            return bool(self._requests)
        return kind in ("tool", "subagent") and (bool(self._names) if name is None else name in self._names)

    def functions_for(self, request: EffectRequest) -> Sequence[PolicyFunction]:
        """Return no function, since the recorded verdicts include those of functions."""
        return ()

    def judge(
        self, request: EffectRequest, answers: Iterable[PolicyVerdict | None] = ()
    ) -> PolicyVerdict | None:
        """Return the next recorded verdict on a call or a request of a step, or None."""
        if request.kind == "model":
            requests = self._requests.get(request.step)
            judged = requests.popleft() if requests else None
            if judged is None:
                return None
            return (Deny if judged.verdict == "deny" else Allow)(judged.rule, judged.reason)
        verdicts = self._verdicts.get(request.call)
        event = verdicts.popleft() if verdicts else None
        if event is None:
            return None
        if isinstance(event, e.ApprovalRequested):
            expires = _AT_ONCE if (without_branch(event.call), event.number) in self._expired else None
            terms = event.approvers, event.excluded, None, event.every_call, event.same
            return AskPerson(event.rule, event.reason, expires, *terms)
        if event.verdict == "replace":
            return Replace(event.arguments or {}, event.rule, event.reason)
        return (Deny if event.verdict == "deny" else Allow)(event.rule, event.reason)


def recorded_guardrails(events: Sequence[e.Event]) -> list[Guardrail]:
    """Return guardrails that repeat the verdicts of a recorded task, each under its recorded id."""
    judged = [event for event in events if isinstance(event, e.GuardrailJudged)]
    requests = {
        without_branch(event.call): event for event in events if isinstance(event, e.ApprovalRequested)
    }
    expired = _expired(events)
    contents: tuple[e.GuardedContent, ...] = tuple({event.guards: None for event in judged})
    began = next((event.seq for event in events if isinstance(event, e.StepStarted)), len(events))
    blocking = any(event.guards == "input" and event.seq < began for event in judged)

    def repeat(rule: str, request: GuardrailRequest) -> GuardrailVerdict | None:
        part = "result" if request.on == "result" else request.part
        for event in judged:
            place = without_branch(event.place)
            if place != request.place or (event.rule or _UNNAMED) != rule:
                continue
            before, content = event.previous or {}, event.content or {}
            if event.verdict == "rewrite" and before.get(part) == request.value != content.get(part):
                return Rewrite(content.get(part), event.reason)
            if event.verdict == "ask" and content.get(part) == request.value:
                question = requests[place]
                expires = _AT_ONCE if (place, question.number) in expired else None
                terms = question.approvers, question.excluded, None, question.every_call, question.same
                return AskPerson(rule, event.reason, expires, *terms)
            if event.verdict == "deny":
                return Deny(rule, event.reason)
        return None

    return [
        Guardrail(partial(repeat, rule), id=rule, on=contents, blocking=blocking)
        for rule in sorted({event.rule or _UNNAMED for event in judged})
    ]


class ReplayClock:
    """The machine's clock, which a replay advances when a request to a person expired."""

    def __init__(self) -> None:
        self._offset = 0

    def __call__(self) -> int:
        return time_ns() // 1000 + self._offset

    def pass_until(self, due: int) -> None:
        """Advance the clock to at least this time, in microseconds since 1970, UTC."""
        self._offset += max(0, due - self())


class RecordedDecisions:
    """The decisions of people in a recorded task: verdicts on calls, and answers to questions of steps.

    Tools return their recorded results and ask no person.
    """

    def __init__(self, events: Sequence[e.Event], clock: ReplayClock) -> None:
        self._clock = clock
        self._answers = {without_branch(x.request_id): x for x in events if isinstance(x, e.QuestionAnswered)}
        self._unanswered = {without_branch(x.request_id) for x in events if isinstance(x, e.QuestionExpired)}
        self._reopened = sum(isinstance(event, e.TaskReopened) for event in events)
        self._expired = _expired(events)
        self._decided = {
            (without_branch(event.call), event.number): event
            for event in events
            if isinstance(event, (e.ApprovalGiven, e.ApprovalDenied))
        }

    async def decide(self, runner: Runner, task_id: str, result: RunResult[Any]) -> bool:
        """Repeat the recorded decisions on a waiting task. Return False if it does not continue.

        A task that guardrails stopped continues as often as the recorded one.
        """
        if result.state == "failed" and result.error is not None and result.error.source == "guardrail":
            self._reopened -= 1
            return self._reopened >= 0
        return result.state == "waiting" and await self.decide_pending(runner, task_id, result.pending)

    async def decide_pending(self, runner: Runner, task_id: str, pending: Sequence[Pending]) -> bool:
        """Repeat the recorded decisions on pending requests. Return False if none lets the task continue."""
        goes_on = False
        for item in pending:
            if item.kind == "question":
                goes_on = await self._answer(runner, task_id, item) or goes_on
                continue
            approval_key = approved_call(item.request_id) if item.kind == "approval" else None
            if approval_key is None:
                continue
            decision = self._decided.get(approval_key)
            goes_on = goes_on or decision is not None or approval_key in self._expired
            if isinstance(decision, e.ApprovalGiven):
                await runner.approve(
                    task_id,
                    item.request_id,
                    arguments=decision.arguments,
                    scope=decision.scope,
                    by=decision.by,
                )
            elif decision is not None:
                await runner.deny(
                    task_id, item.request_id, reason=decision.reason, stop=decision.stop, by=decision.by
                )
        return goes_on

    async def _answer(self, runner: Runner, task_id: str, request: Pending) -> bool:
        """Repeat the recorded answer to a question, or its expiry. Return False if neither was recorded."""
        answer = self._answers.get(request.request_id)
        if answer is not None and misfit(answer.value, request.schema) is None:
            await runner.answer(task_id, request.request_id, value=answer.value, by=answer.by)
            return True
        if request.request_id not in self._unanswered or request.expires is None:
            return False
        self._clock.pass_until(request.expires)
        return True

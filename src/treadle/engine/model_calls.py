"""Model calls as effects, which send a request, pass its deltas to watchers, and return the answer or failure."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from treadle.core import events as e
from treadle.core.codec import UnreadableRecord, check_fit
from treadle.core.effects import CallModel
from treadle.core.hiding import closed, hidden_answer, hidden_stream
from treadle.core.messages import Message, Text
from treadle.core.model import (
    NO_USAGE,
    ModelAnswer,
    ModelRequest,
    Usage,
)
from treadle.core.model_answer import (
    WrongAnswer,
    checked_answer,
    checked_side_calls,
    is_empty,
    plain_usage,
    with_places,
)
from treadle.engine import model_requests, task_log
from treadle.engine.answer_deltas import AnswerDeltas, ModelItem
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.journal_writer import Recorder
from treadle.engine.metering import TokenMeter, cost_of, paid
from treadle.engine.model_requests import function_request, limits_size, size_of_allowed, step_request
from treadle.engine.text_calls import text_calls_of
from treadle.engine.tree_limits import allows_request
from treadle.errors import ModelError
from treadle.ports import chosen_model

if TYPE_CHECKING:
    from treadle.engine.effect_context import Guards
    from treadle.engine.held_deltas import HeldDeltas

MAX_RETRY_WAIT: Final = 366 * 86_400.0
"""Longest wait before a retry, in seconds, even if a layer of the model asks for more."""

MAX_EMPTY_ANSWERS: Final = 3
"""Number of empty answers after which a request fails."""


class _RefusedPiece(Exception):
    """A guardrail refused the text so far."""


class ModelCallInFlight(EffectInFlight[CallModel]):
    """A request to the model, of a step or of a function within a step."""

    __slots__ = ("deltas", "held", "model", "request", "route", "selection_failure", "size")

    runs_foreign_code: ClassVar[bool] = False
    ends_before_undo: ClassVar[bool] = False  # its answer would be discarded

    model: str
    """the name of the requested model; of several models, the next one"""

    route: str
    """the choices among several models, see `ModelRequest.route`"""

    selection_failure: e.Failure | None
    """the failure to choose the tools of the request; if set, the request is not sent"""

    size: int
    """the counted tokens of the request; 0 if no limit depends on them"""

    request: ModelRequest | None
    """the request, once it is created"""

    deltas: AnswerDeltas | None
    """the answer so far, once it has begun"""

    held: HeldDeltas | None
    """the deltas that watchers have not received yet, if guardrails check the answer or its input"""

    @property
    def name(self) -> str:
        return "the model"

    def begin(self, record: Recorder) -> bool:
        """Record the begin of the request with its tools, or that a limit of the tree is reached."""
        context, effect = self.context, self.effect
        step, call = effect.step, effect.call
        if context.subagents is not None and not allows_request(context.subagents, effect, record):
            return False
        self.held = self.request = self.deltas = None
        offered, self.selection_failure = model_requests.choose(context, effect)
        tries = call.tries
        self.model, self.route = chosen_model(context.runtime.model, "" if tries is None else tries.route)
        self.size = 0
        if context.limits_size is None:
            context.limits_size = limits_size(context)
        if context.limits_size and self.selection_failure is None:
            size = size_of_allowed(context, effect, offered, self.model, record)
            if size is None:
                return False
            self.size = size
        started = e.ModelStarted(step.id, self.model, call.attempt + 1, effect.final, offered, call.id)
        if context.runtime.strangers is not None:
            started.untrusted = context.runtime.untrusted_in(effect, offered)
        record(started)
        return True

    async def run(self) -> list[e.Event]:
        context, effect, channel = self.context, self.effect, self.context.channel
        step, call_id, guarding = effect.step, effect.call.id, context.guarding
        if self.selection_failure is not None:
            return [e.ModelFailed(step.id, self.selection_failure, call_id)]
        stream: Any = None
        answer = request = deltas = None
        try:
            request = (
                step_request(context, effect)
                if effect.call.request is None
                else function_request(context, effect.call)
            )
            key, is_last = call_id or step.id, not request.tools or request.tool_choice == "none"
            text_label: e.Channel = "final" if is_last and call_id is None else "draft"
            self.request, request.raw, request.route = request, channel.raw, self.route
            if key in context.streamed:
                context.streamed.discard(key)
                channel.tell(
                    e.ModelRestarted(step.id, self.model, request.attempt, call_id, context.state.seq)
                )
            if context.subagents is not None and context.subagents.account.is_limited:
                await context.durable()  # a limit of the tree must also count a request that a crash ends
            self.held = None if guarding is None else guarding.stream(step, effect.call, text_label)
            stream = context.runtime.model.stream(request)
            if context.vault.hide_in is not None:
                stream = hidden_stream(stream, context.vault.known)
            async for item in stream:
                if isinstance(item, ModelAnswer):
                    if answer is not None:
                        raise WrongAnswer("it answered twice")
                    answer = item
                elif not isinstance(item, ModelItem):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise WrongAnswer(f"it yielded a {type(item).__name__}, no delta and no ModelAnswer")
                else:
                    deltas = deltas or self._start_answer(key, text_label)
                    self._tell(deltas, item)
            if answer is not None:
                answer = checked_answer(answer)
                if is_empty(answer) and self._asks_again_for_nothing:
                    return [self._failed_as_empty(request, answer)]
        except asyncio.CancelledError:
            return self._cancelled()
        except ModelError as error:
            return [self._failed(error, request)]
        except WrongAnswer as error:
            return await self._wrong(stream, error, answer)
        except _RefusedPiece:
            return await self._refused(stream, request)
        finally:
            channel.answers.pop(call_id or step.id, None)
            if self.held is not None:
                self.held.close()
        if answer is None:
            failed = self._failed_for("connection", f"{self.model} ended its stream without an answer")
            return [self._with_usage(failed, self._so_far())]
        if context.vault.hide_in is not None:
            answer = hidden_answer(answer, context.vault.known)
        try:
            returned = self._returned(request, answer)
        except WrongAnswer as error:
            return await self._wrong(stream, error, answer)
        context.streamed.discard(call_id or step.id)
        return [returned if guarding is None else self._passed(guarding, returned)]

    async def _wrong(self, stream: Any, error: WrongAnswer, answer: ModelAnswer | None) -> list[e.Event]:
        """Close the stream of a model that violates the protocol, and return the end of its request."""
        await closed(stream)
        text = f"{self.model} does not answer as models do: {error}"
        failed = self._failed_for_unknown_reason(text)
        return [self._with_usage(failed, answer.usage if answer is not None else self._so_far())]

    def cut_off(self) -> list[e.Event]:
        """Return the stop of the request."""
        return self._stopped(self.cancel_reason or "interrupted")

    def broken(self, text: str, traceback: str = "") -> list[e.Event]:
        """Return the failure of the request for an unknown reason."""
        return [self._with_usage(self._failed_for("unknown", text, traceback), self._so_far())]

    def _cancelled(self) -> list[e.Event]:
        """Return the end of a request that was cancelled, or that cancelled itself."""
        if self.cancelled_itself():
            return self.broken("the model adapter cancelled itself")
        return self._stopped("interrupted")

    def _stopped(self, reason: e.StopReason) -> list[e.Event]:
        """Return the cancellation of the request, with the usage of its answer so far."""
        stopped = e.ModelStopped(self.effect.step.id, reason, self.effect.call.id)
        usage = self._so_far()
        if usage is not None:
            stopped.usage, stopped.cost = usage, cost_of(self.context.price, self.model, usage)
        return [stopped]

    def _so_far(self) -> Usage | None:
        """Return the estimated usage of a partial answer, or None if it had not begun."""
        if self.request is None or self.deltas is None:
            return None
        written = tuple(Text(f"{delta.tool}{delta.text}") for delta in self.deltas.so_far())
        return self._estimated(self.request, Message("assistant", written))

    def _failed_for(self, kind: str, text: str, traceback: str = "") -> e.ModelFailed:
        failure = e.Failure("model", kind, text, model=self.model, traceback=traceback)
        return e.ModelFailed(self.effect.step.id, failure, self.effect.call.id)

    def _failed_for_unknown_reason(self, text: str) -> e.ModelFailed:
        return self._failed_for("unknown", text)

    @property
    def _asks_again_for_nothing(self) -> bool:
        """Whether an empty answer is requested again. Typed and dialect answers are read instead."""
        runtime = self.context.runtime
        return self.effect.call.id is not None or (runtime.typed is None and runtime.agent.dialect is None)

    def _failed_as_empty(self, request: ModelRequest, answer: ModelAnswer) -> e.ModelFailed:
        """Return the end of an attempt with an empty answer. A new attempt follows until `MAX_EMPTY_ANSWERS`."""
        context, call, name = self.context, self.effect.call, answer.model or self.model
        earlier = call.tries.failures if call.tries is not None else ()
        times = 1 + sum(attempt.kind == "empty" for attempt in earlier)
        text = f"{name} answered with nothing: no text and no call"
        if times >= MAX_EMPTY_ANSWERS:
            text += f", {times} times; it may need another prompt, or more room for its answer (max_tokens)"
        also = paid(context.price, answer.also, request) if answer.also else ()
        failure = e.Failure("model", "empty", text, model=name)
        failed = e.ModelFailed(self.effect.step.id, failure, call.id, None, name, also=also)
        if times < MAX_EMPTY_ANSWERS:
            failed.retry_at = context.clock()
        usage = answer.usage
        if usage is NO_USAGE:
            usage = self._estimated(request, answer.message)
        return self._with_usage(failed, usage)

    def _estimated(self, request: ModelRequest, message: Message) -> Usage:
        """Return the estimated usage of an answer, for a provider that does not report it."""
        self.context.meter = self.context.meter or TokenMeter()
        return self.context.meter.estimated(request, message)

    def _returned(self, request: ModelRequest, answer: ModelAnswer) -> e.ModelReturned:
        """Return an answer for the journal, with ids of this task, its typed value and its cost."""
        context, step, call_id, typed = self.context, self.effect.step, self.effect.call.id, None
        if call_id is not None:
            message = with_places(answer.message, call_id, answer.finish)
        else:
            message = with_places(answer.message, step.id, answer.finish, first=len(step.calls))
            answers = context.runtime.typed
            typed = answers.read(message, answer.finish) if answers is not None else None
            if typed is not None and typed.problem is not None:
                typed = replace(typed, problem=context.vault.text(typed.problem))
        text_calls: tuple[str, ...] = ()
        if call_id is None and message.parts and type(message.parts[-1]) is Text:
            text_calls = text_calls_of(context, message, typed)
            if request.tool_choice not in ("auto", "none") and not (text_calls or message.tool_calls):
                task_log.tell_ignored_choice(context.state, request.tool_choice)
        usage = answer.usage
        if usage is NO_USAGE:
            usage = self._estimated(request, message)
        elif self.size and context.meter is not None:
            context.meter.learn(self.model, self.size, usage)
        cost = cost_of(context.price, answer.model or self.model, usage)
        also = paid(context.price, answer.also, request) if answer.also else ()
        return e.ModelReturned(
            step.id, message, answer.finish, usage, typed, call_id, answer.model, also, cost, text_calls
        )

    def _start_answer(self, key: str, text_label: e.Channel) -> AnswerDeltas:
        """Return the collector of an answer that the model begins to write. Watchers may see it from now on."""
        context, step = self.context, self.effect.step
        deltas = self.deltas = AnswerDeltas(step.id, self.effect.call.id, len(step.calls), text_label)
        if self.held is None:
            context.streamed.add(key)
        context.channel.answers[key] = self.held or deltas
        return deltas

    def _tell(self, deltas: AnswerDeltas, item: ModelItem) -> None:
        """Send a piece to watchers, or hold it until guardrails pass it. Raises if they refuse it."""
        context, held = self.context, self.held
        deltas.keep(item)
        if held is not None:
            held.feed(deltas.delta(item, context.state.seq))
            if held.refusal is not None:
                raise _RefusedPiece
        elif context.channel.listeners:  # read after the item was kept, see `broadcast`
            context.channel.tell(deltas.delta(item, context.state.seq))

    def _passed(self, guarding: Guards, returned: e.ModelReturned) -> e.ModelReturned | e.AnswerHeld:
        """Return an answer, or hold it if guardrails have not passed it or its input."""
        if not guarding.holds(self.effect.step, self.effect.call):
            if self.held is not None:
                self.held.tell_rest()
            return returned
        if self.held is not None:
            self.context.channel.answers[returned.call or returned.step] = self.held
        return e.AnswerHeld(
            returned.step,
            returned.message,
            returned.finish,
            returned.usage,
            returned.typed,
            returned.call,
            returned.model,
            returned.also,
            returned.cost,
        )

    async def _refused(self, stream: Any, request: ModelRequest | None) -> list[e.Event]:
        """Close the stream of an unfinished answer that was refused, and return the request's end."""
        await closed(stream)
        held = self.held
        assert self.context.guarding is not None, "a guardrail refused it"
        assert held is not None, "a piece of it was refused"
        assert request is not None, "it was sent"
        judged, failed = self.context.guarding.refused_piece(self.effect.step, self.effect.call, held)
        assert isinstance(failed, e.ModelFailed), "it ends the attempt"
        written = self._estimated(request, Message("assistant", (Text(held.text),)))
        return [judged, self._with_usage(failed, written)]

    def _failed(self, error: ModelError, request: ModelRequest | None) -> e.ModelFailed:
        """Return the end of a failed attempt, with the time of the next one if a layer requests it."""
        context = self.context
        try:
            also = checked_side_calls(error.also)
        except WrongAnswer as wrong:
            return self._failed_for_unknown_reason(f"{wrong}; and it failed: {error}")
        model = error.model or self.model
        text = str(error)
        if context.vault.hide_in is not None:
            text = context.vault.known.hide(text, deep=True)
        traceback = self.traceback_of(error)  # for instance in a filter of the user
        failure = e.Failure(
            "model", error.kind, text, None, error.status, error.retry_after, model, traceback=traceback
        )
        also = paid(context.price, also, request) if also and request is not None else ()
        failed = e.ModelFailed(
            self.effect.step.id, failure, self.effect.call.id, None, error.model, error.route, also=also
        )
        if error.again_in is not None:
            wait = min(max(0.0, error.again_in), MAX_RETRY_WAIT)
            failed.retry_at = context.clock() + int(wait * 1e6)
            failed.model, failed.next_route = model, error.next_route
        failed = self._with_usage(failed, error.usage if error.usage is not None else self._so_far())
        try:
            check_fit(failed)
        except UnreadableRecord as wrong:
            return self._failed_for_unknown_reason(
                f"{self.model} reports a failure as no model does: {wrong}"
            )
        return failed

    def _with_usage(self, failed: e.ModelFailed, usage: Any) -> e.ModelFailed:
        """Add the known tokens and their cost to a failed attempt."""
        usage = plain_usage(usage)
        if usage is not None and usage != NO_USAGE:
            failed.usage = usage
            failed.cost = cost_of(self.context.price, failed.model or self.model, usage)
        return failed

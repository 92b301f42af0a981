"""The services of a tool's call: `ToolContext.ask`, `once`, `sleep` and `wait`.

An unanswered question ends the attempt. `ask` raises `AwaitingAnswer`, and the questions so far become the end of the
attempt, even if the tool catches that exception. The call then rests without a process. When its last question is
answered or has expired, the tool starts again from its top under the same key:

    attempt 1    once("quote", f)    f runs, value_kept is durable
                 ask("Pay 12 EUR?")  question_asked; the attempt ends
    attempt 2    once("quote", f)    the value, from the journal
                 ask("Pay 12 EUR?")  the answer

The place of a question among those of its attempt identifies it. Its text and schema must be the same as before, so
that an answer never belongs to another question.
"""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar, cast

from treadle.agents.once import is_making, making, nested
from treadle.agents.question import QuestionTerms, due_at, terms_of
from treadle.core import events as e
from treadle.core.codec import is_text, storable
from treadle.core.messages import copied
from treadle.core.questions import AwaitingAnswer, Question, expires_at
from treadle.core.steps import CallState
from treadle.engine.effect_context import EffectContext
from treadle.engine.journal_writer import Recorder
from treadle.engine.step_threads import in_thread, running_loop, wait_from_thread
from treadle.errors import ConfigurationError, NotReproducible, ToolError

T = TypeVar("T")


class CallRequests:
    """The questions, values and sleeps of one attempt of a call.

    Args:
        context: the context of the drive.
        call: the call, which has begun.
        record: journals an event.
        is_over: returns whether the attempt has ended.
        loop: the event loop of the drive.
    """

    def __init__(
        self,
        context: EffectContext,
        call: CallState,
        record: Recorder,
        is_over: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._context = context
        self._call = call
        self._attempt = call.attempt
        self._record = record
        self._is_over = is_over
        self._loop = loop
        self._places = self._sleeps = 0
        self._in_thread = False
        """whether the tool runs in a thread of its own"""

        self._locks: dict[str, asyncio.Lock] = {}
        self.pending: list[e.QuestionAsked | e.SleepStarted] = []
        """the unanswered questions of this attempt, or its sleep: they end it"""

    async def ask(self, question: str, schema: Any, expires: float | None, default: tuple[Any, ...]) -> Any:
        """Return a person's answer, or end the attempt to wait for it."""
        call = self._restarting_call("ask", "answer")
        if self.pending and isinstance(self.pending[0], e.SleepStarted):
            raise AwaitingAnswer  # it asks after its sleep
        terms = terms_of(self._where(), question, schema, expires, default)
        self._places += 1
        place, problem = self._places, None
        earlier = call.questions[place - 1] if place <= len(call.questions) else None
        if earlier is not None:
            self._check_same(earlier, terms)
            try:
                return terms.answer_of(earlier)
            except ValueError as error:  # it fits the schema, but a validator of the type refused it
                problem = str(error)
        options = self._context.runtime.options
        is_callers = call.name in [tool.name for tool in options.caller_tools or ()]
        headless = options.interaction == "headless" and not is_callers  # no person is needed for it
        event = e.QuestionAsked(
            call.step,
            call.id,
            call.asked_questions + len(self.pending) + 1,
            question,
            terms.type.schema,
            terms.digest,
            place,
            expires=expires_at(self._context.clock(), expires, headless=headless),
            default=terms.default,
            has_default=terms.has_default,
            problem=problem,
        )
        terms.check_fit(event)
        self.pending.append(event)
        raise AwaitingAnswer

    async def sleep(self, seconds: float | None, until: datetime | float | None) -> None:
        """Return if the tool has already slept at this place, else end the attempt to sleep."""
        call = self._restarting_call("sleep", "sleep")
        now = self._context.clock()
        due = due_at(self._where(), now, seconds, until)
        self._sleeps += 1
        if self._sleeps <= call.slept or due <= now:
            return
        if not self.pending:
            self.pending.append(e.SleepStarted(call.step, call.id, due, self._sleeps))
        raise AwaitingAnswer

    async def once(self, name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Call a function once under this name, and return its value."""
        self._check_usable("once")
        self._check_name(name)
        call = self._call
        if is_making(self, name) and name not in (call.values or ()):
            raise ToolError(f"{self._where()}: {nested(name)}")
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in (call.values or ()):
                with making(self, name):
                    value: Any = await in_thread(fn) if self._in_thread else fn()
                    if isinstance(value, Awaitable):
                        value = await cast("Awaitable[Any]", value)
                try:
                    kept = storable(value)
                except ValueError as error:
                    raise ToolError(
                        f"{self._where()}: once({name!r:.80}, ...) must return JSON data, got "
                        f"{reprlib.repr(value)}: {error}"
                    ) from None
                self._check_usable("once")
                self._check_name(name)  # the function may have read a secret that the name contains
                self._record(e.ValueKept(call.step, name, kept, call.id))
                await self._context.durable()
        assert call.values is not None, "it was kept"
        return cast("T", copied(call.values[name]))

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait in a thread for an awaitable of the event loop."""
        self._in_thread = True
        return wait_from_thread(awaitable, self._loop, ToolError)

    def _where(self) -> str:
        return f"task {self._context.state.task_id}, call {self._call.id} of tool {self._call.name!r}"

    def _restarting_call(self, verb: str, pause: str) -> CallState:
        """Return the call, after a check that it may start again from its top."""
        self._check_usable(verb)
        call = self._call
        if call.effect == "write":
            raise ToolError(
                f"tool {call.name!r} may not {verb}: it may write and is not idempotent. After the {pause} it would "
                "start again from its top. Declare read_only=True, or idempotent=True if it may start twice"
            )
        return call

    def _check_usable(self, verb: str) -> None:
        """Raise unless the attempt still runs and this is its event loop."""
        if running_loop() is not self._loop:
            raise ToolError(
                f"{self._where()}: ctx.{verb}(...) is awaited in the event loop that runs the task; a tool that runs "
                f"in a thread says ctx.wait(ctx.{verb}(...))"
            )
        if self._is_over() or self._call.status != "begun" or self._call.attempt != self._attempt:
            raise ToolError(f"{self._where()}: ctx.{verb}(...) after the call has ended")

    def _check_name(self, name: Any) -> None:
        """Raise unless the journal stores the name unchanged, so that its value can be found again."""
        if not is_text(name):
            raise ConfigurationError(f"{self._where()}: once(name, ...) takes a text, got {name!r:.80}")
        if self._context.vault.is_in(name):
            raise ConfigurationError(
                f"{self._where()}: the name for once(...) contains a secret, which the journal does not keep: use a "
                "name without it"
            )

    def _check_same(self, earlier: Question, terms: QuestionTerms) -> None:
        """Raise unless the tool asks the same question at this place as in its earlier attempt."""
        event = earlier.event
        if event.digest == terms.digest:
            return
        which = (
            "its answers are of another type" if event.question == terms.question else "it was another one"
        )
        raise NotReproducible(
            f"{self._where()}: question {event.place} differs from the one that a person answered: {which}. It was "
            f"{event.question!r:.120} and is {terms.question!r:.120}. A tool that starts again must ask the same "
            "questions in the same order: keep the values that a question depends on with ctx.once(...)"
        )

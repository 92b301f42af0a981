"""Requests of step functions to the drive, such as calls and questions, and their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from treadle.core import events as e
from treadle.core.checks import is_judged, withholds
from treadle.core.ids import attempt_of, result_place
from treadle.core.questions import expires_at
from treadle.core.state import TaskState
from treadle.engine import step_threads
from treadle.engine.journal_writer import Recorder
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import WorkerError

T = TypeVar("T")


class StepRequests:
    """The request queue of one drive. Functions submit and the drive records, both in the drive's event loop.

    Args:
        state: the state of the task.
        clock: returns microseconds since 1970, UTC.
        vault: the secrets that keys must not contain.
        headless: whether no person is available to answer.
    """

    def __init__(
        self, state: TaskState, clock: Callable[[], int], vault: Vault = NO_VAULT, *, headless: bool = False
    ) -> None:
        self._state = state
        self._vault = vault
        self._clock = clock
        self._headless = headless
        self._loop = asyncio.get_running_loop()
        self._unrecorded: deque[tuple[e.Event | None, asyncio.Future[None] | None]] = deque()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._closed = False
        self.guarded_tools: frozenset[str] = frozenset()
        """the names of the tools whose results guardrails check"""

        self.asked_again: set[str] = set()
        """the ids of repeated calls that functions have asked for"""

        self.wake: Callable[[], None] = _nothing

    # ----------------------------------------------------------------------------------- for functions

    def request(self, event: e.Event | None, call_id: str) -> Awaitable[None]:
        """Submit an event to record, if any. The future is done when the call or the sleep has ended."""
        self._check_usable()
        done = self._loop.create_future()
        if event is None and not self._is_open(call_id):
            done.set_result(None)
            return done
        self._waiting.setdefault(call_id, []).append(done)
        if event is not None:
            self._unrecorded.append((event, None))
            self.wake()
        elif call_id not in self.asked_again and attempt_of(call_id) > 1:
            self.asked_again.add(call_id)
            self._unrecorded.append((None, None))  # the drive decides again
            self.wake()
        return done

    def keep(self, event: e.Event) -> Awaitable[None]:
        """Submit an event to record. The future is done when it is recorded."""
        self._check_usable()
        done = self._loop.create_future()
        self._unrecorded.append((event, done))
        self.wake()
        return done

    def has_asked(self, call_id: str) -> bool:
        """Whether a function has asked for the repetition of a failed call in this drive."""
        return call_id in self.asked_again

    def all_recorded(self) -> Awaitable[None]:
        """Return a future that is done once all requests are recorded."""
        done = self._loop.create_future()
        self._unrecorded.append((None, done))
        self.wake()
        return done

    def new_lock(self) -> asyncio.Lock:
        """Return a lock that serialises requests."""
        return asyncio.Lock()

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        return self._clock() / 1e6

    def expiry(self, seconds: float | None) -> int | None:
        """Return the expiry of a question asked now, in microseconds since 1970, UTC, or None for never."""
        return expires_at(self._clock(), seconds, headless=self._headless)

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        from random import random  # most processes need none

        return random()  # noqa: S311  no secret

    def holds_secret(self, text: str) -> bool:
        """Whether a text holds a secret that this process knows."""
        return self._vault.is_in(text)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait in a thread for an awaitable of the event loop."""
        return step_threads.wait_from_thread(awaitable, self._loop, WorkerError)

    def in_thread(self, fn: Callable[[], T]) -> Awaitable[T]:
        """Call a function in a thread. If its step is stopped, the result is lost."""
        return step_threads.in_thread(fn)

    # ----------------------------------------------------------------------------------- for the drive

    @property
    def has_unrecorded(self) -> bool:
        """Whether there are requests that are not recorded yet."""
        return bool(self._unrecorded)

    def record_all(self, record: Recorder) -> None:
        """Record the requests. Refuse those of a step that no longer runs or was skipped."""
        graph = self._state.graph
        while self._unrecorded:
            event: Any
            event, done = self._unrecorded.popleft()
            if event is not None:
                if graph is None or not graph.needs(event.step):
                    self._refuse(event, done)
                    continue
                record(event)
            if done is not None and not done.done():
                done.set_result(None)

    def answer(self, call_id: str | None) -> None:
        """Wake the functions that wait for a call, an answer of the model, or the end of a sleep."""
        for done in self._waiting.pop(call_id or "", ()):
            if not done.done():
                done.set_result(None)

    def refuse_calls(self, call_ids: Iterable[str]) -> None:
        """Refuse the pending calls of a step that was skipped."""
        for call_id in call_ids:
            self._fail(self._waiting.pop(call_id, ()))

    def close(self) -> None:
        """Refuse all requests after the end of the drive, so that an abandoned thread does not wait for ever."""
        self._closed, self.wake = True, _nothing
        while self._unrecorded:
            self._refuse(*self._unrecorded.popleft())
        self.refuse_calls(list(self._waiting))

    def _refuse(self, event: Any, done: asyncio.Future[None] | None) -> None:
        self._fail(self._waiting.pop(_request_of(event), ()))
        if done is not None:
            self._fail((done,))

    def _fail(self, futures: Iterable[asyncio.Future[None]]) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(self._refusal())
                future.exception()  # its caller may have ended

    def _refusal(self) -> WorkerError:
        return WorkerError(f"task {self._state.task_id}: the step that asks does not run any more")

    def _check_usable(self) -> None:
        """Raise `WorkerError` unless the drive still runs in this thread."""
        if step_threads.running_loop() is not self._loop:
            raise WorkerError(
                "a step's context is used in the event loop that runs the step; in another thread call "
                "ctx.wait(ctx.call_tool(...))"
            )
        if self._closed:
            raise self._refusal()

    def _is_open(self, call_id: str) -> bool:
        graph = self._state.graph
        if graph is None or call_id in self._state.sleeps:
            return graph is not None
        return any(
            call_id in node.model_calls
            or call_id in node.questions
            or (node.step is not None and call_id in node.step.open)
            for node in graph.running.values()
        ) or self.is_withheld(call_id)

    def is_withheld(self, call_id: str) -> bool:
        """Whether guardrails have not passed the result of a call."""
        if not self.guarded_tools:
            return False
        call = self._state.find_call(call_id)
        if call is None or call.name not in self.guarded_tools or not is_judged(call):
            return False
        return withholds(self._state.checks.get(result_place(call_id)))


def _request_of(event: Any) -> str:
    """Return the id of the request that an event begins or ends, empty if it concerns none."""
    if isinstance(event, e.QuestionOccurrence):
        return event.request_id
    return getattr(event, "call", None) or ""


def _nothing() -> None:
    pass

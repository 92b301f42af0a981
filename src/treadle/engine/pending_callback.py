"""Report approvals and questions to the user's own front end: an async function that can decide now or later.

A request is reported once it is durable, while its task continues. While the function runs, the task is not released,
so that it continues at once after the function's decision. Each process that drives the task reports an open request
again.

Calls of one step are judged concurrently, and a judgement may end before that of an earlier call. Requests are still
reported in the order of the calls, since a request waits for the judgements of earlier calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from typing import Final, TypeAlias

from treadle.core.ids import approval_id, judgement_id
from treadle.core.state import TaskState
from treadle.engine.user_errors import shown
from treadle.engine.vault import NO_VAULT, Vault
from treadle.results.pending import Pending, pending_of

OnPending: TypeAlias = Callable[[Pending], Awaitable[object]]

GRACE: Final = 2.0
"""Seconds that a function has to end once its drive is over."""

_LOG: Final = logging.getLogger("treadle.pending")


class PendingCallback:
    """Calls the function for the requests of the tasks that one runner drives.

    Args:
        function: called with each request.
        vault: hides secrets in errors of the function.
    """

    def __init__(self, function: OnPending, vault: Vault = NO_VAULT) -> None:
        self._function = function
        self._vault = vault
        self._reported: set[tuple[str, str]] = set()

    def of(
        self, state: TaskState, durable: Callable[[], Awaitable[None]], wake: Callable[[], None]
    ) -> DriveCallbacks:
        """Return the callbacks of one drive."""
        return DriveCallbacks(self._function, self._reported, state, durable, wake, self._vault)


class DriveCallbacks:
    """The calls of the function for one drive.

    Args:
        function: called with each request.
        reported: the requests reported in this process, by task and request.
        state: the state of the driven task.
        durable: waits until recorded events are durable.
        wake: has the drive take its next turn.
        vault: hides secrets in errors of the function.
    """

    def __init__(
        self,
        function: OnPending,
        reported: set[tuple[str, str]],
        state: TaskState,
        durable: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
        vault: Vault,
    ) -> None:
        self._function = function
        self._vault = vault
        self._reported = reported
        self._state = state
        self._durable = durable
        self._wake = wake
        self._in_order = asyncio.Lock()
        self.running: set[asyncio.Task[None]] = set()

    def begin(self, running: Container[str]) -> None:
        """Begin to report new requests.

        Args:
            running: the ids of the effects that run.
        """
        state = self._state
        if not state.open_approvals and not state.questions:
            return
        held = _held_by_judgements(state, running)
        for item in pending_of(state):
            key = state.task_id, item.request_id
            if (
                item.kind in ("approval", "question")
                and key not in self._reported
                and item.request_id not in held
            ):
                self._reported.add(key)
                callback = asyncio.get_running_loop().create_task(self._tell(item))
                self.running.add(callback)
                callback.add_done_callback(self._on_done)

    def _on_done(self, callback: asyncio.Task[None]) -> None:
        self.running.discard(callback)
        self._wake()

    async def _tell(self, item: Pending) -> None:
        try:
            # A later request may be durable first, so it waits for those before it.
            async with self._in_order:
                await self._durable()
            await self._function(item)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  the request stays open, and any process may decide on it
            _LOG.error(
                "on_pending failed for the request %s of task %s",
                *(item.request_id, item.task_id),
                exc_info=shown(error, self._vault),
            )

    async def cancel(self) -> None:
        """Cancel the running callbacks at the end of the drive."""
        for callback in tuple(self.running):
            callback.cancel()
        if self.running:
            await asyncio.wait(self.running, timeout=GRACE)


def _held_by_judgements(state: TaskState, running: Container[str]) -> set[str]:
    """Return the requests for calls after a call of the same step that is still being judged."""
    held = set[str]()
    for step in state.under_way():
        is_held = False
        for call in step.open.values():
            is_held = is_held or judgement_id(call.id) in running
            if is_held:
                held.add(approval_id(call.id, call.requests))
    return held

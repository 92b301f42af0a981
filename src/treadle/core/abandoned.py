"""Registry of calls that ignored their cancellation and still run, with a limit on their number.

Such a call ends by itself or with its process, and is listed until then. Beyond the limit, further calls fail before
the process fills up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from treadle.core.data import frozen
from treadle.errors import ToolError

MAX_ABANDONED: Final = 16
"""The number of abandoned calls from which on no new call starts."""


@frozen
class AbandonedCall:
    """A call that was cancelled twice and still runs.

    Args:
        name: the tool's name, or `the model`.
        task_id: the task of the call.
        call_id: the call, or the step that asked the model.
        since: monotonic seconds.
    """

    name: str
    task_id: str
    call_id: str
    since: float

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.name

    def late_text(self, now: float) -> str:
        """Return the log message for its late end; `now` in monotonic seconds."""
        return (
            f"{self.name} ended {now - self.since:.1f} s after it was abandoned (call {self.call_id} of task "
            f"{self.task_id}): its result is late, and dropped"
        )


class AbandonedCalls:
    """A registry of abandoned calls, each under a key.

    Args:
        where: where they run, for messages: empty, or for instance ` in threads`.
    """

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._calls: dict[Hashable, tuple[AbandonedCall, Callable[[], bool]]] = {}

    def add(self, key: Hashable, call: AbandonedCall, still_runs: Callable[[], bool]) -> None:
        """List a call until it is removed, or `still_runs` returns False."""
        self.running()  # drops ended calls: not every call is removed
        self._calls[key] = (call, still_runs)

    def remove(self, key: Hashable) -> AbandonedCall | None:
        """Remove a call that has ended. Return it, or None if it was not listed."""
        call, _ = self._calls.pop(key, (None, None))
        return call

    def running(self) -> tuple[AbandonedCall, ...]:
        """Return the calls that still run."""
        listed = list(self._calls.items())
        for key, (_, still_runs) in listed:
            if not still_runs():
                self._calls.pop(key, None)
        return tuple([call for key, (call, _) in listed if key in self._calls])

    def refuse_if_too_many(self) -> None:
        """Raise `ToolError` if `MAX_ABANDONED` or more abandoned calls run."""
        if len(self._calls) < MAX_ABANDONED:  # the fast path of every call
            return
        running = self.running()
        if len(running) >= MAX_ABANDONED:
            names = ", ".join(sorted({call.name for call in running}))
            raise ToolError(
                f"{len(running)} calls that ignored their cancellation still run{self._where} ({names}), so no further "
                "call starts. Restart the process to end them"
            )

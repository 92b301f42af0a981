"""Cancel the wait of the current task for a model, and tell that cancellation from any other one."""

from __future__ import annotations

import asyncio


class CancelScope:
    """Cancels the task in which it is made while it waits for a model, and takes the cancellation back afterwards.

    The owner sets `waiting` while it waits for the model, and only then. The model has to be asked in one task.
    """

    __slots__ = ("_cancelled", "_earlier_requests", "_task", "waiting")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a model is asked in a task"
        self._task, self._earlier_requests, self._cancelled = task, task.cancelling(), False
        self.waiting = True

    def cancel(self) -> None:
        """Cancel the task if it waits for the model."""
        if self.waiting and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def take_back(self) -> bool:
        """Take the scope's cancellation back; return whether it was the only one since the scope was made."""
        if not self._cancelled:
            return False
        self._cancelled = False
        return self._task.uncancel() <= self._earlier_requests

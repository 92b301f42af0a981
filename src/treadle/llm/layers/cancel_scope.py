"""Cutting off what one's own task waits for, and telling that from a cancellation by anybody else."""

from __future__ import annotations

import asyncio


class Cut:
    """Cancels the task it is made in while it waits for a model, and takes that back afterwards.

    Whoever uses it sets `waiting` while the model is waited for, and only then; the model has to be asked in one task.
    """

    __slots__ = ("_before", "_made", "_task", "waiting")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a model is asked in a task"
        self._task, self._before, self._made = task, task.cancelling(), False
        self.waiting = True

    def make(self) -> None:
        """Cancel the task, if it waits for the model; else whoever uses this has to look for itself."""
        if self.waiting and not self._made:
            self._made = True
            self._task.cancel()

    def was_ours(self) -> bool:
        """Whether the task was cancelled by this, and by nobody else; takes that cancellation back."""
        if not self._made:
            return False
        self._made = False
        return self._task.uncancel() <= self._before

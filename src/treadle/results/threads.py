"""Threads in lists, their messages, and their members that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.core.data import frozen
from treadle.core.display import Displayed, View
from treadle.core.messages import Message
from treadle.core.unknown_names import explains_names
from treadle.results.displays import messages_table


@frozen
class DamagedTurn:
    """A member of a thread that cannot be read; its messages are left out.

    Args:
        task_id: the task.
        seq: the first event of its journal that cannot be read.
        reason: the problem with that event.
    """

    task_id: str
    seq: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@frozen
class ThreadSummary:
    """A thread in a list: its version, and how many tasks have messages in it."""

    thread_id: str
    version: int
    turns: int


@explains_names("ThreadMessages")
class ThreadMessages(Displayed, tuple[Message, ...]):
    """The messages of a thread, the oldest first.

    `damaged` lists the tasks of the thread whose journals cannot be read, each with the reason. Their messages are left
    out. It is empty if the thread is complete.
    """

    damaged: tuple[DamagedTurn, ...]

    def __new__(
        cls, messages: Iterable[Message] = (), damaged: tuple[DamagedTurn, ...] = ()
    ) -> ThreadMessages:
        thread = super().__new__(cls, messages)
        thread.damaged = damaged
        return thread

    def _view(self) -> View:
        damaged = [f"{turn.task_id}: {turn.reason}" for turn in self.damaged]
        return View(title="ThreadMessages", tables=(messages_table(self),), values=(("damaged", damaged),))

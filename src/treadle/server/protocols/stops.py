"""The state in which a task stopped, for the clients of a protocol. Pure."""

from __future__ import annotations

from typing import Protocol

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.results.artifacts import Artifact
from treadle.results.pending import FOR_PEOPLE, Pending


@frozen
class Stop:
    """The state in which a task stopped.

    Args:
        state: the task's state.
        pending: its open requests, and those of the tasks below it.
        reason: why it was paused or interrupted, if that is known.
        extra_state: the JSON object stored with the task.
        artifacts: the files that it made.
    """

    state: str
    pending: tuple[Pending, ...] = ()
    reason: str = ""
    extra_state: Json = None
    artifacts: tuple[Artifact, ...] = ()


def waits_for_client(stop: Stop) -> bool:
    """Return whether a run ends here: its task has ended, or a client can make it go on.

    A task that waits for a time, or for a call in the background, goes on by itself.
    """
    if stop.state != "waiting":
        return True
    return any(item.kind in (*FOR_PEOPLE, "call") for item in stop.pending)


class Fold(Protocol):
    """A pure fold of the events of a task to the frames of a protocol, each a JSON object."""

    task_id: str

    def begin(self) -> list[dict[str, Json]]:
        """Return the first frames."""
        ...

    def feed(self, item: e.Event | e.Ephemeral) -> list[dict[str, Json]]:
        """Return the frames that an event, a delta or another ephemeral item causes."""
        ...

    def end(self, stop: Stop) -> list[dict[str, Json]]:
        """Return the last frames, for the state in which the task stopped."""
        ...

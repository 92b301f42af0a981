"""`ExtraState`: the JSON object that is kept with a task, and all writes to it on the task's present branch.

Each key has its writes in order; what was read at event n is the last of them up to event n, else what the task began
with. So an undo drops the writes of its steps, and a call that begins again reads what its first attempt read.

Order. A write stands behind all that its writer could read. Writers that ran beside each other stand in call order,
whichever of them ended first: by the path of the step, then by the place of the call in it. The last write is the
value, and the writer that it hides is told of in `Overwritten`.

Example: two calls of one answer, begun at events 5 and 6 while `n` is 0.

    8    the second ends with n = 2      n: [second]
    9    the first ends with n = 1       n: [first, second]    n is 2, and the write of the first is hidden

Readers may be in other threads: writes are appended, or their list is replaced, and never inserted or removed in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Final, TypeAlias, cast

from treadle.core.data import frozen, mutable
from treadle.core.events import StateChange
from treadle.core.messages import Json, copied

NOW: Final = 1 << 63
"""Behind the last event of any task."""

Place: TypeAlias = tuple[tuple[int, ...], int]
"""Where a call stands in call order: the path of its step, and which call of the step it is."""


@frozen
class Writer:
    """What changes the state by an event: a call, the function of a step, or an agent's instructions.

    Args:
        by: the id of the call, or that of the step of a function.
        step: the id of its step; empty for instructions.
        place: its place in call order.
        began: the event at which it began: it read what was written up to there.
        read_step: whether it read what the calls of its step wrote, as the function of a step does.
    """

    by: str
    step: str
    place: Place
    began: int
    read_step: bool = False


@frozen
class Write:
    """A value of a key, or its removal, written by the event `seq`."""

    seq: int
    by: str
    step: str
    place: Place
    value: Json = None
    removed: bool = False


@frozen
class Overwritten:
    """Two writers that ran beside each other changed the same keys: `kept` is the one whose values stand."""

    step: str
    kept: str
    lost: str
    keys: tuple[str, ...]


@mutable
class ExtraState:
    """The JSON object kept with a task: what the task began with, and what was written to it since."""

    initial: Json = None
    writes: dict[str, list[Write]] = field(default_factory=dict[str, "list[Write]"])
    """by key, each behind those that it replaces"""

    keys_by_step: dict[str, set[str]] = field(default_factory=dict[str, "set[str]"])

    @property
    def is_object(self) -> bool:
        """Whether it is an object, as all are that calls may change; the first release stored other JSON data too."""
        return self.initial is None or isinstance(self.initial, dict)

    def read(self, key: str, upto: int, calls: Collection[str] = ()) -> Json:
        """Return the value of a key at an event, which is shared and not to be changed.

        Args:
            key: the key.
            upto: number of the event; later writes do not count.
            calls: ids of calls whose writes count, though they are later.

        Raises:
            KeyError: the key is not there.
        """
        for write in reversed(self.writes.get(key, ())):
            if write.seq <= upto or write.by in calls:
                if write.removed:
                    raise KeyError(key)
                return write.value
        return self._began_with()[key]

    def keys(self, upto: int, calls: Collection[str] = ()) -> Iterator[str]:
        """Yield the keys at an event, those that the task began with first; arguments are those of `read`."""
        for key in dict.fromkeys([*self._began_with(), *list(self.writes)]):
            try:
                self.read(key, upto, calls)
            except KeyError:
                continue
            yield key

    def value(self) -> Json:
        """Return a copy of all of it as it is now."""
        if not self.is_object:
            return copied(self.initial)
        return {key: copied(self.read(key, NOW)) for key in self.keys(NOW)}

    def write(self, change: StateChange, writer: Writer, seq: int) -> list[Overwritten]:
        """Add the writes of an event; return which of them hide, or are hidden by, writes that they did not read."""
        hidden: dict[tuple[str, str], list[str]] = {}
        origin = (seq, writer.by, writer.step, writer.place)
        new = {key: Write(*origin, value) for key, value in change.values.items()}
        new |= {key: Write(*origin, removed=True) for key in change.removed}
        for key, write in new.items():
            pair = self._place(key, write, writer)
            if pair is not None:
                hidden.setdefault(pair, []).append(key)
        self.keys_by_step.setdefault(writer.step, set()).update(new)
        return [Overwritten(writer.step, kept, lost, tuple(keys)) for (kept, lost), keys in hidden.items()]

    def _place(self, key: str, write: Write, writer: Writer) -> tuple[str, str] | None:
        """Put a write in its place; return whose write of the key stands and whose is hidden by it, if any is."""
        writes = self.writes.setdefault(key, [])
        place = len(writes)
        while place and _is_beside(writes[place - 1], writer) and writes[place - 1].place > writer.place:
            place -= 1
        if place < len(writes):
            self.writes[key] = [*writes[:place], write, *writes[place:]]
            return writes[-1].by, writer.by
        writes.append(write)
        if place and _is_beside(writes[place - 1], writer):
            return writer.by, writes[place - 1].by
        return None

    def take_back(self, steps: Collection[str]) -> None:
        """Drop the writes of steps that were undone."""
        for step in steps:
            for key in self.keys_by_step.pop(step, ()):
                left = [write for write in self.writes[key] if write.step != step]
                if left:
                    self.writes[key] = left
                else:
                    del self.writes[key]

    def _began_with(self) -> dict[str, Json]:
        return cast("dict[str, Json]", self.initial or {}) if self.is_object else {}


def _is_beside(write: Write, writer: Writer) -> bool:
    """Whether a write was made while a writer ran that did not read it."""
    return write.seq > writer.began and not (writer.read_step and write.step == writer.step)

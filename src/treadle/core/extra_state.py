"""`ExtraState`: the JSON object that is stored with a task, and its writes on the task's present branch.

Each key has its writes in the order of their events. The value at event n is that of the writes up to event n, else the
initial value. So an undo drops the writes of its steps. A call that begins again reads the same values as its first
attempt.

Conflicts. A write replaces the one before it if its writer could read that one. Parallel writers have call order, no
matter which ends first: the path of the step, then the place of the call in it. The later one in that order wins, the
other is `hidden`, and `Overwritten` reports both.

Example: two calls of one answer, begun at events 5 and 6 while `n` is 0.

    8    the second ends with n = 2      n: second
    9    the first ends with n = 1       n: second, first (hidden)      n is 2

Readers may be in other threads. So a write is appended to its list, and an undo builds new lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import field, replace
from typing import Final, TypeAlias, cast

from treadle.core.data import frozen, mutable
from treadle.core.events import StateChange
from treadle.core.messages import Json, copied

NOW: Final = 1 << 63
"""After the last event of any task."""

Place: TypeAlias = tuple[tuple[int, ...], int]
"""The position of a call in call order: the path of its step, and its number in the step."""


@frozen
class Writer:
    """The author of a change of the state: a call, a step function, or an agent's instructions.

    Args:
        by: the id of the call, or of the function's step.
        step: the id of its step; empty for instructions.
        place: its place in call order.
        began: the event at which it began. It read the writes up to there.
        read_step: whether it read the writes of its step's calls, as a step function does.
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
    writer: Writer
    value: Json = None
    removed: bool = False
    hidden: bool = False
    """whether an earlier write wins, because its parallel writer is later in call order"""

    def is_beside(self, other: Write) -> bool:
        """Return whether the writer could not read an earlier write, since both ran in parallel."""
        own, earlier = self.writer, other.writer
        return other.seq > own.began and not (own.read_step and own.step == earlier.step)

    def yields_to(self, other: Write) -> bool:
        """Return whether an earlier write wins over this one."""
        return self.is_beside(other) and other.writer.place > self.writer.place


@frozen
class Overwritten:
    """Two parallel writers changed the same keys. The values of `kept` win."""

    step: str
    kept: str
    lost: str
    keys: tuple[str, ...]


@mutable
class ExtraState:
    """The JSON object that is stored with a task: its initial value and the writes since."""

    initial: Json = None
    writes: dict[str, list[Write]] = field(default_factory=dict[str, "list[Write]"])
    """by key, in the order of their events"""

    keys_by_step: dict[str, set[str]] = field(default_factory=dict[str, "set[str]"])

    @property
    def is_object(self) -> bool:
        """Whether it is an object, which calls may change. The first release stored other JSON data too."""
        return self.initial is None or isinstance(self.initial, dict)

    def read(self, key: str, upto: int, calls: Collection[str] = ()) -> Json:
        """Return the value of a key at an event. It is shared: do not change it.

        Args:
            key: the key.
            upto: number of the event. Later writes are ignored.
            calls: ids of calls whose later writes count too.

        Raises:
            KeyError: there is no such key.
        """
        writes = self.writes.get(key)
        write = _winning_write(writes, upto, calls) if writes is not None else None
        if write is None:
            return self._initial_values()[key]
        if write.removed:
            raise KeyError(key)
        return write.value

    def keys(self, upto: int, calls: Collection[str] = ()) -> Iterator[str]:
        """Yield the keys at an event, the initial ones first. Arguments are those of `read`."""
        for key in dict.fromkeys([*self._initial_values(), *list(self.writes)]):
            try:
                self.read(key, upto, calls)
            except KeyError:
                continue
            yield key

    def value(self) -> Json:
        """Return a copy of the present object."""
        if not self.is_object:
            return copied(self.initial)
        return {key: copied(self.read(key, NOW)) for key in self.keys(NOW)}

    def write(self, change: StateChange, writer: Writer, seq: int) -> list[Overwritten]:
        """Add the writes of an event. Return the conflicts with writes that its writer did not read."""
        pairs: dict[tuple[str, str], list[str]] = {}
        new = {key: Write(seq, writer, value) for key, value in change.values.items()}
        new |= {key: Write(seq, writer, removed=True) for key in change.removed}
        for key, write in new.items():
            writes = self.writes.setdefault(key, [])
            before = _winning_write(writes, NOW, ())
            if before is not None and write.is_beside(before):
                lost = write.yields_to(before)
                pair = (before.writer.by, writer.by) if lost else (writer.by, before.writer.by)
                pairs.setdefault(pair, []).append(key)
                write = replace(write, hidden=lost)
            writes.append(write)
        self.keys_by_step.setdefault(writer.step, set()).update(new)
        return [Overwritten(writer.step, winner, lost, tuple(keys)) for (winner, lost), keys in pairs.items()]

    def take_back(self, steps: Collection[str]) -> None:
        """Drop the writes of steps that were undone."""
        for key in {key for step in steps for key in self.keys_by_step.pop(step, ())}:
            remaining = [write for write in self.writes[key] if write.writer.step not in steps]
            if remaining:
                self.writes[key] = _resolved(
                    remaining
                )  # in its place: the order of keys is the same in each process
            else:
                del self.writes[key]

    def _initial_values(self) -> dict[str, Json]:
        return cast("dict[str, Json]", self.initial or {}) if self.is_object else {}


def _winning_write(writes: list[Write], upto: int, calls: Collection[str]) -> Write | None:
    """Return the winning write at an event, or None. `writes` may grow meanwhile."""
    if not calls:
        return next((write for write in reversed(writes) if write.seq <= upto and not write.hidden), None)
    visible = [write for write in writes if write.seq <= upto or write.writer.by in calls]
    return next((write for write in reversed(_resolved(visible)) if not write.hidden), None)


def _resolved(writes: Iterable[Write]) -> list[Write]:
    """Return the remaining writes with `hidden` computed again."""
    decided, standing = list[Write](), None
    for write in writes:
        hidden = standing is not None and write.yields_to(standing)
        decided.append(write if write.hidden == hidden else replace(write, hidden=hidden))
        standing = standing if hidden else write
    return decided

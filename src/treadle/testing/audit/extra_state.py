"""Invariants of extra state: it equals the writes in the events, and `state_overwritten` reports each loss.

The writes are applied here again, from the events and the remaining steps, without the engine's `ExtraState`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.ids import base_call_id, is_undo
from treadle.core.messages import Message
from treadle.core.state import TaskState
from treadle.testing.audit.events import Violation


@frozen
class _Write:
    """A change of one key: its author, its time, its step, and its position among parallel calls."""

    seq: int
    by: str
    step: str
    place: tuple[tuple[int, ...], int]
    began: int
    is_function: bool
    value: tuple[Any, ...]
    """empty for a deletion"""

    def read(self, other: _Write) -> bool:
        """Return whether the writer could read an earlier write."""
        return other.seq <= self.began or (self.is_function and other.step == self.step)


@mutable
class WrittenState:
    """One task's state according to its events; call `check` with each event after it is applied."""

    began_with: Any = None
    writes: dict[str, list[_Write]] = field(default_factory=dict[str, "list[_Write]"])
    steps: dict[str, e.StepStarted] = field(default_factory=dict[str, e.StepStarted])
    calls: dict[str, int] = field(default_factory=dict[str, int])
    """each call's position, by the id under which it was requested"""

    began: dict[str, int] = field(default_factory=dict[str, int])
    """the first start of each call"""

    unreported: list[tuple[str, str, set[str]]] = field(default_factory=list[tuple[str, str, "set[str]"]])

    def check(self, task: str, event: e.Event, state: TaskState) -> Iterator[Violation]:
        """Record an event, and yield the differences between the task's state and the writes."""
        match event:
            case e.TaskCreated():
                self.began_with = event.extra_state
            case e.StepStarted():
                self.steps.setdefault(event.step, event)
            case e.ModelReturned() if event.call is None:
                for call in event.message.tool_calls:
                    self.calls.setdefault(call.id, len(self.calls))
            case e.RouteChosen(message=Message() as message):
                for call in message.tool_calls:
                    self.calls.setdefault(call.id, len(self.calls))
            case e.CallRequested():
                self.calls.setdefault(event.call, len(self.calls))
            case e.ToolStarted() if not is_undo(event.call):
                self.began.setdefault(base_call_id(event.call), event.seq)
            case e.ToolEnded() | e.CallDeferred() | e.StepCompleted() | e.InstructionsSet():
                if event.changes is None:
                    return
                self._write(event, event.changes, state)
            case e.StateOverwritten():
                report = (event.kept, event.lost, {*event.keys})
                if not self.unreported or report != self.unreported.pop(0):
                    yield Violation(
                        "state_adds_up", task, event.seq, f"{report} did not overwrite each other"
                    )
                return
            case e.Rewound():
                self._take_back(state)
            case e.TaskEnded() if self.unreported:
                text = f"no event tells that {self.unreported} overwrote each other"
                yield Violation("state_adds_up", task, event.seq, text)
                return
            case _:
                return
        actual = state.extra_state.value() if state.extra_state is not None else None
        if (actual or None) != (self.value() or None):
            text = f"after {event.kind} the state is {actual!r}, and {self.value()!r} was written"
            yield Violation("state_adds_up", task, event.seq, text)

    def value(self) -> Any:
        """Return the writes applied to the initial state."""
        began_with: Any = self.began_with or {}
        if not isinstance(began_with, dict):
            return began_with
        value: dict[str, Any] = {**began_with}
        for key, writes in self.writes.items():
            value.pop(key, None)
            for written_value in _effective_write(writes).value:
                value[key] = written_value
        return value

    def _write(
        self,
        event: e.ToolEnded | e.CallDeferred | e.StepCompleted | e.InstructionsSet,
        change: e.StateChange,
        state: TaskState,
    ) -> None:
        by, step, position, began, is_function = "instructions", "", ((), 0), event.seq, False
        if not isinstance(event, e.InstructionsSet):
            started = self.steps[event.step]
            step, by, began, is_function = event.step, event.step, started.seq, True
            position = (
                state.graph.nodes[step].path if state.graph is not None else (started.index,),
                1 << 30,
            )
        if isinstance(event, (e.ToolEnded, e.CallDeferred)):
            base = base_call_id(event.call)
            by, position, began, is_function = (
                event.call,
                (position[0], self.calls[base]),
                self.began[base],
                False,
            )
        met: dict[tuple[str, str], set[str]] = {}
        changed = {key: (value,) for key, value in change.values.items()} | dict.fromkeys(change.removed, ())
        for key, value in changed.items():
            write = _Write(event.seq, by, step, position, began, is_function, value)
            writes = self.writes.setdefault(key, [])
            before = _effective_write(writes) if writes else None
            writes.append(write)
            if before is not None and not write.read(before):
                loser = before.by if _effective_write(writes) is write else by
                winner = by if loser != by else before.by
                met.setdefault((winner, loser), set()).add(key)
        self.unreported += [(winner, loser, keys) for (winner, loser), keys in met.items()]

    def _take_back(self, state: TaskState) -> None:
        step_ids = {"", *(step.id for step in (*state.steps, *state.under_way()))}
        if state.graph is not None:
            step_ids |= {*state.graph.nodes}
        for key, writes in list(self.writes.items()):
            self.writes[key] = [write for write in writes if write.step in step_ids]
            if not self.writes[key]:
                del self.writes[key]


def _effective_write(writes: list[_Write]) -> _Write:
    """Return the effective write; each one replaces those that it read, and parallel ones earlier in call order."""
    effective = writes[0]
    for write in writes[1:]:
        if write.read(effective) or effective.place <= write.place:
            effective = write
    return effective

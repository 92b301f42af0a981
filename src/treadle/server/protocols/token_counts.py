"""Count the tokens of a part of a task, by model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.deltas import AnswerKey
from treadle.core.ids import base_call_id, undone_call
from treadle.core.model import NO_USAGE, SideCall, Usage

BELOW = ""
"""The name under which the tokens of tasks below are counted, of any model."""


class TokenCounts:
    """The tokens of the events that were read and counted."""

    def __init__(self) -> None:
        self.by_model: dict[str, Usage] = {}
        self._asked: dict[AnswerKey, str] = {}
        """the models of the requests"""

        self._child_of: dict[str, str] = {}
        self._below: dict[str, Usage] = {}
        """the tokens of each task below"""

    @property
    def total(self) -> Usage:
        """All tokens."""
        total = NO_USAGE
        for usage in self.by_model.values():
            total = total + usage
        return total

    def read(self, event: e.Event | e.Ephemeral, *, counts: bool) -> None:
        """Read an event.

        Args:
            event: the event.
            counts: whether it belongs to the part; the others say which model was asked, and what was counted before.
        """
        if isinstance(event, e.ModelStarted):
            self._asked[event.step, event.call] = event.model
        elif isinstance(event, (e.ModelReturned, e.ModelFailed, e.ModelStopped)):
            if counts:
                also: Sequence[SideCall] = getattr(event, "also", ())
                model: str = getattr(event, "model", "") or self._asked.get((event.step, event.call), "")
                for name, usage in ((model, event.usage), *[(each.model, each.usage) for each in also]):
                    self._add(name, usage)
        elif isinstance(event, e.ToolStarted) and event.child is not None:
            self._child_of[event.call] = event.child
        elif isinstance(event, (e.ToolStopped, e.ToolEnded)) and event.spent:
            self._read_below(event.call, event.spent, counts=counts)

    def _read_below(self, call: str, spent: Sequence[SpentBy], *, counts: bool) -> None:
        """Count what the task of an agent's call has spent since it was counted last."""
        child = self._child_of.get(call, undone_call(base_call_id(call)))
        total = NO_USAGE
        for each in spent:
            total = total + each.usage
        if counts:
            self._add(BELOW, total - self._below.get(child, NO_USAGE))
        self._below[child] = total

    def _add(self, model: str, usage: Usage) -> None:
        if usage.input_tokens or usage.output_tokens:
            self.by_model[model] = self.by_model.get(model, NO_USAGE) + usage

"""The deltas of one attempt at an answer, as watchers see them: each says where in the answer it stands."""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.ids import call_id
from treadle.core.model import RawDelta, ReasoningDelta, TextDelta, ToolCallDelta

ModelItem = TextDelta | ReasoningDelta | ToolCallDelta | RawDelta


class AnswerDeltas:
    """Counts what a model has written in one attempt, also while no watcher listens, and makes deltas of it.

    Args:
        step: the step that asks.
        call: the function's request; None for the request of the step itself.
        first: number of the first call of the answer.
        text_label: the channel of text, unless the model marks it final.
    """

    __slots__ = ("_asked_by", "_call", "_first", "_step", "_text_label", "_written")

    def __init__(self, step: str, call: str | None, first: int, text_label: e.Channel) -> None:
        self._step = step
        self._call = call
        self._asked_by = step if call is None else call
        self._first = first if call is None else 0
        self._text_label: e.Channel = text_label
        self._written: dict[e.Channel | int, int] = {}
        """characters so far: of a channel, and of the arguments of a call by its index"""

    def count(self, item: ModelItem) -> int:
        """Count an item that is shown to no watcher; return how many characters stood before it."""
        key: e.Channel | int
        if isinstance(item, TextDelta):
            key, text = "final" if item.final and self._call is None else self._text_label, item.text
        elif isinstance(item, ReasoningDelta):
            key, text = "reasoning", item.text
        elif isinstance(item, ToolCallDelta):
            key, text = item.index, item.arguments
        else:
            return 0
        before = self._written.get(key, 0)
        self._written[key] = before + len(text)
        return before

    def delta(self, item: ModelItem, after: int) -> e.Delta | e.RawChunk:
        """Return an item as watchers see it, and count it.

        Args:
            item: what the model yielded.
            after: sequence number of the task's last event.
        """
        at, call = self.count(item), self._call
        if isinstance(item, TextDelta):
            label = "final" if item.final and call is None else self._text_label
            return e.Delta(self._step, label, item.text, after, 0, "", call, at)
        if isinstance(item, ReasoningDelta):
            return e.Delta(self._step, "reasoning", item.text, after, 0, "", call, at)
        if isinstance(item, RawDelta):
            return e.RawChunk(self._step, item.data, call, after)
        made = call_id(self._asked_by, self._first + item.index)
        return e.Delta(self._step, "arguments", item.arguments, after, item.index, item.name, call, at, made)

"""The deltas of one attempt at an answer for watchers, each with its place in the answer."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from treadle.core import events as e
from treadle.core.ids import call_id
from treadle.core.model import RawDelta, ReasoningDelta, TextDelta, ToolCallDelta

ModelItem = TextDelta | ReasoningDelta | ToolCallDelta | RawDelta


class AnswerDeltas:
    """Collects the answer of one attempt, even without watchers, and makes deltas of it.

    The driver writes. A watcher that joins may read `so_far` in another thread at the same time.

    Args:
        step: the step that asks.
        call: the function's request. None: the request of the step itself.
        first: number of the first call of the answer.
        text_label: the channel of text that the model does not mark as final.
    """

    __slots__ = (
        "_asked_by",
        "_at",
        "_call",
        "_channel",
        "_first",
        "_names",
        "_step",
        "_text_label",
        "_written",
    )

    def __init__(self, step: str, call: str | None, first: int, text_label: e.Channel) -> None:
        self._step = step
        self._call = call
        self._asked_by = step if call is None else call
        self._first = first if call is None else 0
        self._text_label: e.Channel = text_label
        self._channel: e.Channel = text_label
        """the channel of the newest piece of text or reasoning"""

        self._at = 0
        """the number of characters before the newest piece, in the text that it continues"""

        self._written: dict[e.Channel | int, StringIO] = {}
        """the text so far: of a channel, and of the arguments of a call by its index"""

        self._names: dict[int, str] = {}
        """the names of called tools so far"""

    def keep(self, item: ModelItem) -> None:
        """Add an item to the answer."""
        key: e.Channel | int
        if isinstance(item, TextDelta):
            key = self._channel = "final" if item.final and self._call is None else self._text_label
            text = item.text
        elif isinstance(item, ReasoningDelta):
            key = self._channel = "reasoning"
            text = item.text
        elif isinstance(item, ToolCallDelta):
            key, text = item.index, item.arguments
            if item.name:
                self._names[key] = self._names.get(key, "") + item.name
        else:
            return
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = StringIO()
        self._at = written.tell()
        written.write(text)

    def delta(self, item: ModelItem, after: int) -> e.Delta | e.RawChunk:
        """Return the delta of the item that was added last.

        Args:
            item: the model's item.
            after: sequence number of the task's last event.
        """
        if isinstance(item, TextDelta) or isinstance(item, ReasoningDelta):  # noqa: SIM101 (most are text)
            return e.Delta(self._step, self._channel, item.text, after, 0, "", self._call, self._at)
        if isinstance(item, RawDelta):
            return e.RawChunk(self._step, item.data, self._call, after)
        delta = self._arguments(item.index, item.arguments, item.name, after, self._at)
        delta.tool_at = len(self._names.get(item.index, "")) - len(item.name)
        return delta

    def so_far(self) -> Iterator[e.Delta]:
        """Yield the whole answer so far: one delta for each channel and each call."""
        for key, written in list(self._written.items()):
            if isinstance(key, int):
                yield self._arguments(key, written.getvalue(), self._names.get(key, ""), 0, 0)
            else:
                yield e.Delta(self._step, key, written.getvalue(), call=self._call)

    def _arguments(self, index: int, text: str, name: str, after: int, at: int) -> e.Delta:
        made = call_id(self._asked_by, self._first + index)
        return e.Delta(self._step, "arguments", text, after, index, name, self._call, at, made)

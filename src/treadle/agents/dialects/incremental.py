"""Text and JSON that a model is still writing: the certain part, and the deltas that remain at the end."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.core.messages import IN_WORDS, UNSEEN, Message, Reasoning, Text, ToolCall
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta


class PartialText:
    """Text that arrives in pieces, without the whitespace around it. The returned pieces are a prefix of the whole.

    Args:
        held_back: trailing characters that are not part of the text.
    """

    __slots__ = ("_fresh", "_held", "_pieces", "_strip", "emitted", "held_back")

    def __init__(self, held_back: str) -> None:
        self.held_back = held_back
        self.emitted = 0
        """number of characters that `add` returned"""

        self._pieces: list[str] = []
        self._held: list[str] = []
        self._fresh = True
        self._strip: str | None = None

    def cut(self, strip: str = "") -> None:
        """Begin another paragraph, without `strip` and whitespace at its beginning."""
        self._fresh, self._strip = True, f" \t\r\n{strip}"

    def add(self, piece: str) -> str:
        """Return the part of the text that is certain after one more piece."""
        if self._fresh:
            piece = piece.lstrip(self._strip)
            if not piece:
                return ""
            self._fresh = False
            if self._pieces or self._held:
                self._held = ["".join(self._held).rstrip(), "\n"]
        certain = piece.rstrip(self.held_back)
        if certain:
            certain_text = "".join([*self._held, certain])
            self._pieces.append(certain_text)
            self.emitted += len(certain_text)
            self._held = []
        else:
            certain_text = ""
        if len(certain) < len(piece):
            self._held.append(piece[len(certain) :])
        return certain_text

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join([*self._pieces, *self._held]).strip()


class PartialObject:
    """The JSON object in text that arrives in pieces, as written."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_over")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = self._over = False

    def add(self, piece: str) -> str:
        """Return the part of one more piece that belongs to the object."""
        begin = 0 if self._depth else piece.find("{")
        if self._over or begin < 0:
            return ""
        for position in range(begin, len(piece)):
            character = piece[position]
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if not self._depth:
                    self._over = True
                    return piece[begin : position + 1]
        return piece[begin:]


def remaining_deltas(
    message: Message, thinking: int = 0, thought: int = 0, answer: int = 0, *, named: bool = False
) -> Iterator[ModelDelta]:
    """Yield the deltas of an answer that were not yielded while the model wrote it.

    Args:
        message: the whole answer.
        thinking: number of characters of its thinking already in deltas.
        thought: number of characters of its thought already in deltas.
        answer: number of characters of its text already in deltas.
        named: whether a delta held the name of its call.
    """
    index = 0
    for part in message.parts:
        if isinstance(part, Reasoning) and part.meta in (IN_WORDS, UNSEEN):
            rest = part.text[thought if part.meta == IN_WORDS else thinking :]
            if rest:
                yield ReasoningDelta(rest)
        elif isinstance(part, Text):
            if part.text[answer:]:
                yield TextDelta(part.text[answer:])
        elif isinstance(part, ToolCall):
            if not named and part.problem is None:
                yield ToolCallDelta(index, part.name)
            index += 1

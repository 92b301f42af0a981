"""What listeners to a dialect are made of: words cut out of a text that is still being written."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.core.messages import IN_WORDS, UNSEEN, Message, Reasoning, Text, ToolCall
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta


class PartialText:
    """Words that come in pieces, without the blank around them; what is told is always a beginning of the whole.

    Args:
        held_back: the characters that may yet turn out to be no part of the end.
    """

    __slots__ = ("_fresh", "_held", "_pieces", "_strip", "emitted", "held_back")

    def __init__(self, held_back: str) -> None:
        self.held_back = held_back
        self.emitted = 0
        """how many characters were returned by `more`"""

        self._pieces: list[str] = []
        self._held: list[str] = []
        self._fresh = True
        self._strip: str | None = None

    def cut(self, strip: str = "") -> None:
        """Begin another paragraph, without `strip` and blanks at its beginning."""
        self._fresh, self._strip = True, f" \t\r\n{strip}"

    def add(self, words: str) -> str:
        """Return what is certain to belong to the words now."""
        if self._fresh:
            words = words.lstrip(self._strip)
            if not words:
                return ""
            self._fresh = False
            if self._pieces or self._held:
                self._held = ["".join(self._held).rstrip(), "\n"]
        certain = words.rstrip(self.held_back)
        if certain:
            told = "".join([*self._held, certain])
            self._pieces.append(told)
            self.emitted += len(told)
            self._held = []
        else:
            told = ""
        if len(certain) < len(words):
            self._held.append(words[len(certain) :])
        return told

    @property
    def text(self) -> str:
        """All words so far."""
        return "".join([*self._pieces, *self._held]).strip()


class PartialObject:
    """The JSON object in words that come in pieces, as it is written."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_over")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = self._over = False

    def add(self, words: str) -> str:
        """Return what of some more words belongs to the object."""
        begin = 0 if self._depth else words.find("{")
        if self._over or begin < 0:
            return ""
        for place in range(begin, len(words)):
            letter = words[place]
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif letter == "\\":
                    self._escaped = True
                elif letter == '"':
                    self._in_string = False
            elif letter == '"':
                self._in_string = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    self._over = True
                    return words[begin : place + 1]
        return words[begin:]


def remaining_deltas(
    message: Message, thinking: int = 0, thought: int = 0, answer: int = 0, *, named: bool = False
) -> Iterator[ModelDelta]:
    """Yield what of an answer was not told while it was written.

    Args:
        message: the answer, as it was read.
        thinking: how many characters of what it thought out of sight were told.
        thought: how many of its thought.
        answer: how many of its words.
        named: whether its call was told.
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

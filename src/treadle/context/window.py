"""A window on a growing conversation: the newest part within a token limit, and messages that must stay.

    [system messages, summary, the task's own input]  [a note about omitted messages]  [the newest messages]

The window follows the conversation and reads each message once. A full window is cut to three quarters. So requests
keep the same beginning for many steps, which providers cache. Its start depends on the messages alone, so a task that
continues in another process has the same window. The window starts between turns or, within the task's own turn,
between steps. So a call is never separated from its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import overload

from treadle.core.messages import Content, Message, Part, Text, ToolResult
from treadle.core.observation import bounded, observation
from treadle.core.tokens import BYTES_PER_TOKEN, message_tokens, request_tokens
from treadle.core.tools import ToolSpec
from treadle.errors import ModelError
from treadle.ports import Conversation

Count = Callable[[Message], int]
LEAST_CHARS = 200
"""Minimum number of characters shown of an oversized part."""


class ConversationWindow:
    """The window on one conversation.

    Args:
        conversation: the conversation, which the window never changes.
        count: returns the tokens of a message.
    """

    def __init__(self, conversation: Conversation, count: Count = message_tokens) -> None:
        self._conversation = conversation
        self._count = count
        self._source: list[Message] = []
        self._of: tuple[int, str, str | None] | None = None
        self._tools: Sequence[ToolSpec] | None = None
        self._beside = 0

    def show(self, limit: int, instructions: str, tools: Sequence[ToolSpec]) -> Sequence[Message]:
        """Return the messages that a model sees, for a request of at most `limit` tokens.

        Args:
            limit: tokens of the whole request: instructions, tools and messages.
            instructions: the instructions of every request of this task.
            tools: the tools of this request. If they need more tokens than earlier ones, the window starts anew.

        Raises:
            ModelError: instructions and tools leave no room (`too_large`).
        """
        restarts = not self._continues(limit)
        if restarts or self._tools is not tools:
            overhead = request_tokens(instructions, tools)
            if overhead > limit // 2:
                raise ModelError(
                    f"instructions and tools are about {overhead} tokens, more than half of context_tokens={limit}",
                    kind="too_large",
                )
            if restarts:
                self._restart(limit, overhead)
            elif overhead > self._beside:
                # Reserve more than this request needs, so that tools which change with each request seldom restart it.
                self._restart(limit, min(overhead + limit // 16, limit // 2))
            self._tools = tools
        for message in self._source[len(self._messages) :]:
            self._follow(message)
        return Shown(self._head, self._messages, self._start, len(self._messages))

    def _continues(self, limit: int) -> bool:
        """Whether the conversation has only grown since the last request. An undo replaces its list."""
        source, now = self._source, self._conversation
        same = source is now.messages and self._of == (limit, now.fingerprint, now.instructions)
        return same and len(self._messages) <= len(now.messages)

    def _restart(self, limit: int, overhead: int) -> None:
        """Read the conversation from its beginning. `overhead` is the size of a request without messages, in tokens."""
        conversation = self._conversation
        self._of = (limit, conversation.fingerprint, conversation.instructions)
        self._beside = overhead
        self._room = limit - overhead - self._count(_note(100_000))
        self._largest = self._room // 4
        self._source = conversation.messages
        self._messages: list[Message] = []
        self._tokens: list[int] = []
        self._sum = 0
        self._start = 0
        self._head: tuple[Message, ...] = ()
        self._head_sum = 0
        self._system: list[int] = []

    def _follow(self, message: Message) -> None:
        tokens = self._count(message)
        if tokens > self._largest:
            message, tokens = _excerpt(message, self._largest, self._count)
        if message.role == "system":
            self._system.append(len(self._messages))
        self._messages.append(message)
        self._tokens.append(tokens)
        self._sum += tokens
        if self._sum + self._head_sum > self._room:
            self._cut()

    def _cut(self) -> None:
        """Move the start to the first position whose rest fits in three quarters of the room, else to the last."""
        enough = self._room * 3 // 4
        remaining, best = self._sum, None
        for position in range(self._start, len(self._messages)):
            if position > self._start and self._may_begin_at(position):
                head, head_sum = self._head_at(position)
                best = position, remaining, head, head_sum
                if remaining + head_sum <= enough:
                    break
            remaining -= self._tokens[position]
        if best is not None:
            self._start, self._sum, kept, self._head_sum = best
            self._head = (*kept, _note(self._start - len(kept)))

    def _may_begin_at(self, position: int) -> bool:
        role = self._messages[position].role
        return role == "user" or (role == "assistant" and position > self._conversation.own_from)

    def _head_at(self, position: int) -> tuple[tuple[Message, ...], int]:
        """Return the messages before a position that stay, and their tokens."""
        own_from = self._conversation.own_from
        head = [0] if self._conversation.summarised else []
        head += [at for at in self._system if at < position]
        if position > own_from and self._messages[own_from].role == "user":
            head.append(own_from)
        head.sort()
        return tuple([self._messages[at] for at in head]), sum([self._tokens[at] for at in head])


class Shown(Sequence[Message]):
    """Some messages, followed by a range of a growing list, shared without a copy."""

    __slots__ = ("_head", "_messages", "_start", "_stop")

    def __init__(self, head: tuple[Message, ...], messages: list[Message], start: int, stop: int) -> None:
        self._head = head
        self._messages = messages
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return len(self._head) + self._stop - self._start

    def __iter__(self) -> Iterator[Message]:
        return chain(self._head, islice(self._messages, self._start, self._stop))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple([self[at] for at in range(*index.indices(len(self)))])
        if not -len(self) <= index < len(self):
            raise IndexError(f"message {index} of {len(self)}")
        at = index if index >= 0 else len(self) + index
        return self._head[at] if at < len(self._head) else self._messages[self._start + at - len(self._head)]

    def __repr__(self) -> str:
        return f"Shown({list(self)!r})"


def _note(left_out: int) -> Message:
    """Return the note about omitted messages."""
    return Message(
        "user", (Text(f"[... {left_out} earlier messages of this conversation are not shown ...]"),)
    )


def _excerpt(message: Message, tokens: int, count: Count) -> tuple[Message, int]:
    """Return an oversized message with only head and tail of its texts, and its number of tokens."""
    part_count = max(1, sum(isinstance(part, (Text, ToolResult)) for part in message.parts))
    chars = tokens * BYTES_PER_TOKEN // part_count
    while True:
        chars = max(chars // 2, LEAST_CHARS)
        short = replace(message, parts=tuple([_excerpt_of(part, chars) for part in message.parts]))
        size = count(short)
        if size <= tokens or chars == LEAST_CHARS:
            return short, size


def _excerpt_of(part: Part, chars: int) -> Part:
    if isinstance(part, Text):
        return Text(bounded(part.text, chars), part.meta, part.label)
    if isinstance(part, ToolResult):
        parts: tuple[Content, ...] = observation(part.parts, call_id=part.call_id, limit=chars)
        return replace(part, parts=parts)
    return part

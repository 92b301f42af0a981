"""The neutral message model for people, models and tools. It is data only, which provider adapters convert.

The rules of a well-formed conversation, and of tasks that may leave their thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Any, Final, Literal, TypeAlias, cast, overload

from treadle.core.data import frozen
from treadle.core.labels import Label
from treadle.core.unknown_names import explains_arguments, explains_call, explains_names
from treadle.errors import ConfigurationError

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

IN_WORDS: Final[Json] = {"dialect": "text"}
"""The `meta` of reasoning, or of an unreadable call, that a model wrote as text and not in its provider's form."""

UNSEEN: Final[Json] = {"dialect": "text", "unseen": True}
"""The `meta` of reasoning that a model wrote between tags. It is stored and never sent to a model again."""

Role = Literal["system", "user", "assistant", "tool"]


@frozen
class Text:
    """Text. `meta` is the provider's own data about this part, which goes back to it unread.

    `label` is the origin and trust of the part, if it differs from the default for the message's role.
    """

    text: str
    meta: Json = None
    label: Label | None = None


@frozen(kw_only=True)
@explains_arguments
class Image:
    """A picture, from exactly one of a local path, a URL, or bytes.

    Args:
        path: a local file, read once when the task is created.
        url: an address that the provider fetches.
        data: the bytes themselves.
        media_type: such as `image/png`. Default: guessed from path or URL.
        label: its origin and trust, if they differ from the default for the message's role.
    """

    path: str | None = None
    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    meta: Json = None
    label: Label | None = None


@frozen(kw_only=True)
@explains_arguments
class File:
    """A document, from exactly one of a local path, a URL, or bytes. A path is read when the task is created."""

    path: str | None = None
    url: str | None = None
    data: bytes | None = None
    media_type: str | None = None
    name: str | None = None
    meta: Json = None
    label: Label | None = None


@frozen
class Reasoning:
    """A model's reasoning. `meta` holds data that its provider needs back, such as signatures."""

    text: str
    meta: Json = None


@frozen
class ToolCall:
    """A model's request to call a tool.

    `id` is the call's place in its task, by step and index. It is unique there, and also sent to providers. A
    provider's own id is in `meta`. `problem` is set if the request is incomplete or unparsable. Such a call never runs,
    and `raw` has the model's text. `output` is only set for `undo=` and `reconcile=`.
    """

    id: str
    name: str
    arguments: dict[str, Json]
    raw: str | None = None
    problem: str | None = None
    meta: Json = None
    output: Json = None


@frozen
class ToolResult:
    """A finished call as the model sees it. Without `label` it is untrusted, from `tool:<name>`.

    `frame` is the nonce of the frame around an untrusted result.
    """

    call_id: str
    name: str
    parts: tuple[Text | Image | File, ...]
    is_error: bool = False
    label: Label | None = None
    frame: str = field(default="", compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text of the observation."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


Content: TypeAlias = Text | Image | File
Part: TypeAlias = Text | Image | File | Reasoning | ToolCall | ToolResult


@explains_names("Message", subscript=True)
@frozen
class Message:
    """One message: a role and content parts. `meta` is the provider's own data about the whole."""

    role: Role
    parts: tuple[Part, ...]
    meta: Json = None

    @property
    def text(self) -> str:
        """The text of the message, without reasoning, calls and results."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The requested tool calls, in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


@explains_names("result.messages")
class Messages(tuple[Message, ...]):
    """A tuple of messages. `append` and other methods of lists raise an error with advice."""

    __slots__ = ()


class MessageView(Sequence[Message]):
    """The first `n` messages of a growing list, shared without a copy, so that building a request costs O(1)."""

    __slots__ = ("_messages", "_n")

    def __init__(self, messages: list[Message], n: int | None = None) -> None:
        self._messages = messages
        self._n = len(messages) if n is None else n

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Message]:
        return islice(self._messages, self._n)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self._messages[i] for i in range(*index.indices(self._n)))
        if not -self._n <= index < self._n:
            raise IndexError(f"message {index} of {self._n}")
        return self._messages[index if index >= 0 else self._n + index]

    def after(self, earlier: MessageView) -> Iterator[Message] | None:
        """Return the messages after those of an earlier view, or None for a view of another list."""
        if earlier._messages is not self._messages or earlier._n > self._n:
            return None
        return islice(self._messages, earlier._n, self._n)

    def __repr__(self) -> str:
        return f"MessageView({list(self)!r})"


@overload
def untrusted(content: str | Text, *, origin: str) -> Text: ...
@overload
def untrusted(content: Image, *, origin: str) -> Image: ...
@overload
def untrusted(content: File, *, origin: str) -> File: ...
@explains_call
def untrusted(content: str | Content, *, origin: str) -> Content:
    """Return content of a message, such as a mail, page or document, with a label as untrusted.

    Args:
        content: text or a part.
        origin: its origin, such as `mail` or `web:example.org`.

    Raises:
        ConfigurationError: it is not content, or the origin is not text.
    """
    if not isinstance(origin, str) or not origin.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"untrusted: origin must be text, such as 'mail', got {origin!r:.80}")
    if isinstance(content, str):
        content = Text(content)
    if not isinstance(content, (Text, Image, File)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"untrusted: content must be text, Text, Image or File, got {content!r:.80}; label the parts of a list one "
            "by one"
        )
    return replace(content, label=Label(origin, "untrusted"))


def copied(value: Json) -> Json:
    """Return a copy of JSON data that its receiver may change."""
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
        return {key: copied(item) if isinstance(item, (dict, list)) else item for key, item in items}
    if isinstance(value, list):
        return [
            copied(item) if isinstance(item, (dict, list)) else item for item in cast("list[Json]", value)
        ]
    return value


def user(*parts: str | Content) -> Message:
    """Return a user's message made of text and content parts."""
    return Message("user", content(parts))


def content(parts: str | Content | Sequence[str | Content]) -> tuple[Content, ...]:
    """Return content parts from a caller's input: text, one part, or a sequence of both."""
    if isinstance(parts, str):
        return (Text(parts),)
    if isinstance(parts, (Text, Image, File)):
        return (parts,)
    return tuple(Text(part) if isinstance(part, str) else part for part in parts)


def faults(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the violations of two rules: ids are unique, and every call has one result, in order after its message."""
    call_ids: set[str] = set()
    owed: list[str] = []
    for place, message in enumerate(messages):
        answered = [part.call_id for part in message.parts if type(part) is ToolResult]
        if (owed or answered) and answered != owed:
            yield f"message {place} gives results {answered} where {owed} are owed"
        if bool(answered) != (message.role == "tool"):
            yield f"message {place} of role {message.role} holds the results {answered}"
        owed = [part.id for part in message.parts if type(part) is ToolCall]
        if owed and message.role != "assistant":
            yield f"message {place} of role {message.role} asks for {owed}"
        for call_id in owed:
            if call_id in call_ids or not call_id:
                yield f"message {place}: call id {call_id!r} twice or empty"
            call_ids.add(call_id)
    if owed:
        yield f"no results for {owed}"


def may_leave_thread(version: int, covers: int, later: Iterable[int]) -> bool:
    """Return whether a task may leave its thread. It must be a summary, or the newest turn and not summarised.

    Args:
        version: the version that added the task.
        covers: the version up to which the task summarises. 0 if it is not a summary.
        later: `covers` of each member that was added after it.
    """
    return bool(covers) or all(covered and covered < version for covered in later)

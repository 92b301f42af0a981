"""Mask secrets that a provider sends back in an answer: in its deltas, and in the stored answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, cast

from treadle.core.messages import Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import ModelAnswer, ModelDelta, RawDelta, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.core.model_answer import WITHHELD
from treadle.core.redaction import SECRET, Secrets

_MOST_HELD: Final = 4_000
"""The most characters that are held back. A longer secret is not recognised in a stream."""


_BEFORE: Final = 16
"""The number of sent characters that are searched again, since a short beginning of a secret is not recognised."""


class HiddenDeltas:
    """Masks secrets in the deltas of one answer. It holds back text that may begin a secret until that is clear.

    Args:
        secrets: the values to mask.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held: ModelDelta | None = None
        self._sent = ""

    def take(self, delta: ModelDelta | None, raw: Iterable[Json] = ()) -> Iterator[ModelDelta]:
        """Yield the raw chunks of the provider, then the deltas that can be sent now that `delta` has arrived."""
        for chunk in raw:
            yield RawDelta(self._secrets.hide_json(chunk))
        if delta is None:
            return
        if not self._secrets:
            yield delta
            return
        last = self._held
        if last is not None and not _continues(last, delta):
            yield from self.rest()
            last = None
        first, text = (delta, _text_of(delta)) if last is None else (last, _text_of(last) + _text_of(delta))
        end = len(text)
        if end <= _MOST_HELD:
            end = max(0, self._secrets.open_end(self._sent + text) - len(self._sent))
        if end or _has_name(first):
            yield self._hidden(first, text[:end])  # the name of a call is sent at once
        self._held = _with_text(first, text[end:]) if end < len(text) else None

    def rest(self, raw: Iterable[Json] = ()) -> Iterator[ModelDelta]:
        """Yield the held text, at the end of an answer or before a delta of another part."""
        last, self._held = self._held, None
        if last is not None:
            yield self._hidden(last, _text_of(last))
        self._sent = ""
        yield from self.take(None, raw)

    def _hidden(self, delta: ModelDelta, text: str) -> ModelDelta:
        hidden = self._secrets.hide(text)
        if hidden == text and (all_hidden := self._secrets.hide(self._sent + text)) != self._sent + text:
            hidden = SECRET + all_hidden.partition(SECRET)[2]  # it began in text that was already sent
        self._sent = (self._sent + text)[-_BEFORE:]
        if _has_name(delta):
            call = cast("ToolCallDelta", delta)
            return ToolCallDelta(call.index, self._secrets.hide(call.name), hidden)
        return delta if hidden == _text_of(delta) else _with_text(delta, hidden)


async def hidden_stream(stream: AsyncIterator[Any], secrets: Secrets) -> AsyncGenerator[Any, None]:
    """Mask secrets in a model's deltas; close the model's stream on exit."""
    hiding = HiddenDeltas(secrets)
    try:
        async for item in stream:
            if type(item) is RawDelta:
                yield RawDelta(secrets.hide_data(item.data))
            elif isinstance(item, (TextDelta, ReasoningDelta, ToolCallDelta)):
                for delta in hiding.take(item):
                    yield delta
            else:
                for delta in hiding.rest():
                    yield delta
                yield item
    finally:
        await closed(stream)


async def closed(stream: Any) -> None:
    """Close the stream of a model, if it can be closed."""
    if (close := getattr(stream, "aclose", None)) is not None:
        await close()


def hidden_answer(answer: ModelAnswer, secrets: Secrets) -> ModelAnswer:
    """Return an answer without secrets. A call with a secret in its arguments is marked and does not run."""
    if not secrets:
        return answer
    message = answer.message
    parts = tuple(_hidden_part(part, secrets) for part in message.parts)
    hidden = Message(message.role, parts, meta=secrets.hide_json(message.meta))
    return replace(answer, message=hidden, model=secrets.hide(answer.model))


def _hidden_part(part: Part, secrets: Secrets) -> Part:
    meta = secrets.hide_json(part.meta) if not isinstance(part, ToolResult) else None
    if isinstance(part, (Text, Reasoning)):
        text = secrets.hide(part.text)
        return replace(part, text=text, meta=meta if text == part.text else _unsigned(meta))
    if not isinstance(part, ToolCall):
        return part
    arguments = secrets.hide_json(part.arguments)
    problem = part.problem or (WITHHELD if arguments != part.arguments else None)
    return ToolCall(
        secrets.hide(part.id),
        secrets.hide(part.name),
        arguments,
        raw=None if part.raw is None else secrets.hide(part.raw),
        problem=None if problem is None else secrets.hide(problem),
        meta=meta if arguments == part.arguments else _unsigned(meta),
    )


def _unsigned(meta: Json) -> Json:
    """Return a provider's own data without signatures, which sign the original text."""
    if not isinstance(meta, dict):
        return meta
    fields = cast("dict[str, Json]", meta)
    return {name: value for name, value in fields.items() if name not in ("signature", "provider_details")}


def _continues(last: ModelDelta, delta: ModelDelta) -> bool:
    if isinstance(last, ToolCallDelta) and isinstance(delta, ToolCallDelta):
        return last.index == delta.index and not delta.name
    return type(last) is type(delta)


def _has_name(delta: ModelDelta) -> bool:
    return isinstance(delta, ToolCallDelta) and bool(delta.name)


def _text_of(delta: ModelDelta) -> str:
    if isinstance(delta, ToolCallDelta):
        return delta.arguments
    return delta.text if isinstance(delta, (TextDelta, ReasoningDelta)) else ""


def _with_text(delta: ModelDelta, text: str) -> ModelDelta:
    if isinstance(delta, ToolCallDelta):
        return ToolCallDelta(delta.index, "", text)
    return TextDelta(text, delta.final) if isinstance(delta, TextDelta) else ReasoningDelta(text)


class Pieces:
    """Masks secrets in text that a tool reports piece by piece, since a secret may span two pieces."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = ""

    def hide(self, secrets: Secrets, value: Json) -> Json:
        """Return a piece without secrets, and without text that may begin one or end an earlier one."""
        if not isinstance(value, str):
            return secrets.hide_data(value)
        before, both = self._before, self._before + value
        hidden = secrets.hide(both)
        if hidden != both:
            # Text before the mark that was in an earlier piece is already sent.
            self._before = hidden.rpartition(SECRET)[2]
            own = secrets.hide(value)
            return own if own != value else SECRET + self._before
        self._before = both[-_MOST_HELD:]
        end = max(0, secrets.open_end(both) - len(before))
        return value if end >= len(value) else value[:end] + SECRET

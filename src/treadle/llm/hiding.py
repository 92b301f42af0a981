"""Keys that a provider sends back inside an answer: hidden in what is streamed, and in the answer as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, cast

from treadle.core.messages import Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import ModelAnswer, ModelDelta, RawDelta, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.core.model_answer import WITHHELD
from treadle.core.redaction import SECRET, Secrets

_MOST_HELD: Final = 4_000
"""Characters that are held back at most; a secret split further than that is not found while it is streamed."""


_BEFORE: Final = 16
"""Characters told before that are looked at again, for the few a secret begins with before it can be known as one."""


class HiddenDeltas:
    """Deltas of one answer, without secrets: what may begin one is held back until it is clear whether it does.

    Args:
        secrets: what is hidden.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held: ModelDelta | None = None
        self._before = ""

    def take(self, delta: ModelDelta | None, raw: Iterable[Json] = ()) -> Iterator[ModelDelta]:
        """Yield what may be told now that a delta has come, after what the provider sent as it was (`raw`)."""
        for chunk in raw:
            yield RawDelta(self._secrets.hide_json(chunk))
        if delta is None:
            return
        if not self._secrets:
            yield delta
            return
        held = self._held
        if held is not None and not _goes_on(held, delta):
            yield from self.rest()
            held = None
        first, text = (delta, _text_of(delta)) if held is None else (held, _text_of(held) + _text_of(delta))
        end = len(text)
        if end <= _MOST_HELD:
            end = max(0, self._secrets.open_end(self._before + text) - len(self._before))
        if end or _named(first):
            yield self._shown(first, text[:end])  # the name of a call is told at once
        self._held = _with_text(first, text[end:]) if end < len(text) else None

    def rest(self, raw: Iterable[Json] = ()) -> Iterator[ModelDelta]:
        """Yield what is still held back, at the end of an answer or before something else."""
        held, self._held = self._held, None
        if held is not None:
            yield self._shown(held, _text_of(held))
        self._before = ""
        yield from self.take(None, raw)

    def _shown(self, delta: ModelDelta, text: str) -> ModelDelta:
        shown = self._secrets.hide(text)
        if shown == text and (whole := self._secrets.hide(self._before + text)) != self._before + text:
            shown = SECRET + whole.partition(SECRET)[2]  # it began in what was told before
        self._before = (self._before + text)[-_BEFORE:]
        if _named(delta):
            call = cast("ToolCallDelta", delta)
            return ToolCallDelta(call.index, self._secrets.hide(call.name), shown)
        return delta if shown == _text_of(delta) else _with_text(delta, shown)


def hidden_answer(answer: ModelAnswer, secrets: Secrets) -> ModelAnswer:
    """Return an answer without secrets; a call that held one is marked, so that it does not run without it."""
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
    """Return a provider's own data without signatures, which are under what the model wrote, not under this."""
    if not isinstance(meta, dict):
        return meta
    kept = cast("dict[str, Json]", meta)
    return {name: value for name, value in kept.items() if name not in ("signature", "provider_details")}


def _goes_on(held: ModelDelta, delta: ModelDelta) -> bool:
    if isinstance(held, ToolCallDelta) and isinstance(delta, ToolCallDelta):
        return held.index == delta.index and not delta.name
    return type(held) is type(delta)


def _named(delta: ModelDelta) -> bool:
    return isinstance(delta, ToolCallDelta) and bool(delta.name)


def _text_of(delta: ModelDelta) -> str:
    if isinstance(delta, ToolCallDelta):
        return delta.arguments
    return delta.text if isinstance(delta, (TextDelta, ReasoningDelta)) else ""


def _with_text(delta: ModelDelta, text: str) -> ModelDelta:
    if isinstance(delta, ToolCallDelta):
        return ToolCallDelta(delta.index, "", text)
    return TextDelta(text, delta.final) if isinstance(delta, TextDelta) else ReasoningDelta(text)

"""Answers while a model writes them: what can be read of the deltas so far. It costs nothing unless it is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from treadle.core import events as e
from treadle.core.messages import Json
from treadle.engine.typed_answers import TypedAnswers


async def partials(
    events: AsyncIterator[e.Event | e.Ephemeral],
    typed_of: Callable[[str | None], TypedAnswers | None],
    *,
    checked: bool = False,
) -> AsyncGenerator[Any, None]:
    """Yield the answer that is being written, each time that there is more of it, as JSON data or as text.

    Nothing in it is checked, and a later answer of the task begins anew. `typed_of` returns how the answers of an agent
    are read, without a name those of the agent that the task begins with. With `checked`, what is not of the agent's
    output type is left out, and the rest is of that type.
    """
    typed = typed_of(None)
    answer: _PartialAnswer = _PartialAnswer(typed)
    seen: Any = None
    async for event in events:
        if isinstance(event, e.AgentChanged):
            typed = typed_of(event.agent)
        elif isinstance(event, e.ModelStarted):
            answer, seen = _PartialAnswer(typed), None
        elif isinstance(event, e.Delta) and answer.add(event):
            value = answer.value()
            if checked and typed is not None and value is not None:
                try:
                    value = typed.output.partial(value)
                except ValueError:
                    continue  # it may be, once there is more of it
            if value is not None and value != seen:
                seen = value
                yield value


class _PartialAnswer:
    """One answer of a model so far."""

    def __init__(self, typed: TypedAnswers | None) -> None:
        self._typed = typed
        self._tool = typed.tool.name if typed is not None and typed.tool is not None else None
        self._names: defaultdict[int, str] = defaultdict(str)
        self._text = ""
        self._answer_call: int | None = None

    def add(self, delta: e.Delta) -> bool:
        """Add a delta; return whether there is more of the answer now."""
        if self._tool is None:
            if delta.is_text:
                self._text += delta.text
            return delta.is_text
        if delta.channel != "arguments":
            return False
        self._names[delta.index] += delta.tool
        if self._answer_call is None and self._names[delta.index] == self._tool:
            self._answer_call = delta.index
        if delta.index != self._answer_call:
            return False
        self._text += delta.text
        return True

    def value(self) -> Json:
        """Return the answer as far as it can be read; None while there is nothing."""
        if self._typed is None:
            return self._text
        from pydantic_core import from_json

        from treadle.agents.dialects.lenient_json import NotOneObject, object_in_text, without_thinking

        try:
            text = without_thinking(self._text)
        except NotOneObject:
            return None
        text = text[max(text.find("{"), 0) :]
        try:
            return self._typed.output.unwrapped(from_json(text, allow_partial="trailing-strings"))
        except ValueError:
            pass
        try:
            return self._typed.output.unwrapped(object_in_text(text)[0])
        except NotOneObject:
            return None

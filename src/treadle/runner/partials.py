"""Answers while a model writes them, parsed from the deltas so far."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from treadle.core import events as e
from treadle.core.deltas import AnswerKey
from treadle.core.messages import Json, Message
from treadle.core.observation import as_text
from treadle.engine.typed_answers import TypedAnswers


async def partials(
    events: AsyncIterator[e.Event | e.Ephemeral],
    typed_of: Callable[[str | None], TypedAnswers | None],
    *,
    checked: bool = False,
) -> AsyncGenerator[Any, None]:
    """Yield the growing answer each time that it has grown, as JSON data or as text.

    Values are not checked, and a later answer of the task begins anew. An answer without deltas is yielded once, whole.

    Args:
        events: the events and deltas of the task.
        typed_of: returns the output type of an agent by its name; None names the agent that the task begins with.
        checked: yield only values of the agent's output type.
    """
    typed = typed_of(None)
    answers: dict[AnswerKey, _PartialAnswer] = {}
    async for event in events:
        if isinstance(event, e.AgentChanged):
            typed = typed_of(event.agent)
            continue
        if not isinstance(event, (e.ModelStarted, e.ModelRestarted, e.ModelReturned, e.Delta)):
            continue
        key = (event.step, event.call)
        answer = answers.get(key)
        if answer is None or isinstance(event, (e.ModelStarted, e.ModelRestarted)):
            answer = answers[key] = _PartialAnswer(typed)
        if isinstance(event, e.ModelReturned):
            del answers[key]
            if event.call is not None or answer.has_begun or not answer.add_message(event.message):
                continue
        elif not isinstance(event, e.Delta) or not answer.add(event):
            continue
        value = answer.value()
        if checked and typed is not None and value is not None:
            try:
                value = typed.output.partial(value)
            except ValueError:
                continue  # it may fit once it has grown
        if value is not None and value != answer.yielded:
            answer.yielded = value
            yield value


class _PartialAnswer:
    """One answer of a model so far."""

    def __init__(self, typed: TypedAnswers | None) -> None:
        self._typed = typed
        self._tool = typed.tool.name if typed is not None and typed.tool is not None else None
        self._names: dict[int, str] = {}
        self._texts: dict[e.Channel, str] = {}
        self._answer_call: int | None = None
        self.has_begun = False
        """whether a delta of it has arrived"""

        self.yielded: Any = None
        """the value that was yielded last"""

    def add(self, delta: e.Delta) -> bool:
        """Add a delta; return whether the answer has grown."""
        self.has_begun = True
        if self._tool is None:
            return delta.is_text and self._add_text(delta)
        if delta.channel != "arguments":
            return False
        name = self._names[delta.index] = self._names.get(delta.index, "")[: delta.tool_at] + delta.tool
        if self._answer_call is None and name == self._tool:
            self._answer_call = delta.index
        return delta.index == self._answer_call and self._add_text(delta)

    def _add_text(self, delta: e.Delta) -> bool:
        text = self._texts.get(delta.channel, "")
        if delta.at > len(text):
            return False  # earlier text is missing
        self._texts[delta.channel] = text[: delta.at] + delta.text
        return True

    def add_message(self, message: Message) -> bool:
        """Add a whole answer; return whether it is an answer of the task."""
        if self._tool is None:
            text = message.text
        else:
            calls = [call for call in message.tool_calls if call.name == self._tool]
            text = (calls[0].raw or as_text(calls[0].arguments)) if calls else ""
        self._texts["final"] = text
        return bool(text)

    def value(self) -> Json:
        """Return the parsed part of the answer; None if no part of it can be parsed yet."""
        text = "".join(self._texts.values())
        if self._typed is None:
            return text
        from pydantic_core import from_json

        from treadle.agents.dialects.lenient_json import NotOneObject, object_in_text, without_thinking

        try:
            text = without_thinking(text)
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

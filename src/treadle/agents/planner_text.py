"""Reading one JSON call, whole or as it comes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, Literal, cast

from treadle.agents.dialect import Reading
from treadle.agents.pieces import Pieces, untold
from treadle.agents.planner import FINISH
from treadle.agents.written import NotOneObject, the_object
from treadle.core.messages import Message
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta

_KEYS: Final = ("thought", "name", "arguments")
_THINKING: Final = re.compile(r"\s*<think>.*?</think>|(?s:.)*?^[ \t]*</think>", re.DOTALL | re.MULTILINE)


def reading(text: str) -> Reading:
    """Return what the first JSON object in a text means; its answer, if it is one, as JSON.

    What follows the first object was written without knowing what that call returns, and does not count.
    """
    thinking = _THINKING.match(text)
    text = text[thinking.end() :] if thinking is not None else text
    if text.lstrip().startswith("<think>"):
        return Reading(problem="your thinking has no end (</think>), and nothing comes after it")
    try:
        call, _ = the_object(text)
    except NotOneObject as error:
        return Reading(problem=f"{error}" if text.strip() else "you wrote nothing")
    thought, name, arguments = call.get("thought"), call.get("name"), call.get("arguments")
    said = thought.strip() if isinstance(thought, str) else ""
    problem = _problem(call, thought, name, arguments)
    if problem is not None:
        return Reading(thought=said, name=name if isinstance(name, str) else "", problem=problem)
    given = cast("dict[str, Any]", arguments)
    if name != FINISH:
        return Reading(thought=said, name=str(name), arguments=given)
    if set(given) != {"answer"}:
        return Reading(thought=said, name=FINISH, problem=f'{FINISH} takes exactly one argument, "answer"')
    return Reading(thought=said, answer=json.dumps(given["answer"], ensure_ascii=False))


def _problem(call: dict[str, Any], thought: Any, name: Any, arguments: Any) -> str | None:
    unknown = [key for key in call if key not in _KEYS]
    if unknown:
        return f"the JSON object has a key {unknown[0][:40]!r}; its keys are thought, name and arguments"
    if not isinstance(name, str) or not name.strip():
        return 'the JSON object has no "name" that is the name of a tool'
    if not isinstance(arguments, dict):
        return 'the JSON object has no "arguments" that are a JSON object; write {} where there is nothing to say'
    if thought is not None and not isinstance(thought, str):
        return 'the "thought" must be text'
    return None


Mode = Literal["before", "key", "colon", "value", "string", "raw", "next", "lost"]


class Members:
    """Follows one JSON call: a thought and an answer that are text are told as they come, so are arguments.

    What is written in another way than plain JSON is not followed, and told at the end.

    Args:
        as_text: whether an answer that is text is to be read as such, and not as JSON.
    """

    def __init__(self, *, as_text: bool = True) -> None:
        self._as_text = as_text
        self._mode: Mode = "before"
        self._level = 1
        self._text = ""
        """what of the present string or value is not used yet"""

        self._key = ""
        self._name = ""
        self._thought = Pieces(" \t\r\n")
        self._answer = 0
        self._named = False
        self._depth = 0
        self._quoted = self._escaped = False
        self._deltas: list[ModelDelta] = []

    def hear(self, text: str) -> Iterable[ModelDelta]:
        for letter in text:
            if self._mode == "lost":
                break
            self._take(letter)
        self._tell()
        deltas, self._deltas = self._deltas, []
        return deltas

    def end(self, message: Message) -> Iterable[ModelDelta]:
        return untold(message, self._thought.told, self._answer, named=self._named)

    def _take(self, letter: str) -> None:
        mode = self._mode
        if mode in ("string", "key"):
            self._take_quoted(letter)
        elif mode == "raw":
            self._take_raw(letter)
        elif mode == "before":
            # A model that thinks in tags may write braces there.
            self._mode = "next" if letter == "{" else "lost" if letter == "<" else "before"
        elif letter in " \t\r\n":
            pass
        elif mode == "next" and letter == '"':
            self._begin("key")
        elif mode == "next" and letter == ",":
            pass
        elif mode == "colon" and letter == ":":
            self._mode = "value"
        elif mode == "value":
            self._take_value(letter)
        elif mode == "next" and letter == "}" and self._level == 2:
            self._level = 1
        else:
            self._mode = "lost"

    def _begin(self, mode: Mode) -> None:
        self._mode, self._text, self._escaped = mode, "", False

    def _take_quoted(self, letter: str) -> None:
        if self._escaped:
            self._escaped = False
        elif letter == "\\":
            self._escaped = True
        elif letter == '"':
            if self._mode == "key":
                self._key, self._mode = self._text, "colon"
            else:
                self._tell()
                if self._key == "name" and self._level == 1:
                    self._name = self._text
                self._mode = "next"
            return
        self._text += letter

    def _take_value(self, letter: str) -> None:
        if letter == '"':
            self._begin("string")
        elif letter == "{" and self._level == 1 and (self._key, self._name) == ("arguments", FINISH):
            self._level, self._mode = 2, "next"
        else:
            self._begin("raw")
            self._depth, self._quoted = 0, False
            if self._tells_arguments:
                self._named = True
                self._deltas.append(ToolCallDelta(0, self._name))
            self._take_raw(letter)

    @property
    def _tells_arguments(self) -> bool:
        return self._level == 1 and self._key == "arguments" and self._name not in ("", FINISH)

    def _take_raw(self, letter: str) -> None:
        if self._quoted:
            if self._escaped:
                self._escaped = False
            elif letter == "\\":
                self._escaped = True
            elif letter == '"':
                self._quoted = False
        elif letter == '"':
            self._quoted = True
        elif letter in "{[":
            self._depth += 1
        elif letter in "}]" and self._depth:
            self._depth -= 1
            if not self._depth:
                self._text += letter
                self._tell()
                self._mode = "next"
                return
        elif letter in ",}" and not self._depth:
            self._mode = "next"
            self._take(letter)
            return
        self._text += letter

    def _tell(self) -> None:
        """Tell what is certain of the value that is being written."""
        if self._mode == "raw":
            text, self._text = self._text, ""
            if text and self._tells_arguments:
                self._deltas.append(ToolCallDelta(0, "", text))
        elif self._mode == "string" and (self._level, self._key) == (1, "thought"):
            if told := self._thought.more(self._decoded()):
                self._deltas.append(ReasoningDelta(told))
        elif self._mode == "string" and (self._level, self._key) == (2, "answer") and self._as_text:
            told = self._decoded()
            self._answer += len(told)
            self._deltas.append(TextDelta(told))

    def _decoded(self) -> str:
        """Return what the string so far says, up to an escape that may not be whole."""
        whole = _WHOLE.match(self._text)
        assert whole is not None
        certain, self._text = whole.group(), self._text[whole.end() :]
        try:
            return json.loads(f'"{certain}"')
        except ValueError:
            self._mode = "lost"
            return ""


_WHOLE: Final = re.compile(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB]..\\u[0-9a-fA-F]{4})*"
)

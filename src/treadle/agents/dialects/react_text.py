"""Reading ReAct text as it comes, line by line: which of it is thought, action, arguments and answer.

A line that begins with a marker (`Thought:`, `Action:`, `Action Input:`, `Answer:`, `Observation:`) begins what it
says, up to the next marker. Markers may be bold, headings, numbered, in any case, and end in a full-width colon; in a
quotation or a list they are none, for there models repeat what others wrote, or plan. What counts ends with the first
whole action, since whatever follows it was written without knowing its result; and with a line `Observation:`, for
those are not the model's to write. Words without any marker are an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal

from treadle.agents.dialects.dialect import Reading
from treadle.agents.dialects.incremental import PartialObject, PartialText, remaining_deltas
from treadle.agents.dialects.lenient_json import NotOneObject, single_object
from treadle.core.messages import Message
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta

Region = Literal["start", "thinking", "thought", "action", "input", "answer", "over"]

_MARKER: Final = re.compile(
    r"[ \t#*_`]*(thought|action[ _]?input|action|observation|(?:final[ _]?)?answer)"
    r"[ \t]{0,3}\d{0,3}[ \t]{0,3}[*_`]{0,3}[ \t]{0,3}[:：]"
    r"|[ \t]*(</think>)",
    re.IGNORECASE,
)
_DECORATION: Final = re.compile(r"[ \t#*_`]*")
_BEFORE_THE_COLON: Final = re.compile(r"[ \t]{0,3}\d{0,3}[ \t]{0,3}[*_`]{0,3}[ \t]{0,3}")
_WORDS: Final = (
    "thought",
    "action",
    "action input",
    "action_input",
    "actioninput",
    "observation",
    "answer",
    "final answer",
    "final_answer",
    "finalanswer",
    "</think>",
)
_LONGEST: Final = 60
"""No marker is longer than so many characters, whatever stands around it."""

_INPUT_BEHIND: Final = re.compile(
    r"[\s,;.|*_`]action[ _]?input[ \t]{0,3}[*_`]{0,3}[ \t]?[:：]", re.IGNORECASE
)
_FENCE: Final = re.compile(r"[ \t]*```[^\n`]*")
_AROUND_A_NAME: Final = " \t\r*`\"'“”‘’.,;:"
_LONGEST_NAME: Final = 100
_MOST_OF_A_NAME: Final = 2_000
"""How many characters behind "Action:" are looked at."""

_NO_ACTION: Final = frozenset(("", "-", "none", "n/a", "no action", "no action needed", "null"))
"""what a model writes that wants no tool and has to name one"""

_OPEN, _CLOSE = "<think>", "</think>"
_BLANK: Final = re.compile(r"\s*")


class ReactReader:
    """One text of a model, read as it comes: a reader, and at its end a reading."""

    def __init__(self) -> None:
        self._region: Region = "start"
        self._line = ""
        """what of the present line is still to be judged"""

        self._at_start = True
        """whether that begins the line"""

        self._over = False
        """whether nothing of what follows counts"""

        self._held: list[str] = []
        """words without a marker before them"""

        self._thinking = PartialText(" \t\r\n")
        self._thought = PartialText(" \t\r\n")
        self._answer = PartialText(" \t\r\n`")
        self._name = ""
        self._input: list[str] = []
        self._object = PartialObject()
        self._problem: str | None = None
        self._deltas: list[ModelDelta] = []
        self._named = False

    # -------------------------------------------------------------------------------------- listening

    def feed(self, text: str) -> Iterable[ModelDelta]:
        line, place, went = self._line + text, 0, -1
        while place < len(line) and went != place:
            went, place = place, self._advance(line, place)
        self._line = line[place:]
        deltas, self._deltas = self._deltas, []
        return deltas

    def end(self, message: Message) -> Iterable[ModelDelta]:
        """Tell what was held back, or never heard, once it is certain."""
        self._finish()
        deltas, self._deltas = self._deltas, []
        yield from deltas
        told = (self._thinking.emitted, self._thought.emitted, self._answer.emitted)
        yield from remaining_deltas(message, *told, named=self._named)

    # ---------------------------------------------------------------------------------------- reading

    def reading(self) -> Reading:
        """Return what the text means, now that it is whole."""
        self._finish()
        return replace(self._meaning(), thinking=self._thinking.text, thought=self._thought.text)

    def _meaning(self) -> Reading:
        if self._problem is not None:
            return Reading(name=_name(self._name), problem=self._problem)
        if self._region == "answer":
            return Reading(answer=_without_fence(self._answer.text))
        if self._region in ("action", "input"):
            return self._call(_name(self._name))
        if words := "".join(self._held).strip():
            return Reading(answer=words)
        return Reading(problem=self._why_nothing())

    def _call(self, name: str) -> Reading:
        if not name:
            return Reading(problem='"Action:" names no tool')
        if self._region == "action":
            return Reading(name=name, problem=f"{_no_input(name)}; write {{}} where there is nothing to say")
        try:
            return Reading(name=name, arguments=single_object("".join(self._input)))
        except NotOneObject as error:
            return Reading(name=name, problem=f'after "Action Input:" {error}')

    def _why_nothing(self) -> str:
        if self._region == "thinking":
            return f"your thinking has no end ({_CLOSE}), and nothing comes after it"
        if self._region == "thought":
            return 'there is neither an "Action:" nor an "Answer:"'
        return "you wrote an observation; those come from tools alone" if self._over else "you wrote nothing"

    # ------------------------------------------------------------------------------------ line by line

    def _advance(self, line: str, place: int) -> int:
        """Judge some more of what was heard, and return how far that went: nowhere when more has to come first."""
        if self._region == "thinking":
            return self._think(line, place)
        if self._region == "start" and not self._held:
            begin = _BLANK.match(line, place).end()  # type: ignore[union-attr]
            if begin > place:
                return begin
            if line.startswith(_OPEN, begin):
                self._region = "thinking"
                return begin + len(_OPEN)
            if _OPEN.startswith(line[begin : begin + len(_OPEN)]):
                return place
        if self._at_start:
            marker = _MARKER.match(line, place)
            if marker is not None and self._heeds(marker):
                self._at_start = False
                self._begin(marker)
                return marker.end()
            if len(line) - place <= _LONGEST and _may_become_marker(line[place:]):
                return place
        end = line.find("\n", place) + 1 or len(line)
        self._at_start = line[end - 1] == "\n"
        self._say(line[place:end])
        return end

    def _think(self, line: str, place: int) -> int:
        tag = line.find(_CLOSE, place)
        end = tag if tag >= 0 else max(place, len(line) - len(_CLOSE) + 1)
        self._tell_thinking(line[place:end])
        if tag < 0:
            return end
        self._region, self._at_start = "start", True
        return tag + len(_CLOSE)

    def _finish(self) -> None:
        line, self._line = self._line, ""
        if self._region == "thinking":
            self._tell_thinking(line)
        elif line:
            self._say(line)

    def _heeds(self, marker: re.Match[str]) -> bool:
        """Whether a marker means anything here: an answer may have lines that look like one."""
        return self._region != "answer" or marker[1] in (None, "Observation")

    def _begin(self, marker: re.Match[str]) -> None:
        if marker[1] is None:
            self._forget_drafts()
            return
        kind = re.sub("[ _]", "", marker[1].lower()).removeprefix("final")
        if self._over or self._region == "input" or kind == "observation":
            # What follows an action, or an observation of its own, was written without knowing its result.
            self._over = True
            return
        preamble, self._held = "".join(self._held), []
        if not _FENCE.fullmatch(preamble.strip()):
            self._tell_thought(preamble)
        before = marker[0][: marker.start(1) - marker.start()]
        self._change(kind, "*_`" if before.strip(" \t#") else "")

    def _change(self, kind: str, decoration: str) -> None:
        acts = self._region == "action"
        if kind == "thought" and not acts:
            self._region = "thought"
            self._thought.cut(decoration)
        elif kind == "action" and not acts:
            self._region = "action"
        elif kind == "actioninput" and acts:
            self._begin_input()
        elif kind == "answer" and (not acts or _name(self._name).lower() in _NO_ACTION):
            self._region, self._name = "answer", ""
            self._answer.cut(decoration)
        else:
            self._over = True
            self._problem = (
                _no_input(_name(self._name))
                if acts
                else 'there is an "Action Input:" without an "Action:" before it'
            )

    def _forget_drafts(self) -> None:
        """Take all that was written so far for thinking: not every server sends the tag that begins it."""
        held, self._held = "".join(self._held), []
        self._tell_thinking(held)
        self._region, self._at_start, self._over, self._problem = "start", True, False, None
        self._name, self._input, self._object, self._named = "", [], PartialObject(), False
        self._answer = PartialText(self._answer.held_back)

    def _tell_thinking(self, words: str) -> None:
        if told := self._thinking.add(words):
            self._deltas.append(ReasoningDelta(told))

    def _tell_thought(self, words: str) -> None:
        if told := self._thought.add(words):
            self._deltas.append(ReasoningDelta(told))

    def _say(self, words: str) -> None:
        if self._over:
            return
        if self._region == "start":
            self._held.append(words)
        elif self._region == "thought":
            self._tell_thought(words)
        elif self._region == "action":
            self._name_it(words)
        elif self._region == "input":
            self._input.append(words)
            if told := self._object.add(words):
                self._deltas.append(ToolCallDelta(0, "", told))
        elif told := self._answer.add(words):
            self._deltas.append(TextDelta(told))

    def _name_it(self, words: str) -> None:
        looked_at = len(self._name)
        self._name += words[: _MOST_OF_A_NAME - looked_at]
        behind = None
        if len(self._name) > looked_at:
            behind = _INPUT_BEHIND.search(self._name, max(0, looked_at - _LONGEST))
        if behind is not None:
            rest, self._name = self._name[behind.end() :], self._name[: behind.start()]
            self._begin_input()
            self._say(rest)

    def _begin_input(self) -> None:
        self._region, self._named = "input", True
        self._deltas.append(ToolCallDelta(0, _name(self._name)))


def read_text(text: str) -> Reading:
    """Return what a text in the ReAct protocol means."""
    reader = ReactReader()
    reader.feed(text)
    return reader.reading()


def _no_input(name: str) -> str:
    return f'"Action: {name}" has no "Action Input:" after it'


def _may_become_marker(line: str) -> bool:
    if "\n" in line:
        return False
    begun = _DECORATION.sub("", line, count=1).lower()
    return any(
        word.startswith(begun) or (begun.startswith(word) and _BEFORE_THE_COLON.fullmatch(begun, len(word)))
        for word in _WORDS
    )


def _name(written: str) -> str:
    """Return the name of a tool without what models like to put around it."""
    line = next((line for line in written.splitlines() if line.strip()), "")
    line = re.sub(r"\s+[(（].*|\(\)\s*$", "", line.strip(_AROUND_A_NAME))
    return line.strip(_AROUND_A_NAME)[:_LONGEST_NAME]


def _without_fence(answer: str) -> str:
    """Return an answer without the end of a code fence that began before it."""
    fences = sum(line.lstrip().startswith("```") for line in answer.splitlines())
    return answer.removesuffix("```").rstrip() if fences % 2 and answer.endswith("\n```") else answer

"""Reading ReAct text as it comes, line by line: which of it is thought, action, arguments and answer.

A line that begins with a marker (`Thought:`, `Action:`, `Action Input:`, `Answer:`, `Observation:`) begins what it
says, up to the next marker. Markers may be bold, numbered, quoted, in any case, and end in a full-width colon. What
counts ends with the first whole action, for whatever follows it was written without knowing its result; and with a
line `Observation:`, for those are not the model's to write. Words without any marker are an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from treadle.agents.dialect import Reading
from treadle.agents.pieces import Braces, Pieces, untold
from treadle.agents.written import NotOneObject, only_object
from treadle.core.messages import Message
from treadle.core.model import ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta

Region = Literal["start", "thinking", "thought", "action", "input", "answer", "over"]

_MARKER: Final = re.compile(
    r"[ \t>#*_`\-]*(thought|action[ _]?input|action|observation|(?:final[ _]?)?answer)"
    r"[ \t]*\d{0,3}[ \t]*[*_`]*[ \t]*[:：]"
    r"|[ \t]*(</think>)",
    re.IGNORECASE,
)
_DECORATION: Final = re.compile(r"[ \t>#*_`\-]*")
_BEFORE_THE_COLON: Final = re.compile(r"[ \t]*\d{0,3}[ \t]*[*_`]*[ \t]*")
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

_INPUT_BEHIND: Final = re.compile(r"[\s,;.|]+[*_`]*action[ _]?input[ \t]*[*_`]*[ \t]*[:：]", re.IGNORECASE)
_FENCE: Final = re.compile(r"[ \t]*```[^\n`]*")
_AROUND_A_NAME: Final = " \t\r*`\"'“”‘’.,;:"
_LONGEST_NAME: Final = 100
_NO_ACTION: Final = frozenset(("", "-", "none", "n/a", "no action", "no action needed", "null"))
"""what a model writes that wants no tool and has to name one"""

_OPEN, _CLOSE = "<think>", "</think>"


class Lines:
    """One text of a model, read as it comes: a listener, and at its end a reading."""

    def __init__(self) -> None:
        self._region: Region = "start"
        self._line = ""
        """what of the present line is still to be judged"""

        self._at_start = True
        """whether that begins the line"""

        self._over = False
        """whether nothing of what follows counts"""

        self._held = ""
        """words without a marker before them"""

        self._thought = Pieces(" \t\r\n")
        self._answer = Pieces(" \t\r\n`")
        self._name = ""
        self._input: list[str] = []
        self._object = Braces()
        self._problem: str | None = None
        self._deltas: list[ModelDelta] = []
        self._named = False

    # -------------------------------------------------------------------------------------- listening

    def hear(self, text: str) -> Iterable[ModelDelta]:
        self._line += text
        while self._line and self._advance():
            pass
        deltas, self._deltas = self._deltas, []
        return deltas

    def end(self, message: Message) -> Iterable[ModelDelta]:
        """Tell what was held back, or never heard, once it is certain."""
        self._finish()
        deltas, self._deltas = self._deltas, []
        yield from deltas
        yield from untold(message, self._thought.told, self._answer.told, named=self._named)

    # ---------------------------------------------------------------------------------------- reading

    def reading(self) -> Reading:
        """Return what the text means, now that it is whole."""
        self._finish()
        thought, name = self._thought.text, _name(self._name)
        if self._problem is not None:
            return Reading(thought=thought, name=name, problem=self._problem)
        if self._region == "answer":
            return Reading(thought=thought, answer=_without_fence(self._answer.text))
        if self._region in ("action", "input"):
            return self._call(thought, name)
        if self._region == "start" and self._held.strip():
            return Reading(thought=thought, answer=self._held.strip())
        return Reading(thought=thought, problem=self._why_nothing())

    def _call(self, thought: str, name: str) -> Reading:
        if not name:
            return Reading(thought=thought, problem='"Action:" names no tool')
        if self._region == "action":
            why = (
                f'"Action: {name}" has no "Action Input:" after it; write {{}} where there is nothing to say'
            )
            return Reading(thought=thought, name=name, problem=why)
        try:
            return Reading(thought=thought, name=name, arguments=only_object("".join(self._input)))
        except NotOneObject as error:
            return Reading(thought=thought, name=name, problem=f'after "Action Input:" {error}')

    def _why_nothing(self) -> str:
        if self._region == "thinking":
            return f"your thinking has no end ({_CLOSE}), and nothing comes after it"
        if self._region == "thought":
            return 'there is neither an "Action:" nor an "Answer:"'
        return "you wrote an observation; those come from tools alone" if self._over else "you wrote nothing"

    # ------------------------------------------------------------------------------------ line by line

    def _advance(self) -> bool:
        """Judge some more of what was heard; False when more has to come first."""
        line = self._line
        if self._region == "thinking":
            return self._think(line)
        if self._region == "start" and not self._held.strip():
            begun = line.lstrip()
            if begun.startswith(_OPEN):
                self._line, self._region = begun[len(_OPEN) :], "thinking"
                return True
            if _OPEN.startswith(begun):
                return False
        if self._at_start:
            marker = _MARKER.match(line)
            if marker is not None and self._heeds(marker):
                self._line, self._at_start = line[marker.end() :], False
                self._begin(marker)
                return True
            if _may_become_marker(line):
                return False
        end = line.find("\n") + 1 or len(line)
        self._line, self._at_start = line[end:], line[end - 1] == "\n"
        self._say(line[:end])
        return True

    def _think(self, line: str) -> bool:
        words, tag, rest = line.partition(_CLOSE)
        if tag:
            self._line, self._region, self._at_start = rest, "start", True
        else:
            keep = max(0, len(line) - len(_CLOSE) + 1)
            words, self._line = line[:keep], line[keep:]
        self._think_aloud(words)
        return bool(tag)

    def _finish(self) -> None:
        line, self._line = self._line, ""
        if self._region == "thinking":
            self._think_aloud(line)
        elif line:
            self._say(line)

    def _heeds(self, marker: re.Match[str]) -> bool:
        """Whether a marker means anything here: an answer may have lines that look like one."""
        return self._region != "answer" or marker[1] in (None, "Observation")

    def _begin(self, marker: re.Match[str]) -> None:
        kind = re.sub("[ _]", "", (marker[1] or _CLOSE).lower()).removeprefix("final")
        if kind == _CLOSE:
            self._forget_drafts()
        elif self._over or self._region == "input" or kind == "observation":
            # What follows an action, or an observation of its own, was written without knowing its result.
            self._over = True
        else:
            self._end_preamble()
            self._change(
                kind, "*_`" if set("*_`") & set(marker[0].lower().partition(marker[1].lower())[0]) else ""
            )

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
        elif kind == "actioninput":
            self._problem, self._over = 'there is an "Action Input:" without an "Action:" before it', True
        else:
            self._problem, self._over = f'"Action: {_name(self._name)}" has no "Action Input:" after it', True

    def _forget_drafts(self) -> None:
        """Take all that was written so far for thinking: not every server sends the tag that begins it."""
        self._end_preamble()
        self._region, self._at_start, self._over, self._problem = "start", True, False, None
        self._name, self._input, self._object, self._named = "", [], Braces(), False
        self._answer = Pieces(self._answer.held_back)

    def _end_preamble(self) -> None:
        preamble, self._held = self._held, ""
        if not _FENCE.fullmatch(preamble.strip()):
            self._think_aloud(preamble)

    def _think_aloud(self, words: str) -> None:
        if told := self._thought.more(words):
            self._deltas.append(ReasoningDelta(told))

    def _say(self, words: str) -> None:
        if self._over:
            return
        if self._region == "start":
            self._held += words
        elif self._region == "thought":
            self._think_aloud(words)
        elif self._region == "action":
            self._name += words
            if behind := _INPUT_BEHIND.search(self._name):
                words, self._name = self._name[behind.end() :], self._name[: behind.start()]
                self._begin_input()
                self._say(words)
        elif self._region == "input":
            self._input.append(words)
            if told := self._object.more(words):
                self._deltas.append(ToolCallDelta(0, "", told))
        elif told := self._answer.more(words):
            self._deltas.append(TextDelta(told))

    def _begin_input(self) -> None:
        self._region, self._named = "input", True
        self._deltas.append(ToolCallDelta(0, _name(self._name)))


def _may_become_marker(line: str) -> bool:
    if len(line) > _LONGEST or "\n" in line:
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

"""Texts of models, and what is read from them: a call runs only with the arguments in the text, or not at all."""

import ast
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.agents.dialects.transcripts import PLANNER, REACT, Case
from treadle.agents.dialects.dialect import DeltaReader, Reading
from treadle.agents.dialects.planner import Planner, read_call
from treadle.agents.dialects.react import React, read_text
from treadle.core.messages import Message, Reasoning, Text, ToolCall
from treadle.core.model import (
    ModelAnswer,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from treadle.core.tools import ToolSpec

SPECS = tuple(ToolSpec(name=name) for name in ("add", "say", "f", "now", "search", "pay"))
REQUEST = ModelRequest((), "", SPECS, "auto", ModelSettings(), "t", "s1", 0, 1)
DIALECTS = {"react": React(), "planner": Planner()}
PARSERS: dict[str, Callable[[str], Reading]] = {"react": read_text, "planner": read_call}
CASES = [("react", case) for case in REACT] + [("planner", case) for case in PLANNER]


def named(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, Case)) else None


@pytest.mark.parametrize(("dialect", "case"), CASES, ids=named)
def test_a_text_means(dialect: str, case: Case) -> None:
    read = PARSERS[dialect](case.text)
    if case.problem is None:
        assert read == case.means
    else:
        assert read.problem is not None
        assert case.problem in read.problem
        said = (read.thinking, read.thought, read.name, read.arguments, read.answer)
        assert said == (case.means.thinking, case.means.thought, case.means.name, None, None)


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len(REACT) >= 60
    assert len({case.name for case in REACT}) == len(REACT)
    assert len({case.name for case in PLANNER}) == len(PLANNER)


# ------------------------------------------------------------------------------------------- as it comes


def heard(
    reader: DeltaReader, text: str, message: Message, cut: Callable[[], int]
) -> tuple[str, str, str, str]:
    """What is told on each channel while a text comes in pieces: thought, answer, name and arguments."""
    deltas: list[Any] = []
    place = 0
    while place < len(text):
        size = cut()
        deltas += reader.feed(text[place : place + size])
        place += size
    deltas += reader.end(message)
    return (
        "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)),
        "".join(d.text for d in deltas if isinstance(d, TextDelta)),
        "".join(d.name for d in deltas if isinstance(d, ToolCallDelta)),
        "".join(d.arguments for d in deltas if isinstance(d, ToolCallDelta)),
    )


def check_stream(dialect: str, text: str, cut: Callable[[], int]) -> None:
    """However a text is cut, its thought and its answer are told as they are read."""
    spoken = DIALECTS[dialect]
    answer = spoken.read(ModelAnswer(Message("assistant", (Text(text),))), REQUEST)
    parts = answer.message.parts
    thought, words, name, arguments = heard(spoken.delta_reader(REQUEST), text, answer.message, cut)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if calls and calls[0].problem is not None:
        return  # of what cannot be read anything may have been told, as of an answer that breaks off
    if "</think>" in text and not text.lstrip().startswith("<think>"):
        return  # drafts are told before it is known that they are
    assert thought == "".join(part.text for part in parts if isinstance(part, Reasoning))
    assert words == answer.message.text
    assert name == "".join(call.name for call in calls)
    if arguments:
        assert calls


@pytest.mark.parametrize(("dialect", "case"), CASES, ids=named)
def test_deltas_add_up_to_the_reading_of_the_whole_text(dialect: str, case: Case) -> None:
    for size in (1, 2, 3, 7, 1_000):
        check_stream(dialect, case.text, lambda size=size: size)


def test_arguments_become_deltas_as_they_are_written() -> None:
    text = 'Thought: x\nAction: add\nAction Input: ```json\n{"a": "}", "b": [1]}\n```\n'
    spoken = DIALECTS["react"]
    answer = spoken.read(ModelAnswer(Message("assistant", (Text(text),))), REQUEST)
    told = heard(spoken.delta_reader(REQUEST), text, answer.message, lambda: 1)
    assert told == ("x", "", "add", '{"a": "}", "b": [1]}')


def test_no_marker_of_the_protocol_becomes_a_delta_of_the_answer() -> None:
    reader = DIALECTS["react"].delta_reader(REQUEST)
    told = [list(reader.feed(letter)) for letter in "Thought: x\nAnswer: five\nObserv"]
    words = [delta.text for deltas in told for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(words) == "five"


# ------------------------------------------------------------------------------------------- generated


TOOLS = ("add", "say", "f", "now")
WORDS = (
    "sum",
    "oak",
    "é",
    "日本",
    "it's",
    'a "quote"',
    "{brace",
    "back\\slash",
    "Action: x",
    "tab\t",
    "🙂",
    "",
)


def value(chance: random.Random, depth: int = 2) -> Any:
    kind = chance.randrange(8 if depth else 6)
    if kind == 6:
        return [value(chance, depth - 1) for _ in range(chance.randrange(3))]
    if kind == 7:
        return {chance.choice(WORDS): value(chance, depth - 1) for _ in range(chance.randrange(3))}
    return (chance.choice(WORDS), chance.randrange(-9, 1000), 0.25, True, None, "x\ny")[kind]


def an_object(chance: random.Random, given: dict[str, Any]) -> str:
    """An object as some model would write it: JSON, JSON with commas too many, or with other quotes."""
    style = chance.randrange(4)
    written = json.dumps(given, ensure_ascii=chance.random() < 0.3, indent=chance.choice((None, None, 2)))
    if style == 0 and given:
        return written[:-1].rstrip() + ",}"
    if style == 1:
        return single_quoted(given)
    return written


def single_quoted(given: Any) -> str:
    if isinstance(given, str):
        return "'" + json.dumps(given, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
    if isinstance(given, dict):
        return "{" + ", ".join(f"{single_quoted(k)}: {single_quoted(v)}" for k, v in given.items()) + "}"
    if isinstance(given, list):
        return "[" + ", ".join(map(single_quoted, given)) + "]"
    return json.dumps(given)


def react_text(chance: random.Random) -> tuple[str, str, str, dict[str, Any]]:
    """A text before its object, the object, what follows it, and its meaning."""
    given = {chance.choice(("a", "b", "text", "日")): value(chance) for _ in range(chance.randrange(4))}
    mark = chance.choice(("{}:", "**{}:**", "{}：", "### {}:", "{} 1:"))
    thought = chance.choice(("I add.", "Two\nlines.", "", "多", "so: {x} and [y]"))
    before = chance.choice(("", "", "Well.\n", "```\n"))
    if thought:
        before += f"{mark.format('Thought')} {thought}\n"
    before += f"{mark.format('Action')} {chance.choice(('{}', '`{}`', '{} (it)')).format('add')}\n"
    before += mark.format("Action Input") + chance.choice((" ", "\n", " ```json\n", " with "))
    after = chance.choice(
        (
            "",
            "\n",
            "\n```\n",
            " thanks",
            "\nObservation: 5\nAnswer: 5",
            '\nAction: pay\nAction Input: {"n": 1}',
        )
    )
    return before, an_object(chance, given), after, given


def planner_text(chance: random.Random) -> tuple[str, str, str, dict[str, Any]]:
    given = {chance.choice(("a", "b", "text", "日")): value(chance) for _ in range(chance.randrange(4))}
    call = {"thought": chance.choice(WORDS), "name": "add", "arguments": given}
    order = chance.sample(list(call), 3)
    before = chance.choice(("", "Well: ", "```json\n", "\n\n"))
    after = chance.choice(("", "\n```", "\nObservation: 5", '\n{"name": "pay", "arguments": {"n": 1}}'))
    return before, an_object(chance, {key: call[key] for key in order}), after, given


GENERATORS = {"react": react_text, "planner": planner_text}


def mutated(chance: random.Random, text: str) -> str:
    """A text with a few things wrong."""
    for _ in range(chance.randrange(1, 4)):
        at, to = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        match chance.randrange(7):
            case 0:
                text = text[:at] + text[at + 1 :]
            case 1:
                text = text[:at] + chance.choice("{}[]\"',:\n\\：“”*`a1 ") + text[at:]
            case 2:
                text = text[:at]
            case 3:
                text = text[:at] + text[to:]
            case 4:
                text += text[at:to]
            case 5:
                lines = text.split("\n")
                chance.shuffle(lines)
                text = "\n".join(lines)
            case _:
                word = chance.choice(
                    ("\nObservation: ", "Action: pay\n", "</think>", "\nThought: ", "Answer: ", "```\n")
                )
                text = text[:at] + word + text[at:]
    return text


class Names(ast.NodeTransformer):
    """The words of JSON in what is read as Python."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant({"true": True, "false": False, "null": None}[node.id])


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """All objects that stand in a text, found by trial: as JSON, else as Python with its quotes and commas."""
    plain = text.translate({0xFF1A: ":", 0xFF0C: ",", 0x201C: '"', 0x201D: '"'})
    for begin in (at for at, letter in enumerate(text) if letter == "{"):
        for end in (at + 1 for at, letter in enumerate(text) if letter == "}" and at > begin):
            try:
                found = json.loads(text[begin:end])
            except ValueError:
                try:
                    tree = Names().visit(ast.parse(plain[begin:end].strip(), mode="eval"))
                    found = ast.literal_eval(tree)
                except (ValueError, SyntaxError, KeyError, TypeError, MemoryError):
                    continue
            if isinstance(found, dict):
                yield found


def check_exact(dialect: str, text: str) -> bool:
    """If a call is read, its arguments stand in the text, before any observation; True if one is read."""
    read = PARSERS[dialect](text)
    if read.arguments is None:
        assert (read.answer is None) != (read.problem is None)
        return False
    assert read.problem is None
    assert read.answer is None
    # What a tag ends is a draft, unless it is inside of the object.
    mine = text
    if dialect == "react":
        mine = re.split(
            r"(?m)^[ \t>#*_`-]*[Oo]bservation[ \t\d*_`]*[:：]", re.sub(r"(?s)<think>.*?</think>", "", text)
        )[0]
        assert read.name in text
        assert any(same(found, read.arguments) for found in objects_in(mine)), text
    else:
        assert any(same(found.get("arguments"), read.arguments) for found in objects_in(mine)), text
    return True


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not true, nor 1.0."""
    return repr(a) == repr(b)


def check_generated(dialect: str, seed: int) -> None:
    """One text that is as it should be, the same one broken off, and one by hand with a few things wrong."""
    chance = random.Random(f"{dialect} {seed}")
    before, written, after, given = GENERATORS[dialect](chance)
    read = PARSERS[dialect](before + written + after)
    assert (read.name, read.problem) == ("add", None), before + written + after
    assert same(read.arguments, given), before + written + after
    check_stream(dialect, before + written + after, lambda: chance.randrange(1, 9))
    open_still = before + written[: chance.randrange(1, len(written))]
    for text in (open_still, open_still + after):
        assert PARSERS[dialect](text).arguments is None, text


def check_mutated(dialect: str, seed: int) -> bool:
    chance = random.Random(f"{dialect} mutated {seed}")
    text = mutated(chance, chance.choice(REACT if dialect == "react" else PLANNER).text)
    check_stream(dialect, text, lambda: chance.randrange(1, 9))
    return check_exact(dialect, text)


def check_many(dialect: str, seeds: range) -> None:
    for seed in seeds:
        check_generated(dialect, seed)
    ran = sum(check_mutated(dialect, seed) for seed in seeds)
    assert ran > len(seeds) // 20  # else the mutations are too wild to tell anything


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_generated_text_runs_what_it_says_or_nothing(dialect: str) -> None:
    check_many(dialect, range(400))


@pytest.mark.full
@pytest.mark.parametrize("dialect", DIALECTS)
def test_thousands_of_generated_texts_run_what_they_say_or_nothing(dialect: str) -> None:
    check_many(dialect, range(400, 5_400))

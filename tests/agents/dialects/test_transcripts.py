"""Generated texts of models: a call runs with exactly the arguments in the text, or not at all."""

import ast
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.dialects.readings import DIALECTS, PARSERS, check_stream
from tests.agents.dialects.transcripts import PLANNER, REACT

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


def an_object(chance: random.Random, arguments: dict[str, Any]) -> str:
    """An object as some model would write it: JSON, JSON with commas too many, or with other quotes."""
    style = chance.randrange(4)
    written = json.dumps(arguments, ensure_ascii=chance.random() < 0.3, indent=chance.choice((None, None, 2)))
    if style == 0 and arguments:
        return written[:-1].rstrip() + ",}"
    if style == 1:
        return single_quoted(arguments)
    return written


def single_quoted(arguments: Any) -> str:
    if isinstance(arguments, str):
        return (
            "'"
            + json.dumps(arguments, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
            + "'"
        )
    if isinstance(arguments, dict):
        return "{" + ", ".join(f"{single_quoted(k)}: {single_quoted(v)}" for k, v in arguments.items()) + "}"
    if isinstance(arguments, list):
        return "[" + ", ".join(map(single_quoted, arguments)) + "]"
    return json.dumps(arguments)


def react_text(chance: random.Random) -> tuple[str, str, str, dict[str, Any]]:
    """A text before its object, the object, what follows it, and its meaning."""
    arguments = {chance.choice(("a", "b", "text", "日")): value(chance) for _ in range(chance.randrange(4))}
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
    return before, an_object(chance, arguments), after, arguments


def planner_text(chance: random.Random) -> tuple[str, str, str, dict[str, Any]]:
    arguments = {chance.choice(("a", "b", "text", "日")): value(chance) for _ in range(chance.randrange(4))}
    call = {"thought": chance.choice(WORDS), "name": "add", "arguments": arguments}
    order = chance.sample(list(call), 3)
    before = chance.choice(("", "Well: ", "```json\n", "\n\n"))
    after = chance.choice(("", "\n```", "\nObservation: 5", '\n{"name": "pay", "arguments": {"n": 1}}'))
    return before, an_object(chance, {key: call[key] for key in order}), after, arguments


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
    """The literals of JSON, for text that is read as Python."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant({"true": True, "false": False, "null": None}[node.id])


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """All objects that stand in a text, found by trial: as JSON, else as Python with its quotes and commas."""
    plain = text.translate({0xFF1A: ":", 0xFF0C: ",", 0x201C: '"', 0x201D: '"'})
    for begin in (at for at, letter in enumerate(text) if letter == "{"):
        for end in (at + 1 for at, letter in enumerate(text) if letter == "}" and at > begin):
            try:
                document = json.loads(text[begin:end])
            except ValueError:
                try:
                    tree = Names().visit(ast.parse(plain[begin:end].strip(), mode="eval"))
                    document = ast.literal_eval(tree)
                except (ValueError, SyntaxError, KeyError, TypeError, MemoryError):
                    continue
            if isinstance(document, dict):
                yield document


def check_exact(dialect: str, text: str) -> bool:
    """Return whether a call is read; its arguments must be in the text, before any observation."""
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
        assert any(same(document, read.arguments) for document in objects_in(mine)), text
    else:
        assert any(same(document.get("arguments"), read.arguments) for document in objects_in(mine)), text
    return True


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not true, nor 1.0."""
    return repr(a) == repr(b)


def check_generated(dialect: str, seed: int) -> None:
    """Check a well-formed text, and the same text broken off."""
    chance = random.Random(f"{dialect} {seed}")
    before, written, after, arguments = GENERATORS[dialect](chance)
    read = PARSERS[dialect](before + written + after)
    assert (read.name, read.problem) == ("add", None), before + written + after
    assert same(read.arguments, arguments), before + written + after
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
def test_a_generated_text_runs_exactly_its_call_or_none(dialect: str) -> None:
    check_many(dialect, range(400))


@pytest.mark.full
@pytest.mark.parametrize("dialect", DIALECTS)
def test_thousands_of_generated_texts_run_exactly_their_calls_or_none(dialect: str) -> None:
    check_many(dialect, range(400, 5_400))

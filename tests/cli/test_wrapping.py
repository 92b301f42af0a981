"""Lines on a terminal: broken between words, and indented where they go on."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from treadle.cli.wrapping import WordFlow, wrapped


def console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, soft_wrap=True)


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("short", ["short"]),
        ("3 model calls and 12 tool calls", ["3 model calls and 12", "tool calls"]),
        ("  → pay(amount=5, to=the landlord)", ["  → pay(amount=5,", "    to=the landlord)"]),
        ("  one two three four five\n  six", ["  one two three four", "  five", "  six"]),
        ("1 step · 2 calls · 3 tokens", ["1 step · 2 calls", "· 3 tokens"]),
        ("an_id_that_is_longer_than_any_line", ["an_id_that_is_longer", "_than_any_line"]),
    ],
)
def test_a_line_is_broken_between_words_and_goes_on_below_its_first_word(line: str, lines: list[str]) -> None:
    assert wrapped(Text(line), console(20)).plain.split("\n") == lines


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three four five six", ["  one two three four", "  five six"]),
        ("one\n\ntwo", ["  one", "  ", "  two"]),
        ("漢字漢字漢字漢字漢字漢字", ["  漢字漢字漢字漢字漢", "  字漢字"]),
    ],
)
def test_text_in_pieces_of_any_size_is_broken_between_words(text: str, lines: list[str], size: int) -> None:
    out = console(20)
    flow = WordFlow(out)
    for start in range(0, len(text), size):
        flow.write(text[start : start + size])
    flow.end()
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue() == "\n".join(lines) + "\n"


def test_a_word_without_end_is_shown_while_it_arrives() -> None:
    out = console(20)
    flow = WordFlow(out)
    for _ in range(30):
        flow.write("x")
    assert isinstance(out.file, io.StringIO)
    assert "x" * 20 in out.file.getvalue()

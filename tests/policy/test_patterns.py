"""Patterns of names: whole texts, any text, case."""

from typing import Any

import pytest

from treadle.policy.patterns import matches, texts


@pytest.mark.parametrize(
    ("patterns", "text", "outcome"),
    [
        (["send"], "send", True),
        (["send"], "send_mail", False),
        (["send_*"], "send_mail", True),
        (["a", "send_*"], "send_mail", True),
        (["*"], "", True),
        (["*"], "two\nlines", True),
        (["*.py"], "x.py\nrm", False),
        (["Send"], "send", False),
        (["s?nd"], "send", True),
        (["[sr]end"], "rend", True),
        (["a.c"], "abc", False),
        ([], "x", False),
    ],
)
def test_a_pattern_is_the_whole_text_and_case_counts(patterns: list[str], text: str, outcome: bool):
    assert matches(patterns, text) is outcome


@pytest.mark.parametrize(
    ("value", "listed"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        (("a",), ["a"]),
        ("", []),
        ([], []),
        (["a", ""], []),
        (["a", 1], []),
        (5, []),
        (None, []),
    ],
)
def test_a_text_or_a_list_of_texts_is_a_list_of_texts(value: Any, listed: list[str]):
    assert texts(value) == listed

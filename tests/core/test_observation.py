"""The text that a model sees of a call is bounded, names what was cut, and is always made."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.messages import Image, Text
from treadle.core.observation import as_text, error_text, observation, unknown_tool_text
from treadle.errors import ToolError

PICTURE = Image(data=b"1", media_type="image/png")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "(done, no output)"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
    ],
)
def test_a_value_reads_as_text_or_compact_json(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_short_text_and_pictures_pass_unchanged() -> None:
    assert observation("hello", call_id="s1-0") == (Text("hello"),)
    assert observation(["a", PICTURE, Text("b", {"m": 1})], call_id="s1-0") == (
        Text("a"),
        PICTURE,
        Text("b", {"m": 1}),
    )


def test_long_text_keeps_head_and_tail_and_says_what_was_cut_and_where_it_is() -> None:
    (part,) = observation("h" * 50 + "m" * 900 + "t" * 50, call_id="s3-0", limit=100)
    assert part == Text("h" * 50 + "\n[... 900 characters cut; full output: call s3-0 ...]\n" + "t" * 50)


def test_several_texts_share_one_limit() -> None:
    parts = observation(["a" * 60, PICTURE, "b" * 60, "c" * 60], call_id="s1-0", limit=100)
    assert parts[0] == Text("a" * 60)
    assert parts[1] == PICTURE
    assert parts[2] == Text("b" * 20 + "\n[... 20 characters cut; full output: call s1-0 ...]\n" + "b" * 20)
    assert parts[3] == Text("[... 60 characters cut; full output: call s1-0 ...]")


@pytest.mark.parametrize("empty", ["", [], [Text("")]])
def test_an_empty_observation_says_so_since_providers_refuse_empty_text(empty: Any) -> None:
    assert observation(empty, call_id="s1-0") == (Text("(empty output)"),)


@given(st.lists(st.text(max_size=300), max_size=4), st.integers(0, 200))
def test_an_observation_is_never_longer_than_its_limit_and_its_notes(texts: list[str], limit: int) -> None:
    parts = observation(texts, call_id="s1-0", limit=limit)
    assert parts
    assert all(part.text for part in parts)  # type: ignore[union-attr]
    assert sum(len(part.text) for part in parts) <= limit + 80 * max(1, len(texts))  # type: ignore[union-attr]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_is_described_by_type_message_and_notes() -> None:
    error = ValueError("no such row")
    error.add_note("rows start at 1")
    assert error_text(error) == "ValueError: no such row\nrows start at 1"
    assert error_text(KeyError("a")) == "KeyError: 'a'"
    assert error_text(TimeoutError()) == "TimeoutError"
    assert error_text(ToolError("the shop is closed")) == "the shop is closed"
    assert error_text(Mute()) == "Mute: (its message cannot be shown)"


def test_an_exception_group_is_described_with_its_first_members() -> None:
    group = ExceptionGroup("two failed", [ValueError("a"), OSError("b")])
    assert error_text(group) == "ExceptionGroup: two failed (2 sub-exceptions)\nValueError: a\nOSError: b"


def test_the_text_of_an_error_is_bounded_and_can_be_written() -> None:
    text = error_text(ValueError("\ud800" + "x" * 1_000_000))
    assert len(text) < 2_100
    text.encode()


def test_an_unknown_tool_is_answered_with_near_names_and_the_list() -> None:
    assert (
        unknown_tool_text("ad", ["add", "sub"])
        == "There is no tool 'ad'. Did you mean 'add'? Tools: add, sub."
    )
    assert unknown_tool_text("Read-File", ["read_file"]).startswith(
        "There is no tool 'Read-File'. Did you mean 'read_file'?"
    )
    assert unknown_tool_text("zzz", ["add"]) == "There is no tool 'zzz'. Tools: add."
    assert unknown_tool_text("x", []) == "There is no tool 'x': there are no tools at all."


def test_the_list_of_tools_is_bounded() -> None:
    text = unknown_tool_text("x" * 10_000, [f"tool_{n}" for n in range(1000)])
    assert text.endswith("tool_39, and 960 more.")
    assert len(text) < 800

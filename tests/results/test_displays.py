"""Times, labels, errors, outputs and messages, as displays show them."""

import pytest

from treadle import Image, Message, Text
from treadle.core.events import Failure
from treadle.core.messages import ToolCall
from treadle.results.displays import (
    error_text,
    if_repeated,
    labels_text,
    messages_table,
    moment,
    output_text,
    parts_text,
)


def test_a_time_is_written_to_the_second_in_utc() -> None:
    assert moment(1_700_000_000_999_999) == "2023-11-14 22:13:20 UTC"


def test_content_that_is_not_text_appears_as_its_type() -> None:
    assert parts_text([Text("Look:"), Image(data=b"1", media_type="image/png")]) == "Look: [Image]"


@pytest.mark.parametrize(
    ("output", "text"), [("yes", "yes"), ({"a": 1}, '{"a":1}'), (range(2), "range(0, 2)")]
)
def test_an_output_is_text_or_json_or_its_repr(output: object, text: str) -> None:
    assert output_text(output).replace(" ", "") == text.replace(" ", "")


def test_absent_values_are_empty() -> None:
    assert (error_text(None), labels_text({}), if_repeated(1)) == ("", "", None)
    assert error_text(Failure("tool", "timeout", "too slow")) == "timeout: too slow"
    assert (labels_text({"room": "4", "day": "monday"}), if_repeated(2)) == ("room=4, day=monday", 2)


def test_a_message_is_a_row_of_its_role_its_text_and_its_calls() -> None:
    message = Message("assistant", (Text("I add."), ToolCall("c1", "add", {"a": 1})))
    [row] = [table.row(message) for table in [messages_table((message,))]]
    assert (row[0], row[1], row[2].replace(" ", "")) == ("assistant", "I add.", 'add({"a":1})')

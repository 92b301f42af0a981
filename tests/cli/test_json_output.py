"""The JSON that `--json` prints."""

import json

import pytest

from treadle.cli.json_output import as_document, as_json
from treadle.core.events import Failure
from treadle.core.messages import Image, Message, Text, ToolCall, ToolResult


def test_messages_and_bytes_become_json_that_names_its_parts():
    message = Message(
        "assistant",
        (Text("a"), Image(data=b"\x00\xff", media_type="image/png"), ToolCall("s1-0", "f", {"x": 1})),
    )
    document = as_json(message)
    assert [part["type"] for part in document["parts"]] == ["text", "image", "tool_call"]
    assert document["parts"][1]["data"] == "AP8="
    assert as_json(ToolResult("s1-0", "f", (Text("ok"),)))["type"] == "tool_result"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"k": (1, {2})}, object(), b"x"])
def test_every_result_is_one_line_of_json(value):
    document = as_document({"value": value})
    assert "\n" not in document
    assert document.isascii()
    json.loads(document)


@pytest.mark.parametrize(("kind", "retryable"), [("overloaded", True), ("authentication", False)])
def test_an_error_says_whether_a_retry_makes_sense(kind, retryable):
    document = as_json(Failure("model", kind, "no", status=503, model="acme:big"))
    assert (document["provider"], document["model"], document["retryable"]) == ("acme", "acme:big", retryable)

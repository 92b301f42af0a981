"""The input items of a response, from the events of its task."""

from __future__ import annotations

from typing import Any

from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from tests.server.protocols.test_agui import numbered
from treadle.core import events as e
from treadle.core.messages import File, Image, Text
from treadle.server.protocols.responses_items import input_items

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
MARK = "0123456789abcdef"
ANSWERED = f"command-1-responses-{MARK}-x"


def test_the_input_of_a_first_response_is_what_its_request_brought():
    parts = (
        Text("Hi"),
        Image(data=b"a", media_type="image/png"),
        File(data=b"b", name="b.bin"),
        File(url="https://a/b"),
    )
    events = numbered(
        e.TaskCreated("shop", parts, "thread"),
        e.InputReceived((Text("Be brief"),), "system", inbox="command-1-responses--instructions"),
        e.InputReceived((Text("from elsewhere"),), inbox="command-1-x"),
        e.QuestionAnswered("s1", "s1-0", 1, {"output": 1}, inbox=ANSWERED),
    )
    first, second = input_items(events, "t")
    assert [part["type"] for part in first["content"]] == [
        "input_text",
        "input_image",
        "input_file",
        "input_file",
    ]
    assert first["content"][1]["image_url"] == "data:image/png;base64,YQ=="
    assert (second["role"], second["content"]) == ("system", [{"type": "input_text", "text": "Be brief"}])
    assert (first["id"], second["id"]) == ("msg_t/in1", "msg_t/in2")
    for item in (first, second):
        ITEM.validate_python(item)


def test_the_input_of_a_later_response_are_its_answers():
    events = numbered(
        e.TaskCreated("shop", (Text("Hi"),), "thread"),
        e.InputReceived((Text("and this"),), inbox=ANSWERED),
        e.QuestionAnswered("s1", "s1-0", 1, {"output": {"a": 1}}, inbox=ANSWERED),
        e.QuestionAnswered("s1", "s1-1", 1, {"error": "no"}, inbox=ANSWERED),
        e.ApprovalGiven("s1", "s1-2", 1, inbox=ANSWERED),
        e.ApprovalDenied("s1", "s1-3", 1, reason="no", inbox=ANSWERED),
        e.QuestionAnswered("s2", "s2-0", 1, {"output": 1}, inbox="command-1-responses-ffffffffffffffff-x"),
    )
    items = input_items(events, "t", MARK)
    assert [item["type"] for item in items] == [
        *("message", "function_call_output", "function_call_output"),
        *("mcp_approval_response", "mcp_approval_response"),
    ]
    assert [item["output"] for item in items[1:3]] == ['{"a":1}', "no"]
    assert [(item["approve"], item["reason"]) for item in items[3:]] == [(True, None), (False, "no")]
    for item in items:
        ITEM.validate_python(item)


def test_the_input_of_a_fork_is_its_own():
    events = numbered(
        e.TaskCreated("shop", (Text("Hi"),), "thread"),
        e.StepCompleted("s1"),
        e.TaskForked("t", "shop", "other"),
        e.InputReceived((Text("again"),)),
        e.InputReceived((Text("from elsewhere"),)),
    )
    (item,) = input_items(events, "f", forked_at=2)
    assert item["content"] == [{"type": "input_text", "text": "again"}]

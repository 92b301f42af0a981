"""Requests for responses: what is read, what becomes history, and what is refused by its name."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from treadle.core.messages import File, Image, Message, Text, ToolCall, ToolResult
from treadle.core.model import ModelSettings
from treadle.errors import InvalidField
from treadle.policy.limits import Limits
from treadle.results.caller_tools import CallerTool
from treadle.server.protocols.responses_input import MEMBERS, Asked, mark_for, read_request
from treadle.verbs.table import OPERATIONS

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Hello"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}


def asked(input: Any = "Hi", **members: Any) -> Asked:
    return read_request({"model": "shop", "input": input, **members}, allow_urls=False)


def test_the_members_of_the_table_are_those_that_are_read_or_refused():
    assert set(MEMBERS) == set(OPERATIONS["create_response"].body or ())


def test_a_text_is_a_message_of_the_user():
    request = asked("Hi", stream=True, instructions="Be brief")
    assert (request.agent, request.content, request.history) == ("shop", (Text("Hi"),), ())
    assert (request.is_streamed, request.is_stored, request.in_background) == (True, True, False)
    assert request.instructions == "Be brief"
    assert request.options() is None


def test_the_options_of_a_request_are_those_of_its_task():
    request = asked(
        tools=[FUNCTION],
        temperature=0.5,
        max_output_tokens=9,
        parallel_tool_calls=False,
        tool_choice={"type": "function", "name": "f"},
        max_tool_calls=3,
        metadata={"color": "red"},
        previous_response_id="resp_t~p",
        background=True,
        top_p=1,
        truncation="disabled",
        user="ann",
        reasoning={"effort": None},
        include=["reasoning.encrypted_content"],
        text={"format": {"type": "text"}},
    )
    options = request.options()
    assert options is not None
    assert options.caller_tools == (CallerTool("f", "", {"type": "object", "properties": {}}),)
    assert options.model_settings == ModelSettings(
        temperature=0.5, max_tokens=9, parallel_tool_calls=False, tool_choice="f"
    )
    assert options.limits == Limits(tool_calls=3)
    assert options.labels == {
        "color": "red",
        "treadle.previous": "resp_t~p",
        "treadle.background": "true",
    }
    assert request.previous == ("t", "p")


def test_what_is_not_stored_is_a_label_that_names_what_is_deleted():
    assert asked(store=False).labels == {"treadle.not_stored": "thread"}
    assert asked(store=False, conversation="talk").labels == {"treadle.not_stored": "task"}


def test_items_up_to_the_last_one_of_an_assistant_are_history():
    request = asked(
        [USER, ASSISTANT, CALL, OUTPUT, ASSISTANT, {"role": "system", "content": "S"}, USER, USER]
    )
    assert request.history == (
        Message("user", (Text("Hi"),)),
        Message("assistant", (Text("Hello"), ToolCall("c1", "f", {"a": 1}))),
        Message("tool", (ToolResult("c1", "f", (Text("done"),)),)),
        Message("assistant", (Text("Hello"),)),
    )
    assert (request.content, request.system, request.results) == ((Text("Hi"), Text("Hi")), ("S",), {})


def test_outputs_at_the_end_may_answer_a_task():
    request = asked(
        [USER, CALL, {**CALL, "call_id": "c2"}, OUTPUT, {**OUTPUT, "call_id": "c2", "output": '{"a": 1}'}]
    )
    assert request.results == {"c1": "done", "c2": {"a": 1}}
    assert request.content == ()
    listed = {**OUTPUT, "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}
    assert asked([listed], previous_response_id="resp_t").results == {"c1": "ab"}


def test_a_history_with_calls_without_results_is_its_texts():
    request = asked([USER, ASSISTANT, CALL, ASSISTANT, USER])
    assert [message.role for message in request.history] == ["user", "assistant", "assistant"]
    ran = {
        "type": "mcp_call",
        "id": "m1",
        "name": "g",
        "arguments": "{",
        "output": "out",
        "server_label": "x",
    }
    request = asked([USER, ran, {"type": "reasoning", "id": "r", "summary": []}, USER])
    assert [message.role for message in request.history] == ["user", "assistant", "tool"]


def test_references_to_items_continue_their_conversation():
    before = [{"role": "system", "content": "S"}, USER, {"type": "item_reference", "id": "msg_t1/s1"}, USER]
    request = asked([*before, {"type": "item_reference", "id": "fc_a/b/s1-0"}, OUTPUT, USER])
    assert (request.previous, request.history, request.system) == (("a/b", ""), (), ())
    assert (request.results, request.content) == ({"c1": "done"}, (Text("Hi"),))


def test_pictures_and_files_are_bytes():
    data = base64.b64encode(b"abc").decode()
    content = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"},
        {"type": "input_file", "file_data": f"data:text/plain;base64,{data}", "filename": "a.txt"},
        {"type": "input_file", "file_data": data},
        {"type": "input_text", "text": ""},
    ]
    request = asked([{"role": "user", "content": content}])
    assert request.content == (
        Image(data=b"abc", media_type="image/png"),
        File(data=b"abc", media_type="text/plain", name="a.txt"),
        File(data=b"abc"),
    )
    url = [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/b.png"}]}]
    request = read_request({"model": "shop", "input": url}, allow_urls=True)
    assert request.content == (Image(url="https://a.example/b.png"),)


def test_a_decision_names_the_task_and_the_request():
    item = {"type": "mcp_approval_response", "approval_request_id": "mcpr_a:b:s1-0-ask1", "approve": False}
    (approval,) = asked([item], previous_response_id="resp_a").approvals
    assert (approval.task_id, approval.request_id, approval.approve) == ("a:b", "s1-0-ask1", False)


def test_the_same_answers_have_the_same_mark():
    approval = asked(
        [{"type": "mcp_approval_response", "approval_request_id": "mcpr_a:b", "approve": True}],
        previous_response_id="resp_a",
    ).approvals
    marks = {
        mark_for("t", None, {"a": 1, "b": 2}, ()),
        mark_for("t", None, {"b": 2, "a": 1}, ()),
        mark_for("t", None, {"a": 1, "b": 3}, ()),
        mark_for("t", None, {}, approval),
        mark_for("t", "key", {"a": 1}, ()),
        mark_for("t", "key", {}, approval),
    }
    assert len(marks) == 4
    assert all(len(mark) == 16 for mark in marks)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"model": None}, "model"),
    ({"input": 3}, "input"),
    ({"input": ["x"]}, "input[0]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
    ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type"),
    ({"input": [{"role": "critic", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://a/b"}]}]},
        "input[0].content[0].image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:a;base64,?"}]}]},
        "input[0].content[0].image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:a,b"}]}]},
        "input[0].content[0].image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        "input[0].content[0].file_id",
    ),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "mcp_approval_response", "approve": True}]}, "input[0].approval_request_id"),
    (
        {"input": [{"type": "mcp_approval_response", "approval_request_id": "x", "approve": True}]},
        "input[0].approval_request_id",
    ),
    (
        {"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_a:b", "approve": "yes"}]},
        "input[0].approve",
    ),
    ({"input": [ASSISTANT, USER], "previous_response_id": "resp_t"}, "input[0]"),
    ({"previous_response_id": "t"}, "previous_response_id"),
    ({"previous_response_id": "resp_t", "conversation": "c"}, "previous_response_id"),
    ({"conversation": 3}, "conversation"),
    ({"instructions": 3}, "instructions"),
    ({"stream": "yes"}, "stream"),
    ({"background": True, "store": False}, "background"),
    ({"temperature": -1}, "temperature"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": True}, "max_output_tokens"),
    ({"max_tool_calls": 0}, "max_tool_calls"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"tools": {}}, "tools"),
    ({"tools": ["f"]}, "tools[0]"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0]"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"metadata": {"treadle.x": "y"}}, "metadata.treadle.x"),
    ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"include": ["message.output_text.logprobs"]}, "include[0]"),
    ({"top_p": 0.5}, "top_p"),
    ({"presence_penalty": 1}, "presence_penalty"),
    ({"frequency_penalty": 1}, "frequency_penalty"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"truncation": "auto"}, "truncation"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"reasoning": {"effort": "high"}}, "reasoning"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"moderation": {}}, "moderation"),
    ({"context_management": []}, "context_management"),
]


@pytest.mark.parametrize(("members", "field"), REFUSED)
def test_a_member_that_cannot_be_honoured_is_refused_by_its_name(members: dict[str, Any], field: str):
    with pytest.raises(InvalidField) as refused:
        asked(**{"input": "Hi", **members})
    assert refused.value.field == field

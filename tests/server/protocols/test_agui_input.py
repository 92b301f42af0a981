"""The new messages, tools and answers in requests of AG-UI, as tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from treadle.core.messages import File, Image, Message, Text, ToolCall, ToolResult
from treadle.core.tools import Happened, NotHappened
from treadle.errors import ConfigurationError, InvalidField
from treadle.results.caller_tools import CallerTool
from treadle.results.pending import Pending
from treadle.server.protocols.agui_input import (
    caller_tools,
    command_id,
    decision_of,
    forwarded,
    news_of,
    read_input,
    result_of,
    task_ids_in,
    without_task,
)


def user(text: Any, message_id: str = "u") -> dict[str, Any]:
    return {"id": message_id, "role": "user", "content": text}


def said(text: str, message_id: str = "t1/s1", **more: Any) -> dict[str, Any]:
    return {"id": message_id, "role": "assistant", "content": text, **more}


def asked(*messages: Any, **more: Any) -> Any:
    return read_input({"threadId": "t", "runId": "r", "messages": list(messages), **more})


def news(*messages: Any, thread: Any = (), allow_urls: bool = False, **more: Any) -> Any:
    return news_of(
        asked(*messages, **more), thread, lambda each: each.startswith("t1/"), allow_urls=allow_urls
    )


THREAD = [
    Message("user", (Text("first"),)),
    Message("assistant", (Text("one"),)),
    Message("user", (Text("Context from the application:\n- a: b"), Text("second"))),
    Message("assistant", (Text("two"),)),
]

NEW: dict[str, tuple[list[Any], list[Message], list[str]]] = {
    "a first message": ([user("hi")], [], ["hi"]),
    "several at once": ([user("hi"), user("there")], [], ["hi", "there"]),
    "after an answer of this server": ([user("first"), said("one"), user("second")], THREAD[:2], ["second"]),
    "an answer of this server that failed": ([user("first"), said("o"), user("again")], [], ["again"]),
    "the client missed the answers": ([user("first"), user("second"), user("third")], THREAD, ["third"]),
    "the client missed the last answer": (
        [user("first"), said("one"), user("second"), user("third")],
        THREAD,
        ["third"],
    ),
    "only the last message": ([user("third")], THREAD, ["third"]),
    "a message that was said before": (
        [user("first"), said("one"), user("second"), said("two"), user("second")],
        THREAD,
        ["second"],
    ),
    "nothing new": ([user("first"), said("one")], THREAD[:2], []),
    "other assistants in a known thread": (
        [user("x"), said("y", "a"), user("third")],
        THREAD,
        ["third"],
    ),
    "an order of the application": (
        [{"id": "s", "role": "system", "content": "Be brief."}, user("hi")],
        [],
        ["Be brief.", "hi"],
    ),
    "none": ([], [], []),
}


@pytest.mark.parametrize("name", NEW)
def test_these_messages_are_new(name: str):
    messages, thread, expected = NEW[name]
    found = news(*messages, thread=thread)
    assert [part.text for part in found.content] == expected
    assert found.history == ()


def test_the_context_of_a_run_comes_before_its_new_messages_and_never_alone():
    context = [{"description": "page", "value": "cart"}]
    first, second = news(user("hi"), context=context).content
    assert (first.text, second.text) == ("Context from the application:\n- page: cart", "hi")
    assert news(context=context).content == ()


def test_messages_of_other_assistants_are_the_history_of_a_new_thread():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    result = {"id": "m", "role": "tool", "toolCallId": "c1", "content": "seen"}
    found = news(user("a"), said("", "x", toolCalls=[call]), result, said("b", "y"), user("c"), thread=[])
    assert found.history == (
        Message("user", (Text("a"),)),
        Message("assistant", (ToolCall("c1", "look", {"at": 1}),)),
        Message("tool", (ToolResult("c1", "look", (Text("seen"),)),)),
        Message("assistant", (Text("b"),)),
    )
    assert [part.text for part in found.content] == ["c"]
    cut = news(user("a"), said("b", "x", toolCalls=[call]), user("c"))
    assert cut.history == (Message("user", (Text("a"),)), Message("assistant", (Text("b"),)))


def test_pictures_and_files_come_in_and_parts_that_cannot_be_used_are_left_out():
    def part(kind: str, source: dict[str, Any]) -> dict[str, Any]:
        return {"type": kind, "source": source}

    parts = [
        {"type": "text", "text": "see"},
        part("image", {"type": "data", "value": "cG5n", "mimeType": "image/png"}),
        part("document", {"type": "url", "value": "https://a.example/b.pdf", "mimeType": "application/pdf"}),
        part("audio", {"type": "data", "value": "no base64!", "mimeType": "audio/mp3"}),
        part("image", {"type": "file", "value": "file-1"}),
    ]
    image = Image(data=b"png", media_type="image/png")
    assert news(user(parts)).content == (Text("see"), image)
    file = File(url="https://a.example/b.pdf", media_type="application/pdf")
    assert news(user(parts), allow_urls=True).content == (Text("see"), image, file)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "threadId"),
        ({"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user"}]}, "messages[0]"),
        ({"threadId": "t", "runId": "r", "messages": [], "tools": [{"name": 1}]}, "tools[0].name"),
    ],
)
def test_a_request_of_another_form_is_refused_by_its_field(document: Any, field: str):
    with pytest.raises(InvalidField) as refused:
        read_input(document)
    assert refused.value.field.startswith(field)


def test_members_of_a_newer_protocol_are_ignored():
    assert asked(user("hi"), shape="of things to come").run_id == "r"


def test_tools_of_the_client_are_caller_tools():
    tools = asked(
        tools=[
            {"name": "where", "description": "Where.", "parameters": {"properties": {"a": {}}}},
            {"name": "when", "description": "When.", "parameters": {}},
        ]
    ).tools
    assert caller_tools(tools) == [
        CallerTool("where", "Where.", {"type": "object", "properties": {"a": {}}}),
        CallerTool("when", "When."),
    ]
    with pytest.raises(ConfigurationError, match="name"):
        caller_tools(asked(tools=[{"name": "a b", "description": ""}]).tools)
    with pytest.raises(ConfigurationError, match="parameters"):
        caller_tools(asked(tools=[{"name": "a", "description": "", "parameters": [1]}]).tools)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", "plain"),
        ('{"a": 1}', {"a": 1}),
        ("[1", "[1"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_a_result_is_data_if_its_text_is(content: Any, expected: Any):
    (message,) = news({"id": "m", "role": "tool", "toolCallId": "t1/s1-0", "content": content}).results
    assert result_of(message) == expected


def test_forwarded_properties_of_others_are_left_alone():
    assert forwarded(asked()) == forwarded(asked(forwardedProps={"x": 1})) == {}
    assert forwarded(asked(forwardedProps={"treadle": {"options": {}}})) == {"options": {}}
    with pytest.raises(InvalidField, match=r"forwardedProps\.treadle"):
        forwarded(asked(forwardedProps={"treadle": 1}))


DECISIONS: dict[str, tuple[str, str, Any, tuple[str, dict[str, Any]]]] = {
    "approved": (
        "approval",
        "resolved",
        {"approved": True},
        ("approve", {"arguments": None, "scope": "once"}),
    ),
    "approved in a word": ("approval", "resolved", True, ("approve", {"arguments": None, "scope": "once"})),
    "approved for more": (
        "approval",
        "resolved",
        {"approved": True, "editedArgs": {"a": 1}, "scope": "task"},
        ("approve", {"arguments": {"a": 1}, "scope": "task"}),
    ),
    "denied": ("approval", "resolved", {"approved": False, "reason": "no"}, ("deny", {"reason": "no"})),
    "left": (
        "approval",
        "cancelled",
        None,
        ("deny", {"reason": "the person left without a decision"}),
    ),
    "answered": ("question", "resolved", [1], ("answer", {"value": [1]})),
    "happened": (
        "settlement",
        "resolved",
        {"verdict": "happened", "output": 3},
        ("settle", {"verdict": Happened(3)}),
    ),
    "did not happen": ("settlement", "resolved", "not_happened", ("settle", {"verdict": NotHappened()})),
}


def decided(kind: Any, status: str, payload: Any, **more: Any) -> Any:
    item = Pending("x-1", kind, "look", {}, "it waits", task_id="child", **more)
    return decision_of(item, SimpleNamespace(status=status, payload=payload), "resume[0]", "root")


@pytest.mark.parametrize("name", DECISIONS)
def test_an_entry_becomes_this_verb(name: str):
    kind, status, payload, (verb, arguments) = DECISIONS[name]
    decision = decided(kind, status, payload)
    assert (decision.verb, decision.task_id) == (verb, "child")
    assert decision.arguments == {"request_id": "x-1", **arguments}


def test_an_abandoned_question_cancels_the_task_of_the_run():
    assert (
        decided("question", "cancelled", None).verb,
        decided("settlement", "cancelled", None).task_id,
    ) == (
        "cancel",
        "root",
    )


def test_an_approval_that_needs_a_value_is_answered_with_it():
    decision = decided("approval", "resolved", {"approved": True, "value": 7}, argument="amount")
    assert (decision.verb, decision.arguments["value"]) == ("answer", 7)


@pytest.mark.parametrize(
    ("kind", "payload", "field"),
    [
        ("approval", None, "payload"),
        ("approval", {"approved": "yes"}, "payload"),
        ("approval", {"approved": False, "reason": 1}, "payload.reason"),
        ("approval", {"approved": True, "editedArgs": []}, "payload.editedArgs"),
        ("approval", {"approved": True, "scope": "ever"}, "payload.scope"),
        ("settlement", {"verdict": "perhaps"}, "payload"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_its_field(kind: str, payload: Any, field: str):
    with pytest.raises(InvalidField) as refused:
        decided(kind, "resolved", payload)
    assert refused.value.field == f"resume[0].{field}"


def test_the_messages_of_a_task_are_told_from_those_before_it():
    own = [said("a"), {"id": "m", "role": "tool", "toolCallId": "t1/s1-0", "content": "x"}]
    assert without_task([user("hi"), *own, said("b", "t2/s1")], "t1") == [user("hi"), said("b", "t2/s1")]
    assert task_ids_in(["u1", "a/b/s1", "t1/s1/reasoning"]) == ["t1/s1", "t1", "a/b", "a"]


def test_a_repeated_run_sends_the_same_commands():
    assert command_id("r", "t:s1") == command_id("r", "t:s1") != command_id("r2", "t:s1")
    assert len(command_id("r" * 500, "x")) < 200

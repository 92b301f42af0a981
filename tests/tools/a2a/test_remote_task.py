"""Cards, tasks, updates and questions of other servers, as tables: foreign JSON, of which every part may be missing."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.tools.a2a.remote_task import (
    Request,
    Update,
    WrongCard,
    answer_parts,
    output_of,
    output_of_message,
    read_card,
    read_task,
    read_update,
    requests_of,
)

URL = "https://x.example/.well-known/agent-card.json"
RPC = {"url": "https://x.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}


def card(*interfaces: Any, **more: Any) -> dict[str, Any]:
    return {
        "name": "Shop",
        "description": "Sells.",
        "supportedInterfaces": list(interfaces or (RPC,)),
        **more,
    }


def test_a_card_names_the_first_interface_that_fits():
    grpc = {**RPC, "protocolBinding": "GRPC"}
    old = {**RPC, "protocolVersion": "0.3"}
    capabilities = {"streaming": True, "extensions": [{"uri": "urn:treadle:a2a:repeated-messages"}]}
    read = read_card(card(grpc, old, {**RPC, "tenant": "acme"}, capabilities=capabilities), URL)
    assert (read.name, read.description, read.url) == ("Shop", "Sells.", RPC["url"])
    assert (read.tenant, read.streams, read.repeats) == ("acme", True, True)
    plain = read_card(card({**RPC, "url": "https://X.example:443/a"}), URL)
    assert (plain.streams, plain.repeats) == (False, False)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (None, "has no card"),
        ([], "has no card"),
        ({"name": "Shop"}, "has no card"),
        (card({**RPC, "protocolBinding": "GRPC"}), "no interface for JSON-RPC"),
        (card({**RPC, "protocolVersion": "0.3.0"}), "no interface for JSON-RPC"),
        (card({**RPC, "url": "https://y.example/rpc"}), "another origin"),
        (card({**RPC, "url": "http://x.example/rpc"}), "another origin"),
        (card({**RPC, "url": "https://x.example:8443/rpc"}), "another origin"),
        (card({**RPC, "url": "https://x.example:x/rpc"}), "another origin"),
        (card({**RPC, "url": 3}), "another origin"),
        (card(capabilities={"extensions": [{"uri": "urn:x", "required": True}]}), "requires an extension"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(document: Any, problem: str):
    with pytest.raises(WrongCard, match=problem):
        read_card(document, URL)


def task(state: str = "COMPLETED", *parts: Any, **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}", **more.pop("status", {})}
    artifacts = [{"artifactId": "1", "parts": list(parts)}] if parts else []
    return {"id": "t", "contextId": "c", "status": status, "artifacts": artifacts, **more}


def test_a_task_without_id_or_state_is_none():
    for document in (
        None,
        {},
        {"id": "t"},
        {"status": {"state": "TASK_STATE_WORKING"}},
        {"id": 3, "status": "x"},
    ):
        with pytest.raises(WrongCard):
            read_task(document)
    stopped = [read_task(task(state)).has_stopped for state in ("WORKING", "REJECTED", "AUTH_REQUIRED")]
    assert stopped == [False, True, True]


UPDATES: dict[str, tuple[Any, Update]] = {
    "nothing": (None, Update()),
    "a message": ({"message": {"parts": []}}, Update(message={"parts": []})),
    "a state": (
        {"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}}},
        Update("TASK_STATE_WORKING", {"state": "TASK_STATE_WORKING"}),
    ),
    "a state with words": (
        {
            "statusUpdate": {
                "status": {"state": "S", "message": {"parts": [{"text": "a\x1b"}, {"data": 1}, 3]}}
            }
        },
        Update("S", {"state": "S", "text": "a"}),
    ),
    "words": (
        {"artifactUpdate": {"artifact": {"parts": [{"text": "a"}]}, "append": True}},
        Update(progress={"text": "a", "append": True}),
    ),
    "data": ({"artifactUpdate": {"artifact": {"parts": [{"data": 1}]}}}, Update()),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_item_of_a_stream_is_this_update(name: str):
    item, expected = UPDATES[name]
    assert read_update(item) == expected


def test_an_answer_has_words_data_and_files():
    parts = [
        {"text": "It is\u202e open."},
        {"data": {"price": 3}},
        {"raw": "eA==", "mediaType": "image/png", "filename": "a.png"},
        {"raw": "eA=="},
        {"raw": "?"},
        {"url": "https://y.example/f", "filename": "f"},
        3,
    ]
    output = output_of(read_task(task("COMPLETED", *parts)))
    answer = 'It is open.\n{"price":3}\n[file a.png]\n[file file]\n[file f: https://y.example/f]'
    assert output.output == {"answer": answer, "conversation": "c", "task": "t"}
    observed: Any = output.observation
    assert (observed[0], observed[1].data) == (f"{answer}\n[conversation c]", b"x")
    assert [(each.data, getattr(each, "name", None)) for each in output.artifacts] == [
        (b"x", "a.png"),
        (b"x", "file"),
    ]


def test_an_answer_may_be_the_last_message_or_a_message_alone():
    status = {"message": {"parts": [{"text": "Done."}]}}
    assert output_of(read_task(task(status=status))).output["answer"] == "Done."
    assert output_of_message({"parts": [{"text": "Hi."}]}).output == {"answer": "Hi."}
    assert output_of_message({}).output == {"answer": ""}


def asking(text: str, *requests: Any) -> Any:
    parts: list[Any] = [{"text": text}]
    if requests:
        parts.append({"data": {"requests": list(requests)}})
    return read_task(task("INPUT_REQUIRED", status={"message": {"parts": parts}}))


def test_the_requests_of_a_task_are_questions_of_one_line_with_a_type():
    assert requests_of(asking("Which\ncity?"), "shop") == [Request("The agent shop asks: Which city?")]
    assert requests_of(asking(""), "shop") == [Request("The agent shop asks: It needs more input.")]
    listed = [
        {"request": "t:1", "kind": "approval", "text": "May I?", "tool": "pay", "arguments": {"amount": 3}},
        {"request": "t:2", "kind": "question", "text": "How many?", "schema": {"type": "integer"}},
        {"request": "t:3", "kind": "question", "text": "What?", "schema": {"type": "object"}},
        {"request": "t:4", "kind": "question", "text": "Who?", "schema": {"type": "string"}},
    ]
    requests = requests_of(asking("x", *listed), "shop")
    assert [each.kind for each in requests] == ["yes_or_no", "integer", "data", "text"]
    assert requests[0].text == 'The agent shop asks: May I?\n{"pay":{"amount":3}}\nIs it approved?'
    assert answer_parts(requests, [True, 3, {"a": 1}, "Ann"]) == [
        {"data": {"request": "t:1", "answer": {"approved": True}}},
        {"data": {"request": "t:2", "answer": 3}},
        {"data": {"request": "t:3", "answer": {"a": 1}}},
        {"data": {"request": "t:4", "answer": "Ann"}},
    ]
    assert answer_parts([Request("Which city?")], ["Rome"]) == [{"text": "Rome"}]

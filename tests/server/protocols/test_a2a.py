"""The fold of events to updates of an A2A task, its documents, and its requests, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cast import pay, scripted_agent
from treadle.core import events as e
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall
from treadle.core.tools import Happened
from treadle.errors import InvalidField, StoreUnavailable, TaskNotFound, ToolError
from treadle.results.agent_info import agent_info
from treadle.results.artifacts import Artifact
from treadle.results.pending import Pending
from treadle.results.tasks import TaskSummary
from treadle.server.protocols.a2a import (
    COMPLETED,
    INPUT_REQUIRED,
    NO_PUSH,
    SUBMITTED,
    WORKING,
    A2aError,
    A2aTask,
    agent_card,
    history_of,
    moment,
    state_in_list,
    state_of,
    status_of,
)
from treadle.server.protocols.a2a_input import (
    Received,
    check_version,
    decisions_of,
    read_call,
    read_listing,
    read_message,
)
from treadle.server.protocols.a2a_route import refusal_of
from treadle.server.protocols.stops import Stop

LOOK = ToolCall("s1-0", "look", {"at": "it"})
FIRST: dict[str, Any] = {"id": "t", "contextId": "c", "status": {"state": SUBMITTED, "timestamp": moment(0)}}


def folded(*items: Any, stop: Stop | None = None) -> list[Any]:
    """Return the updates that some items cause, and those of a stop."""
    fold = A2aTask(FIRST, lambda artifact: f"https://x/{artifact}")
    assert fold.begin() == [{"task": FIRST}]
    seq = 0
    updates: list[Any] = []
    for item in items:
        if isinstance(item, e.Event):
            seq += 1
            item.seq, item.time = seq, 0
        if isinstance(item, e.CallOccurrence) and not item.tool:
            item.tool_name = "look"
        updates += fold.feed(item)
    return updates + (fold.end(stop) if stop is not None else [])


def short(updates: list[Any]) -> list[str]:
    """Return updates as short lines."""
    lines: list[str] = []
    for update in updates:
        if (status := update.get("statusUpdate")) is not None:
            facts = status.get("metadata", {}).get("treadle", {})
            told = [
                str(facts[name])
                for name in ("kind", "tool", "outcome", "progress", "reasons")
                if name in facts
            ]
            lines.append(" ".join([status["status"]["state"].removeprefix("TASK_STATE_"), *told]))
        else:
            update = update["artifactUpdate"]
            sign = "+=" if update.get("append") else "="
            parts = [next(iter(part.values())) for part in update["artifact"]["parts"]]
            last = " last" if update.get("lastChunk") else ""
            lines.append(f"{update['artifact']['artifactId']} {sign} {parts[0]!r}{last}")
    return lines


def said(*parts: Any, step: str = "s1", call: str | None = None) -> e.ModelReturned:
    return e.ModelReturned(step, Message("assistant", parts), call=call)


def ended(output: Any = None, **more: Any) -> e.TaskEnded:
    return e.TaskEnded("completed", output, **more)


DONE = Stop("completed")
WORDS = (e.Delta("s1", "final", "He"), e.Delta("s1", "final", "llo", at=2))
TABLE: dict[str, tuple[list[Any], Stop | None, list[str]]] = {
    "a stored answer without deltas": ([said(Text("Hello"))], None, ["answer = 'Hello'"]),
    "deltas, the rest from the stored answer, and the end": (
        [*WORDS, said(Text("Hello!")), ended("Hello!")],
        DONE,
        ["WORKING", "answer = 'He'", "answer += 'llo'", "answer += '!'", "answer += '' last", "COMPLETED"],
    ),
    "a delta that was read before, and one after a gap": (
        [WORDS[0], WORDS[0], e.Delta("s1", "final", "o", at=4), said(Text("Hello"))],
        None,
        ["WORKING", "answer = 'He'", "answer += 'llo'"],
    ),
    "text before a call is replaced by the answer": (
        [
            e.Delta("s1", "draft", "Let me look."),
            said(Text("Let me look."), LOOK),
            e.ToolStarted("s1", "s1-0"),
            e.ToolEnded("s1", "s1-0", "ok", "seen"),
            e.Delta("s2", "final", "Seen."),
            said(Text("Seen."), step="s2"),
            ended("Seen."),
        ],
        DONE,
        [
            "WORKING",
            "answer = 'Let me look.'",
            "WORKING call look",
            "WORKING result look ok",
            "answer = 'Seen.'",
            "answer += '' last",
            "COMPLETED",
        ],
    ),
    "a void answer is replaced": (
        [*WORDS, e.ModelRestarted("s1", "m", 2), e.Delta("s1", "final", "Hi"), said(Text("Hi"))],
        None,
        ["WORKING", "answer = 'He'", "answer += 'llo'", "answer = 'Hi'"],
    ),
    "a failed request, and an answer that differs from its deltas": (
        [
            WORDS[0],
            e.ModelFailed("s1", e.Failure("model", "x", "y")),
            WORDS[0],
            said(Text("Yes")),
        ],
        None,
        ["WORKING", "answer = 'He'", "answer = 'He'", "answer = 'Yes'"],
    ),
    "an output that is not the last text": (
        [*WORDS, said(Text("Hello")), ended("Good bye")],
        DONE,
        ["WORKING", "answer = 'He'", "answer += 'llo'", "answer = 'Good bye' last", "COMPLETED"],
    ),
    "data": ([ended({"a": 1})], DONE, ["answer = {'a': 1} last", "COMPLETED"]),
    "reasoning, arguments and requests of step functions are not told": (
        [
            e.Delta("s1", "reasoning", "Hm"),
            e.Delta("s1", "arguments", "{}", tool="look", call_id="s1-0"),
            e.Delta("s1", "draft", "inner", call="s1-m1"),
            said(Reasoning("Hm"), Text("inner"), call="s1-m1"),
        ],
        None,
        [],
    ),
    "a best effort": (
        [ended("Perhaps", reasons=("limit",))],
        Stop("degraded"),
        ["answer = 'Perhaps' last", "COMPLETED ['limit']"],
    ),
    "files": (
        [ended("x")],
        Stop("completed", artifacts=(Artifact("s1-0-1", "a.txt", "text/plain", 1, None, None, None),)),
        ["answer = 'x' last", "s1-0-1 = 'https://x/s1-0-1' last", "COMPLETED"],
    ),
    "a question": (
        [e.StepStarted("s1", 1, "ask")],
        Stop("waiting", (Pending("s1-0-q1", "question", "", {}, "Which?", task_id="t"),)),
        ["WORKING", "INPUT_REQUIRED"],
    ),
    "cancelled": ([e.TaskEnded("cancelled")], Stop("cancelled"), ["CANCELED"]),
    "progress": ([e.ToolProgress("s1", "s1-0", {"done": 1})], None, ["WORKING progress {'done': 1}"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_events_become_these_updates(name: str):
    items, stop, expected = TABLE[name]
    assert short(folded(*items, stop=stop)) == expected


def test_a_stop_that_the_client_knows_is_not_told_again():
    stop = Stop("waiting", (Pending("s1-0-q1", "question", "", {}, "Which?", task_id="t"),))
    fold = A2aTask(FIRST)
    (update,) = fold.end(stop)
    assert fold.end(stop) == []
    message = update["statusUpdate"]["status"]["message"]
    assert message["parts"][0] == {"text": "Which?"}
    request = {"request": "t:s1-0-q1", "kind": "question", "text": "Which?"}
    assert message["parts"][1] == {"data": {"requests": [request]}}


@pytest.mark.parametrize(
    ("state", "kind", "rests", "expected"),
    [
        ("created", None, False, SUBMITTED),
        ("running", None, False, WORKING),
        ("interrupted", None, False, WORKING),
        ("interrupted", None, True, INPUT_REQUIRED),
        ("paused", None, True, INPUT_REQUIRED),
        ("waiting", "question", True, INPUT_REQUIRED),
        ("waiting", "approval", False, WORKING),
        ("waiting", "timer", True, WORKING),
        ("degraded", None, True, COMPLETED),
    ],
)
def test_a_task_has_this_state(state: str, kind: Any, rests: bool, expected: str):
    pending = () if kind is None else (Pending("x", kind, "", {}, ""),)
    assert state_of(Stop(state, pending), rests=rests) == expected


@pytest.mark.parametrize(
    ("state", "pending", "driven", "expected"),
    [
        ("created", None, False, SUBMITTED),
        ("waiting", 1, False, INPUT_REQUIRED),
        ("waiting", 0, False, WORKING),
        ("paused", 0, True, WORKING),
        ("completed", 0, False, COMPLETED),
    ],
)
def test_a_row_has_this_state(state: Any, pending: Any, driven: bool, expected: str):
    row = TaskSummary("t", "shop", "c", state, driven, 0, None, {}, pending=pending)
    assert state_in_list(row) == expected


def test_history_has_words_and_files_without_calls_and_reasoning():
    messages = [
        Message(
            "user", (Text("See"), Image(data=b"x", media_type="image/png"), File(url="https://x", name="a"))
        ),
        Message("assistant", (Reasoning("Hm"), LOOK)),
        Message("assistant", (Text("Seen."),)),
    ]
    history = history_of("t", "c", messages)
    assert [(each["messageId"], each["role"]) for each in history] == [
        ("t/0", "ROLE_USER"),
        ("t/2", "ROLE_AGENT"),
    ]
    assert history[0]["parts"][1:] == [
        {"raw": "eA==", "mediaType": "image/png"},
        {"url": "https://x", "filename": "a"},
    ]


def test_a_paused_task_says_that_a_message_continues_it():
    status = status_of("t", "c", INPUT_REQUIRED, Stop("paused", reason="a person paused it"), 0)
    assert status["message"]["parts"] == [{"text": "a person paused it; a message continues it"}]
    assert status["timestamp"] == "1970-01-01T00:00:00.000Z"


def test_a_card_has_one_skill_and_the_output_of_its_agent():
    info = agent_info(scripted_agent(name="shop", tools=[pay], output_type=int))
    card = agent_card(info, "https://x/a2a/shop")
    assert [skill["id"] for skill in card["skills"]] == ["shop"]
    assert (card["description"], card["version"]) == ("The agent shop.", info.fingerprint)
    assert card["defaultOutputModes"] == ["application/json"]


def test_errors_have_details_and_those_of_the_server_are_no_errors_of_a_method():
    error = A2aError(NO_PUSH, "no", url="x").document()
    info = {
        "reason": "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "domain": "a2a-protocol.org",
        "metadata": {"url": "x"},
    }
    assert error["data"] == [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info}]
    refusal = refusal_of(TaskNotFound("secret"), lambda text: text.replace("secret", "***"))
    assert refusal is not None
    assert (refusal.code, str(refusal)) == (-32001, "***")
    assert refusal_of(StoreUnavailable("x"), str) is None
    assert refusal_of(ToolError("x"), str) is None


# ------------------------------------------------------------------------------------------------ requests


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": list(parts), **more}}


def test_a_message_is_read_with_its_parts():
    parts = [
        {"text": "a"},
        {"data": {"b": 1}},
        {"raw": "eA==", "mediaType": "image/png", "filename": "x.png"},
        {"raw": "eA==", "filename": "x.bin"},
        {"url": "https://x", "mediaType": "application/pdf"},
    ]
    given = message(*parts, taskId="t", contextId="", metadata={"treadle": {"a": 1}, "other": 2})
    received = read_message({**given, "metadata": {"treadle": {"b": 2}}}, allow_urls=True)
    assert received.content == (
        Text("a"),
        Text('{"b": 1}'),
        Image(data=b"x", media_type="image/png"),
        File(data=b"x", name="x.bin"),
        File(url="https://x", media_type="application/pdf"),
    )
    assert (received.task_id, received.context_id, received.metadata) == ("t", None, {"a": 1, "b": 2})
    assert (received.waits, received.history, received.data) == (True, None, ({"b": 1},))


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"message": []}, "message"),
        (message(1), "message.parts[0]"),
        (message({"text": 1}), "message.parts[0].text"),
        (message({"text": "x"}, taskId=1), "message.taskId"),
        (message({"text": "x"}, metadata=[]), "metadata"),
        (message({"text": "x"}, metadata={"treadle": 1}), "message.metadata.treadle"),
        ({**message({"text": "x"}), "configuration": {"historyLength": -1}}, "configuration.historyLength"),
    ],
)
def test_a_message_that_does_not_fit_is_refused_by_its_field(params: Any, field: str):
    with pytest.raises(InvalidField) as refused:
        read_message(params, allow_urls=False)
    assert refused.value.field == field


def test_names_of_protocol_buffers_are_names_too():
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
    given: Any = message(
        {"raw": "eA==", "media_type": "image/png"}, task_id="t", metadata={"a_b": {"c_d": 1}}
    )
    del given["message"]["messageId"]
    given["message"] |= {"message_id": "m"}
    params = read_call({**body, "params": {**given, "configuration": {"return_immediately": True}}}).params
    received = read_message(params, allow_urls=False)
    assert (received.message_id, received.task_id, received.waits) == ("m", "t", False)
    assert received.content == (Image(data=b"x", media_type="image/png"),)


def test_versions_and_lists():
    for version in (None, "", "0.3", "1", "1.1", "x"):
        with pytest.raises(A2aError):
            check_version(version)
    check_version("1.0")
    listing = read_listing({"status": INPUT_REQUIRED, "statusTimestampAfter": "2026-11-28T20:00:00.000Z"})
    assert (listing.limit, listing.states) == (50, (INPUT_REQUIRED,))
    assert listing.arguments["updated_since"].year == 2026
    with pytest.raises(InvalidField):
        read_listing({"statusTimestampAfter": "yesterday"})


def asked(kind: Any, number: int = 1, **more: Any) -> Pending:
    return Pending(f"s1-{number}", kind, "look", {}, "it waits", task_id="t", **more)


def answered(*items: Pending, words: str = "", data: Any = None) -> list[tuple[str, Any]]:
    values = () if data is None else tuple(data)
    decisions = decisions_of(Received("m", (), values, words), items)
    return [
        (
            each.verb,
            {name: value for name, value in each.arguments.items() if name not in ("request_id", "ticket")},
        )
        for each in decisions
    ]


APPROVED = ("approve", {"arguments": None, "scope": "once"})


def test_words_and_data_answer_requests():
    assert answered(asked("approval"), words="Yes!") == [APPROVED]
    assert answered(asked("approval"), words="no") == [("deny", {"reason": None})]
    assert answered(asked("approval"), words="No, too much") == [("deny", {"reason": "too much"})]
    assert answered(asked("question", schema={"type": "integer"}), words=" 3 ") == [("answer", {"value": 3})]
    assert answered(asked("question", schema={"type": "boolean"}), words="yes") == [
        ("answer", {"value": True})
    ]
    assert answered(asked("question", schema={"type": "string"}), words="3") == [("answer", {"value": "3"})]
    verdict = {"verdict": "happened", "output": 1}
    assert answered(asked("settlement"), data=[verdict]) == [("settle", {"verdict": Happened(1)})]
    assert answered(asked("call"), data=[{"city": "Rome"}]) == [("complete", {"value": {"city": "Rome"}})]
    both = [{"request": "t:s1-2", "answer": "x"}, {"request": "t:s1-1", "answer": True}]
    assert answered(asked("approval"), asked("question", 2), data=both) == [
        ("answer", {"value": "x"}),
        APPROVED,
    ]


@pytest.mark.parametrize(
    ("items", "words", "data"),
    [
        ([asked("approval")], "yes, but not today", None),
        ([asked("approval")], "perhaps", None),
        ([asked("approval"), asked("approval", 2)], "yes", None),
        ([asked("approval")], "", [{"request": "t:s1-9", "answer": True}]),
        ([asked("settlement")], "", [{"verdict": "perhaps"}]),
    ],
)
def test_an_answer_that_is_not_clear_is_refused(items: Any, words: str, data: Any):
    with pytest.raises(InvalidField):
        answered(*items, words=words, data=data)

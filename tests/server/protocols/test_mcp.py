"""The fold of a call's progress, and its results and handles, as tables; `test_mcp_server` runs real calls."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import CallToolResult

from treadle.core import events as e
from treadle.core.messages import Message, Text
from treadle.results.pending import Pending
from treadle.results.tasks import Task
from treadle.server.protocols.mcp import (
    CallProgress,
    Standing,
    handle_of,
    input_required,
    new_handle,
    refusal,
    result_of,
    status_of,
    task_in,
    waiting,
)
from treadle.server.protocols.stops import Stop

PAY = Pending(
    "s1-0-ask1", "approval", "pay", {"amount": 3}, "pay waits for an approval", task_id="t", asked=7
)


def progress(*items: Any) -> list[str]:
    """Return all messages, those of words behind a `>`, as if each were due at once."""
    fold, lines = CallProgress(), list[str]()
    for item in items:
        if isinstance(item, e.CallOccurrence):
            item.tool_name = "pay"  # as the journal's reader does
        lines += fold.feed(item)
        if fold.has_words:
            lines.append(f"> {fold.words()}")
    return lines


TABLE: dict[str, tuple[list[Any], list[str]]] = {
    "steps and calls": (
        [
            e.StepStarted("s1", 1),
            e.ToolStarted("s1", "s1-0"),
            e.ToolEnded("s1", "s1-0"),
            e.StepCompleted("s1"),
        ],
        ["step 1 began, attempt 1", "pay began (s1-0), attempt 1", "pay ended (s1-0): ok"],
    ),
    "the words of an answer so far": (
        [
            e.Delta("s1", "final", "He"),
            e.Delta("s1", "final", "llo", at=2),
            e.Delta("s1", "final", "llo", at=2),
        ],
        ["> He", "> Hello", "> Hello"],
    ),
    "the last line, at most 200 characters": (
        [e.Delta("s1", "final", "one\n" + "x" * 300)],
        ["> …" + "x" * 199],
    ),
    "thinking and arguments are not told": (
        [e.Delta("s1", "reasoning", "hm"), e.Delta("s1", "arguments", "{")],
        [],
    ),
    "a void answer is forgotten": (
        [e.Delta("s1", "final", "No"), e.ModelRestarted("s1", "m:a", 2), e.Delta("s1", "final", "Yes")],
        ["> No", "> Yes"],
    ),
    "a stored answer ends its words": (
        [
            e.Delta("s1", "final", "A"),
            e.ModelReturned("s1", Message("assistant", (Text("A"),))),
            e.Delta("s1", "final", "B"),
        ],
        ["> A", "> B"],
    ),
    "a tool's own progress": (
        [e.ToolProgress("s1", "s1-0", {"percent": 3})],
        ['pay: {"percent":3}'],
    ),
    "a compensation is not told": ([e.ToolStarted("s1", "s1-0", undo=True)], []),
    "a task below": (
        [e.ChildEvent("s1", "s1-0", "t2", ("clerk",), e.StepStarted("s1", 1))],
        ["clerk: step 1 began, attempt 1"],
    ),
    "no character that hides": ([e.Delta("s1", "final", "a\u202eb")], ["> a\\u202eb"]),
}


@pytest.mark.parametrize(("items", "lines"), TABLE.values(), ids=TABLE)
def test_events_are_progress(items: list[Any], lines: list[str]):
    assert progress(*items) == lines


# ------------------------------------------------------------------------------------------------ results


def standing(
    state: Any, *pending: Pending, rests: bool = True, is_tool: bool = False, **result: Any
) -> Standing:
    task: Task[Any] = Task(
        "t", "shop", "h", state, not rests, 1_000_000, 1, 2, (), None, None, None, {}, 12, updated=2_000_000
    )
    return Standing(task, Stop(state, pending) if rests else None, result, is_tool)


def texts(frame: Any) -> list[str]:
    return [block["text"] for block in frame["content"]]


IDS = "[task_id t, thread_id h]"
AGAIN = 'Do not begin it anew: call shop again with the same arguments and `task_id` "t" for the result.'
PERSON = "A person decides in the inspector of the server, or as `treadle pending t` shows."

RESULTS: dict[str, tuple[Standing, list[str], bool, dict[str, Any]]] = {
    "completed": (
        standing("completed", final_text="Paid.", output="Paid."),
        ["Paid.", IDS],
        False,
        {"answer": "Paid."},
    ),
    "completed with data": (
        standing("completed", final_text='{"a":1}', output={"a": 1}),
        ['{"a":1}', IDS],
        False,
        {"answer": {"a": 1}},
    ),
    "degraded": (
        standing("degraded", final_text="So far.", output="So far.", degraded_reasons=["limit reached"]),
        ["So far.", "This answer is only a best effort: limit reached", IDS],
        False,
        {"answer": "So far.", "reasons": ["limit reached"]},
    ),
    "degraded without an answer": (
        standing("degraded", final_text="", degraded_reasons=["limit reached"]),
        ["limit reached (task t is degraded)", IDS],
        True,
        {"error": "limit reached"},
    ),
    "failed": (
        standing("failed", final_text="", error={"message": "it broke"}),
        ["it broke (task t is failed)", IDS],
        True,
        {"error": "it broke"},
    ),
    "cancelled": (
        standing("cancelled", final_text=""),
        ["the task is cancelled (task t is cancelled)", IDS],
        True,
        {"error": "the task is cancelled"},
    ),
    "waits": (
        standing("waiting", PAY),
        [f"Task t has no answer yet: pay waits for an approval. {AGAIN} {PERSON}", IDS],
        False,
        {"waits_for": ["pay waits for an approval"]},
    ),
    "goes on": (
        standing("running", rests=False),
        [f"Task t has no answer yet: step 2. {AGAIN}", IDS],
        False,
        {"waits_for": []},
    ),
}


@pytest.mark.parametrize(("state", "told", "is_error", "facts"), RESULTS.values(), ids=RESULTS)
def test_a_stopped_task_is_a_result(state: Standing, told: list[str], is_error: bool, facts: dict[str, Any]):
    frame = result_of(state)
    CallToolResult.model_validate(frame)
    assert (texts(frame), frame["isError"]) == (told, is_error)
    own = {"task_id": "t", "thread_id": "h", "state": state.task.state}
    assert frame["structuredContent"] == {**own, **facts}
    assert frame["_meta"] == {"treadle/task": own}


def test_the_result_of_a_served_tool_is_its_output_alone():
    frame = result_of(standing("completed", is_tool=True, final_text='{"a":1}', output={"a": 1}))
    assert (texts(frame), frame["structuredContent"]) == (['{"a":1}'], {"a": 1})
    assert "structuredContent" not in result_of(
        standing("completed", is_tool=True, final_text="x", output="x")
    )
    assert "Do not call shop again" in texts(waiting(standing("waiting", PAY, is_tool=True)))[0]


def test_a_refusal_is_an_error():
    assert refusal("no") == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
    }


STATUS: dict[str, tuple[Standing, bool, str, set[str]]] = {
    "goes on": (standing("running", rests=False), True, "working", set()),
    "asks": (standing("waiting", PAY), True, "input_required", {"inputRequests"}),
    "asks, and the client has no forms": (standing("waiting", PAY), False, "working", set()),
    "paused": (standing("paused"), True, "input_required", {"inputRequests"}),
    "completed": (standing("completed", final_text="x"), True, "completed", {"result"}),
    "failed": (standing("failed", error={"message": "x"}), True, "completed", {"result"}),
    "cancelled": (standing("cancelled"), True, "cancelled", set()),
}


@pytest.mark.parametrize(("state", "may_ask", "status", "more"), STATUS.values(), ids=STATUS)
def test_a_handle_has_the_status_of_its_task(state: Standing, may_ask: bool, status: str, more: set[str]):
    assert status_of(state, may_ask=may_ask) == status
    handle = handle_of(state, may_ask=may_ask)
    common = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}
    assert handle.keys() - {"statusMessage"} == common | more
    assert (handle["createdAt"], handle["lastUpdatedAt"]) == (
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:00:02.000Z",
    )


def test_a_new_handle_is_the_result_of_its_call():
    handle = new_handle(standing("running").task)
    assert (handle["resultType"], handle["status"]) == ("task", "working")


def test_requests_are_answered_by_a_repeated_call():
    frame = input_required(standing("waiting", PAY))
    assert (frame["requestState"], [*frame["inputRequests"]]) == ("t@12", ["t:s1-0-ask1@7"])
    assert task_in(frame["requestState"]) == ("t", 12)
    assert [task_in(state)[0] for state in ("", "t", "t@", "t@12x", "t@x", "@12", "t@" + "1" * 99)] == [
        ""
    ] * 7
    assert "inputRequests" not in input_required(standing("running", rests=False))

"""The fold of events to events of AG-UI, as a table; each result fits the protocol's models and its rules of order."""

from __future__ import annotations

from typing import Any

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from treadle.core import events as e
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall
from treadle.core.model import Usage
from treadle.results.pending import Pending
from treadle.server.protocols.agui import (
    AguiRun,
    call_of,
    error_frame,
    interrupt_of,
    request_of,
    tool_call_id,
)
from treadle.server.protocols.stops import Stop, waits_for_client

EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
USER = {"id": "u1", "role": "user", "content": "Hi"}
LOOK = ToolCall("s1-0", "look", {"at": "it"})


def said(*parts: Any, step: str = "s1", call: str | None = None) -> e.ModelReturned:
    return e.ModelReturned(step, Message("assistant", parts), call=call)


def numbered(*items: Any) -> list[Any]:
    """Return items, of which the stored events are numbered."""
    seq = 0
    for item in items:
        if isinstance(item, e.Event):
            seq += 1
            item.seq = seq
        if hasattr(item, "call") and isinstance(item, e.CallOccurrence) and not item.tool:
            item.tool_name = "look"
    return list(items)


def folded(*items: Any, **settings: Any) -> list[Any]:
    """Return the events after RUN_STARTED that some items cause."""
    run = AguiRun("t", "thread", "r", [USER], **settings)
    run.begin()
    frames = [frame for item in numbered(*items) for frame in run.feed(item)]
    return conforming(frames)


def conforming(frames: list[Any]) -> list[Any]:
    for frame in frames:
        EVENTS.validate_python(frame)
    return frames


def short(frames: list[Any]) -> list[str]:
    """Return frames as short lines: the type, without what all share, and what is told."""
    lines: list[str] = []
    for frame in frames:
        told = [
            str(frame[name])
            for name in ("subagentRunId", "stepName", "messageId", "toolCallId", "toolCallName", "delta")
            if name in frame
        ]
        if frame["type"] == "MESSAGES_SNAPSHOT":
            told = [message["id"] for message in frame["messages"]]
        lines.append(" ".join([frame["type"], *told]))
    return lines


TABLE: dict[str, tuple[list[Any], list[str]]] = {
    "a stored answer without deltas": (
        [said(Text("Hello"))],
        ["TEXT_MESSAGE_START t/s1", "TEXT_MESSAGE_CONTENT t/s1 Hello", "TEXT_MESSAGE_END t/s1"],
    ),
    "deltas, and the rest from the stored answer": (
        [e.Delta("s1", "final", "He"), said(Text("Hello"))],
        [
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 He",
            "TEXT_MESSAGE_CONTENT t/s1 llo",
            "TEXT_MESSAGE_END t/s1",
        ],
    ),
    "a delta that was read already, and one in part": (
        [
            e.Delta("s1", "final", "He"),
            e.Delta("s1", "final", "He"),
            e.Delta("s1", "final", "Hell"),
            said(Text("Hello")),
        ],
        [
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 He",
            "TEXT_MESSAGE_CONTENT t/s1 ll",
            "TEXT_MESSAGE_CONTENT t/s1 o",
            "TEXT_MESSAGE_END t/s1",
        ],
    ),
    "a delta after a gap waits for the stored answer": (
        [e.Delta("s1", "final", "lo", at=3), said(Text("Hello"))],
        ["TEXT_MESSAGE_START t/s1", "TEXT_MESSAGE_CONTENT t/s1 Hello", "TEXT_MESSAGE_END t/s1"],
    ),
    "an answer that differs from its deltas": (
        [e.Delta("s1", "draft", "No"), said(Text("Yes"))],
        [
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 No",
            "TEXT_MESSAGE_END t/s1",
            "MESSAGES_SNAPSHOT u1 t/s1",
        ],
    ),
    "reasoning before text": (
        [
            e.Delta("s1", "reasoning", "Hm"),
            e.Delta("s1", "final", "Hi"),
            said(Reasoning("Hm"), Text("Hi")),
        ],
        [
            "REASONING_START t/s1/reasoning",
            "REASONING_MESSAGE_START t/s1/reasoning",
            "REASONING_MESSAGE_CONTENT t/s1/reasoning Hm",
            "REASONING_MESSAGE_END t/s1/reasoning",
            "REASONING_END t/s1/reasoning",
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 Hi",
            "TEXT_MESSAGE_END t/s1",
        ],
    ),
    "an attempt that begins anew": (
        [
            e.Delta("s1", "final", "Wro"),
            e.ModelRestarted("s1", "test:m", 2),
            e.Delta("s1", "final", "Right"),
            said(Text("Right")),
        ],
        [
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 Wro",
            "TEXT_MESSAGE_END t/s1",
            "MESSAGES_SNAPSHOT u1",
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 Right",
            "TEXT_MESSAGE_END t/s1",
        ],
    ),
    "a request that was stopped before anything was written": ([e.ModelStopped("s1", "crash")], []),
    "a second answer in a step has an id of its own": (
        [said(Text("a")), said(Text("b"))],
        [
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 a",
            "TEXT_MESSAGE_END t/s1",
            "TEXT_MESSAGE_START t/s1#2",
            "TEXT_MESSAGE_CONTENT t/s1#2 b",
            "TEXT_MESSAGE_END t/s1#2",
        ],
    ),
    "a call and its result": (
        [said(LOOK), e.ToolStarted("s1", "s1-0"), e.ToolEnded("s1", "s1-0", output="seen")],
        [
            "TOOL_CALL_START t/s1-0 look",
            'TOOL_CALL_ARGS t/s1-0 {"at": "it"}',
            "TOOL_CALL_END t/s1-0",
            "TOOL_CALL_RESULT t/s1-0/result t/s1-0",
        ],
    ),
    "arguments that are written bit by bit": (
        [
            e.Delta("s1", "arguments", "", tool="lo"),
            e.Delta("s1", "arguments", '{"at', tool="ok", tool_at=2, call_id="s1-0"),
            e.Delta("s1", "arguments", '": "it"}', at=4, tool_at=4, call_id="s1-0"),
            said(LOOK),
        ],
        [
            "TOOL_CALL_START t/s1-0 look",
            'TOOL_CALL_ARGS t/s1-0 {"at',
            'TOOL_CALL_ARGS t/s1-0 ": "it"}',
            "TOOL_CALL_END t/s1-0",
        ],
    ),
    "the second result of a call replaces the first": (
        [
            said(LOOK),
            e.CallDeferred("s1", "s1-0", expires=9),
            e.ToolEnded("s1", "s1-0", output="seen"),
        ],
        [
            "TOOL_CALL_START t/s1-0 look",
            'TOOL_CALL_ARGS t/s1-0 {"at": "it"}',
            "TOOL_CALL_END t/s1-0",
            "TOOL_CALL_RESULT t/s1-0/result t/s1-0",
            "MESSAGES_SNAPSHOT u1 t/s1 t/s1-0/result",
        ],
    ),
    "a call of a step function": (
        [
            e.CallRequested("s1", "s1-c1", "k", "d", "look", {}),
            e.ToolEnded("s1", "s1-c1", output="seen"),
        ],
        [
            "TOOL_CALL_START t/s1-c1 look",
            "TOOL_CALL_ARGS t/s1-c1 {}",
            "TOOL_CALL_END t/s1-c1",
            "TOOL_CALL_RESULT t/s1-c1/result t/s1-c1",
        ],
    ),
    "steps": (
        [e.StepStarted("s1", 1), e.StepStarted("s1", 1, attempt=2), e.StepCompleted("s1")],
        ["STEP_STARTED s1", "STEP_FINISHED s1"],
    ),
    "an undo takes messages back": (
        [
            e.StepStarted("s1", 1),
            said(Text("a")),
            e.StepCompleted("s1"),
            e.StepStarted("s2", 2),
            said(Text("b"), step="s2"),
            e.Rewound(1, 1),
        ],
        [
            "STEP_STARTED s1",
            "TEXT_MESSAGE_START t/s1",
            "TEXT_MESSAGE_CONTENT t/s1 a",
            "TEXT_MESSAGE_END t/s1",
            "STEP_FINISHED s1",
            "STEP_STARTED s2",
            "TEXT_MESSAGE_START t/s2",
            "TEXT_MESSAGE_CONTENT t/s2 b",
            "TEXT_MESSAGE_END t/s2",
            "STEP_FINISHED s2",
            "MESSAGES_SNAPSHOT u1 t/s1",
        ],
    ),
    "a message that someone else sent": (
        [e.InputReceived((Text("And?"),)), e.InputReceived((Text("Mine"),), inbox="command-1-agui-x")],
        ["TEXT_MESSAGE_START t/in1", "TEXT_MESSAGE_CONTENT t/in1 And?", "TEXT_MESSAGE_END t/in1"],
    ),
    "a subagent, its words, and its end": (
        [
            said(LOOK),
            e.ToolStarted("s1", "s1-0", child="t.s1-0"),
            e.ChildEvent("s1", "s1-0", "t.s1-0", ("look",), e.StepStarted("s1", 1)),
            e.ChildEvent("s1", "s1-0", "t.s1-0", ("look",), e.Delta("s1", "final", "In")),
            e.ToolEnded("s1", "s1-0", output="In"),
            e.ChildEvent("s1", "s1-0", "t.s1-0", ("look",), e.Delta("s1", "final", "late", at=2)),
        ],
        [
            "TOOL_CALL_START t/s1-0 look",
            'TOOL_CALL_ARGS t/s1-0 {"at": "it"}',
            "TOOL_CALL_END t/s1-0",
            "SUBAGENT_STARTED t.s1-0",
            "STEP_STARTED t.s1-0 s1",
            "TEXT_MESSAGE_START t.s1-0 t.s1-0/s1",
            "TEXT_MESSAGE_CONTENT t.s1-0 t.s1-0/s1 In",
            "TEXT_MESSAGE_END t.s1-0 t.s1-0/s1",
            "MESSAGES_SNAPSHOT u1 t/s1",
            "STEP_FINISHED t.s1-0 s1",
            "SUBAGENT_FINISHED t.s1-0",
            "TOOL_CALL_RESULT t/s1-0/result t/s1-0",
        ],
    ),
    "a subagent whose beginning was missed, and a failed one": (
        [
            said(LOOK),
            e.ChildEvent("s1", "s1-0", "t.s1-0", ("look",), e.StepStarted("s1", 1)),
            e.ToolStarted("s1", "s1-0", child="t.s1-0"),
            e.ToolStopped("s1", "s1-0", "error", e.Failure("subagent", "limit", "too much"), failed="x"),
        ],
        [
            "TOOL_CALL_START t/s1-0 look",
            'TOOL_CALL_ARGS t/s1-0 {"at": "it"}',
            "TOOL_CALL_END t/s1-0",
            "SUBAGENT_STARTED t.s1-0",
            "STEP_STARTED t.s1-0 s1",
            "STEP_FINISHED t.s1-0 s1",
            "SUBAGENT_ERROR t.s1-0",
        ],
    ),
    "changes of the extra state": (
        [
            e.TaskCreated("shop", (), "thread", extra_state={"a": 1, "b": 2}),
            e.InstructionsSet("x", e.StateChange({"a": 3}, ("b",))),
        ],
        ["STATE_SNAPSHOT", "STATE_SNAPSHOT"],
    ),
    "progress of a tool": ([e.ToolProgress("s1", "s1-0", 0.5)], ["CUSTOM"]),
    "the state of the task": ([e.TaskStood("running", True, True, 3)], []),
}


@pytest.mark.parametrize("name", TABLE)
def test_items_become_these_events(name: str):
    items, expected = TABLE[name]
    assert short(folded(*items)) == expected


def test_the_events_of_an_earlier_run_are_read_quietly():
    earlier = [e.StepStarted("s1", 1), said(LOOK), e.ToolStarted("s1", "s1-0")]
    later = [e.ToolEnded("s1", "s1-0", output="seen"), e.StepCompleted("s1")]
    assert short(folded(*earlier, *later, after=3)) == [
        "STEP_STARTED s1",
        "TOOL_CALL_RESULT t/s1-0/result t/s1-0",
        "STEP_FINISHED s1",
    ]


def test_a_run_that_is_sent_again_begins_with_the_messages_before_it():
    run = AguiRun("t", "thread", "r", [USER], again=True)
    assert short(conforming(run.begin())) == ["RUN_STARTED", "MESSAGES_SNAPSHOT u1"]


@pytest.mark.parametrize(
    ("again", "expected"), [(False, []), (True, ["TOOL_CALL_RESULT t/s1-0/result t/s1-0"])]
)
def test_the_result_of_the_clients_own_tool_is_sent_only_when_a_run_is_sent_again(
    again: bool, expected: list[str]
):
    options: Any = {"caller_tools": [{"name": "look"}]}
    created = e.TaskCreated("shop", (), "thread", options=options)
    end = e.ToolEnded("s1", "s1-0", output="seen")
    assert short(folded(created, said(LOOK), end, again=again))[3:] == expected


def pending(request_id: str, kind: Any, task_id: str = "t", **more: Any) -> Pending:
    return Pending(request_id, kind, more.pop("tool", "look"), {}, "it waits", task_id=task_id, **more)


def ended(stop: Stop, *items: Any) -> Any:
    run = AguiRun("t", "thread", "r", [USER])
    run.begin()
    for item in numbered(*items):
        run.feed(item)
    return conforming(run.end(stop))


ENDS: dict[str, tuple[Stop, list[Any], Any]] = {
    "completed": (
        Stop("completed"),
        [e.TaskEnded("completed", "Yes")],
        {"result": "Yes", "outcome": {"type": "success"}},
    ),
    "degraded": (
        Stop("degraded"),
        [e.TaskEnded("degraded", "Yes", reasons=("a limit",))],
        {
            "result": "Yes",
            "outcome": {"type": "success"},
            "metadata": {"treadle": {"state": "degraded", "reasons": ["a limit"]}},
        },
    ),
    "cancelled": (Stop("cancelled"), [e.TaskEnded("cancelled")], {"outcome": {"type": "cancelled"}}),
    "a call of the client": (
        Stop("waiting", (pending("s1-0-q1", "call"),)),
        [],
        {"outcome": {"type": "success", "pendingToolCallIds": ["t/s1-0"]}},
    ),
    "paused": (
        Stop("paused", reason="a person paused it"),
        [],
        {
            "outcome": {
                "type": "interrupt",
                "interrupts": [
                    {
                        "id": "t:resume",
                        "reason": "treadle:paused",
                        "message": "a person paused it",
                        "metadata": {"treadle": {"kind": "resume", "task_id": "t"}},
                    }
                ],
            }
        },
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_task_that_stopped_ends_the_run(name: str):
    stop, items, expected = ENDS[name]
    *_, last = ended(stop, *items)
    assert last == {"type": "RUN_FINISHED", "threadId": "thread", "runId": "r", **expected}


def test_a_failed_task_ends_the_run_with_its_error():
    failure = e.Failure("model", "rate_limit", "too many requests")
    assert ended(Stop("failed"), e.TaskEnded("failed", error=failure)) == [
        error_frame("too many requests", "rate_limit")
    ]


def test_the_end_closes_all_that_is_open_and_sends_a_changed_state():
    frames = ended(
        Stop("waiting", (pending("s1-0-ask1", "approval", "t.s1-0"),), extra_state={"a": 1}),
        e.StepStarted("s1", 1),
        said(LOOK),
        e.ToolStarted("s1", "s1-0", child="t.s1-0"),
        e.Delta("s1", "final", "half", call="s1-m2"),
    )
    assert short(frames) == [
        "SUBAGENT_FINISHED t.s1-0",
        "TEXT_MESSAGE_END t/s1-m2",
        "MESSAGES_SNAPSHOT u1 t/s1",
        "STEP_FINISHED s1",
        "STATE_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert frames[0]["outcome"] == {"type": "suspended"}
    (interrupt,) = frames[-1]["outcome"]["interrupts"]
    assert interrupt["subagentRunId"] == "t.s1-0"


def test_the_end_has_the_tokens_of_the_run_by_provider_and_model():
    counted = e.ModelReturned("s1", Message("assistant", (Text("Hi"),)), usage=Usage(10, 4, 2, 1))
    for state, events in (
        ("completed", [e.TaskEnded("completed", "Hi")]),
        ("failed", [e.TaskEnded("failed")]),
    ):
        *_, last = ended(Stop(state), e.ModelStarted("s1", "openai:gpt-5"), counted, *events)
        (usage,) = last["usage"]
        assert (usage["provider"], usage["model"]) == ("openai", "gpt-5")
        assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (10, 4, 14)
        assert (usage["cachedInputTokens"], usage["reasoningTokens"]) == (2, 1)
    *_, last = ended(Stop("completed"), counted, e.TaskEnded("completed", "Hi"))
    assert "model" not in last["usage"][0]
    assert "usage" not in ended(Stop("paused"))[-1]


def test_open_requests_are_interrupts_with_a_schema_for_the_answer():
    approval = interrupt_of(pending("s1-0-ask1", "approval", expires=1_700_000_000_000_000), "t")
    assert (approval["reason"], approval["toolCallId"]) == ("tool_call", "t/s1-0")
    assert approval["expiresAt"] == "2023-11-14T22:13:20+00:00"
    assert approval["responseSchema"]["properties"]["scope"]["enum"] == ["once", "task", "thread", "always"]
    content = interrupt_of(pending("s1-said1-ask1", "approval", argument="to", every_call=True), "t")
    assert (content["reason"], "toolCallId" in content) == ("confirmation", False)
    assert content["responseSchema"]["properties"]["scope"]["enum"] == ["once"]
    assert "value" in content["responseSchema"]["properties"]
    question = interrupt_of(pending("s1-q2", "question", tool="", schema={"type": "string"}), "t")
    assert (question["reason"], question["responseSchema"]) == ("input_required", {"type": "string"})
    settlement = interrupt_of(pending("s1-0-undo", "settlement", idempotency_key="k"), "t")
    assert (settlement["reason"], settlement["toolCallId"]) == ("treadle:settlement", "t/s1-0")
    assert settlement["metadata"]["treadle"]["idempotency_key"] == "k"


def test_ids_name_the_task_whatever_its_own_id_contains():
    assert request_of("a:b:s1-0-ask1") == ("a:b", "s1-0-ask1")
    assert request_of("nonsense") == ("", "nonsense")
    assert tool_call_id("a/b", "s1-0r2") == "a/b/s1-0"
    assert call_of(pending("s1-q1", "question", tool="")) is None


@pytest.mark.parametrize(
    ("kinds", "ends"),
    [(["timer"], False), (["background"], False), (["timer", "question"], True), (["call"], True)],
)
def test_a_task_that_goes_on_by_itself_does_not_end_its_run(kinds: list[str], ends: bool):
    assert waits_for_client(Stop("waiting", tuple([pending("s1-q1", kind) for kind in kinds]))) == ends
    assert waits_for_client(Stop("paused"))


def test_pictures_and_files_of_a_result_are_parts():
    observation = (
        Text("two"),
        Image(data=b"png", media_type="image/png"),
        File(url="https://files.example/a.pdf", media_type="application/pdf"),
    )
    *_, result = folded(said(LOOK), e.ToolEnded("s1", "s1-0", observation=observation))
    assert result["content"] == [
        {"type": "text", "text": "two"},
        {"type": "image", "source": {"type": "data", "value": "cG5n", "mimeType": "image/png"}},
        {
            "type": "document",
            "source": {"type": "url", "value": "https://files.example/a.pdf", "mimeType": "application/pdf"},
        },
    ]

"""The fold of events to a response, as a table; each frame fits the official models, also after any cut."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.journals.fixed import SUFFIX
from tests.journals.stories import AGENTS
from tests.server.protocols.test_agui import numbered, said
from treadle import Runner
from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.messages import Message, Reasoning, Text, ToolCall
from treadle.core.model import Usage
from treadle.results.pending import Pending
from treadle.server.protocols.responses import PLACES, ResponseFold, mark_of
from treadle.server.protocols.responses_object import Facts, part_in, response_id, status_of
from treadle.server.protocols.stops import Stop

JOURNALS = Path(__file__).parents[2] / "journals"
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FACTS = Facts("thread", {"color": "red"})
LOOK = ToolCall("s1-0", "look", {"at": "it"})
HERE = {"caller_tools": [{"name": "look", "description": "", "parameters": None}]}


def created(**options: Any) -> e.TaskCreated:
    return e.TaskCreated("shop", (Text("Hi"),), "thread", options=options or None)


def model(step: str = "s1", call: str | None = None) -> e.ModelStarted:
    return e.ModelStarted(step, "test:m", call=call)


def checked_response(response: Any) -> None:
    """Check a response by the official model, which lists OpenAI's own reasons and codes; the specification has any."""
    shown = dict(response)
    if shown["incomplete_details"] is not None:
        shown["incomplete_details"] = {"reason": "content_filter"}
    if shown["error"] is not None:
        shown["error"] = {**shown["error"], "code": "server_error"}
    Response.model_validate(shown)


def conforming(frames: list[Any]) -> list[Any]:
    """Return frames, each of which the official models accept; an event of our own has our name in front."""
    for frame in frames:
        if "response" in frame:
            checked_response(frame["response"])
        elif not frame["type"].startswith("treadle:"):
            EVENTS.validate_python(frame)
    numbers = [frame["sequence_number"] for frame in frames]
    assert numbers == sorted(set(numbers)), numbers
    return frames


class Screen:
    """A client: the items that it has after the frames that it read."""

    def __init__(self) -> None:
        self.items: dict[int, Any] = {}
        self.text: dict[int, str] = {}
        self.final: Any = None

    def read(self, frames: list[Any]) -> None:
        for frame in frames:
            place, kind = frame.get("output_index"), frame["type"]
            if kind == "response.output_item.added":
                assert place not in self.items or self.items[place]["id"] == frame["item"]["id"]
                assert place <= len(self.items)
                self.items[place] = frame["item"]
                self.text.setdefault(place, "")
            elif kind == "treadle:output_void":
                self.text[place] = ""
            elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
                self.text[place] += frame["delta"]
            elif kind in ("response.output_text.done", "response.reasoning_text.done"):
                assert self.text[place] == frame["text"], "the deltas are the text"
            elif kind == "response.output_item.done":
                assert self.items[place]["id"] == frame["item"]["id"]
                self.items[place] = frame["item"]
            elif "response" in frame:
                self.final = frame["response"]


def fold_of(*items: Any, **settings: Any) -> tuple[ResponseFold, list[Any]]:
    fold = ResponseFold("t", FACTS, **settings)
    frames = fold.begin()
    for item in items:
        frames += fold.feed(item)
    return fold, frames


def short(frames: list[Any]) -> list[str]:
    """Return frames as short lines, without the two that open a response."""
    lines: list[str] = []
    for frame in frames[2:] if frames and frames[0]["type"] == "response.created" else frames:
        item = frame.get("item", {})
        told = [frame.get("output_index"), item.get("id"), frame.get("delta")]
        if item.get("type") == "mcp_call" and item["status"] != "in_progress":
            error = item["error"]
            told.append(error["content"][0]["text"] if error else item["output"] or item["status"])
        lines.append(
            " ".join([frame["type"].removeprefix("response."), *[str(x) for x in told if x is not None]])
        )
    return [
        line
        for line in lines
        if not line.startswith(("content_part", "output_text.done", "reasoning_text.done"))
    ]


MESSAGE = ["output_item.added 0 msg_t/s1", "output_text.delta 0 Hello", "output_item.done 0 msg_t/s1"]

TABLE: dict[str, tuple[list[Any], list[str]]] = {
    "a stored answer without deltas": ([model(), said(Text("Hello"))], MESSAGE),
    "deltas, and the rest from the stored answer": (
        [model(), e.Delta("s1", "final", "He"), said(Text("Hello"))],
        [MESSAGE[0], "output_text.delta 0 He", "output_text.delta 0 llo", MESSAGE[2]],
    ),
    "a delta that was read already, and one in part": (
        [
            model(),
            e.Delta("s1", "final", "He"),
            e.Delta("s1", "final", "He"),
            e.Delta("s1", "final", "Hell"),
            said(Text("Hello")),
        ],
        [MESSAGE[0], *[f"output_text.delta 0 {text}" for text in ("He", "ll", "o")], MESSAGE[2]],
    ),
    "a delta after a gap waits for the stored answer": (
        [model(), e.Delta("s1", "final", "lo", at=3), said(Text("Hello"))],
        MESSAGE,
    ),
    "an answer that differs from its deltas": (
        [model(), e.Delta("s1", "draft", "No"), said(Text("Hello"))],
        [MESSAGE[0], "output_text.delta 0 No", "treadle:output_void 0", *MESSAGE[1:]],
    ),
    "reasoning before text": (
        [
            model(),
            e.Delta("s1", "reasoning", "Hm"),
            e.Delta("s1", "final", "Hello"),
            said(Reasoning("Hm"), Text("Hello")),
        ],
        [
            "output_item.added 0 rs_t/s1",
            "reasoning_text.delta 0 Hm",
            "output_item.done 0 rs_t/s1",
            "output_item.added 1 msg_t/s1",
            "output_text.delta 1 Hello",
            "output_item.done 1 msg_t/s1",
        ],
    ),
    "an attempt that begins anew in its request": (
        [
            model(),
            e.Delta("s1", "final", "Wro"),
            e.ModelRestarted("s1", "test:m", 2),
            e.Delta("s1", "final", "Hel"),
            said(Text("Hello")),
        ],
        [MESSAGE[0], "output_text.delta 0 Wro", "treadle:output_void 0", *MESSAGE[1:]],
    ),
    "an attempt that a crash cut off": (
        [
            model(),
            e.Delta("s1", "final", "Wro"),
            e.ModelStopped("s1", "crash"),
            model(),
            e.Delta("s1", "final", "Hel"),
            said(Text("Hello")),
        ],
        [
            *(MESSAGE[0], "output_text.delta 0 Wro", "treadle:output_void 0"),
            *("output_text.delta 0 Hel", "output_text.delta 0 lo", MESSAGE[2]),
        ],
    ),
    "a request that was stopped before anything was written": ([model(), e.ModelStopped("s1", "crash")], []),
    "a second answer in a step has an id of its own": (
        [model(), said(Text("Hello")), model(), said(Text("b"))],
        [
            *MESSAGE,
            *("output_item.added 1 msg_t/s1#2", "output_text.delta 1 b", "output_item.done 1 msg_t/s1#2"),
        ],
    ),
    "a call that the server runs": (
        [said(LOOK), e.ToolStarted("s1", "s1-0"), e.ToolEnded("s1", "s1-0", output="seen")],
        [
            *("output_item.added 0 mcp_t/s1-0", "mcp_call.in_progress 0"),
            *('mcp_call_arguments.delta 0 {"at": "it"}', "mcp_call_arguments.done 0"),
            *("mcp_call.completed 0", "output_item.done 0 mcp_t/s1-0 seen"),
        ],
    ),
    "a call that fails, though it never began": (
        [said(LOOK), e.ToolEnded("s1", "s1-0", "denied", error=e.Failure("tool", "denied", "no"))],
        [
            *("output_item.added 0 mcp_t/s1-0", "mcp_call.in_progress 0"),
            *('mcp_call_arguments.delta 0 {"at": "it"}', "mcp_call_arguments.done 0"),
            *("mcp_call.failed 0", "output_item.done 0 mcp_t/s1-0 no"),
        ],
    ),
    "a call that began twice is one item": (
        [said(LOOK), e.ToolStarted("s1", "s1-0"), e.ToolStarted("s1", "s1-0", attempt=2)],
        [
            *("output_item.added 0 mcp_t/s1-0", "mcp_call.in_progress 0"),
            *('mcp_call_arguments.delta 0 {"at": "it"}', "mcp_call_arguments.done 0"),
        ],
    ),
    "an approval, and the arguments that it gave": (
        [
            said(LOOK),
            e.ApprovalRequested("s1", "s1-0", 1, "", "", 9),
            e.ApprovalGiven("s1", "s1-0", 1, arguments={"at": "him"}),
            e.ToolStarted("s1", "s1-0"),
        ],
        [
            *("output_item.added 0 mcpr_t:s1-0-ask1", "output_item.done 0 mcpr_t:s1-0-ask1"),
            *("output_item.added 1 mcp_t/s1-0", "mcp_call.in_progress 1"),
            *('mcp_call_arguments.delta 1 {"at": "him"}', "mcp_call_arguments.done 1"),
        ],
    ),
    "the end of another call waits for the end of the answer": (
        [
            model("s2"),
            e.Delta("s2", "final", "He"),
            e.ToolEnded("s1", "s1-0", output="seen"),
            said(Text("Hello"), step="s2"),
        ],
        [
            "output_item.added 0 msg_t/s2",
            "output_text.delta 0 He",
            "output_text.delta 0 llo",
            "output_item.done 0 msg_t/s2",
            *("output_item.added 1 mcp_t/s1-0", "mcp_call.in_progress 1", "mcp_call_arguments.delta 1 {}"),
            *("mcp_call_arguments.done 1", "mcp_call.completed 1", "output_item.done 1 mcp_t/s1-0 seen"),
        ],
    ),
    "of two answers at once the first is sent while it is written, then the other": (
        [
            model("s1"),
            model("s2"),
            e.Delta("s2", "final", "b"),
            e.Delta("s1", "final", "Hello"),
            said(Text("Hello")),
            e.Delta("s2", "final", "c", at=1),
            said(Text("bcd"), step="s2"),
        ],
        [
            *MESSAGE,
            *("output_item.added 1 msg_t/s2", "output_text.delta 1 b", "output_text.delta 1 c"),
            *("output_text.delta 1 d", "output_item.done 1 msg_t/s2"),
        ],
    ),
    "a typed answer in a call is a message": (
        [
            e.ModelReturned(
                "s1",
                Message("assistant", (ToolCall("s1-0", "answer", {}),)),
                typed=e.TypedAnswer({"a": 1}, call="s1-0"),
            )
        ],
        ["output_item.added 0 msg_t/s1", 'output_text.delta 0 {"a": 1}', "output_item.done 0 msg_t/s1"],
    ),
    "an answer that no model wrote is a message": (
        [said(Text("Hello")), e.TaskEnded("completed", {"a": 1})],
        [
            *MESSAGE,
            *(
                "output_item.added 1 msg_t/output",
                'output_text.delta 1 {"a": 1}',
                "output_item.done 1 msg_t/output",
            ),
        ],
    ),
    "the answer in another form of the same JSON is there already": (
        [said(Text('{ "a": 1 }')), e.TaskEnded("completed", {"a": 1})],
        ["output_item.added 0 msg_t/s1", 'output_text.delta 0 { "a": 1 }', "output_item.done 0 msg_t/s1"],
    ),
    "an undone step ends its open items": (
        [e.StepStarted("s1", 1), said(LOOK), e.ToolStarted("s1", "s1-0"), e.Rewound(0, 1)],
        [
            *("output_item.added 0 mcp_t/s1-0", "mcp_call.in_progress 0"),
            *('mcp_call_arguments.delta 0 {"at": "it"}', "mcp_call_arguments.done 0"),
            "output_item.done 0 mcp_t/s1-0 incomplete",
        ],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_events_become_frames(name: str):
    items, expected = TABLE[name]
    _, frames = fold_of(*numbered(created(), *items))
    told = short(conforming(frames))
    assert told == expected
    Screen().read(frames)


# ------------------------------------------------------------------------------------------ the whole response


def test_a_response_has_its_output_its_usage_and_the_fields_of_its_request():
    options = {"model_settings": {"temperature": 0.5, "max_tokens": 9}, "limits": {"tool_calls": 3}}
    events = numbered(
        created(**options),
        e.InputReceived((Text("Be brief"),), "system", inbox="command-1-responses--instructions"),
        e.ModelReturned("s1", Message("assistant", (Text("Hello"),)), usage=Usage(10, 4, 2, 1)),
        e.ToolEnded("s1", "s1-0", spent=(SpentBy("child", usage=Usage(5, 1)),)),
        e.TaskEnded("completed", "Hello"),
    )
    for event in events:
        event.time = event.seq * 1_000_000
    fold, frames = fold_of(*events)
    frames += fold.end(Stop("completed"))
    response = frames[-1]["response"]
    checked_response(response)
    expected = {
        "id": "resp_t",
        "model": "shop",
        "status": "completed",
        "created_at": 1,
        "completed_at": 5,
        "instructions": "Be brief",
        "temperature": 0.5,
        "max_output_tokens": 9,
        "max_tool_calls": 3,
        "metadata": {"color": "red"},
        "conversation": {"id": "thread"},
        "store": True,
        "background": False,
        "previous_response_id": None,
        "error": None,
        "incomplete_details": None,
    }
    assert {name: response[name] for name in expected} == expected
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (15, 5)
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == 2
    assert [item["type"] for item in response["output"]] == ["message", "mcp_call"]
    assert response["output"][0]["phase"] == "final_answer"


WAITS = {
    kind: Pending(f"s1-0-{kind}", kind, "pay", {"amount": 3}, f"a {kind}", task_id="t")  # type: ignore[arg-type]
    for kind in ("approval", "call", "question", "settlement", "timer")
}


@pytest.mark.parametrize(
    ("state", "pending", "status", "reason"),
    [
        ("completed", (), "completed", None),
        ("degraded", (), "incomplete", "degraded"),
        ("failed", (), "failed", None),
        ("cancelled", (), "cancelled", None),
        ("waiting", ("approval",), "completed", None),
        ("waiting", ("call", "approval"), "completed", None),
        ("waiting", ("question",), "incomplete", "question"),
        ("waiting", ("settlement", "call"), "incomplete", "settlement"),
        ("waiting", ("timer",), "in_progress", None),
        ("paused", (), "incomplete", "paused"),
        ("interrupted", (), "incomplete", "interrupted"),
        ("running", (), "incomplete", "running"),
    ],
)
def test_the_state_of_a_task_is_the_status_of_its_response(
    state: Any, pending: Any, status: str, reason: Any
):
    stop = Stop(state, tuple([WAITS[kind] for kind in pending]))
    assert status_of(stop) == status
    fold, _ = fold_of(*numbered(created(), *([e.TaskEnded(state)] if state in e.END_STATES else [])))
    closed = conforming(fold.end(stop))[-1]
    details = closed["response"]["incomplete_details"]
    assert (details or {"reason": None})["reason"] == reason
    kinds = {"completed": "completed", "failed": "failed"}
    assert closed["type"] == f"response.{kinds.get(status, 'incomplete')}"
    if "question" in pending:
        assert closed["response"]["metadata"]["treadle.pending.1"] == "question t:s1-0-question a question"


def test_an_approval_of_a_task_below_is_an_item_at_the_stop():
    fold, frames = fold_of(*numbered(created()))
    item = Pending("s1-0-ask1", "approval", "pay", {"amount": 3}, "pay?", task_id="t.s1-0")
    frames += fold.end(Stop("waiting", (item,)))
    shown = frames[-1]["response"]["output"][0]
    assert (shown["type"], shown["id"], shown["name"]) == (
        "mcp_approval_request",
        "mcpr_t.s1-0:s1-0-ask1",
        "pay",
    )
    conforming(frames)


ANSWERED = "command-1-responses-0123456789abcdef-x"


def test_the_answers_of_a_client_begin_a_response_of_its_own():
    events = numbered(
        created(**HERE),
        said(Reasoning("Hm"), Text("I look."), LOOK),
        e.ToolStarted("s1", "s1-0"),
        e.QuestionAsked("s1", "s1-0", 1, "?", None, ""),
        e.QuestionAnswered("s1", "s1-0", 1, {"output": 1}, inbox=ANSWERED),
        e.ToolStarted("s1", "s1-0"),
        e.ToolEnded("s1", "s1-0", output=1),
        said(Text("One"), step="s2"),
        e.TaskEnded("completed", "One"),
    )
    assert mark_of(ANSWERED) == "0123456789abcdef"
    first, frames = fold_of(*events)
    conforming(frames)
    assert (first.is_over, frames[-1]["type"]) == (True, "response.completed")
    assert frames[-1]["response"] == first.final
    assert [item["type"] for item in frames[-1]["response"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
    ]
    assert [line.split()[0] for line in short(frames)][6:] == [
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done"),
        *("output_item.done", "completed"),
    ]
    for settings in ({}, {"after": 4}):
        later, frames = fold_of(*events, part="0123456789abcdef", **settings)
        frames += later.end(Stop("completed"))
        conforming(frames)
        response = frames[-1]["response"]
        assert [item["type"] for item in response["output"]] == ["message"]
        assert (response["id"], response["previous_response_id"]) == ("resp_t~0123456789abcdef", "resp_t")
    unknown, frames = fold_of(*events, part="f" * 16)
    assert (frames, unknown.is_open) == ([], False)


def test_ids_name_the_task_and_the_part():
    assert part_in(response_id("t")) == ("t", "")
    assert part_in(response_id("a/b", "c")) == ("a/b", "c")
    assert part_in("nonsense") == ("", "")


# --------------------------------------------------------------------------------------------------- cuts


def streamed(chance: Random, *, answers: int) -> list[Any]:
    """Return events with deltas of a task whose attempts are cut off by crashes; each is written anew."""
    items: list[Any] = [created()]
    for number in range(1, answers + 1):
        step, text, thought = f"s{number}", f"{number}: one two three four", chance.choice(["", "Hm, hm"])
        for is_last in (*[False] * chance.choice([0, 0, 1, 2]), True):
            items.append(model(step))
            left = 1_000 if is_last else chance.randint(0, len(thought + text))
            for channel, written in (("reasoning", thought), ("final", text)):
                for at, piece in pieces(written[: max(left, 0)], chance):
                    items.append(e.Delta(step, channel, piece, at=at))  # type: ignore[arg-type]
                left -= len(written)
            if not is_last:
                items.append(e.ModelStopped(step, "crash"))
        parts = (Reasoning(thought), Text(text)) if thought else (Text(text),)
        items.append(said(*parts, ToolCall(f"{step}-0", "look", {}), step=step))
        items.append(e.ToolStarted(step, f"{step}-0"))
        items.append(e.ToolEnded(step, f"{step}-0", output="seen"))
    return numbered(*items, e.TaskEnded("completed", None))


def pieces(text: str, chance: Random) -> list[tuple[int, str]]:
    """Return the pieces of a text, each with its place."""
    made: list[tuple[int, str]] = []
    at = 0
    while at < len(text):
        piece = text[at : at + chance.randint(1, 6)]
        made.append((at, piece))
        at += len(piece)
    return made


def with_fewer_deltas(items: list[Any], chance: Random) -> list[Any]:
    """Return events with all, none or the first deltas of each attempt: a reader has them in order."""
    kept: list[Any] = []
    left = 0
    for item in items:
        if isinstance(item, e.ModelStarted):
            left = chance.choice([0, chance.randint(1, 5), 100])
        if isinstance(item, e.Event) or left > 0:
            kept.append(item)
        left -= isinstance(item, e.Delta)
    return kept


@pytest.mark.parametrize("seed", range(40))
def test_a_stream_goes_on_after_any_of_its_frames_wherever_deltas_are_lost(seed: int):
    chance = Random(seed)
    items = streamed(chance, answers=3)
    fold, whole = fold_of(*items)
    whole += fold.end(Stop("completed"))
    conforming(whole)
    for place in range(0, len(whole), 3):
        seen = whole[: place + 1]
        since = seen[-1]["sequence_number"]
        screen = Screen()
        screen.read(seen)
        later = with_fewer_deltas(items, chance)
        again, rest = fold_of(*later, since=since)
        rest += again.end(Stop("completed"))
        conforming(rest)
        assert all(frame["sequence_number"] > since for frame in rest)
        if rest:
            screen.read(rest)
            assert screen.final == whole[-1]["response"]
            assert list(screen.items.values()) == screen.final["output"]


RECORDED = [
    file
    for folder in ("0.1.0", "unreleased", "fixed")
    for file in sorted((JOURNALS / folder).glob(f"*{SUFFIX}"))
]


@pytest.mark.anyio
async def test_every_recorded_journal_is_a_response_that_goes_on_after_any_frame():
    assert RECORDED
    count = 0
    for file in RECORDED:
        async with Runner("memory:", agents=AGENTS) as runner:
            await runner.import_tasks(file)
            task = await runner.get_task(file.stem)
            events = [event async for event in await runner.get_events(task)]
            result = await runner.result(task)
        stop = Stop(result.state, result.pending)
        fold = ResponseFold(task.task_id, Facts(task.thread_id, task.labels))
        frames = [frame for event in events for frame in fold.feed(event)] + fold.end(stop)
        conforming(frames)
        assert frames[0]["type"] == "response.created", file
        screen = Screen()
        screen.read(frames)
        output = frames[-1]["response"]["output"]
        shown = {item["id"]: item for item in screen.items.values()}
        assert [item["id"] for item in output if item["id"] in shown] == [item["id"] for item in output], file
        assert all(item == shown[item["id"]] or item["status"] == "in_progress" for item in output), file
        for place in range(1, len(frames), 5):
            since = frames[place]["sequence_number"]
            again = ResponseFold(task.task_id, Facts(task.thread_id, task.labels), since=since)
            rest = [frame for event in events for frame in again.feed(event)] + again.end(stop)
            assert rest == frames[place + 1 :], file
            count += 1
    assert count > 150


def test_a_queued_response_is_in_progress_once_its_first_step_begins():
    fold = ResponseFold("t", Facts("thread", {}, is_queued=True))
    frames = [frame for item in numbered(created(), e.StepStarted("s1", 1)) for frame in fold.feed(item)]
    told = [(frame["type"], frame["sequence_number"], frame["response"]["status"]) for frame in frames]
    assert told == [
        ("response.created", 0, "queued"),
        ("response.queued", 1, "queued"),
        ("response.in_progress", 2, "in_progress"),
    ]
    again = ResponseFold("t", FACTS, since=1)
    assert [frame["type"] for frame in again.feed(numbered(created())[0])] == ["response.in_progress"]


def test_the_official_stream_of_a_void_answer_ends_with_the_true_text():
    items, _ = TABLE["an attempt that a crash cut off"]
    fold, frames = fold_of(*numbered(created(), *items, e.TaskEnded("completed", "Hello")))
    frames += fold.end(Stop("completed"))
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    told = [
        event.type
        for frame in frames
        for event in state.handle_event(construct_type(type_=ResponseStreamEvent, value=frame))
    ]
    assert told == [frame["type"] for frame in frames]
    assert state._completed_response.output_text == "Hello"


def test_numbers_are_safe_in_json():
    assert PLACES * 1_000_000_000 < 1 << 53

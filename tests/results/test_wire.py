"""The public JSON form: every class comes back from it, and what does not fit is refused by the name of its field."""

import json
from dataclasses import field, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.core.test_codec import EVENTS, WORDS, written_out
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle import events as e
from treadle.core.data import frozen
from treadle.core.messages import File, Image, Message, Text, ToolCall, ToolResult
from treadle.core.tools import Happened, NotHappened
from treadle.errors import ConfigurationError, InvalidField
from treadle.events import from_json, to_json
from treadle.models import call, text
from treadle.results import (
    calls,
    pages,
    pending,
    reports,
    run_result,
    step_outputs,
    steps,
    tasks,
    threads,
    usage,
)
from treadle.results.pages import PendingPage, TaskPage, ThreadPage
from treadle.results.pending import Pending
from treadle.results.reports import Difference, UndoReport
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import StepOutputs
from treadle.results.tasks import Task, TaskSummary, TaskTotals
from treadle.results.threads import ThreadMessages
from treadle.results.usage import TaskUsage
from treadle.results.wire import DERIVED, EPHEMERAL, HEAD, TAGS, from_wire, plain_wire, to_wire, wire_bytes
from treadle.transfer.exporting import ExportReport
from treadle.transfer.importing import ImportReport
from treadle.transfer.verifying import VerifyReport

ORIGIN = e.EventOrigin("t1", ("shop", "clerk"))
INTS = st.integers(0, 10**6)
DELTAS = st.one_of(
    st.builds(e.Delta, WORDS, st.sampled_from(["draft", "final", "reasoning", "arguments"]), WORDS, INTS),
    st.builds(e.ModelRestarted, WORDS, WORDS, INTS, st.none() | WORDS),
    st.builds(e.RawChunk, WORDS, st.dictionaries(WORDS, WORDS)),
    st.builds(e.ToolProgress, WORDS, WORDS, st.lists(WORDS)),
)
RESULTS = [
    cls
    for module in (calls, pages, pending, reports, run_result, step_outputs, steps, tasks, threads, usage)
    for cls in vars(module).values()
    if isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module.__name__
]


def located(event: Any, tool: str = "price") -> Any:
    event.origin = ORIGIN
    if isinstance(event, e.CallOccurrence):
        event.tool_name = tool
    return event


def over_the_wire(event: Any) -> Any:
    return from_json(json.loads(json.dumps(to_json(event), allow_nan=False)))


def read(cls: Any, value: Any, **how: Any) -> Any:
    return from_wire(cls, json.loads(wire_bytes(value)), **how)


@settings(max_examples=40)
@given(EVENTS, WORDS)
def test_every_event_comes_back_from_its_json(event: Any, tool: str) -> None:
    assume(not isinstance(event, e.LimitReached) or (isfinite(event.allowed) and isfinite(event.used)))
    event = located(event, tool)
    event.seq, event.time = 7, 1_763_700_000_000_000
    back = over_the_wire(event)
    assert over_the_wire(back) == back
    assert (back.seq, back.time, back.task_id, back.agent_path) == (7, event.time, "t1", ("shop", "clerk"))
    if "inf" not in written_out(event):  # a number that JSON cannot hold became null, which may be a default
        assert back == event
        assert to_json(back) == to_json(event)


@given(DELTAS)
def test_every_delta_comes_back_from_its_json(delta: Any) -> None:
    back = over_the_wire(located(delta))
    assert back == delta
    assert back.task_id == "t1"
    child = located(e.ChildEvent("s1", "s1-0", "t1.s1-0", ("scout",), located(delta)))
    assert over_the_wire(child) == child
    assert over_the_wire(child).agent_path == ("shop", "clerk", "scout")


def test_the_head_of_an_event_says_where_it_comes_from() -> None:
    ended = located(e.ToolEnded("s1", "s1-0", "ok", 250, seq=7, time=9))
    assert to_json(ended) == {
        "format": 2,
        "kind": "tool_ended",
        "task_id": "t1",
        "agent_path": ["shop", "clerk"],
        "seq": 7,
        "time": 9,
        "description": "price ended (s1-0): ok",
        "tool": "price",
        "step": "s1",
        "call": "s1-0",
        "outcome": "ok",
        "output": 250,
        "error": None,
        **dict.fromkeys(("observation", "display", "error", "changes", "report", "label", "whole")),
        **{name: [] for name in ("sources", "artifacts", "spent", "exposed")},
        "harmless": False,
        "unseen": 0,
        "cut": False,
    }


def test_no_field_of_an_event_has_the_name_of_the_head() -> None:
    for kind, cls in {**e.EVENTS, **EPHEMERAL}.items():
        own = {item.name for item in fields(cls)} - {"seq", "time"}
        assert own & set(HEAD) <= (
            {"tool"} if kind == "delta" else {"task_id"} if kind == "child_event" else set()
        )


def test_an_event_of_an_unknown_kind_is_read_as_inert_data() -> None:
    read = from_json(
        {"format": 1, "kind": "moon_landed", "task_id": "t", "agent_path": [], "seq": 1, "time": 2, "x": 3}
    )
    assert isinstance(read, e.UnknownEvent)
    assert (read.tag, read.data, read.task_id) == ("moon_landed", {"x": 3}, "t")
    assert to_json(read)["x"] == 3


def test_a_field_that_this_version_does_not_know_is_left_out() -> None:
    document = {**to_json(e.StepStarted("s1", 1)), "colour": "green"}
    assert from_json(document) == e.StepStarted("s1", 1)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "an event must be an object"),
        ({"format": 1}, "with a `kind`"),
        ({"format": 3, "kind": "resumed"}, "format 3.*upgrade"),
        ({"format": "1", "kind": "resumed"}, "format '1'"),
        ({"format": 1, "kind": "step_started", "step": 3, "index": 1}, "step: should be text"),
        ({"format": 1, "kind": "step_started", "step": "s1"}, "index: is missing"),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason(document: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_json(document)


def test_every_kind_of_event_says_what_happened() -> None:
    assert [kind for kind, cls in {**e.EVENTS, **EPHEMERAL}.items() if not cls.says] == []


@given(EVENTS | DELTAS)
def test_a_description_is_one_printable_line(event: Any) -> None:
    line = located(event, "a\nb\x1b[31m").description
    assert line == str(event)
    assert line.isprintable()
    assert 0 < len(line) <= 200
    assert len(repr(event)) < 3_000
    assert "<script" not in event._repr_html_()


# ------------------------------------------------------------------------------------------- results


@tool(read_only=True)
def price(item: str) -> dict[str, Any]:
    """Say what an item costs."""
    return {"cents": 250, "of": item}


@tool(needs_approval=True)
def order(item: str) -> str:
    """Order an item."""
    return "ordered"


@pytest.mark.anyio
async def test_every_result_of_a_task_comes_back_as_it_was() -> None:
    script = [call("price", item="tea"), text("2.50"), call("order", item="tea")]
    agent = Agent(ScriptedModel(script), name="shop", tools=[price, order], instructions="Sell.")
    async with Runner("memory:", agents=[agent], options=RunOptions(labels={"room": "4"})) as runner:
        sold = await runner.run(agent, ["How much?", Image(data=b"\0\xff", media_type="image/png")])
        waiting = await runner.run(
            Agent(ScriptedModel([call("order", item="tea")]), name="desk", tools=[order]), "Order"
        )
        fork = await runner.fork(sold.task_id, at=2)
        made: list[tuple[Any, Any]] = [
            (RunResult, sold),
            (RunResult, waiting),
            (tuple[Pending, ...], waiting.pending),
            (PendingPage, await runner.list_pending()),
            (Task, await runner.get_task(sold.task_id)),
            (Task, fork),
            (StepOutputs, await runner.get_completed_steps(sold.task_id)),
            (TaskPage, await runner.list_tasks()),
            (TaskTotals, await runner.count_tasks()),
            (ThreadMessages, await runner.get_thread(sold.thread_id)),
            (ThreadPage, await runner.list_threads()),
            (Difference, await runner.diff(sold.task_id, fork.task_id)),
            (UndoReport, await runner.undo_step(sold.task_id)),
            (VerifyReport, await runner.verify()),
        ]
    assert waiting.pending
    assert type(read(RunResult, sold).messages) is type(sold.messages)
    for cls, value in made:
        back = read(cls, value, strict=True)
        assert back == value, cls
        assert repr(back) == repr(value)
        assert to_wire(back) == to_wire(value)


def test_every_class_that_users_see_can_be_written_and_read() -> None:
    for cls in (*RESULTS, VerifyReport, ExportReport, ImportReport, RunOptions, Message):
        with pytest.raises(InvalidField, match="should be an object"):
            from_wire(cls, "no object")
        assert set(cls.__dataclass_fields__) >= set(getattr(cls, "__match_args__", ())), cls


def test_an_output_of_a_callers_own_class_is_written_as_pydantic_writes_it() -> None:
    class Order(BaseModel):
        item: str
        price: Decimal

    assert plain_wire({"output": Order(item="tea", price=Decimal("2.50"))}) == {
        "output": {"item": "tea", "price": "2.50"}
    }


def test_money_is_decimal_text_and_keeps_every_digit() -> None:
    cost = Decimal("12345.000000000123")
    assert plain_wire({"cost": cost}) == {"cost": "12345.000000000123"}
    assert read(TaskUsage, TaskUsage(cost=cost)).cost == cost
    assert plain_wire(Decimal("1E-12")) == "0.000000000001"


@pytest.mark.parametrize(
    "document",
    [
        {"limits": {"cost": "1E-999999999"}},
        {"limits": {"cost": "1E+400"}},
        {"limits": {"cost": 10**400}},
        {"limits": {"seconds": 10**400}},
        {"break_on": [{"cost": -(10**400)}]},
        {"break_on": [{"cost": "1" * 1_000}]},
        {"model_settings": {"temperature": 10**400}},
    ],
)
def test_a_number_that_nothing_can_reckon_with_is_refused(document: Any) -> None:
    """Written out, the first is a gigabyte; others were errors of arithmetic in each drive of a task."""
    with pytest.raises(InvalidField):
        from_wire(RunOptions, document)
    assert from_wire(RunOptions, {"limits": {"cost": "1E-12", "seconds": 10**20}}).limits is not None


def test_a_time_is_in_microseconds() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 600_007, UTC)
    assert plain_wire(moment) == 1_767_323_045_600_007
    assert from_wire(datetime, 1_767_323_045_600_007) == moment


def test_random_numbers_of_frames_are_not_written() -> None:
    created = e.TaskCreated("a", (Text("hi"),), "t", frame_key="secret-nonce")
    result = ToolResult("s1-0", "f", (Text("ok"),), frame="secret-nonce")
    assert b"nonce" not in wire_bytes([created, result])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"k": (1, {2})}, object(), b"x"])
def test_every_value_is_one_line_of_json(value: Any) -> None:
    line = wire_bytes({"value": value, "more": "\u2028é\n"})
    assert b"\n" not in line
    assert json.loads(line)["more"] == "\u2028é\n"


def test_what_a_tool_tells_of_its_progress_is_always_written() -> None:
    """It is not stored, so nothing checked it; a stream that could not write it broke off."""
    deep: Any = "end"
    for _ in range(5_000):
        deep = [deep]
    for value in ({"\ud800": {"\ud800": "\ud800"}}, deep, {"deep": (deep, {1: deep}), "n": float("inf")}):
        told = located(e.ToolProgress("s1", "s1-0", value))
        line = wire_bytes(told)
        assert json.loads(wire_bytes(from_json(json.loads(line)))) == json.loads(line)
    assert json.loads(wire_bytes(e.ToolProgress("s1", "s1-0", {"\ud800": 1})))["value"] == {"?": 1}


def test_a_number_that_json_cannot_hold_is_null_and_read_as_not_a_number() -> None:
    reached = e.LimitReached("tokens", float("inf"), 3.0)
    assert plain_wire(reached)["allowed"] is None
    assert isnan(read(e.LimitReached, reached).allowed)


def test_parts_of_a_message_say_which_they_are() -> None:
    message = Message(
        "assistant", (Text("a"), File(data=b"\0\xff", name="x"), ToolCall("s1-0", "f", {"x": 1}))
    )
    parts = plain_wire(message)["parts"]
    assert [part["type"] for part in parts] == ["text", "file", "tool_call"]
    assert parts[1]["data"] == "AP8="
    assert read(Message, message, strict=True) == message
    assert read(Happened | NotHappened, Happened(3)) == Happened(3)
    assert read(Happened | NotHappened, NotHappened()) == NotHappened()


def test_a_part_of_a_kind_that_this_version_does_not_know_is_kept_as_data() -> None:
    document = {"role": "user", "parts": [{"type": "hologram", "x": 1}]}
    (part,) = from_wire(Message, document).parts
    assert part == Text("", meta={"unknown_part": {"type": "hologram", "x": 1}})
    with pytest.raises(InvalidField, match=r"parts\[0\].type: should be one of 'text'"):
        from_wire(Message, document, strict=True)


def test_parts_of_the_first_format_are_read() -> None:
    document = {
        "role": "user",
        "parts": ["hi", {"p": "image", "url": "x"}, {"p": "call", "id": "1", "name": "f", "arguments": {}}],
    }
    assert from_wire(Message, document).parts == (Text("hi"), Image(url="x"), ToolCall("1", "f", {}))


@frozen
class Nested:
    """What tests of problems read."""

    name: str
    count: int | None = None
    state: Literal["on", "off"] = "on"
    prices: dict[str, Decimal] = field(default_factory=dict)
    inner: tuple["Nested", ...] = ()
    data: bytes = b""
    extra: Any = None


@pytest.mark.parametrize(
    ("document", "field", "says"),
    [
        ({}, "name", "is missing"),
        ({"name": 3}, "name", "should be text"),
        ({"name": "a", "count": "3"}, "count", "should be a whole number or null"),
        ({"name": "a", "count": True}, "count", "should be a whole number"),
        ({"name": "a", "state": "ajar"}, "state", "should be one of 'on', 'off'"),
        ({"name": "a", "prices": {"tea": "cheap"}}, "prices.tea", "decimal text"),
        ({"name": "a", "prices": {"tea": "NaN"}}, "prices.tea", "decimal text"),
        ({"name": "a", "inner": [{"name": "b"}, {"name": 1}]}, "inner[1].name", "should be text"),
        ({"name": "a", "inner": {}}, "inner", "should be a list"),
        ({"name": "a", "data": "???"}, "data", "base64"),
        ({"name": "a", "colour": "green"}, "colour", "is not known; there are: count, data"),
        ([], "", "should be an object"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_its_field(document: Any, field: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as caught:
        from_wire(Nested, document, strict=True)
    assert caught.value.field == field
    assert isinstance(caught.value, ConfigurationError)


def test_what_a_later_release_may_have_added_is_read_without_strictness() -> None:
    document = {"name": "a", "colour": "green", "state": "ajar", "inner": [{"name": "b", "size": 3}]}
    assert from_wire(Nested, document) == Nested("a", state="ajar", inner=(Nested("b"),))  # type: ignore[arg-type]


def test_a_value_that_its_class_refuses_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_parallel_tools must be"):
        from_wire(RunOptions, {"max_parallel_tools": -1})


def test_classes_that_a_field_may_hold_can_be_told_apart() -> None:
    assert len(set(TAGS.values())) == len(TAGS)
    assert set(DERIVED) == {cls.__name__ for cls in (e.Failure, RunResult, Task, TaskSummary, e.ToolStopped)}
    for cls in (e.Failure, RunResult, Task, TaskSummary):
        assert not {item.name for item in fields(cls)} & set(DERIVED[cls.__name__])
    with pytest.raises(TypeError, match="cannot tell Nested and RunOptions"):
        from_wire(Nested | RunOptions, {})


def test_the_cost_of_an_event_is_decimal_text_and_read_exactly() -> None:
    """A JSON reader with floating-point numbers rounded costs beyond 9,007 dollars."""
    for pico, dollars in (
        (896_000_000, "0.000896"),
        (2**53 + 1, "9007.199254740993"),
        (0, "0"),
        (None, None),
    ):
        event = e.ModelReturned("s1", Message("assistant", ()), cost=pico)
        document = json.loads(wire_bytes(event))
        assert document["cost"] == dollars
        assert from_wire(e.Event, document) == event
        assert from_wire(e.Event, {**document, "format": 1, "cost": pico}) == event, "as format 1 had it"
    with pytest.raises(InvalidField, match="cost: should be an amount as decimal text"):
        from_wire(e.Event, {**document, "cost": "much"})


def test_a_failure_says_whether_a_retry_makes_sense() -> None:
    failure = e.Failure("model", "overloaded", "no", status=503, model="acme:big")
    document = plain_wire(failure)
    assert (document["provider"], document["model"], document["retryable"]) == ("acme", "acme:big", True)
    assert read(e.Failure, failure, strict=True) == failure

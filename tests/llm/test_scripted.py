"""A scripted model answers by turn and attempt alone."""

import asyncio
import time

import pytest

from treadle.core.messages import Message, Reasoning, Text, ToolCall
from treadle.core.model import (
    ModelAnswer,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from treadle.errors import ConfigurationError, ModelError
from treadle.models import ScriptedModel, call, call_raw, fail, text, turn
from treadle.ports import Model


def asking(turn=0, attempt=1):
    return ModelRequest(
        messages=(Message("user", (Text("hi"),)),),
        instructions="",
        tools=(),
        tool_choice="auto",
        settings=ModelSettings(),
        task_id="t",
        step="s",
        turn=turn,
        attempt=attempt,
    )


async def drained(model, turn=0, attempt=1):
    return [item async for item in model.stream(asking(turn, attempt))]


async def answer(model, turn=0, attempt=1):
    return (await drained(model, turn, attempt))[-1]


def test_a_scripted_model_implements_the_model_port():
    assert isinstance(ScriptedModel([]), Model)


@pytest.mark.anyio
async def test_a_short_text_is_one_delta_and_the_answer():
    delta, answer = await drained(ScriptedModel([text("hello world")]))
    assert delta == TextDelta("hello world")
    assert answer == ModelAnswer(Message("assistant", (Text("hello world"),)), "stop", Usage(10, 3))


@pytest.mark.anyio
async def test_a_list_is_indexed_by_the_turn_in_any_order():
    model = ScriptedModel(["one", "two", "three"])
    assert [(await answer(model, n)).message.text for n in (2, 0, 1, 0)] == ["three", "one", "two", "one"]


@pytest.mark.anyio
async def test_failures_belong_to_the_next_answer_and_are_taken_by_the_attempt():
    model = ScriptedModel(["one", fail(429, retry_after=1), fail(kind="timeout"), "two", "three"])
    with pytest.raises(ModelError) as first:
        await drained(model, 1, attempt=1)
    assert (first.value.kind, first.value.status, first.value.retry_after) == ("rate_limit", 429, 1)
    with pytest.raises(ModelError) as second:
        await drained(model, 1, attempt=2)
    assert second.value.kind == "timeout"
    assert (await answer(model, 1, attempt=3)).message.text == "two"
    assert (await answer(model, 2)).message.text == "three"


@pytest.mark.anyio
async def test_a_turn_beyond_the_script_is_refused_with_its_number_and_the_length():
    with pytest.raises(ModelError, match=r"asked for turn 2 .* script has 2 answers"):
        await drained(ScriptedModel(["one", "two"]), 2)
    with pytest.raises(ModelError, match=r"asked for turn 0 .*attempt 2.* script has 0 answers"):
        await drained(ScriptedModel([fail(500)]), 0, attempt=2)


@pytest.mark.anyio
async def test_several_calls_joined_in_any_way_are_one_turn():
    model = ScriptedModel(
        [
            [call("add", a=1), call("add", a=2)],
            text("thinking") + call("add", a=1) + call("add", a=2),
            turn("thinking", [call("add", a=1), call("add", a=2)], reasoning="hm"),
        ]
    )
    calls = (ToolCall("", "add", {"a": 1}), ToolCall("", "add", {"a": 2}))
    answers = [await answer(model, n) for n in range(3)]
    assert [answer.message.tool_calls for answer in answers] == [calls] * 3
    assert [answer.finish for answer in answers] == ["tool_calls"] * 3
    assert answers[2].message.parts[:2] == (Reasoning("hm"), Text("thinking"))
    deltas = (await drained(model, 2))[:-1]
    assert deltas == [
        ReasoningDelta("hm"),
        TextDelta("thinking"),
        ToolCallDelta(0, "add", '{"a": 1}'),
        ToolCallDelta(1, "add", '{"a": 2}'),
    ]


@pytest.mark.anyio
async def test_a_long_text_is_streamed_in_chunks_cut_at_spaces():
    prose = "the quick  brown fox\njumps over " * 40
    deltas = (await drained(ScriptedModel([prose])))[:-1]
    assert len(deltas) > 5
    assert "".join(delta.text for delta in deltas) == prose
    small = (await drained(ScriptedModel([text("a bc def", chunk=1)])))[:-1]
    assert [delta.text.strip() for delta in small] == ["a", "bc", "def"]


@pytest.mark.anyio
async def test_truncated_calls_are_marked_and_have_no_arguments():
    model = ScriptedModel(
        [call_raw("add", '{"a": 1'), turn(calls=call("add", a=1), finish="length"), call_raw("add", "[1]")]
    )
    (unclosed,) = (await answer(model, 0)).message.tool_calls
    assert (unclosed.problem, unclosed.raw, unclosed.arguments) == ("unparsable", '{"a": 1', {})
    (cut,) = (await answer(model, 1)).message.tool_calls
    assert (cut.problem, cut.arguments) == ("truncated", {})
    assert (await answer(model, 2)).message.tool_calls[0].problem == "unparsable"


@pytest.mark.anyio
async def test_a_function_answers_each_request_plain_or_async():
    async def later(request):
        await asyncio.sleep(0)
        return fail(500) if request.attempt == 1 else f"turn {request.turn}"

    assert (await answer(ScriptedModel(lambda request: call("n", turn=request.turn)), 4)).message.tool_calls[
        0
    ].arguments == {"turn": 4}
    model = ScriptedModel(later)
    with pytest.raises(ModelError):
        await drained(model, 3)
    assert (await answer(model, 3, attempt=2)).message.text == "turn 3"


@pytest.mark.anyio
async def test_answers_do_not_share_their_arguments():
    model = ScriptedModel([call("add", items=[{"a": 1}])])
    (await answer(model)).message.tool_calls[0].arguments["items"][0]["a"] = 2
    assert (await answer(model)).message.tool_calls[0].arguments == {"items": [{"a": 1}]}


@pytest.mark.anyio
async def test_only_the_newest_requests_are_recorded():
    model = ScriptedModel(["one"], keep=2)
    for attempt in (1, 2, 3):
        await drained(model, 0, attempt)
    assert [request.attempt for request in model.requests] == [2, 3]


@pytest.mark.anyio
async def test_a_delay_can_be_cancelled():
    began = time.monotonic()
    await drained(ScriptedModel([text("a b c", delay=0.02, chunk=1, pause=0.01)]))
    assert time.monotonic() - began >= 0.04
    task = asyncio.create_task(drained(ScriptedModel([text("late", delay=60)])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.anyio
async def test_a_failure_may_follow_some_text():
    stream = ScriptedModel([fail(kind="connection", message="gone", after="half")]).stream(asking())
    assert await anext(stream) == TextDelta("half")
    with pytest.raises(ModelError, match="gone"):
        await anext(stream)


def test_a_script_with_an_item_of_another_type_is_refused():
    with pytest.raises(ConfigurationError, match="not int"):
        ScriptedModel([1])
    with pytest.raises(ConfigurationError, match="must be an item of the script itself"):
        ScriptedModel([[text("a"), fail(500)]])


@pytest.mark.anyio
async def test_arguments_of_a_scripted_call_are_streamed_in_chunks_as_a_provider_streams_them():
    model = ScriptedModel([turn("", [call("final_answer", text="Eighty degrees", n=3)], chunk=9)])
    deltas = [delta for delta in await drained(model, 0) if isinstance(delta, ToolCallDelta)]
    assert [(delta.index, delta.name) for delta in deltas] == [(0, "final_answer"), *[(0, "")] * 3]
    assert "".join(delta.arguments for delta in deltas) == '{"text": "Eighty degrees", "n": 3}'
    assert max(len(delta.arguments) for delta in deltas) == 9

"""A stream has the same answer for every cut of its bytes, every line ending and every order of its events."""

import asyncio
import json
import os
import random
import secrets
from dataclasses import replace

import pytest

from tests.llm.wires import WIRES
from treadle.core.messages import Reasoning, Text, ToolCall, user
from treadle.testing.conformance.model import ask, request
from treadle.testing.provider import ProviderServer, call, raw, reasoning, text, turn
from treadle.testing.provider.anthropic import AnthropicMessages
from treadle.testing.provider.google import GoogleGemini
from treadle.testing.provider.openai_chat import OpenAIChat
from treadle.testing.provider.openai_responses import OpenAIResponses

SPEAKS = {
    "chat": OpenAIChat(),
    "responses": OpenAIResponses(),
    "anthropic": AnthropicMessages(),
    "google": GoogleGemini("gemini-3-x", streamed=True, events=True),
}
BODY = {
    "model": "m",
    "messages": [],
    "include": ["reasoning.encrypted_content"],
    "stream_options": {"include_usage": True},
}
WORDS = "naïve 你好 🎉\u2028 next \u0085 line\r\n: no comment\n\ndata: none é🎉"
THOUGHT = "Adding 🧮 \u2029 up."
CALLS = [{"a": "é🎉\u2028", "b": n} for n in range(3)]
SPOKEN = (reasoning(THOUGHT), text(WORDS), *(call("add", **arguments) for arguments in CALLS))


def events(wire, **options):
    """The events of one answer on a wire; its ids are the same each time."""
    counter = iter(range(1000))
    fixed = pytest.MonkeyPatch()
    for module in ("anthropic", "google", "openai_chat", "openai_responses"):
        fixed.setattr(
            f"treadle.testing.provider.{module}.fresh_id", lambda prefix: f"{prefix}{next(counter):08}"
        )
        if module.startswith("openai"):
            fixed.setattr(f"treadle.testing.provider.{module}.time.time", lambda: 1_767_225_600)
    try:
        return SPEAKS[wire].events(turn(*SPOKEN, **{"chunk_size": 5, **options}), BODY)
    finally:
        fixed.undo()


def interleaved(wire):
    return events(wire, interleave=True)


def last_twice(wire):
    event_list = events(wire)
    last = -2 if wire == "chat" else -1  # after `[DONE]` nothing is read
    return [*event_list[:last], event_list[last], *event_list[last:]]


ENDS = (
    b'"stop_reason":"tool_use"',
    b'"finish_reason":"tool',
    b'"finishReason":"S',
    b'"type":"response.completed"',
)


def end_twice(wire):
    """The event with the finish reason."""
    event_list = events(wire)
    place = next(index for index, event in enumerate(event_list) if any(end in event for end in ENDS))
    return [*event_list[: place + 1], *event_list[place:]]


def arguments_before_the_name(wire):
    event_list = [json.loads(event.removeprefix(b"data: ")) for event in events(wire)[:-1]]
    for index, chunk in reversed(list(enumerate(event_list))):
        for piece in (chunk["choices"] or [{"delta": {}}])[0]["delta"].get("tool_calls", ()):
            if "name" in piece["function"]:
                following = event_list[index + 1]["choices"][0]["delta"]["tool_calls"][0]["function"]
                following["name"] = piece["function"].pop("name")
                piece["function"]["arguments"], following["arguments"] = following["arguments"], ""
    return [*(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in event_list), b"data: [DONE]\n\n"]


def deltas_before_the_item(wire):
    """Arguments arrive before the item they belong to; the item is whole at its end."""
    event_list = events(wire)
    added = [
        i for i, event in enumerate(event_list) if b"output_item.added" in event and b"function_call" in event
    ]
    for index in added:
        event_list[index], event_list[index + 1] = event_list[index + 1], event_list[index]
    return event_list


def commented(wire):
    return [b": keep-alive\n\n" + event + b":\n" for event in events(wire)]


def of_lines(end):
    return lambda wire: [event.replace(b"\n", end) for event in commented(wire)]


def without_spaces(wire):
    return [event.replace(b"data: ", b"data:").replace(b"event: ", b"event:") for event in events(wire)]


def with_other_fields(wire):
    return [b"id: 7\nretry: 100\n" + event for event in events(wire)]


SHAPES = {
    "plain": events,
    "comments": commented,
    "CR LF": of_lines(b"\r\n"),
    "CR": of_lines(b"\r"),
    "no space after the colon": without_spaces,
    "ids and retry times": with_other_fields,
    "end twice": end_twice,
    "last twice": last_twice,
}
OF_SOME = {
    ("chat", "interleaved"): interleaved,
    ("chat", "arguments before the name"): arguments_before_the_name,
    ("responses", "interleaved"): interleaved,
    ("responses", "deltas before the item"): deltas_before_the_item,
}
CASES = {(wire, shape): make for wire in WIRES for shape, make in SHAPES.items()} | OF_SOME


def of_wire(wire):
    return {shape: b"".join(make(wire)) for (name, shape), make in CASES.items() if name == wire}


async def answers(wire, bodies, splits):
    """The answers to streams of these bytes, each cut at these positions."""

    def script(request):
        number = int(json.dumps(request.messages[-1]).partition("trial ")[2].partition('"')[0])
        return raw(bodies[number], content_type="text/event-stream", split=splits[number], answers=True)

    with ProviderServer(script) as server:
        model = WIRES[wire](server)
        return [comparable((await ask(model, request(user(f"trial {n}"))))[1]) for n in range(len(bodies))]


def comparable(answer):
    """The answer without ids that were made here because the server gave none."""
    parts = (
        replace(part, id="") if isinstance(part, ToolCall) and part.id.startswith("pyd_ai_") else part
        for part in answer.message.parts
    )
    return replace(answer, message=replace(answer.message, parts=tuple(parts)))


def check(wire, answer):
    texts = [part.text for part in answer.message.parts if isinstance(part, Text)]
    thought = [part.text for part in answer.message.parts if isinstance(part, Reasoning)]
    calls = [part for part in answer.message.parts if isinstance(part, ToolCall)]
    assert (texts, thought, answer.finish) == ([WORDS], [THOUGHT], "tool_calls")
    assert [(call.name, call.arguments, call.problem) for call in calls] == [
        ("add", arguments, None) for arguments in CALLS
    ]


@pytest.mark.sampled(2)
@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_has_the_same_answer_in_every_shape(wire):
    shapes = of_wire(wire)
    outcomes = await answers(wire, list(shapes.values()), [None] * len(shapes))
    for shape, answer in zip(shapes, outcomes, strict=True):
        check(wire, answer)
        assert answer == outcomes[0], shape


async def cut_at_random(wire, trials, seed):
    shapes = list(of_wire(wire).items())
    chosen = [shapes[n % len(shapes)] for n in range(trials)]
    splits = []
    for number, (_, body) in enumerate(chosen):
        chance = random.Random(f"{seed}:{wire}:{number}")
        splits.append(chance.sample(range(1, len(body)), chance.randint(1, 60)))
    (expected,) = await answers(wire, [shapes[0][1]], [None])
    check(wire, expected)
    outcomes = await answers(wire, [body for _, body in chosen], splits)
    for number, answer in enumerate(outcomes):
        assert answer == expected, f"seed {seed}, {wire}, trial {number}, {chosen[number][0]}"


@pytest.mark.sampled(2)
@pytest.mark.anyio
@pytest.mark.parametrize("wire", WIRES)
async def test_bytes_cut_at_random_places_give_the_same_answer(wire):
    await cut_at_random(wire, 8, seed_of_this_run())


@pytest.mark.full
@pytest.mark.parametrize("wire", WIRES)
def test_bytes_cut_at_random_places_give_the_same_answer_500_times(wire):
    seed = seed_of_this_run()
    print(f"seed {seed}")
    asyncio.run(cut_at_random(wire, 500, seed))


def seed_of_this_run():
    """The seed, printed with a failure; `TREADLE_SPLIT_SEED` repeats it."""
    return os.environ.get("TREADLE_SPLIT_SEED") or secrets.token_hex(4)

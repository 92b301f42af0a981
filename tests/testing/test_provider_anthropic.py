"""The Anthropic wire, as the official client understands it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lazily import anthropic
from treadle.testing.provider import ProviderServer, Usage, call, raw_call, reasoning, refusal, text, turn

pytestmark = pytest.mark.sampled(12)

ADD: Any = {
    "name": "add",
    "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
}
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
DEFAULTS: dict[str, Any] = {"model": "claude-x", "max_tokens": 4096, "messages": HELLO}


def client_of(server: ProviderServer, key: str = "key") -> anthropic.Anthropic:
    plain = anthropic.DefaultHttpxClient(
        verify=False
    )  # to read certificates takes longer than these requests
    return anthropic.Anthropic(
        base_url=server.anthropic_base_url, api_key=key, max_retries=0, http_client=plain
    )


def ask(server: ProviderServer, **options: Any) -> Any:
    with client_of(server) as client:
        return client.messages.create(**{**DEFAULTS, **options})


def ask_raw(server: ProviderServer, **options: Any) -> list[Any]:
    with client_of(server) as client:
        return list(client.messages.create(**{**DEFAULTS, **options}, stream=True))


def ask_streamed(server: ProviderServer, **options: Any) -> Any:
    with client_of(server) as client, client.messages.stream(**{**DEFAULTS, **options}) as stream:
        return stream.get_final_message()


def assistant_calls(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": i, "name": "add", "input": {}} for i in ids],
    }


def answered(*ids: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": i, "content": "3"} for i in ids],
    }


@pytest.mark.parametrize("way", [ask, ask_streamed])
def test_a_text_is_answered(way: Any) -> None:
    with ProviderServer(["Hi, 你好 🎉"]) as server:
        message = way(server)
    assert [block.text for block in message.content] == ["Hi, 你好 🎉"]
    assert (message.stop_reason, message.model, message.role) == ("end_turn", "claude-x", "assistant")
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0
    assert server.problems == []


def test_a_stream_has_the_events_of_the_real_one() -> None:
    with ProviderServer([turn(text("One two"), call("add", a=1), chunk_size=4)]) as server:
        events = ask_raw(server, tools=[ADD])
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 2,
        "content_block_stop",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0].message.content == []
    assert events[0].message.stop_reason is None
    assert [e.delta.text for e in events[2:4]] == ["One ", "two"]
    assert events[5].content_block.input == {}
    assert events[5].content_block.id.startswith("toolu_")
    assert [e.delta.partial_json for e in events[6:9]] == ["", '{"a"', ": 1}"]
    assert events[-2].delta.stop_reason == "tool_use"


@pytest.mark.parametrize("way", [ask, ask_streamed])
def test_text_and_parallel_calls_are_one_answer(way: Any) -> None:
    with ProviderServer([[text("Let me see."), call("add", a=1), call("add", a=2, b="ü")]]) as server:
        message = way(server, tools=[ADD])
    sentence, first, second = message.content
    assert sentence.text == "Let me see."
    assert (first.input, second.input) == ({"a": 1}, {"a": 2, "b": "ü"})
    assert first.id != second.id
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("way", [ask, ask_streamed])
def test_thinking_is_signed(way: Any) -> None:
    script = [turn(reasoning("Adding up."), reasoning("Done.", signature="mine"), "3")]
    with ProviderServer(script) as server:
        message = way(server, thinking={"type": "enabled", "budget_tokens": 2048})
    first, second, sentence = message.content
    assert (first.type, first.thinking, second.thinking, sentence.text) == (
        "thinking",
        "Adding up.",
        "Done.",
        "3",
    )
    assert first.signature
    assert second.signature == "mine"


def test_thinking_that_was_changed_on_the_way_back_is_refused() -> None:
    with ProviderServer([turn(reasoning("Adding up."), "3"), "4"]) as server:
        blocks = [block.to_dict() for block in ask(server).content]
        message = {"role": "user", "content": "Again"}
        ask(server, messages=[*HELLO, {"role": "assistant", "content": blocks}, message])
        blocks[0]["thinking"] = "Guessing."
        with pytest.raises(anthropic.BadRequestError, match="signature"):
            ask(server, messages=[*HELLO, {"role": "assistant", "content": blocks}, message])


@pytest.mark.parametrize("way", [ask, ask_streamed])
def test_usage_is_reported_in_the_format_of_anthropic(way: Any) -> None:
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=7)
    with ProviderServer([turn("Hi", usage=usage)]) as server:
        told = way(server).usage
    assert (told.input_tokens, told.cache_read_input_tokens, told.output_tokens) == (36, 64, 20)
    assert told.output_tokens_details.thinking_tokens == 7


@pytest.mark.parametrize("way", [ask, ask_streamed])
@pytest.mark.parametrize(
    ("scripted", "expected"),
    [("length", "max_tokens"), ("content_filter", "refusal"), ("pause_turn", "pause_turn")],
)
def test_a_finish_reason_can_be_chosen(way: Any, scripted: str, expected: str) -> None:
    with ProviderServer([turn("One two", finish=scripted)]) as server:
        assert way(server).stop_reason == expected


def test_arguments_can_break_off() -> None:
    with ProviderServer([turn(raw_call("add", '{"a": 1, "b'), finish="length")]) as server:
        answer = ask(server, tools=[ADD])
        events = ask_raw(server, tools=[ADD])
    assert (answer.stop_reason, answer.content[0].input) == ("max_tokens", {})
    pieces = [event.delta.partial_json for event in events if event.type == "content_block_delta"]
    assert "".join(pieces) == '{"a": 1, "b'


def test_a_refusal_is_a_stop_reason() -> None:
    with ProviderServer([refusal("I will not.")]) as server:
        message = ask(server)
    assert (message.stop_reason, message.content[0].text) == ("refusal", "I will not.")


def test_a_whole_conversation_follows_the_script_without_a_cursor() -> None:
    with ProviderServer([call("add", a=1), "3"]) as server:
        first = ask(server, tools=[ADD])
        message = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
        second = ask(server, tools=[ADD], messages=[*HELLO, message, answered(first.content[0].id)])
    assert second.content[0].text == "3"
    assert [request.turn for request in server.requests] == [0, 1]


@pytest.mark.anyio
async def test_the_async_client_understands_it_too() -> None:
    with ProviderServer([[text("Well,"), call("add", a=1)]]) as server:
        url = server.anthropic_base_url
        async with anthropic.AsyncAnthropic(base_url=url, api_key="key", max_retries=0) as client:
            whole = await client.messages.create(**DEFAULTS, tools=[ADD])
            async with client.messages.stream(**DEFAULTS, tools=[ADD]) as stream:
                streamed = await stream.get_final_message()
    for message in (whole, streamed):
        sentence, asked_for = message.content
        assert (sentence.text, asked_for.input) == ("Well,", {"a": 1})


def test_another_key_is_not_accepted() -> None:
    with ProviderServer(["Hi"], api_key="secret") as server:
        with client_of(server, "wrong") as client, pytest.raises(anthropic.AuthenticationError) as caught:
            client.messages.create(**DEFAULTS)
        with client_of(server, "secret") as client:
            client.messages.create(**DEFAULTS)
    assert caught.value.body["error"]["type"] == "authentication_error"


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": ""}
ILL_FORMED: dict[str, tuple[list[Any], str]] = {
    "nothing said": ([], "messages"),
    "a system message": ([{"role": "system", "content": "x"}], "role"),
    "an assistant first": ([{"role": "assistant", "content": "x"}, *HELLO], "first message"),
    "an assistant last": ([*HELLO, {"role": "assistant", "content": "x"}], "end with a user message"),
    "two users in a row": ([*HELLO, *HELLO], "alternate"),
    "an empty text": ([{"role": "user", "content": ""}], "non-empty"),
    "no blocks": ([{"role": "user", "content": []}], "empty"),
    "a call without a result": ([*HELLO, assistant_calls("a"), *HELLO], "without 'tool_result'"),
    "one of two results missing": ([*HELLO, assistant_calls("a", "b"), answered("a")], "right after: b"),
    "a result without a call": ([answered("a")], "no 'tool_use' precedes 'a'"),
    "a second result": ([*HELLO, assistant_calls("a"), answered("a", "a")], "single result"),
    "a text before the results": (
        [
            *HELLO,
            assistant_calls("a"),
            {"role": "user", "content": [{"type": "text", "text": "x"}, *answered("a")["content"]]},
        ],
        "come first",
    ),
    "an empty id": ([*HELLO, assistant_calls(""), answered("")], "id"),
    "an id with a colon": ([*HELLO, assistant_calls("a:1"), answered("a:1")], "pattern"),
    "an id twice": (
        [*HELLO, assistant_calls("a"), answered("a"), assistant_calls("a"), answered("a")],
        "unique",
    ),
    "a call of a user": (
        [{"role": "user", "content": assistant_calls("a")["content"]}],
        "not allowed in a user",
    ),
    "thinking without a signature": (
        [*HELLO, {"role": "assistant", "content": [THOUGHT]}, *HELLO],
        "signature",
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("messages", "named"), ILL_FORMED.values(), ids=ILL_FORMED)
def test_an_ill_formed_history_is_refused_and_the_problem_named(messages: list[Any], named: str) -> None:
    with ProviderServer(lambda _: "never") as server:
        with pytest.raises(anthropic.BadRequestError, match=named):
            ask(server, messages=messages)
        with pytest.raises(anthropic.BadRequestError, match=named):
            ask_raw(server, messages=messages)
    assert len(server.problems) == 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 0},
        {"extra_body": {"max_tokens": None}},
        {"tools": [{**ADD, "name": "has space"}]},
        {"tools": [{**ADD, "input_schema": {"type": "string"}}]},
        {"tools": [ADD, ADD]},
        {"tool_choice": {"type": "any"}},
        {"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}},
        {"thinking": {"type": "enabled", "budget_tokens": 4096}},
        {"system": []},
    ],
    ids=str,
)
def test_an_ill_formed_request_is_refused(options: dict[str, Any]) -> None:
    with ProviderServer(["never"]) as server, pytest.raises(anthropic.BadRequestError):
        ask(server, **options)
    assert len(server.problems) == 1

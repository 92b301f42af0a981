"""The OpenAI wire, as the official client understands it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lazily import openai
from treadle.testing.provider import ProviderServer, Usage, call, raw_call, reasoning, refusal, text, turn

pytestmark = pytest.mark.sampled(12)

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
    },
}
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


def client_of(server: ProviderServer, key: str = "key") -> openai.OpenAI:
    plain = openai.DefaultHttpxClient(verify=False)  # to read certificates takes longer than these requests
    return openai.OpenAI(base_url=server.openai_base_url, api_key=key, max_retries=0, http_client=plain)


def ask(server: ProviderServer, messages: Any = HELLO, **options: Any) -> Any:
    with client_of(server) as client:
        return client.chat.completions.create(model="gpt-x", messages=messages, **options)


def ask_streamed(server: ProviderServer, messages: Any = HELLO, **options: Any) -> list[Any]:
    with client_of(server) as client:
        return list(client.chat.completions.create(model="gpt-x", messages=messages, stream=True, **options))


def assistant_calls(*calls: tuple[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}
            for call_id, arguments in calls
        ],
    }


def answered(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "3"}


def test_a_text_is_answered() -> None:
    with ProviderServer(["Hi, 你好 🎉"]) as server:
        completion = ask(server)
    assert completion.choices[0].message.content == "Hi, 你好 🎉"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model == "gpt-x"
    assert (
        completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    )
    assert server.problems == []


def test_a_streamed_text_comes_in_several_deltas_and_without_usage() -> None:
    with ProviderServer([turn("One two three", chunk_size=4)]) as server:
        chunks = ask_streamed(server)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert [delta.content for delta in deltas] == ["", "One ", "two ", "thre", "e", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_ends_a_stream_when_it_is_asked_for() -> None:
    usage = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=7)
    with ProviderServer([turn("Hi", usage=usage)]) as server:
        last = ask_streamed(server, stream_options={"include_usage": True})[-1]
        complete = ask(server)
    assert last.choices == []
    for told in (last.usage, complete.usage):
        assert (told.prompt_tokens, told.completion_tokens, told.total_tokens) == (100, 20, 120)
        assert told.prompt_tokens_details.cached_tokens == 64
        assert told.completion_tokens_details.reasoning_tokens == 7


def test_usage_can_be_missing() -> None:
    with ProviderServer([turn("Hi", usage="missing")]) as server:
        chunks = ask_streamed(server, stream_options={"include_usage": True})
        assert ask(server).usage is None
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_text_and_parallel_calls_are_one_answer() -> None:
    with ProviderServer([[text("Let me see."), call("add", a=1), call("add", a=2)]]) as server:
        choice = ask(server, tools=[ADD]).choices[0]
    assert choice.message.content == "Let me see."
    assert [json.loads(c.function.arguments) for c in choice.message.tool_calls] == [{"a": 1}, {"a": 2}]
    assert len({c.id for c in choice.message.tool_calls}) == 2
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("interleave", [False, True])
def test_the_sdks_own_accumulator_puts_streamed_calls_together(interleave: bool) -> None:
    answer = turn(
        call("add", a=1), raw_call("add", '{"a": 2, "b": "ü"}', call_id="mine"), interleave=interleave
    )
    with (
        ProviderServer([answer]) as server,
        client_of(server) as client,
        client.chat.completions.stream(model="m", messages=HELLO, tools=[ADD]) as stream,  # type: ignore[list-item]
    ):
        first, second = stream.get_final_completion().choices[0].message.tool_calls or ()
    assert json.loads(first.function.arguments) == {"a": 1}
    assert (second.id, json.loads(second.function.arguments)) == ("mine", {"a": 2, "b": "ü"})


def test_a_streamed_call_opens_with_id_and_name_and_goes_on_with_arguments_only() -> None:
    with ProviderServer([turn(call("add", a=12345), chunk_size=5)]) as server:
        deltas = [c.choices[0].delta for c in ask_streamed(server, tools=[ADD])]
    opening, *following = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
    assert opening.id.startswith("call_")
    assert (opening.index, opening.type, opening.function.name) == (0, "function", "add")
    assert len(following) > 1
    assert all(piece.id is None and piece.function.name is None and piece.index == 0 for piece in following)
    assert json.loads("".join(piece.function.arguments for piece in following)) == {"a": 12345}


def test_reasoning_is_separate_from_the_answer() -> None:
    with ProviderServer([turn(reasoning("Adding up."), "3")]) as server:
        message = ask(server).choices[0].message
        deltas = [c.choices[0].delta for c in ask_streamed(server)]
    assert (message.reasoning_content, message.content) == ("Adding up.", "3")
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "Adding up."


def test_a_refusal_is_no_content() -> None:
    with ProviderServer([refusal("I will not.")]) as server:
        message = ask(server).choices[0].message
        streamed = "".join(c.choices[0].delta.refusal or "" for c in ask_streamed(server))
    assert (message.content, message.refusal, streamed) == (None, "I will not.", "I will not.")


@pytest.mark.parametrize(
    ("scripted", "expected"),
    [
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("refusal", "content_filter"),
        ("odd", "odd"),
    ],
)
def test_a_finish_reason_can_be_chosen(scripted: str, expected: str) -> None:
    with ProviderServer([turn(raw_call("add", '{"a": 1'), finish=scripted)]) as server:
        choice = ask(server, tools=[ADD]).choices[0]
        chunks = ask_streamed(server, tools=[ADD])
    assert choice.finish_reason == chunks[-1].choices[0].finish_reason == expected
    assert choice.message.tool_calls[0].function.arguments == '{"a": 1'


def test_ids_of_calls_can_be_empty_and_repeated() -> None:
    answer = turn(
        raw_call("add", {}, call_id=""), raw_call("add", {}, call_id="x"), raw_call("add", "", call_id="x")
    )
    with ProviderServer([answer]) as server:
        calls = ask(server, tools=[ADD]).choices[0].message.tool_calls
    assert [c.id for c in calls] == ["", "x", "x"]


def test_a_whole_conversation_follows_the_script_without_a_cursor() -> None:
    with ProviderServer([call("add", a=1), "3", "Bye"]) as server:
        messages = list(HELLO)
        first = ask(server, messages, tools=[ADD]).choices[0].message
        message = ask(server, messages, tools=[ADD]).choices[0].message
        messages += [first.to_dict(), answered(first.tool_calls[0].id)]
        second = ask(server, messages, tools=[ADD]).choices[0].message
        messages += [second.to_dict(), {"role": "user", "content": "Bye"}]
        third = ask(server, messages).choices[0].message
    assert message.tool_calls[0].function == first.tool_calls[0].function
    assert (second.content, third.content) == ("3", "Bye")
    assert [request.turn for request in server.requests] == [0, 0, 1, 2]
    assert server.problems == []


@pytest.mark.anyio
async def test_the_async_client_understands_it_too() -> None:
    with ProviderServer([[text("Well,"), call("add", a=1)]]) as server:
        async with openai.AsyncOpenAI(
            base_url=server.openai_base_url, api_key="key", max_retries=0
        ) as client:
            options: Any = {"model": "m", "messages": HELLO, "tools": [ADD]}
            response = await client.chat.completions.create(**options)
            async with client.chat.completions.stream(**options) as stream:
                streamed = await stream.get_final_completion()
    for completion in (response, streamed):
        message = completion.choices[0].message
        assert message.content == "Well,"
        assert json.loads(message.tool_calls[0].function.arguments) == {"a": 1}


def test_models_are_listed() -> None:
    with ProviderServer([], models=["small", "large"]) as server, client_of(server) as client:
        assert [model.id for model in client.models.list()] == ["small", "large"]


def test_another_key_is_not_accepted() -> None:
    with ProviderServer(["Hi"], api_key="secret") as server:
        with client_of(server, "wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.chat.completions.create(model="m", messages=HELLO)
        with client_of(server, "secret") as client:
            client.chat.completions.create(model="m", messages=HELLO)
    assert caught.value.code == "invalid_api_key"
    assert "secret" not in str(caught.value)


def test_an_unknown_path_is_not_found() -> None:
    with ProviderServer(["Hi"]) as server, client_of(server) as client, pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="m", input="x")


ILL_FORMED: dict[str, tuple[list[Any], str]] = {
    "nothing said": ([], "messages"),
    "an unknown role": ([{"role": "robot", "content": "x"}], "robot"),
    "no content": ([{"role": "user", "content": None}], "content"),
    "an empty assistant": ([*HELLO, {"role": "assistant", "content": None}], "content"),
    "a call without a result": ([*HELLO, assistant_calls(("a", "{}"))], "had no response: a"),
    "one of two results missing": (
        [*HELLO, assistant_calls(("a", "{}"), ("b", "{}")), answered("a")],
        "had no response: b",
    ),
    "a user between call and result": (
        [*HELLO, assistant_calls(("a", "{}")), *HELLO, answered("a")],
        "had no response: a",
    ),
    "a result without a call": ([*HELLO, answered("a")], "no call precedes it"),
    "a result of another call": ([*HELLO, assistant_calls(("a", "{}")), answered("b")], "'b'"),
    "a second result": (
        [*HELLO, assistant_calls(("a", "{}")), answered("a"), answered("a")],
        "answered before",
    ),
    "an empty id": ([*HELLO, assistant_calls(("", "{}")), answered("")], "id"),
    "an id twice in a turn": (
        [*HELLO, assistant_calls(("a", "{}"), ("a", "{}")), answered("a")],
        "Duplicate",
    ),
    "an id twice in a history": (
        [*HELLO, assistant_calls(("a", "{}")), answered("a"), assistant_calls(("a", "{}")), answered("a")],
        "Duplicate",
    ),
    "no calls in a list of calls": (
        [*HELLO, {"role": "assistant", "content": "x", "tool_calls": []}],
        "tool_calls",
    ),
    "arguments that are no text": (
        [
            *HELLO,
            {
                **assistant_calls(("a", "{}")),
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}}],
            },
        ],
        "arguments",
    ),
    "a call of a user": ([{**assistant_calls(("a", "{}")), "role": "user"}], "tool_calls"),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("messages", "named"), ILL_FORMED.values(), ids=ILL_FORMED)
def test_an_ill_formed_history_is_refused_and_the_problem_named(messages: list[Any], named: str) -> None:
    with ProviderServer(lambda _: "never") as server:
        with pytest.raises(openai.BadRequestError, match=named):
            ask(server, messages)
        with pytest.raises(openai.BadRequestError, match=named):
            ask_streamed(server, messages)
    assert len(server.problems) == 2
    assert named in server.problems[0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {"tools": []},
        {"tools": [{"type": "function", "function": {"name": "has space"}}]},
        {"tools": [{"type": "function", "function": {"name": "x" * 65}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
        {"tools": [ADD, ADD]},
        {"tools": [{"type": "function", "function": {**ADD["function"], "strict": True}}]},
        {"tool_choice": "auto"},
        {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "sub"}}},
        {"stream_options": {"include_usage": True}},
        {"max_tokens": 0},
        {"n": 2},
    ],
    ids=str,
)
def test_an_ill_formed_request_is_refused(options: dict[str, Any]) -> None:
    with ProviderServer(["never"]) as server, pytest.raises(openai.BadRequestError):
        ask(server, **options)
    assert len(server.problems) == 1


def test_a_well_formed_history_of_every_kind_of_message_is_taken() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Very."}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        assistant_calls(("a", "{}"), ("b", "not json")),
        answered("b"),
        answered("a"),
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": ""},
        {"role": "user", "content": "Go on"},
    ]
    with ProviderServer(["-", "-", "Fine"]) as server:
        assert ask(server, messages, tools=[ADD], tool_choice="auto").choices[0].message.content == "Fine"

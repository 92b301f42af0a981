"""The wire of OpenAI's Responses, as the official client understands it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lazily import openai
from treadle.testing.provider import (
    ProviderServer,
    Usage,
    call,
    fail,
    raw_call,
    reasoning,
    refusal,
    text,
    turn,
)

pytestmark = pytest.mark.sampled(12)

ADD: Any = {
    "type": "function",
    "name": "add",
    "strict": False,
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
}
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
ENCRYPTED = ["reasoning.encrypted_content"]


def client_of(server: ProviderServer, key: str = "key") -> openai.OpenAI:
    plain = openai.DefaultHttpxClient(verify=False)  # to read certificates takes longer than these requests
    return openai.OpenAI(base_url=server.openai_base_url, api_key=key, max_retries=0, http_client=plain)


def ask(server: ProviderServer, **options: Any) -> Any:
    with client_of(server) as client:
        return client.responses.create(**{"model": "gpt-x", "input": HELLO, **options})


def ask_raw(server: ProviderServer, **options: Any) -> list[Any]:
    with client_of(server) as client:
        return list(client.responses.create(**{"model": "gpt-x", "input": HELLO, **options}, stream=True))


def ask_streamed(server: ProviderServer, **options: Any) -> Any:
    with (
        client_of(server) as client,
        client.responses.stream(**{"model": "gpt-x", "input": HELLO, **options}) as stream,
    ):
        for _ in stream:
            pass
        return stream.get_final_response()


both = pytest.mark.parametrize("way", [ask, ask_streamed])


def items(response: Any) -> list[Any]:
    """What came back, as it is sent on."""
    return [item.to_dict() for item in response.output]


def result(call_id: str, output: Any = "3") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def assistant_calls(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}"}


@both
def test_a_text_is_answered(way: Any) -> None:
    with ProviderServer(["Hi, 你好 🎉"]) as server:
        response = way(server)
    assert (response.output_text, response.status, response.model) == ("Hi, 你好 🎉", "completed", "gpt-x")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 1
    assert server.problems == []


def test_a_stream_has_the_events_of_the_real_one() -> None:
    script = turn(reasoning("Hm."), text("One two"), call("add", a=1), chunk_size=4)
    with ProviderServer([script]) as server:
        events = ask_raw(server, tools=[ADD])
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done", "completed"),
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["One ", "two"]
    assert [event.output_index for event in events if event.type == "response.output_item.done"] == [0, 1, 2]
    assert events[0].response.output == []
    assert events[-1].response.output[-1] == events[-2].item


@both
def test_text_and_parallel_calls_are_one_answer(way: Any) -> None:
    script = turn(text("Let me see."), call("add", a=1), call("add", a=2), interleave=True, chunk_size=2)
    with ProviderServer([script]) as server:
        response = way(server, tools=[ADD])
    sentence, first, second = response.output
    assert (sentence.content[0].text, response.output_text) == ("Let me see.", "Let me see.")
    assert (first.arguments, second.arguments) == ('{"a": 1}', '{"a": 2}')
    assert first.call_id != second.call_id
    assert first.id.startswith("fc_")


@both
def test_a_whole_conversation_follows_the_script_without_a_cursor(way: Any) -> None:
    with ProviderServer([[reasoning("Add."), call("add", a=1), call("add", a=2)], "3 and 4"]) as server:
        first = way(server, tools=[ADD], include=ENCRYPTED, store=False)
        results = [result(item.call_id) for item in first.output[1:]]
        second = way(server, tools=[ADD], input=[*HELLO, *items(first), *results], store=False)
    assert second.output_text == "3 and 4"
    assert [request.turn for request in server.requests] == [0, 1]


def test_reasoning_is_encrypted_only_when_that_is_asked_for_and_may_not_be_changed() -> None:
    with ProviderServer([turn(reasoning("Adding up."), "3"), "4"]) as server:
        bare = items(ask(server))
        sealed = items(ask(server, include=ENCRYPTED))
        more = {"role": "user", "content": "Again"}
        assert "encrypted_content" not in bare[0]
        with pytest.raises(openai.NotFoundError, match="not persisted"):
            ask(server, input=[*HELLO, *bare, more], store=False)
        assert ask(server, input=[*HELLO, *sealed, more], store=False).output_text == "4"
        sealed[0]["summary"][0]["text"] = "Guessing."
        with pytest.raises(openai.BadRequestError, match="could not be verified"):
            ask(server, input=[*HELLO, *sealed, more], store=False)


@both
def test_usage_is_reported_in_the_format_of_openai(way: Any) -> None:
    with ProviderServer([turn("Hi", usage=Usage(100, 20, cached_tokens=64, reasoning_tokens=7))]) as server:
        usage = way(server).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (100, 20, 120)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (64, 7)


@pytest.mark.parametrize("finish", ["length", "content_filter", "because"])
def test_an_answer_that_is_cut_is_incomplete_and_says_why(finish: str) -> None:
    with ProviderServer([turn(raw_call("add", '{"a": 1, "b'), finish=finish)]) as server:
        complete, *_, last = ask(server, tools=[ADD]), *ask_raw(server, tools=[ADD])
    why = {"length": "max_output_tokens"}.get(finish, finish)
    for response in (complete, last.response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", why)
        assert response.output[0].arguments == '{"a": 1, "b'
    assert last.type == "response.incomplete"


@both
def test_a_refusal_is_content_of_its_own(way: Any) -> None:
    with ProviderServer([refusal("I will not.")]) as server:
        response = way(server)
    assert (response.status, response.output[0].content[0].refusal) == ("completed", "I will not.")


def test_a_stream_can_break_off_with_an_error() -> None:
    with ProviderServer([turn("One two three", cut="error")]) as server:
        last = ask_raw(server)[-1]
    assert (last.type, last.code, last.message) == (
        "error",
        "server_error",
        "The script breaks this stream off.",
    )


def test_errors_are_openais() -> None:
    with ProviderServer([fail(429, retry_after=3), "Hi"], api_key="secret") as server:
        with client_of(server, "wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.responses.create(model="m", input="Hi")
        assert caught.value.code == "invalid_api_key"
        with client_of(server, "secret") as client:
            with pytest.raises(openai.RateLimitError) as limited:
                client.responses.create(model="m", input="Hi")
            assert limited.value.response.headers["retry-after"] == "3"
            assert client.responses.create(model="m", input="Hi").output_text == "Hi"


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
ILL_FORMED: dict[str, tuple[list[Any], str]] = {
    "nothing said": ([], "empty array"),
    "a message of chat": ([{"role": "tool", "content": "x", "tool_call_id": "a"}], "Invalid value: 'tool'"),
    "a part of chat": ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], "input_text"),
    "output of a user": ([{"role": "user", "content": [{"type": "output_text", "text": "x"}]}], "input_text"),
    "a call without a result": (
        [*HELLO, assistant_calls("a"), *HELLO],
        "No tool output found for function call a",
    ),
    "a result without a call": ([result("a")], "No tool call found for function call output"),
    "a second result": ([*HELLO, assistant_calls("a"), result("a"), result("a")], "No tool call found"),
    "an id twice": ([*HELLO, assistant_calls("a"), assistant_calls("a"), result("a")], "Duplicate"),
    "an item twice": (
        [
            *HELLO,
            assistant_calls("a") | {"id": "fc_1"},
            result("a"),
            assistant_calls("b") | {"id": "fc_1"},
            result("b"),
        ],
        "Duplicate item",
    ),
    "an id that is not of its kind": (
        [*HELLO, assistant_calls("a") | {"id": "call_1"}, result("a")],
        "begins with 'fc'",
    ),
    "an id that is too long": ([*HELLO, assistant_calls("a" * 65), result("a" * 65)], "too long"),
    "arguments that are no text": (
        [*HELLO, assistant_calls("a") | {"arguments": {}}, result("a")],
        "a string",
    ),
    "reasoning that led to nothing": ([*HELLO, THOUGHT, *HELLO], "without its required following item"),
    "a result of another kind": (
        [*HELLO, assistant_calls("a"), result("a", [{"type": "text"}])],
        "input_text",
    ),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("history", "named"), ILL_FORMED.values(), ids=ILL_FORMED)
def test_an_ill_formed_history_is_refused_and_the_problem_named(history: list[Any], named: str) -> None:
    with ProviderServer(["never"]) as server, pytest.raises(openai.BadRequestError, match=named):
        ask(server, input=history)
    assert len(server.problems) == 1


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {"max_output_tokens": 5},
        {"extra_body": {"messages": HELLO}},
        {"extra_body": {"max_tokens": 100}},
        {"tools": [ADD, ADD]},
        {"tools": [{"type": "function", "function": {"name": "add"}}]},
        {"tools": [{**ADD, "strict": True}]},
        {"tool_choice": "required"},
        {"tools": [ADD], "tool_choice": {"type": "function", "name": "sub"}},
        {"text": {"format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}},
        {"text": {"format": {"type": "json_object"}}},
    ],
    ids=str,
)
def test_an_ill_formed_request_is_refused(options: dict[str, Any]) -> None:
    with ProviderServer(["never"]) as server, pytest.raises(openai.BadRequestError):
        ask(server, **options)
    assert len(server.problems) == 1


def test_nothing_is_kept_at_the_server() -> None:
    with ProviderServer(["Hi"]) as server:
        before = ask(server)
        with pytest.raises(openai.NotFoundError):
            ask(server, previous_response_id=before.id)
        with pytest.raises(openai.NotFoundError):
            ask(server, input=[{"type": "item_reference", "id": before.output[0].id}])


@pytest.mark.anyio
async def test_the_async_client_understands_it_too() -> None:
    with ProviderServer([[text("Well,"), call("add", a=1)]]) as server:
        url = server.openai_base_url
        async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
            complete = await client.responses.create(model="m", input="Hi", tools=[ADD])
            async with client.responses.stream(model="m", input="Hi", tools=[ADD]) as stream:
                streamed = await stream.get_final_response()
    for response in (complete, streamed):
        sentence, asked_for = response.output
        assert (sentence.content[0].text, asked_for.arguments) == ("Well,", '{"a": 1}')

"""The wire of Google's Gemini API, as the official client understands it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lazily import errors, genai, types
from treadle.llm.connections import tls
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

ADD = {
    "function_declarations": [
        {
            "name": "add",
            "parameters_json_schema": {
                "type": "object",
                "properties": {"a": {"type": "number"}},
                "required": ["a"],
            },
        }
    ]
}
HELLO: list[Any] = [{"role": "user", "parts": [{"text": "Hello"}]}]


def client_of(server: ProviderServer, key: str = "key") -> genai.Client:
    options = types.HttpOptions(
        base_url=server.google_base_url,
        client_args={"verify": tls()},
        async_client_args={"verify": tls(), "ssl": tls()},
    )
    return genai.Client(vertexai=False, api_key=key, http_options=options)


def ask(server: ProviderServer, contents: Any = HELLO, model: str = "gemini-3-x", **config: Any) -> Any:
    with client_of(server) as client:
        return client.models.generate_content(model=model, contents=contents, config=config)


def ask_raw(server: ProviderServer, contents: Any = HELLO, model: str = "gemini-3-x", **config: Any) -> Any:
    with client_of(server) as client:
        return list(client.models.generate_content_stream(model=model, contents=contents, config=config))


def ask_streamed(server: ProviderServer, contents: Any = HELLO, **config: Any) -> Any:
    """The pieces as one response."""
    chunks = ask_raw(server, contents, **config)
    last = chunks[-1]
    if last.candidates:
        last.candidates[0].content.parts = [
            part for chunk in chunks for part in chunk.candidates[0].content.parts if part.text != ""
        ]
    return last


both = pytest.mark.parametrize("way", [ask, ask_streamed])


def results(content: Any, *names: str) -> list[Any]:
    answered = [{"functionResponse": {"name": name, "response": {"output": 3}}} for name in names]
    return [*HELLO, content, {"role": "user", "parts": answered}]


def assistant_calls(*names: str) -> dict[str, Any]:
    signed = {"thoughtSignature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="}
    parts = [{"functionCall": {"name": name, "args": {}}} for name in names]
    return {"role": "model", "parts": [parts[0] | signed, *parts[1:]]}


@both
def test_a_text_is_answered(way: Any) -> None:
    with ProviderServer(["Hi, 你好 🎉"]) as server:
        response = way(server)
    assert "".join(part.text for part in response.candidates[0].content.parts) == "Hi, 你好 🎉"
    assert (response.candidates[0].finish_reason, response.model_version) == ("STOP", "gemini-3-x")
    assert response.usage_metadata.total_token_count > 1
    assert server.problems == []


def test_a_stream_comes_in_pieces_and_says_at_the_end_why_it_ends() -> None:
    script = turn(reasoning("Hm."), text("One two"), call("add", a=1), chunk_size=4)
    with ProviderServer([script]) as server:
        chunks = ask_raw(server, tools=[ADD])
    parts = [chunk.candidates[0].content.parts[0] for chunk in chunks]
    assert [part.text for part in parts] == ["Hm.", "One ", "two", None, ""]
    assert [bool(part.thought) for part in parts] == [True, False, False, False, False]
    assert parts[3].function_call.args == {"a": 1}
    assert [chunk.candidates[0].finish_reason for chunk in chunks] == [None] * 4 + ["STOP"]
    assert len({chunk.response_id for chunk in chunks}) == 1


@both
def test_a_whole_conversation_follows_the_script_without_a_cursor(way: Any) -> None:
    script = [[text("Let me see."), call("add", a=1), call("add", a=2, b="ü")], "3 and 4"]
    with ProviderServer(script) as server:
        content = way(server, tools=[ADD]).candidates[0].content
        calls = [part.function_call for part in content.parts if part.function_call]
        second = way(server, results(content, "add", "add"), tools=[ADD])
    assert [asked_for.args for asked_for in calls] == [{"a": 1}, {"a": 2, "b": "ü"}]
    assert "".join(part.text for part in second.candidates[0].content.parts) == "3 and 4"
    assert [request.turn for request in server.requests] == [0, 1]


def test_calls_are_signed_and_may_not_be_changed() -> None:
    with ProviderServer([call("add", a=1), "Fine."]) as server:
        content = ask(server, tools=[ADD]).candidates[0].content
        assert ask(server, results(content, "add")).text == "Fine."
        signature = content.parts[0].thought_signature
        content.parts[0].thought_signature = None
        with pytest.raises(errors.ClientError, match="missing a thought_signature"):
            ask(server, results(content, "add"))
        assert ask(server, results(content, "add"), model="gemini-2.5-x").text == "Fine."
        content.parts[0].thought_signature = signature
        content.parts[0].function_call.args = {"a": 2}
        with pytest.raises(errors.ClientError, match="not valid"):
            ask(server, results(content, "add"))
        assert ask(server, results(assistant_calls("add"), "add")).text == "Fine."


@both
def test_usage_is_reported_in_the_format_of_google(way: Any) -> None:
    with ProviderServer([turn("Hi", usage=Usage(100, 20, cached_tokens=64, reasoning_tokens=7))]) as server:
        usage = way(server).usage_metadata
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (100, 64)
    assert (usage.candidates_token_count, usage.thoughts_token_count, usage.total_token_count) == (13, 7, 120)


@both
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (turn("One", finish="length"), "MAX_TOKENS"),
        (turn("One", finish="content_filter"), "SAFETY"),
        (turn("One", finish="RECITATION"), "RECITATION"),
        (turn("One", raw_call("add", '{"a": ')), "MALFORMED_FUNCTION_CALL"),
    ],
    ids=repr,
)
def test_a_finish_reason_can_be_chosen(way: Any, script: Any, expected: str) -> None:
    with ProviderServer([script]) as server:
        assert way(server).candidates[0].finish_reason == expected


@both
def test_a_refusal_blocks_the_prompt(way: Any) -> None:
    with ProviderServer([refusal("I will not.")]) as server:
        response = way(server)
    assert not response.candidates
    assert response.prompt_feedback.block_reason == "PROHIBITED_CONTENT"
    assert response.prompt_feedback.block_reason_message == "I will not."


def test_a_stream_can_break_off_with_an_error() -> None:
    with (
        ProviderServer([turn("One two three", cut="error")]) as server,
        pytest.raises(errors.ServerError, match="breaks this stream off") as caught,
    ):
        ask_raw(server)
    assert caught.value.code == 503


def test_errors_are_googles() -> None:
    script = [fail(429, retry_after=3), fail(400, "API key not valid.", code="API_KEY_INVALID"), "Hi"]
    with ProviderServer(script) as server:
        with pytest.raises(errors.ClientError) as limited:
            ask(server)
        with pytest.raises(errors.ClientError) as invalid:
            ask(server)
    assert (limited.value.code, limited.value.status) == (429, "RESOURCE_EXHAUSTED")
    assert limited.value.response.headers["retry-after"] == "3"
    assert invalid.value.status == "INVALID_ARGUMENT"
    assert invalid.value.details["error"]["details"][0]["reason"] == "API_KEY_INVALID"


PICTURE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
ILL_FORMED: dict[str, tuple[list[Any], str]] = {
    "another role": ([{"role": "assistant", "parts": [{"text": "x"}]}], "valid role"),
    "no parts": ([{"role": "user", "parts": []}], "empty array"),
    "an empty part": ([{"role": "user", "parts": [{}]}], "must have one initialized field"),
    "a call without a result": (
        [*HELLO, assistant_calls("add"), *HELLO],
        "equal to the number of function call parts",
    ),
    "a call at the end": ([*HELLO, assistant_calls("add")], "followed by a function response turn"),
    "a result without a call": (results(HELLO[0], "add"), "immediately after a function call turn"),
    "one of two results missing": (results(assistant_calls("add", "sub"), "add"), "equal to the number"),
    "results in another order": (results(assistant_calls("add", "sub"), "sub", "add"), "equal to the number"),
    "a call that begins": ([assistant_calls("add"), results(HELLO[0], "add")[-1]], "after a user turn"),
    "a call of a user": ([{**assistant_calls("add"), "role": "user"}], "after a user turn"),
}


@pytest.mark.parametrize(("contents", "named"), ILL_FORMED.values(), ids=ILL_FORMED)
def test_an_ill_formed_history_is_refused_and_the_problem_named(contents: list[Any], named: str) -> None:
    with ProviderServer(["never"]) as server, pytest.raises(errors.ClientError, match=named):
        ask(server, contents)
    assert len(server.problems) == 1


def calling(mode: str, *allowed: str) -> dict[str, Any]:
    config: dict[str, Any] = {"mode": mode} | ({"allowed_function_names": [*allowed]} if allowed else {})
    return {"tool_config": {"function_calling_config": config}}


@pytest.mark.parametrize(
    "config",
    [
        {"max_output_tokens": 0},
        {"tools": [ADD, ADD]},
        calling("ANY"),
        {"tools": [ADD], **calling("ANY", "sub")},
        {"tools": [ADD], **calling("AUTO", "add")},
        {"response_json_schema": {"type": "object"}},
        {"http_options": {"extra_body": {"temprature": 1}}},
    ],
    ids=str,
)
def test_an_ill_formed_request_is_refused(config: dict[str, Any]) -> None:
    with ProviderServer(["never"]) as server, pytest.raises(errors.ClientError):
        ask(server, **config)
    assert len(server.problems) == 1


def test_pictures_and_system_instructions_are_taken() -> None:
    with ProviderServer(["Seen."]) as server:
        response = ask(server, [{"role": "user", "parts": [PICTURE]}], system_instruction="Be brief.")
        assert response.text == "Seen."
    assert server.problems == []


def test_an_unknown_method_of_a_model_is_not_found() -> None:
    import httpx2

    with ProviderServer(["never"]) as server:
        assert httpx2.post(server.url + "/v1beta/models/x:countTokens", json={}).status_code == 404
        lost = httpx2.post(
            server.url + "/v1beta/models/x:streamGenerateContent",
            json={"contents": HELLO},
            headers={"x-goog-api-key": "k"},
        )
        assert (lost.status_code, "alt=sse" in lost.text) == (400, True)


# Google's package inherits from a class of aiohttp, which says so if it is installed.
@pytest.mark.filterwarnings(
    "ignore:Inheritance class .* from ClientSession is discouraged:DeprecationWarning"
)
@pytest.mark.anyio
async def test_the_async_client_understands_it_too() -> None:
    with ProviderServer([[text("Well,"), call("add", a=1)]]) as server, client_of(server) as client:
        options: dict[str, Any] = {"model": "m", "contents": "Hi", "config": {"tools": [ADD]}}
        response = await client.aio.models.generate_content(**options)
        parts = [
            part
            async for chunk in await client.aio.models.generate_content_stream(**options)
            for part in chunk.candidates[0].content.parts
        ]
        await client.aio.aclose()
    for sentence, asked_for, *_ in (response.candidates[0].content.parts, parts):
        assert (sentence.text, asked_for.function_call.args) == ("Well,", {"a": 1})

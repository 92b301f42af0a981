"""The compliance templates of Open Responses, version 2026-04-24, and the shapes that its schema requires.

The requests are those of its suite; a scripted agent answers them, so each also has an exact answer. Parts of the
specification that are not for this server are listed below, each with the reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.server.protocols.test_responses_route import Site, site
from treadle import Agent, Message, ModelAnswer, Text, TextDelta, ToolCall
from treadle.core.messages import Image

pytestmark = pytest.mark.anyio

NOT_FOR_US: Final = {
    "POST /v1/responses/compact": "threads are compacted by their agents, and by `compact_thread`",
    "WebSocket /v1/responses": "events are server-sent here, over a connection that proxies know",
    "application/x-www-form-urlencoded": "a form of any page could send it: bodies are JSON",
    "input_file.file_id, input_image.file_id": "the server has no files of clients: send the bytes",
    "input_video": "no message of an agent has videos",
    "compaction": "the same as for /v1/responses/compact",
    "web_search, file_search": "an agent brings its own tools",
    "tool_choice.allowed_tools": "a request offers its functions, or leaves them out",
    "reasoning, top_p, penalties, logprobs, truncation=auto": "the agent decides them: refused by name",
    "errors: 500 model_error": "a task that fails is a response of the status `failed`",
    "message.phase of inputs": "it is ignored",
}

RESPONSE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("id", "model", "service_tier"), str),
    **dict.fromkeys(("created_at", "top_logprobs"), int),
    **dict.fromkeys(("completed_at", "max_output_tokens", "max_tool_calls"), (int, type(None))),
    **dict.fromkeys(("incomplete_details", "error", "reasoning", "usage"), (dict, type(None))),
    **dict.fromkeys(("previous_response_id", "instructions"), (str, type(None))),
    **dict.fromkeys(("safety_identifier", "prompt_cache_key"), (str, type(None))),
    **dict.fromkeys(("top_p", "presence_penalty", "frequency_penalty", "temperature"), (int, float)),
    **dict.fromkeys(("parallel_tool_calls", "store", "background"), bool),
    **dict.fromkeys(("output", "tools"), list),
    **dict.fromkeys(("text", "metadata", "conversation"), dict),
    "object": "response",
    "truncation": ("auto", "disabled"),
    "tool_choice": (str, dict),
    "status": ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
}
USAGE: Final = ("input_tokens", "output_tokens", "total_tokens")
ITEMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "message": {
        "id": str,
        "status": ("in_progress", "completed", "incomplete"),
        "role": ("user", "assistant", "system", "developer"),
        "content": list,
    },
    "function_call": {
        **dict.fromkeys(("id", "call_id", "name", "arguments"), str),
        "status": ("in_progress", "completed", "incomplete"),
    },
    "reasoning": {"id": str, "summary": list},
}
OF_ITEM: Final = {"item_id": str, "output_index": int}
OF_CONTENT: Final = {**OF_ITEM, "content_index": int}
EVENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{
        f"response.{name}": {"response": dict}
        for name in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    "response.output_item.added": {"output_index": int, "item": dict},
    "response.output_item.done": {"output_index": int, "item": dict},
    "response.content_part.added": {**OF_CONTENT, "part": dict},
    "response.content_part.done": {**OF_CONTENT, "part": dict},
    "response.output_text.delta": {**OF_CONTENT, "delta": str},
    "response.output_text.done": {**OF_CONTENT, "text": str},
    "response.function_call_arguments.delta": {**OF_ITEM, "delta": str},
    "response.function_call_arguments.done": {**OF_ITEM, "arguments": str},
}
"""The members that the schema requires, with their types or their values."""


def check(found: Mapping[str, Any], required: Mapping[str, Any]) -> None:
    """Check that an object has members of some types, or with some values."""
    for name, expected in required.items():
        assert name in found, f"{name} is missing"
        value, allowed = found[name], expected if isinstance(expected, tuple) else (expected,)
        if isinstance(allowed[0], str):
            assert value in allowed, (name, value)
        else:
            assert isinstance(value, allowed), (name, value)
            assert isinstance(value, bool) == (allowed == (bool,)), (name, value)


def check_response(response: Mapping[str, Any]) -> None:
    """Check a response by the required members of the schema."""
    check(response, RESPONSE)
    if response["usage"] is not None:
        check(response["usage"], dict.fromkeys(USAGE, int))
        check(response["usage"]["input_tokens_details"], {"cached_tokens": int})
        check(response["usage"]["output_tokens_details"], {"reasoning_tokens": int})
    for tool in response["tools"]:
        check(tool, {"type": "function", "name": str, "parameters": (dict, type(None))})
    for item in response["output"]:
        check(item, ITEMS[item["type"]])
        for part in item.get("content", ()):
            check(part, {"type": "output_text", "text": str, "annotations": list})


class Answers:
    """Answers the questions of the templates from what it was sent, word by word."""

    name = "test:answers"

    async def stream(self, request: Any) -> Any:
        said = [message for message in request.messages if message.role == "user"]
        if "get_weather" in [spec.name for spec in request.tools]:
            call = ToolCall("c", "get_weather", {"location": "San Francisco, CA"})
            yield ModelAnswer(Message("assistant", (call,)), "tool_calls")
            return
        system = [message.text for message in request.messages if message.role == "system"]
        pictures = [part for part in said[-1].parts if isinstance(part, Image)]
        earlier = [message for message in request.messages if message.role != "system"][:-1]
        text = f"{len(earlier)} before, {len(system)} system, {len(pictures)} pictures: {said[-1].text}"
        for word in text.split(" "):
            await asyncio.sleep(0.01)  # else they are one delta
            yield TextDelta(f"{word} ")
        yield ModelAnswer(Message("assistant", (Text(f"{text} "),)))


def answering() -> Agent[Any]:
    model: Any = Answers()
    return Agent(model, name="shop")


def user(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


WEATHER: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
        },
        "required": ["location"],
    },
}
PIXEL: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAE"
    "hQGAhKmMIQAAAABJRU5ErkJggg=="
)
TEMPLATES: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "basic-response": (
        {"input": [user("Say hello in exactly 3 words.")]},
        "0 before, 0 system, 0 pictures: Say hello in exactly 3 words. ",
    ),
    "streaming-response": (
        {"input": [user("Count from 1 to 5.")], "stream": True},
        "0 before, 0 system, 0 pictures: Count from 1 to 5. ",
    ),
    "system-prompt": (
        {
            "input": [
                {
                    "type": "message",
                    "role": "system",
                    "content": "You are a pirate. Always respond in pirate speak.",
                },
                user("Say hello."),
            ]
        },
        "0 before, 1 system, 0 pictures: Say hello. ",
    ),
    "tool-calling": ({"input": [user("What's the weather like in San Francisco?")], "tools": [WEATHER]}, ""),
    "tool-calling-streaming": (
        {"input": [user("What's the weather like in San Francisco?")], "tools": [WEATHER], "stream": True},
        "",
    ),
    "image-input": (
        {
            "input": [
                user(
                    [
                        {
                            "type": "input_text",
                            "text": "What do you see in this image? Answer in one sentence.",
                        },
                        {"type": "input_image", "image_url": PIXEL},
                    ]
                )
            ]
        },
        "0 before, 0 system, 1 pictures: What do you see in this image? Answer in one sentence. ",
    ),
    "multi-turn": (
        {
            "input": [
                user("My name is Alice."),
                {
                    "type": "message",
                    "role": "assistant",
                    "content": "Hello Alice! Nice to meet you. How can I help you today?",
                },
                user("What is my name?"),
            ]
        },
        "2 before, 0 system, 0 pictures: What is my name? ",
    ),
}


async def response_of(shop: Site, body: Any) -> tuple[Any, list[Any]]:
    """Return the response to a request, and the events of its stream."""
    if body.get("stream"):
        events = await shop.frames("/v1/responses", {"model": "shop", **body})
        for event in events:
            check(event, {"sequence_number": int, **EVENTS[event["type"]]})
        return events[-1]["response"], events
    headers = {"Authorization": "Bearer ann"}
    response = await shop.http.post("/v1/responses", json={"model": "shop", **body}, headers=headers)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return response.json(), []


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_template_of_the_specification_passes(name: str):
    body, text = TEMPLATES[name]
    async with site(answering()) as shop:
        response, events = await response_of(shop, body)
        check_response(response)
        assert response["status"] == "completed"
        kinds = [item["type"] for item in response["output"]]
        if "tools" in body:
            assert kinds == ["function_call"]
            assert json.loads(response["output"][0]["arguments"]) == {"location": "San Francisco, CA"}
            assert len(response["output"][0]["call_id"]) <= 64
        else:
            assert kinds == ["message"]
            assert response["output"][0]["content"][0]["text"] == text
        if events:
            told = [event["type"] for event in events]
            assert told[0] == "response.created"
            for kind in ("added", "done"):
                shown = [
                    event["item"]["type"]
                    for event in events
                    if event["type"] == f"response.output_item.{kind}"
                ]
                assert shown == kinds
            if "tools" in body:
                assert told.count("response.function_call_arguments.delta") >= 1
                assert told.count("response.function_call_arguments.done") == 1
            else:
                assert told.count("response.output_text.delta") > 1


async def test_an_item_begins_with_its_beginning_and_ends_with_its_end():
    async with site(answering()) as shop:
        _, events = await response_of(shop, {"input": "Hi", "stream": True})
        told = dict.fromkeys([event["type"].removeprefix("response.") for event in events])
        told.pop("queued", None)  # unless a driver was quicker
        assert list(told) == [
            *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
            *("output_text.done", "content_part.done", "output_item.done", "completed"),
        ]
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(set(numbers))


REFUSED: Final[Mapping[str, Any]] = {
    "compaction": {"input": [{"type": "compaction", "encrypted_content": "x"}]},
    "web_search": {"tools": [{"type": "web_search", "external_web_access": False}]},
    "file_search": {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]},
    "allowed_tools": {"tool_choice": {"type": "allowed_tools", "tools": []}, "tools": [WEATHER]},
    "file_id": {"input": [user([{"type": "input_file", "file_id": "f"}])]},
    "input_video": {"input": [user([{"type": "input_video", "video_url": "https://a/b"}])]},
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_for_this_server_is_refused_by_its_name(name: str):
    assert any(name in words for words in NOT_FOR_US)
    async with site(answering()) as shop:
        body = {"model": "shop", "input": "Hi", **REFUSED[name]}
        response = await shop.http.post("/v1/responses", json=body, headers={"Authorization": "Bearer ann"})
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error")
        assert name in error["message"]
        assert error["param"].startswith(("input[0]", "tools[0]", "tool_choice"))


async def test_the_paths_and_bodies_that_are_not_for_this_server_are_refused():
    async with site(answering()) as shop:
        headers = {"Authorization": "Bearer ann"}
        compact = await shop.http.post("/v1/responses/compact", json={"model": "shop"}, headers=headers)
        assert (compact.status_code, compact.json()["error"]["type"]) == (405, "invalid_request_error")
        form = await shop.http.post("/v1/responses", data={"model": "shop"}, headers=headers)
        assert (form.status_code, form.json()["error"]["code"]) == (415, "media_type_refused")

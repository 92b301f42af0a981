"""OpenAI's Chat Completions: check requests, and write answers, streamed and whole."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from treadle.testing.provider.openai import OpenAI, check_strict
from treadle.testing.provider.script import Reasoning, Refusal, ScriptedCall, ScriptedTurn, Text
from treadle.testing.provider.wire import (
    Refused,
    chunks,
    encode,
    flag,
    fresh_id,
    mapping,
    messages_of,
    nonempty_string,
    object_schema,
    positive,
    sequence,
    string,
    tool_name,
    usage_of,
)

_ROLES = ("system", "developer", "user", "assistant", "tool")
_PARTS = ("text", "image_url", "input_audio", "file")
_FINISH = {"refusal": "content_filter"}


class OpenAIChat(OpenAI):
    """The wire format of `POST /v1/chat/completions`."""

    name = "openai"
    path = "/v1/chat/completions"

    def check(self, headers: Mapping[str, str], body: dict[str, Any]) -> None:
        """Raise `Refused` unless OpenAI would accept this request."""
        nonempty_string(body.get("model"), "model")
        messages = [
            mapping(m, f"messages[{i}]") for i, m in enumerate(sequence(body.get("messages"), "messages"))
        ]
        for index, message in enumerate(messages):
            _check_message(message, f"messages[{index}]")
        _check_pairing(messages)
        _check_tools(body)
        _check_format(body)
        streamed = flag(body.get("stream") or False, "stream")
        if body.get("stream_options") is not None and not streamed:
            raise Refused("'stream_options' is only allowed when 'stream' is enabled.", "stream_options")
        for limit in ("max_tokens", "max_completion_tokens"):
            if body.get(limit) is not None:
                positive(body[limit], limit)
        if (body.get("n") or 1) != 1:
            raise Refused("This server gives one choice: 'n' must be 1.", "n")

    def turns(self, body: dict[str, Any]) -> int:
        """Return the number of the assistant's messages."""
        return sum(message.get("role") == "assistant" for message in messages_of(body))

    def streams(self, body: dict[str, Any]) -> bool:
        """Return whether the body asks for a stream."""
        return bool(body.get("stream"))

    def document(self, turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
        """Return a `chat.completion` object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(part.text for part in turn.of(Text)) if turn.of(Text) else None,
            "refusal": "".join(part.text for part in turn.of(Refusal)) or None,
            "annotations": [],
        }
        if thoughts := turn.of(Reasoning):
            message["reasoning_content"] = "".join(part.text for part in thoughts)
        if calls := turn.of(ScriptedCall):
            message["tool_calls"] = [_call(part) for part in calls]
        choice = {"index": 0, "message": message, "logprobs": None, **_finish(turn)}
        document = _envelope("chat.completion", body) | {"choices": [choice]}
        if (usage := _usage(turn, body)) is not None:
            document["usage"] = usage
        return document

    def events(self, turn: ScriptedTurn, body: dict[str, Any]) -> list[bytes]:
        """Return `chat.completion.chunk` objects and `[DONE]`."""
        envelope = _envelope("chat.completion.chunk", body)
        counted = bool(mapping(body.get("stream_options") or {}, "stream_options").get("include_usage"))
        if counted:
            envelope["usage"] = None
        opening = {"role": "assistant", "content": "" if turn.of(Text) else None, "refusal": None}
        deltas = [opening, *_deltas(turn)]
        choices: list[dict[str, Any]] = [
            *({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas),
            {"index": 0, "delta": {}, "logprobs": None, **_finish(turn)},
        ]
        documents = [envelope | {"choices": [choice]} for choice in choices]
        if counted and (usage := _usage(turn, body)) is not None:
            documents.append(envelope | {"choices": [], "usage": usage})
        return [*(_event(encode(document)) for document in documents), _event(b"[DONE]")]

    def error_event(self, message: str) -> bytes:
        """Return an error object instead of a chunk."""
        return _event(encode(self.error(500, message)))


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _envelope(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": fresh_id("chatcmpl-"),
        "object": kind,
        "created": int(time.time()),
        "model": body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _finish(turn: ScriptedTurn) -> dict[str, str | None]:
    if turn.finish is None:
        return {"finish_reason": "tool_calls" if turn.of(ScriptedCall) else "stop"}
    if turn.finish == "absent":
        return {}
    return {"finish_reason": None if turn.finish == "null" else _FINISH.get(turn.finish, turn.finish)}


def _usage(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any] | None:
    if (usage := usage_of(turn, body.get("messages"))) is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "audio_tokens": usage.input_audio_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": usage.output_audio_tokens,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _call(part: ScriptedCall, arguments: str | None = None) -> dict[str, Any]:
    return {
        "id": fresh_id("call_") if part.id is None else part.id,
        "type": "function",
        "function": {"name": part.name, "arguments": part.arguments if arguments is None else arguments},
    }


def _deltas(turn: ScriptedTurn) -> list[dict[str, Any]]:
    """Return the answer in deltas: each call opens with id and name, and its arguments follow in pieces."""
    deltas: list[dict[str, Any]] = []
    by_call: list[list[dict[str, Any]]] = []
    size = turn.how.chunk_size
    for part in turn.parts:
        match part:
            case Text(content):
                deltas += [{"content": piece} for piece in chunks(content, size)]
            case Refusal(content):
                deltas += [{"refusal": piece} for piece in chunks(content, size)]
            case Reasoning(content):
                deltas += [{"reasoning_content": piece} for piece in chunks(content, size)]
            case ScriptedCall():
                index = len(by_call)
                pieces = [
                    {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                    for piece in chunks(part.arguments, size)
                ]
                deltas.append({"tool_calls": [{"index": index, **_call(part, arguments="")}]})
                by_call.append(pieces)
                if not turn.how.interleave:
                    deltas += pieces
    if turn.how.interleave:
        longest = max(map(len, by_call), default=0)
        deltas += [pieces[i] for i in range(longest) for pieces in by_call if i < len(pieces)]
    return deltas


def _check_message(message: dict[str, Any], param: str) -> None:
    role = string(message.get("role"), f"{param}.role")
    if role not in _ROLES:
        raise Refused(f"Invalid value: '{role}'. Supported values are: {', '.join(_ROLES)}.", f"{param}.role")
    if role == "tool":
        nonempty_string(message.get("tool_call_id"), f"{param}.tool_call_id")
    calls = message.get("tool_calls")
    if calls is not None:
        if role != "assistant":
            raise Refused(f"'tool_calls' is not allowed in a '{role}' message.", f"{param}.tool_calls")
        for index, call in enumerate(sequence(calls, f"{param}.tool_calls")):
            _check_call(mapping(call, f"{param}.tool_calls[{index}]"), f"{param}.tool_calls[{index}]")
    content = message.get("content")
    if content is None:
        if role != "assistant" or not (calls or message.get("refusal")):
            raise Refused(
                f"Invalid value for 'content': expected a string, got null, in a '{role}' message.", param
            )
    elif not isinstance(content, str):
        for index, part in enumerate(sequence(content, f"{param}.content")):
            kind = mapping(part, f"{param}.content[{index}]").get("type")
            allowed = _PARTS if role == "user" else ("text", "refusal") if role == "assistant" else ("text",)
            if kind not in allowed:
                raise Refused(
                    f"Content of type {kind!r} is not allowed in a '{role}' message.", f"{param}.content"
                )
            if kind == "text":
                string(part.get("text"), f"{param}.content[{index}].text")


def _check_call(call: dict[str, Any], param: str) -> None:
    nonempty_string(call.get("id"), f"{param}.id")
    if call.get("type") != "function":
        raise Refused(f"Invalid value for '{param}.type': expected 'function'.", f"{param}.type")
    function = mapping(call.get("function"), f"{param}.function")
    tool_name(function.get("name"), f"{param}.function.name")
    string(function.get("arguments"), f"{param}.function.arguments")


def _check_pairing(messages: list[dict[str, Any]]) -> None:
    """Raise unless each call has exactly one tool message right after it, and each tool message a call."""
    answered_ids: set[str] = set()
    waiting: list[str] = []
    end: dict[str, Any] = {"role": "the end"}
    for index, message in enumerate([*messages, end]):
        role, param = message["role"], f"messages.[{index}].role"
        if role == "tool":
            answered = message["tool_call_id"]
            if answered not in waiting:
                problem = "it was answered before" if answered in answered_ids else "no call precedes it"
                raise Refused(
                    "Messages with role 'tool' must be a response to a preceding message with 'tool_calls': "
                    f"tool_call_id '{answered}': {problem}.",
                    param,
                )
            waiting.remove(answered)
            continue
        if waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. These had no response: {', '.join(waiting)}.",
                param,
            )
        for call in message.get("tool_calls") or ():
            if call["id"] in answered_ids:
                raise Refused(f"Duplicate tool call id '{call['id']}'.", param)
            answered_ids.add(call["id"])
            waiting.append(call["id"])


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    if body.get("tools") is not None:
        for index, tool in enumerate(sequence(body["tools"], "tools")):
            param = f"tools[{index}]"
            if mapping(tool, param).get("type") != "function":
                raise Refused(f"Invalid value for '{param}.type': expected 'function'.", f"{param}.type")
            function = mapping(tool.get("function"), f"{param}.function")
            name = tool_name(function.get("name"), f"{param}.function.name")
            if name in names:
                raise Refused(
                    f"Tool names must be unique: '{name}' is given twice.", f"{param}.function.name"
                )
            names.add(name)
            if "parameters" in function:
                schema = object_schema(function["parameters"], f"{param}.function.parameters")
                if function.get("strict"):
                    check_strict(schema, f"{param}.function.parameters")
    choice = body.get("tool_choice")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not names:
            raise Refused(f"'{name}' is only allowed when 'tools' are specified.", name)
    if isinstance(choice, dict):
        chosen = mapping(mapping(choice, "tool_choice").get("function"), "tool_choice.function").get("name")
        if chosen not in names:
            raise Refused(f"Tool choice '{chosen}' not found in 'tools' parameter.", "tool_choice")
    elif choice not in (None, "auto", "none", "required"):
        raise Refused(f"Invalid value for 'tool_choice': {choice!r}.", "tool_choice")


def _check_format(body: dict[str, Any]) -> None:
    """Raise unless the schema of a typed answer is that of an object."""
    answer_format = body.get("response_format")
    if answer_format is None or mapping(answer_format, "response_format").get("type") != "json_schema":
        return
    param = "response_format.json_schema"
    json_schema = mapping(answer_format.get("json_schema"), param)
    tool_name(json_schema.get("name"), f"{param}.name")
    schema = object_schema(json_schema.get("schema"), f"{param}.schema")
    if json_schema.get("strict"):
        check_strict(schema, f"{param}.schema")

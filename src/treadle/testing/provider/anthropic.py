"""Anthropic's Messages: check requests, and write answers, streamed and whole."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from treadle.testing.provider.script import Reasoning, Refusal, ScriptedCall, ScriptedTurn, Text
from treadle.testing.provider.wire import (
    Refused,
    chunks,
    encode,
    flag,
    fresh_id,
    is_forged,
    mapping,
    messages_of,
    nonempty_string,
    object_schema,
    positive,
    sequence,
    sign,
    string,
    tool_name,
    usage_of,
)

_FINISH = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_USER_BLOCKS = ("text", "image", "document", "tool_result", "search_result")
_ASSISTANT_BLOCKS = ("text", "tool_use", "thinking", "redacted_thinking")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


class AnthropicMessages:
    """The wire format of `POST /v1/messages`."""

    name = "anthropic"
    path = "/v1/messages"

    def key(self, headers: Mapping[str, str]) -> str:
        """Return the `x-api-key` header, or a bearer token."""
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()

    def request_id(self) -> dict[str, str]:
        """Return the header with Anthropic's id of a request."""
        return {"request-id": fresh_id("req_")}

    def check(self, headers: Mapping[str, str], body: dict[str, Any]) -> None:
        """Raise `Refused` unless Anthropic would accept this request."""
        if not headers.get("anthropic-version"):
            raise Refused("anthropic-version: header is required")
        nonempty_string(body.get("model"), "model")
        limit = positive(body.get("max_tokens"), "max_tokens")
        flag(body.get("stream") or False, "stream")
        if (system := body.get("system")) is not None and not isinstance(system, str):
            for index, block in enumerate(sequence(system, "system")):
                _check_text(mapping(block, f"system.{index}"), f"system.{index}")
        thinking = mapping(body.get("thinking") or {}, "thinking")
        if thinking.get("type") == "enabled":
            budget = positive(thinking.get("budget_tokens"), "thinking.budget_tokens")
            if budget < 1024 or budget >= limit:
                raise Refused("thinking.budget_tokens: must be at least 1024 and less than max_tokens")
        _check_messages(body)
        _check_tools(body)

    def turns(self, body: dict[str, Any]) -> int:
        """Return the number of the assistant's messages."""
        return sum(message.get("role") == "assistant" for message in messages_of(body))

    def streams(self, body: dict[str, Any]) -> bool:
        """Return whether the body asks for a stream."""
        return bool(body.get("stream"))

    def document(self, turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
        """Return a `message` object."""
        blocks = [_whole_block(part, turn) for part in turn.parts if not _is_empty(part)]
        message = _message(body) | {"content": blocks, "stop_reason": _finish(turn)}
        if (usage := _usage(turn, body)) is not None:
            message["usage"] = usage
        return message

    def events(self, turn: ScriptedTurn, body: dict[str, Any]) -> list[bytes]:
        """Return `message_start`, the blocks one after another with a ping, `message_delta` and `message_stop`."""
        usage = _usage(turn, body)
        message = _message(body)
        if usage is not None:
            message["usage"] = usage | {"output_tokens": 1}
        events = [_event("message_start", message=message)]
        for index, part in enumerate(part for part in turn.parts if not _is_empty(part)):
            events.append(_event("content_block_start", index=index, content_block=_open_block(part)))
            if index == 0:
                events.append(_event("ping"))
            deltas = _deltas(part, turn.how.chunk_size)
            events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
            events.append(_event("content_block_stop", index=index))
        ending: dict[str, Any] = {"delta": {"stop_reason": _finish(turn), "stop_sequence": None}}
        if usage is not None:
            ending["usage"] = usage
        return [*events, _event("message_delta", **ending), _event("message_stop")]

    def error(
        self, status: int, message: str, code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return Anthropic's error envelope."""
        usual = "api_error" if status >= 500 else "invalid_request_error"
        kind = code or _ERROR_TYPES.get(status, usual)
        content = message if param is None or param in message else f"{param}: {message}"
        return {"type": "error", "error": {"type": kind, "message": content}, "request_id": fresh_id("req_")}

    def error_event(self, message: str) -> bytes:
        """Return an `error` event: the provider is overloaded."""
        return b"event: error\ndata: " + encode(self.error(529, message)) + b"\n\n"


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode({"type": kind, **fields}) + b"\n\n"


def _message(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": fresh_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _finish(turn: ScriptedTurn) -> str:
    if turn.finish is None:
        return "refusal" if turn.of(Refusal) else "tool_use" if turn.of(ScriptedCall) else "end_turn"
    return _FINISH.get(turn.finish, turn.finish)


def _usage(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any] | None:
    if (usage := usage_of(turn, body.get("messages"))) is None:
        return None
    for_an_hour = usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens - for_an_hour,
            "ephemeral_1h_input_tokens": for_an_hour,
        },
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _is_empty(part: Text | Reasoning | Refusal | ScriptedCall) -> bool:
    return isinstance(part, (Text, Refusal)) and not part.text


def _open_block(part: Text | Reasoning | Refusal | ScriptedCall) -> dict[str, Any]:
    match part:
        case ScriptedCall(name, _, call_id):
            return {
                "type": "tool_use",
                "id": fresh_id("toolu_") if call_id is None else call_id,
                "name": name,
                "input": {},
            }
        case Reasoning():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Text() | Refusal():
            return {"type": "text", "text": ""}


def _whole_block(part: Text | Reasoning | Refusal | ScriptedCall, turn: ScriptedTurn) -> dict[str, Any]:
    block = _open_block(part)
    match part:
        case ScriptedCall():
            try:
                block["input"] = json.loads(part.arguments)
            except (ValueError, RecursionError):
                # A whole message has parsed input, so input that broke off is lost, and the rest is unchanged.
                block["input"] = {} if turn.finish == "length" else part.arguments or {}
        case Reasoning(content, signature):
            block |= {"thinking": content, "signature": sign(content) if signature is None else signature}
        case Text(content) | Refusal(content):
            block["text"] = content
    return block


def _deltas(part: Text | Reasoning | Refusal | ScriptedCall, size: int) -> list[dict[str, Any]]:
    match part:
        case ScriptedCall():
            pieces = ["", *chunks(part.arguments, size)]
            return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case Reasoning(content, signature):
            signed = sign(content) if signature is None else signature
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in chunks(content, size)]
            return [*thoughts, {"type": "signature_delta", "signature": signed}]
        case Text(content) | Refusal(content):
            return [{"type": "text_delta", "text": piece} for piece in chunks(content, size)]


def _check_text(block: dict[str, Any], param: str) -> None:
    if block.get("type") != "text":
        raise Refused(f"expected a block of type 'text', got {block.get('type')!r}", param)
    if not string(block.get("text"), f"{param}.text"):
        raise Refused("text content blocks must be non-empty", param)


def _check_messages(body: dict[str, Any]) -> None:
    """Raise unless roles alternate, and the next message begins with the result of each `tool_use`."""
    call_ids: set[str] = set()
    waiting: list[str] = []
    before = "assistant"
    for index, message in enumerate(sequence(body.get("messages"), "messages")):
        param = f"messages.{index}"
        role = mapping(message, param).get("role")
        if role not in ("user", "assistant"):
            raise Refused(f"unexpected role {role!r}: 'user' and 'assistant' are allowed", f"{param}.role")
        if role == before:
            first = "the first message must have the role 'user'"
            problem = f"roles must alternate, but found several '{role}' in a row"
            raise Refused(problem if index else first, f"{param}.role")
        before = role
        blocks = _blocks(message.get("content"), f"{param}.content")
        if role == "user":
            _check_user(blocks, waiting, param)
            waiting = []
        else:
            waiting = _check_assistant(blocks, call_ids, param)
    if before == "assistant":
        raise Refused("the conversation must end with a user message", "messages")


def _blocks(content: Any, param: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [mapping(block, f"{param}.{index}") for index, block in enumerate(sequence(content, param))]
    for index, block in enumerate(blocks):
        if block.get("type") == "text":
            _check_text(block, f"{param}.{index}")
    return blocks


def _check_user(blocks: list[dict[str, Any]], waiting: list[str], param: str) -> None:
    unanswered = list(waiting)
    has_content = False
    for index, block in enumerate(blocks):
        kind, where = block.get("type"), f"{param}.content.{index}"
        if kind not in _USER_BLOCKS:
            raise Refused(f"a block of type {kind!r} is not allowed in a user message", where)
        if kind != "tool_result":
            has_content = True
            continue
        call_id = nonempty_string(block.get("tool_use_id"), f"{where}.tool_use_id")
        if call_id not in waiting:
            raise Refused(
                f"unexpected 'tool_use_id' in a 'tool_result': no 'tool_use' precedes '{call_id}'", where
            )
        if call_id not in unanswered:
            raise Refused(f"each 'tool_use' must have a single result: found several for '{call_id}'", where)
        if has_content:
            raise Refused("'tool_result' blocks must come first in the message", where)
        unanswered.remove(call_id)
    if unanswered:
        raise Refused(
            f"'tool_use' ids without 'tool_result' blocks right after: {', '.join(unanswered)}", param
        )


def _check_assistant(blocks: list[dict[str, Any]], call_ids: set[str], param: str) -> list[str]:
    calls: list[str] = []
    for index, block in enumerate(blocks):
        kind, where = block.get("type"), f"{param}.content.{index}"
        if kind not in _ASSISTANT_BLOCKS:
            raise Refused(f"a block of type {kind!r} is not allowed in an assistant message", where)
        if kind == "thinking":
            thought = string(block.get("thinking"), f"{where}.thinking")
            signature = nonempty_string(block.get("signature"), f"{where}.signature")
            if is_forged(signature, thought):
                raise Refused("Invalid 'signature' in 'thinking' block", where)
        if kind == "tool_use":
            call_id = nonempty_string(block.get("id"), f"{where}.id")
            if not _CALL_ID.fullmatch(call_id):
                raise Refused(f"'{call_id}' does not match the pattern '^[a-zA-Z0-9_-]+$'", f"{where}.id")
            if call_id in call_ids:
                raise Refused(f"'tool_use' ids must be unique: '{call_id}' is given twice", where)
            call_ids.add(call_id)
            calls.append(call_id)
            tool_name(block.get("name"), f"{where}.name")
            mapping(block.get("input"), f"{where}.input")
    return calls


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        name = tool_name(mapping(tool, f"tools.{index}").get("name"), f"tools.{index}.name")
        if name in names:
            raise Refused(f"Tool names must be unique: '{name}' is given twice", f"tools.{index}.name")
        names.add(name)
        if tool.get("type", "custom") == "custom":
            object_schema(tool.get("input_schema"), f"tools.{index}.input_schema")
    if body.get("tool_choice") is None:
        return
    choice = mapping(body["tool_choice"], "tool_choice")
    if not names:
        raise Refused("may only be specified while providing tools", "tool_choice")
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        raise Refused(f"invalid type {choice.get('type')!r}", "tool_choice")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise Refused(f"Tool '{choice.get('name')}' not found in provided tools", "tool_choice")

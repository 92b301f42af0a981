"""OpenAI's Responses: check requests, and write answers, streamed and whole."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from treadle.core.data import mutable
from treadle.testing.provider.openai import OpenAI, check_strict
from treadle.testing.provider.script import Part, Reasoning, Refusal, ScriptedCall, ScriptedTurn, Text
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

_PARAMETERS = frozenset(
    (
        *(
            "background",
            "conversation",
            "include",
            "input",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
        ),
        *("metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt"),
        *(
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "reasoning",
            "safety_identifier",
        ),
        *("service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools"),
        *("top_logprobs", "top_p", "truncation", "user"),
    )
)
_ROLES = ("user", "assistant", "system", "developer")
_PARTS = {
    "assistant": ("output_text", "refusal"),
    "user": ("input_text", "input_image", "input_file", "input_audio"),
}
_RESULT_PARTS = ("input_text", "input_image", "input_file")
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_MIN_OUTPUT_TOKENS = 16
_MAX_CALL_ID = 64
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ENCRYPTED = "reasoning.encrypted_content"


class OpenAIResponses(OpenAI):
    """The wire format of `POST /v1/responses`. Nothing is stored, so each request must have its conversation."""

    name = "openai-responses"
    path = "/v1/responses"

    def check(self, headers: Mapping[str, str], body: dict[str, Any]) -> None:
        """Raise `Refused` unless OpenAI would accept this request."""
        if unknown := sorted(body.keys() - _PARAMETERS):
            raise Refused(f"Unknown parameter: '{unknown[0]}'.", unknown[0], code="unknown_parameter")
        nonempty_string(body.get("model"), "model")
        for name in ("previous_response_id", "conversation"):
            if body.get(name) is not None:
                raise Refused(f"This server keeps nothing: '{name}' is not found.", name, status=404)
        if not isinstance(body.get("input"), str):
            for index, item in enumerate(sequence(body.get("input"), "input")):
                _check_item(mapping(item, f"input[{index}]"), f"input[{index}]", stored=body.get("store"))
        _check_order(messages_of(body))
        _check_tools(body)
        _check_format(body)
        flag(body.get("stream") or False, "stream")
        if body.get("max_output_tokens") is not None:
            limit = positive(body["max_output_tokens"], "max_output_tokens")
            if limit < _MIN_OUTPUT_TOKENS:
                raise Refused(
                    f"Invalid 'max_output_tokens': integer below minimum value. Expected >= 16, but got {limit}.",
                    "max_output_tokens",
                )

    def turns(self, body: dict[str, Any]) -> int:
        """Return the number of runs of the model's items."""
        from_model = [_is_the_models(item) for item in messages_of(body)]
        return sum(now and not before for before, now in zip([False, *from_model], from_model, strict=False))

    def streams(self, body: dict[str, Any]) -> bool:
        """Return whether the body asks for a stream."""
        return bool(body.get("stream"))

    def document(self, turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
        """Return a `response` object."""
        return _ended(_response(body), turn, body, _items(turn, body))

    def events(self, turn: ScriptedTurn, body: dict[str, Any]) -> list[bytes]:
        """Return `response.created` and `.in_progress`, the items piece by piece, and the whole response at the end."""
        response, items = _response(body), _items(turn, body)
        ended = _ended(response, turn, body, items)
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": response},
            {"type": "response.in_progress", "response": response},
        ]
        by_item: list[list[dict[str, Any]]] = []
        for index, item in enumerate(items):
            opening, *following = _item_deltas(item, index, turn.how.chunk_size)
            events.append(opening)
            if turn.how.interleave and item["type"] == "function_call":
                by_item.append(following)
            else:
                events += following
        most = max(map(len, by_item), default=0)
        events += [following[i] for i in range(most) for following in by_item if i < len(following)]
        events.append({"type": f"response.{ended['status']}", "response": ended})
        number = count()
        return [_event({**event, "sequence_number": next(number)}) for event in events]

    def error_event(self, message: str) -> bytes:
        """Return an `error` event: the provider failed."""
        error = {"code": "server_error", "message": message, "param": None, "sequence_number": 0}
        return _event({"type": "error", **error})


def _event(event: dict[str, Any]) -> bytes:
    return b"event: " + event["type"].encode() + b"\ndata: " + encode(event) + b"\n\n"


def _response(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": fresh_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": None,
    }


def _ended(
    response: dict[str, Any], turn: ScriptedTurn, body: dict[str, Any], items: list[dict[str, Any]]
) -> dict[str, Any]:
    finish = turn.finish
    complete = finish in (None, "stop", "tool_calls", "refusal")
    return response | {
        "status": "completed" if complete else "incomplete",
        "incomplete_details": None if complete else {"reason": _INCOMPLETE.get(str(finish), finish)},
        "output": items,
        "usage": _usage(turn, body),
    }


def _usage(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any] | None:
    if (usage := usage_of(turn, body.get("input"))) is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


# ----------------------------------------------------------------------------------------------- answers


def _items(turn: ScriptedTurn, body: dict[str, Any]) -> list[dict[str, Any]]:
    encrypted = _ENCRYPTED in (body.get("include") or ())
    return [_item(part, encrypted) for part in turn.parts]


def _item(part: Part, encrypted: bool) -> dict[str, Any]:
    match part:
        case Text(content):
            return _message({"type": "output_text", "text": content, "annotations": [], "logprobs": []})
        case Refusal(content):
            return _message({"type": "refusal", "refusal": content})
        case Reasoning(content, signature):
            item = {
                "type": "reasoning",
                "id": fresh_id("rs_"),
                "summary": [{"type": "summary_text", "text": content}],
            }
            if encrypted:
                item["encrypted_content"] = sign(content) if signature is None else signature
            return item
        case ScriptedCall(name, arguments, call_id):
            return {
                "type": "function_call",
                "id": fresh_id("fc_"),
                "call_id": fresh_id("call_") if call_id is None else call_id,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }


def _message(content: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "message",
        "id": fresh_id("msg_"),
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }


@mutable
class _ItemEvents:
    item: dict[str, Any]
    index: int
    size: int

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return an event inside the item."""
        return {"type": kind, "item_id": self.item["id"], "output_index": self.index, **fields}

    def whole(self, kind: str, item: dict[str, Any]) -> dict[str, Any]:
        """Return an event about the item."""
        return {"type": kind, "output_index": self.index, "item": item}

    def pieces(self, kind: str, content: str, name: str, **where: Any) -> Iterator[dict[str, Any]]:
        """Return the deltas of a text, and the text."""
        for piece in chunks(content, self.size):
            yield self.event(f"{kind}.delta", delta=piece, **where)
        yield self.event(f"{kind}.done", **{name: content}, **where)


def _item_deltas(item: dict[str, Any], index: int, size: int) -> Iterator[dict[str, Any]]:
    teller = _ItemEvents(item, index, size)
    opened = dict(item)
    if "status" in item:
        opened["status"] = "in_progress"
    match item["type"]:
        case "function_call":
            yield teller.whole("response.output_item.added", opened | {"arguments": ""})
            yield from teller.pieces("response.function_call_arguments", item["arguments"], "arguments")
        case "reasoning":
            yield teller.whole("response.output_item.added", opened | {"summary": []})
            (part,) = item["summary"]
            blank = part | {"text": ""}
            yield teller.event("response.reasoning_summary_part.added", summary_index=0, part=blank)
            yield from teller.pieces("response.reasoning_summary_text", part["text"], "text", summary_index=0)
            yield teller.event("response.reasoning_summary_part.done", summary_index=0, part=part)
        case _:
            yield teller.whole("response.output_item.added", opened | {"content": []})
            (part,) = item["content"]
            name = "text" if part["type"] == "output_text" else "refusal"
            where: dict[str, Any] = {"content_index": 0}
            yield teller.event("response.content_part.added", part=part | {name: ""}, **where)
            kind = "response.output_text" if name == "text" else "response.refusal"
            if name == "text":
                where["logprobs"] = []
            yield from teller.pieces(kind, part[name], name, **where)
            yield teller.event("response.content_part.done", part=part, content_index=0)
    yield teller.whole("response.output_item.done", item)


# ---------------------------------------------------------------------------------------------- requests


def _is_the_models(item: dict[str, Any]) -> bool:
    return item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"


def _check_item(item: dict[str, Any], param: str, *, stored: Any) -> None:
    kind = item.get("type", "message")
    if (item_id := item.get("id")) is not None:
        prefix = _PREFIXES.get(kind, "")
        if not nonempty_string(item_id, f"{param}.id").startswith(prefix):
            raise Refused(
                f"Invalid '{param}.id': '{item_id}'. Expected an ID that begins with '{prefix}'.",
                f"{param}.id",
            )
    match kind:
        case "message":
            _check_message(item, param)
        case "function_call":
            _check_call_id(item, param)
            tool_name(item.get("name"), f"{param}.name")
            string(item.get("arguments"), f"{param}.arguments")
        case "function_call_output":
            _check_call_id(item, param)
            if not isinstance(item.get("output"), str):
                _check_parts(item.get("output"), f"{param}.output", _RESULT_PARTS)
        case "reasoning":
            _check_reasoning(item, param, stored=stored)
        case "item_reference":
            raise Refused(f"Item with id '{item.get('id')}' not found.", "input", status=404)
        case _:
            raise Refused(f"Invalid value: '{kind}'.", f"{param}.type")


def _check_message(item: dict[str, Any], param: str) -> None:
    role = string(item.get("role"), f"{param}.role")
    if role not in _ROLES:
        raise Refused(f"Invalid value: '{role}'. Supported values are: {', '.join(_ROLES)}.", f"{param}.role")
    if not isinstance(item.get("content"), str):
        allowed = _PARTS.get(role, ("input_text",))
        _check_parts(item.get("content"), f"{param}.content", allowed)


def _check_parts(content: Any, param: str, allowed: tuple[str, ...]) -> None:
    for index, part in enumerate(sequence(content, param)):
        where = f"{param}[{index}]"
        kind = mapping(part, where).get("type")
        if kind not in allowed:
            raise Refused(
                f"Invalid value: '{kind}'. Supported values are: {', '.join(allowed)}.", f"{where}.type"
            )
        if kind in ("input_text", "output_text"):
            string(part.get("text"), f"{where}.text")
        if kind == "input_image" and not (part.get("image_url") or part.get("file_id")):
            raise Refused(f"Missing required parameter: '{where}.image_url'.", where)
        if kind == "input_file" and not any(part.get(x) for x in ("file_data", "file_url", "file_id")):
            raise Refused(f"Missing required parameter: '{where}.file_data'.", where)


def _check_call_id(item: dict[str, Any], param: str) -> None:
    if len(nonempty_string(item.get("call_id"), f"{param}.call_id")) > _MAX_CALL_ID:
        raise Refused(
            f"Invalid '{param}.call_id': string too long. Expected a string with maximum length 64.",
            f"{param}.call_id",
            code="string_above_max_length",
        )


def _check_reasoning(item: dict[str, Any], param: str, *, stored: Any) -> None:
    item_id = nonempty_string(item.get("id"), f"{param}.id")
    summary = item.get("summary")
    if not isinstance(summary, list):
        raise Refused(f"Missing required parameter: '{param}.summary'.", f"{param}.summary")
    encrypted = item.get("encrypted_content")
    if encrypted is None and stored is False:
        raise Refused(
            f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false.",
            "input",
            status=404,
        )
    content = "".join(string(mapping(part, param).get("text"), param) for part in summary)  # pyright: ignore[reportUnknownVariableType]
    if encrypted is not None and is_forged(string(encrypted, f"{param}.encrypted_content"), content):
        raise Refused(
            "The encrypted content could not be verified.", "input", code="invalid_encrypted_content"
        )


def _check_order(items: list[dict[str, Any]]) -> None:
    """Raise unless each call has one output after it, each output a call before it, and reasoning an item after it."""
    calls: set[str] = set()
    waiting: set[str] = set()
    call_ids: set[str] = set()
    for index, item in enumerate(items):
        kind, item_id = item.get("type"), item.get("id")
        if item_id is not None and item_id in call_ids:
            raise Refused(
                f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
                "input",
            )
        call_ids.add(item_id or "")
        if kind == "reasoning":
            after = items[index + 1] if index + 1 < len(items) else {}
            if not _is_the_models(after):
                raise Refused(
                    f"Item '{item_id}' of type 'reasoning' was provided without its required following item.",
                    "input",
                )
        if kind == "function_call":
            if item["call_id"] in calls:
                raise Refused(f"Duplicate call_id '{item['call_id']}' in function calls.", "input")
            calls.add(item["call_id"])
            waiting.add(item["call_id"])
        if kind == "function_call_output":
            if item["call_id"] not in waiting:
                raise Refused(
                    f"No tool call found for function call output with call_id {item['call_id']}.", "input"
                )
            waiting.remove(item["call_id"])
    if waiting:
        raise Refused(f"No tool output found for function call {min(waiting)}.", "input")


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        param = f"tools[{index}]"
        if mapping(tool, param).get("type") != "function":
            raise Refused(f"This server has no tools of its own: '{tool.get('type')}'.", f"{param}.type")
        name = tool_name(tool.get("name"), f"{param}.name")
        if name in names:
            raise Refused(f"Tool names must be unique: '{name}' is given twice.", f"{param}.name")
        names.add(name)
        schema = object_schema(tool.get("parameters"), f"{param}.parameters")
        if tool.get("strict"):
            check_strict(schema, f"{param}.parameters")
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        chosen = mapping(choice, "tool_choice")
        wanted = [chosen.get("name")] if chosen.get("type") == "function" else _allowed(chosen)
        for name in wanted:
            if name not in names:
                raise Refused(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")
    elif choice not in (None, "auto", "none", "required"):
        raise Refused(f"Invalid value for 'tool_choice': {choice!r}.", "tool_choice")
    elif choice == "required" and not names:
        raise Refused("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")


def _allowed(choice: dict[str, Any]) -> list[Any]:
    if choice.get("type") != "allowed_tools":
        raise Refused(f"Invalid value: '{choice.get('type')}'.", "tool_choice.type")
    return [mapping(tool, "tool_choice.tools").get("name") for tool in choice.get("tools") or ()]


def _check_format(body: dict[str, Any]) -> None:
    answer_format = mapping(
        mapping(body.get("text") or {}, "text").get("format") or {"type": "text"}, "text.format"
    )
    match answer_format.get("type"):
        case "text":
            return
        case "json_object":
            if "json" not in encode(body.get("input")).decode().lower():
                raise Refused(
                    "Response input messages must contain the word 'json' in some form to use 'text.format' of "
                    "type 'json_object'.",
                    "input",
                )
        case "json_schema":
            tool_name(answer_format.get("name"), "text.format.name")
            schema = object_schema(answer_format.get("schema"), "text.format.schema")
            if answer_format.get("strict"):
                check_strict(schema, "text.format.schema")
        case kind:
            raise Refused(f"Invalid value: '{kind}'.", "text.format.type")

"""Google's Gemini API: check requests, and write answers, streamed and whole."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Any, cast

from treadle.testing.provider.script import Part, Reasoning, Refusal, ScriptedCall, ScriptedTurn, Text
from treadle.testing.provider.wire import (
    Refused,
    chunks,
    encode,
    fresh_id,
    is_forged,
    mapping,
    messages_of,
    object_schema,
    positive,
    sequence,
    sign,
    string,
    tool_name,
    usage_of,
)

_FINISH = {"tool_calls": "STOP", "stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
)
_FIELDS = frozenset(
    (
        *(
            "cachedContent",
            "contents",
            "generationConfig",
            "labels",
            "model",
            "safetySettings",
            "serviceTier",
        ),
        *("store", "systemInstruction", "toolConfig", "tools"),
    )
)
_ANY_SIGNATURE = "skip_thought_signature_validator"
"""The signature that Google accepts for a call that it did not make."""
_SIGNED_FROM = "gemini-3"
"""Models from this one on refuse a call of their own without its signature."""


class GoogleGemini:
    """The wire format of `POST /v1beta/models/MODEL:generateContent`, and `:streamGenerateContent`.

    Args:
        model: the model in the address.
        streamed: whether the address asks for a stream.
        events: whether it asks for server-sent events.
    """

    name = "google"
    path = "/v1beta/models/{call:path}"

    def __init__(self, model: str, *, streamed: bool, events: bool) -> None:
        self._model = model
        self._streamed = streamed
        self._events = events

    def key(self, headers: Mapping[str, str]) -> str:
        """Return the `x-goog-api-key` header; the server puts the query's `key` there."""
        return headers.get("x-goog-api-key", "")

    def request_id(self) -> dict[str, str]:
        """Return no header, since Google has no ids of requests."""
        return {}

    def check(self, headers: Mapping[str, str], body: dict[str, Any]) -> None:
        """Raise `Refused` unless Google would accept this request."""
        if self._streamed and not self._events:
            raise Refused("This server streams server-sent events only: alt=sse.")
        body = _camel_case(body)
        if unknown := sorted(body.keys() - _FIELDS):
            raise Refused(
                f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.', unknown[0]
            )
        if not body.get("contents"):
            raise Refused("* GenerateContentRequest.contents: contents is not specified", "contents")
        _check_contents(body, signed=self._model.startswith(_SIGNED_FROM))
        if (system := body.get("systemInstruction")) is not None:
            for part in sequence(
                mapping(system, "systemInstruction").get("parts"), "systemInstruction.parts"
            ):
                string(mapping(part, "systemInstruction.parts").get("text"), "systemInstruction.parts.text")
        _check_tools(body)
        config = mapping(body.get("generationConfig") or {}, "generationConfig")
        if config.get("maxOutputTokens") is not None:
            positive(config["maxOutputTokens"], "generationConfig.maxOutputTokens")
        if config.get("responseJsonSchema") is not None:
            mapping(config["responseJsonSchema"], "generationConfig.responseJsonSchema")
            if config.get("responseMimeType") != "application/json":
                raise Refused("response_json_schema needs response_mime_type 'application/json'")

    def turns(self, body: dict[str, Any]) -> int:
        """Return the number of the model's contents."""
        return sum(content.get("role") == "model" for content in messages_of(body))

    def streams(self, body: dict[str, Any]) -> bool:
        """Return whether the address asks for a stream."""
        return self._streamed

    def document(self, turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
        """Return a `GenerateContentResponse`."""
        finish, parts = _finish(turn), _parts(turn)
        return self._response(turn, body, parts, finish)

    def events(self, turn: ScriptedTurn, body: dict[str, Any]) -> list[bytes]:
        """Return responses that each add parts; the last one has only the reason of the end."""
        finish, parts = _finish(turn), _parts(turn)
        pieces = [piece for part in parts for piece in _pieces(part, turn.how.chunk_size)]
        responses = [self._response(turn, body, [piece], None) for piece in pieces]
        responses.append(self._response(turn, body, [{"text": ""}], finish))
        name = fresh_id("")
        return [b"data: " + encode(answer | {"responseId": name}) + b"\n\n" for answer in responses]

    def error(
        self, status: int, message: str, code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return Google's error envelope; a `code` other than a status of Google becomes the reason."""
        is_status = code in _STATUS.values()
        error: dict[str, Any] = {
            "code": status,
            "message": message,
            "status": code if is_status else _STATUS.get(status, "UNKNOWN"),
        }
        if code is not None and not is_status:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            error["details"] = [{"@type": kind, "reason": code, "domain": "googleapis.com"}]
        return {"error": error}

    def error_event(self, message: str) -> bytes:
        """Return an error instead of a piece: the model is overloaded."""
        return b"data: " + encode(self.error(503, message)) + b"\n\n"

    def _response(
        self, turn: ScriptedTurn, body: dict[str, Any], parts: list[dict[str, Any]], finish: str | None
    ) -> dict[str, Any]:
        response: dict[str, Any] = {"modelVersion": self._model, "responseId": fresh_id("")}
        if (usage := _usage(turn, body)) is not None:
            response["usageMetadata"] = usage
        if (refused := turn.of(Refusal)) and turn.finish is None:
            message = "".join(part.text for part in refused)
            response["promptFeedback"] = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": message}
            return response
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish is not None:
            candidate["finishReason"] = finish
        return response | {"candidates": [candidate]}


# ----------------------------------------------------------------------------------------------- answers


def _finish(turn: ScriptedTurn) -> str:
    """Return the reason of the end; arguments other than an object cannot be sent and count as malformed."""
    if turn.finish is None or turn.finish in ("stop", "tool_calls"):
        malformed = any(_arguments(part) is None for part in turn.of(ScriptedCall))
        return "MALFORMED_FUNCTION_CALL" if malformed else "STOP"
    return _FINISH.get(turn.finish, turn.finish)


def _arguments(call: ScriptedCall) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they are not a JSON object."""
    if not call.arguments:
        return {}
    try:
        arguments = json.loads(call.arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _parts(turn: ScriptedTurn) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    signature: str | None = None
    first = True
    for part in turn.parts:
        converted = _part(part)
        if converted is None:
            continue
        if isinstance(part, ScriptedCall) and first:
            signature, first = signature or sign(_signed_text(converted["functionCall"])), False
        if signature is not None and not isinstance(part, Reasoning):
            converted["thoughtSignature"], signature = b64encode(signature.encode()).decode(), None
        if isinstance(part, Reasoning):
            signature = part.signature
        parts.append(converted)
    return parts


def _part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(content):
            return {"text": content} if content else None
        case Reasoning(content):
            return {"text": content, "thought": True}
        case ScriptedCall(name, _, call_id):
            if (arguments := _arguments(part)) is None:
                return None
            call = {"name": name, "args": arguments}
            return {"functionCall": call if call_id is None else call | {"id": call_id}}
        case Refusal():
            return None


def _signed_text(call: Mapping[str, Any]) -> str:
    return json.dumps([call.get("name"), call.get("args") or {}], sort_keys=True)


def _pieces(part: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """Return the part in pieces: text can be cut, and the last piece has its signature."""
    if "text" not in part:
        return [part]
    content, fields = part["text"], {name: value for name, value in part.items() if name != "text"}
    signature = {"thoughtSignature": fields.pop("thoughtSignature")} if "thoughtSignature" in fields else {}
    cut = [{"text": piece, **fields} for piece in chunks(content, size)]
    return [*cut[:-1], cut[-1] | signature]


def _usage(turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any] | None:
    if (usage := usage_of(turn, body.get("contents"))) is None:
        return None
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }


# ---------------------------------------------------------------------------------------------- requests

_FREE = ("args", "labels", "parametersJsonSchema", "response", "responseJsonSchema")
"""Fields with content whose names are not Google's."""


def _camel_case(value: Any) -> Any:
    """Return the value with Google's documented names of fields; Google accepts snake_case too."""
    if isinstance(value, list):
        return [_camel_case(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, Any] = {}
    for name, inner in cast("dict[str, Any]", value).items():
        camel = _LOWER.sub(lambda match: match[1].upper(), name)
        renamed[camel] = inner if camel in _FREE else _camel_case(inner)
    return renamed


_LOWER = re.compile(r"_([a-z])")


def _check_contents(body: dict[str, Any], *, signed: bool) -> None:
    """Raise unless calls follow the user or results, and the next content answers all of them in order."""
    waiting: list[str] = []
    before = "model"
    for index, content in enumerate(sequence(body["contents"], "contents")):
        param = f"contents[{index}]"
        role = mapping(content, param).get("role")
        if role not in ("user", "model"):
            raise Refused("Please use a valid role: user, model.", f"{param}.role")
        parts = [mapping(part, param) for part in sequence(content.get("parts"), f"{param}.parts")]
        for part in parts:
            _check_part(part, f"{param}.parts")
        results = [
            mapping(part["functionResponse"], param).get("name", "")
            for part in parts
            if "functionResponse" in part
        ]
        if results and not waiting:
            raise Refused(
                "Please ensure that function response turn comes immediately after a function call turn."
            )
        if waiting and results != waiting:
            raise Refused(
                "Please ensure that the number of function response parts is equal to the number of function "
                f"call parts of the function call turn: {waiting} was asked, {results} is answered."
            )
        calls = [mapping(part["functionCall"], param) for part in parts if "functionCall" in part]
        if calls and (role != "model" or before != "user"):
            raise Refused(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if calls:
            _check_signature(parts, calls[0], signed=signed)
        waiting = [tool_name(call.get("name"), f"{param}.functionCall.name") for call in calls]
        before = role
    if waiting:
        raise Refused("Please ensure that a function call turn is followed by a function response turn.")


def _check_part(part: dict[str, Any], param: str) -> None:
    if sum(name in part for name in _DATA) != 1:
        raise Refused(f"{param}: required oneof field 'data' must have one initialized field", param)
    if "text" in part:
        string(part["text"], f"{param}.text")
    if "functionCall" in part:
        mapping(mapping(part["functionCall"], param).get("args") or {}, f"{param}.functionCall.args")
    if "functionResponse" in part:
        mapping(
            mapping(part["functionResponse"], param).get("response"), f"{param}.functionResponse.response"
        )
    if "inlineData" in part:
        data = mapping(part["inlineData"], f"{param}.inlineData")
        string(data.get("mimeType"), f"{param}.inlineData.mimeType")
        string(data.get("data"), f"{param}.inlineData.data")


def _check_signature(parts: list[dict[str, Any]], call: dict[str, Any], *, signed: bool) -> None:
    part = next(part for part in parts if "functionCall" in part)
    if (encoded := part.get("thoughtSignature")) is None:
        if signed:
            raise Refused(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly."
            )
        return
    try:
        signature = b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True).decode()
    except (NotBase64, ValueError) as error:
        raise Refused("Thought signature is not valid.") from error
    if signature != _ANY_SIGNATURE and is_forged(signature, _signed_text(call)):
        raise Refused("Thought signature is not valid.")


def _check_tools(body: dict[str, Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(body.get("tools") or ()):
        param = f"tools[{index}]"
        if "functionDeclarations" not in mapping(tool, param):
            raise Refused("This server has no tools of its own.", param)
        for declared in sequence(tool["functionDeclarations"], f"{param}.functionDeclarations"):
            name = tool_name(mapping(declared, param).get("name"), f"{param}.name")
            if name in names:
                raise Refused(f"Duplicate function declaration found: {name}", param)
            names.add(name)
            if (schema := declared.get("parametersJsonSchema")) is not None:
                object_schema(schema, f"{param}.parametersJsonSchema")
    config = mapping(body.get("toolConfig") or {}, "toolConfig").get("functionCallingConfig")
    if config is None:
        return
    if not names:
        raise Refused("Function calling config is set without function_declarations.")
    mode = mapping(config, "toolConfig.functionCallingConfig").get("mode", "AUTO")
    if mode not in ("AUTO", "ANY", "NONE", "VALIDATED"):
        raise Refused(f"Invalid value at 'tool_config.function_calling_config.mode': {mode!r}")
    if (allowed := config.get("allowedFunctionNames")) and mode not in ("ANY", "VALIDATED"):
        raise Refused("allowed_function_names should only be set when the mode is ANY or VALIDATED.")
    for name in allowed or ():
        if name not in names:
            raise Refused(f"allowed_function_names: '{name}' is not declared.")

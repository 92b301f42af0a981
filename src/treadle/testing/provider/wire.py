"""The interface of a provider's wire format, and the refusal of malformed requests."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Protocol, cast
from uuid import uuid4

from treadle.core.model import Usage
from treadle.testing.provider.script import ScriptedCall, ScriptedTurn

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refused(Exception):
    """The provider would refuse the request; the message names the problem, and `param` the field."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.code = code


class Wire(Protocol):
    """A provider's wire format: it checks requests and writes answers.

    `ProviderServer(formats=[...])` takes objects of other formats. A subclass defines `name`, `path`, `turns` and
    `document`, and `events` if it streams. The defaults accept any request with a bearer token, and describe failures
    as `{"error": {"message": ...}}`.
    """

    name: str
    """the value of `ProviderRequest.wire`"""

    path: str
    """the path of its requests, such as `/v1/messages`; a part in braces matches any text, as in `/v1/{model}/answer`
    """

    def key(self, headers: Mapping[str, str]) -> str:
        """Return the API key of a request, or an empty text; `headers` have names in lower case."""
        return headers.get("authorization", "").removeprefix("Bearer ").strip()

    def check(self, headers: Mapping[str, str], body: dict[str, Any]) -> None:
        """Raise `Refused` unless the real provider would accept this request."""

    @abstractmethod
    def turns(self, body: dict[str, Any]) -> int:
        """Return the number of the model's answers in a request, which is the turn of the script."""
        ...

    def streams(self, body: dict[str, Any]) -> bool:
        """Return whether the request asks for a stream."""
        return bool(body.get("stream"))

    @abstractmethod
    def document(self, turn: ScriptedTurn, body: dict[str, Any]) -> dict[str, Any]:
        """Return the whole answer as one JSON document."""
        ...

    def events(self, turn: ScriptedTurn, body: dict[str, Any]) -> list[bytes]:
        """Return the answer as server-sent events, one a piece, with the terminal one last."""
        raise Refused(f"The format {self.name} does not stream.", "stream")

    def error(
        self, status: int, message: str, code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return the error envelope."""
        return {"error": {"message": message, "code": code, "param": param}}

    def error_event(self, message: str) -> bytes:
        """Return the event with which a stream that has begun reports a failure."""
        return b"data: " + encode(self.error(500, message)) + b"\n\n"

    def request_id(self) -> dict[str, str]:
        """Return the headers that name a request in the provider's logs."""
        return {}


def encode(document: Any) -> bytes:
    """Return a document as compact JSON in UTF-8; characters that UTF-8 cannot encode are escaped."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def fresh_id(prefix: str) -> str:
    """Return a unique id that looks like a provider's."""
    return prefix + uuid4().hex[:24]


def chunks(text: str, size: int) -> list[str]:
    """Return a text in pieces of `size` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def sign(text: str) -> str:
    """Return this server's signature of a text of its model, for parts without one in the script."""
    return _SIGNED + b64encode(sha256(text.encode("utf-8", "surrogatepass")).digest()).decode()


def is_forged(signature: str, text: str) -> bool:
    """Return whether a signature of this server belongs to another text."""
    return signature.startswith(_SIGNED) and signature != sign(text)


_SIGNED = "scripted+"


def messages_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the conversation of a request, in any of the formats; a plain text becomes a user message."""
    for name in ("messages", "input", "contents"):
        if (messages := body.get(name)) is not None:
            return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return []


def usage_of(turn: ScriptedTurn, request: Any) -> Usage | None:
    """Return the tokens to report: those of the script, none, or about one for each four characters."""
    if turn.usage == "missing":
        return None
    if turn.usage is not None:
        return turn.usage
    length = sum(len(part.arguments if isinstance(part, ScriptedCall) else part.text) for part in turn.parts)
    return Usage(input_tokens=1 + len(encode(request)) // 4, output_tokens=1 + length // 4)


def _wrong(value: Any, param: str, expected: str) -> Refused:
    return Refused(f"Invalid type for '{param}': expected {expected}, got {type(value).__name__}.", param)


def mapping(value: Any, param: str) -> dict[str, Any]:
    """Return the value as an object."""
    if not isinstance(value, dict):
        raise _wrong(value, param, "an object")
    return cast("dict[str, Any]", value)


def sequence(value: Any, param: str) -> list[Any]:
    """Return the value as a non-empty array."""
    if not isinstance(value, list):
        raise _wrong(value, param, "an array")
    if not value:
        raise Refused(f"Invalid '{param}': empty array.", param)
    return cast("list[Any]", value)


def flag(value: Any, param: str) -> bool:
    """Return the value as a truth value."""
    if not isinstance(value, bool):
        raise _wrong(value, param, "a boolean")
    return value


def positive(value: Any, param: str) -> int:
    """Return the value as a whole number above zero."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, param, "an integer")
    if value < 1:
        raise Refused(f"Invalid '{param}': {value} is below the minimum of 1.", param)
    return value


def string(value: Any, param: str) -> str:
    """Return the value as a text, empty or not."""
    if not isinstance(value, str):
        raise _wrong(value, param, "a string")
    return value


def nonempty_string(value: Any, param: str) -> str:
    """Return the value as a non-empty text."""
    if not string(value, param):
        raise Refused(f"Invalid '{param}': empty string.", param)
    return cast(str, value)


def tool_name(value: Any, param: str) -> str:
    """Return the value as the name of a tool."""
    if not _TOOL_NAME.fullmatch(nonempty_string(value, param)):
        raise Refused(f"Invalid '{param}': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'.", param)
    return cast(str, value)


def object_schema(value: Any, param: str) -> dict[str, Any]:
    """Return the value as a JSON schema of an object."""
    schema = mapping(value, param)
    if schema.get("type") != "object":
        raise Refused(
            f"Invalid schema in '{param}': 'type' must be 'object', got {schema.get('type')!r}.", param
        )
    properties = mapping(schema.get("properties", {}), f"{param}.properties")
    for name in schema.get("required", []):
        if name not in properties:
            raise Refused(f"Invalid schema in '{param}': required property {name!r} is not defined.", param)
    return schema

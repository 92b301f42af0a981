"""Read requests of A2A: calls of JSON-RPC, messages, and their answers to open requests. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.messages import Content, File, Image, Json, Text
from treadle.errors import InvalidField
from treadle.results.pending import Pending
from treadle.runner.deciding import read_answer
from treadle.server.protocols.a2a import (
    CONTENT_TYPE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_PUSH,
    OWN,
    STATES,
    VERSION,
    VERSION_NOT_SUPPORTED,
    A2aError,
)
from treadle.server.protocols.decisions import Decision, decision_by

MOST_LISTED: Final = 100
"""The most tasks of a page."""

PAGE: Final = 50
"""The tasks of a page if the request does not say."""

_YES: Final = ("yes", "y", "approve", "approved", "ok", "true")
_NO: Final = ("no", "n", "deny", "denied", "reject", "rejected", "false")


@frozen
class RpcCall:
    """A call of JSON-RPC.

    Args:
        request_id: its id.
        method: the name of the method.
        params: its parameters.
    """

    request_id: Json
    method: str
    params: Mapping[str, Json]


def request_id_of(body: Mapping[str, Json]) -> Json:
    """Return the id of a request, for its response; None if it is not valid."""
    request_id: Any = body.get("id")
    return request_id if isinstance(request_id, (str, int)) and not isinstance(request_id, bool) else None


def read_call(body: Mapping[str, Json]) -> RpcCall:
    """Return the call in a body; raise `A2aError` if it is none."""
    method: Any = body.get("method")
    params: Any = body.get("params")
    if body.get("jsonrpc") != "2.0":
        raise A2aError(INVALID_REQUEST, 'the request should have `"jsonrpc": "2.0"`')
    if request_id_of(body) is None:
        raise A2aError(INVALID_REQUEST, "the request should have an `id`, text or a whole number")
    if not isinstance(method, str):
        raise A2aError(INVALID_REQUEST, "the request should have a `method`")
    if params is not None and not isinstance(params, dict):
        raise A2aError(INVALID_PARAMS, "`params` should be an object")
    return RpcCall(request_id_of(body), method, _named(cast("dict[str, Json]", params or {})))


def _named(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return an object with the names of its members in JSON; it may have those of Protocol Buffers: `task_id`."""
    named: dict[str, Json] = {}
    for name, each in value.items():
        first, *rest = name.split("_")
        named.setdefault("".join([first, *[word.capitalize() for word in rest]]), each)
    return named


def check_version(version: str | None) -> None:
    """Raise `A2aError` unless a client speaks version 1.0; a client that names none speaks 0.3."""
    spoken = (version or "0.3").strip()
    if spoken.split(".")[:2] != VERSION.split("."):
        remedy = f"send the header `A2A-Version: {VERSION}`"
        text = f"this server speaks A2A {VERSION}, and the request version {spoken:.20}: {remedy}"
        raise A2aError(VERSION_NOT_SUPPORTED, text, supportedVersions=VERSION)


def digest(*parts: str) -> str:
    """Return an id that follows from texts."""
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


# ------------------------------------------------------------------------------------------------ messages


@frozen
class Received:
    """A message of a client, and how it is to be handled.

    Args:
        message_id: its id.
        content: its parts as content.
        data: the JSON data among its parts.
        text: its text.
        task_id: the task that it belongs to, if it names one.
        context_id: its conversation, if it names one.
        metadata: Treadle's own data in the metadata of the request or the message.
        waits: whether the client waits for the task.
        history: the most messages of history in the response; None for all.
    """

    message_id: str
    content: tuple[Content, ...]
    data: tuple[Json, ...] = ()
    text: str = ""
    task_id: str | None = None
    context_id: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict[str, Json])
    waits: bool = True
    history: int | None = None


def read_message(params: Mapping[str, Json], *, allow_urls: bool) -> Received:
    """Return the message in the parameters of `SendMessage`.

    Args:
        params: the parameters.
        allow_urls: whether pictures and files may be URLs.

    Raises:
        InvalidField: a field is missing or of another type.
        A2aError: a part cannot be taken.
    """
    _no_tenant(params)
    message = _object(params, "message", needed=True)
    assert message is not None, "it is needed"
    if message.get("role") != "ROLE_USER":
        raise InvalidField("should be ROLE_USER", field="message.role")
    parts: Any = message.get("parts")
    if not isinstance(parts, list) or not parts:
        raise InvalidField("should have at least one part", field="message.parts")
    configuration = _object(params, "configuration") or {}
    if configuration.get("taskPushNotificationConfig"):
        raise no_push()
    content: list[Content] = []
    data: list[Json] = []
    for number, part in enumerate(cast("list[Any]", parts)):
        content.append(_content(part, f"message.parts[{number}]", data, allow_urls=allow_urls))
    words = [each.text for each in content if isinstance(each, Text)] if not data else []
    return Received(
        _text(message, "messageId", "message.", needed=True) or "",
        tuple(content),
        tuple(data),
        "".join(words),
        _text(message, "taskId", "message."),
        _text(message, "contextId", "message."),
        {**_own(message, "message."), **_own(params, "")},
        configuration.get("returnImmediately") is not True,
        history_length(configuration, "configuration."),
    )


def _content(part: Any, place: str, data: list[Json], *, allow_urls: bool) -> Content:
    fields = _named(cast("dict[str, Any]", part)) if isinstance(part, dict) else {}
    kinds = [name for name in ("text", "raw", "url", "data") if name in fields]
    if len(kinds) != 1:
        raise InvalidField("should have one of text, raw, url and data", field=place)
    (kind,), value = kinds, fields[kinds[0]]
    if kind == "data":
        data.append(value)
        return Text(json.dumps(value, ensure_ascii=False))
    if not isinstance(value, str):
        raise InvalidField("should be text", field=f"{place}.{kind}")
    if kind == "text":
        return Text(value)
    media, name = fields.get("mediaType"), fields.get("filename")
    media = media if isinstance(media, str) and media else None
    made: dict[str, Any] = {"media_type": media}
    if kind == "raw":
        try:
            made["data"] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidField("should be base64", field=f"{place}.raw") from None
    elif not allow_urls:
        text = f"{place}.url: this server takes no addresses of files: send their bytes as `raw`"
        raise A2aError(CONTENT_TYPE, text, field=f"{place}.url")
    else:
        made["url"] = value
    if media is not None and media.startswith("image/"):
        return Image(**made)
    return File(**made, name=name if isinstance(name, str) and name else None)


def no_push() -> A2aError:
    """Return the error of a request for push notifications."""
    text = "this agent sends no push notifications: poll with GetTask, or stream with SubscribeToTask"
    return A2aError(NO_PUSH, text)


def _no_tenant(params: Mapping[str, Json]) -> None:
    if params.get("tenant"):
        raise InvalidField("should be left out: the credentials name the tenant", field="tenant")


def _object(params: Mapping[str, Json], name: str, *, needed: bool = False) -> Mapping[str, Json] | None:
    value: Any = params.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, dict):
        raise InvalidField("should be an object", field=name)
    return _named(cast("dict[str, Json]", value)) if name != "metadata" else cast("dict[str, Json]", value)


def _text(fields: Mapping[str, Json], name: str, place: str = "", *, needed: bool = False) -> str | None:
    value: Any = fields.get(name)
    if value in (None, "") and not needed:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidField("should be text", field=f"{place}{name}")
    return value


def _own(fields: Mapping[str, Json], place: str) -> Mapping[str, Json]:
    metadata = _object(fields, "metadata") or {}
    own: Any = metadata.get(OWN)
    if own is None:
        return {}
    if not isinstance(own, dict):
        raise InvalidField("should be an object", field=f"{place}metadata.{OWN}")
    return cast("dict[str, Json]", own)


def history_length(fields: Mapping[str, Json], place: str = "") -> int | None:
    """Return the most messages of history that a request asks for; None for all."""
    return _whole(fields, "historyLength", place, 0, 1_000_000)


def _whole(fields: Mapping[str, Json], name: str, place: str, least: int, most: int) -> int | None:
    value: Any = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidField(f"should be a whole number from {least} to {most}", field=f"{place}{name}")
    return value


def read_task_id(params: Mapping[str, Json]) -> str:
    """Return the task that a request names."""
    _no_tenant(params)
    return _text(params, "id", needed=True) or ""


# ------------------------------------------------------------------------------------------------ lists


@frozen
class Listing:
    """The request of a page of tasks: arguments of `list_tasks`, and the parts of each task to show."""

    arguments: dict[str, Any]
    states: tuple[str, ...] = ()
    limit: int = PAGE
    cursor: str | None = None
    artifacts: bool = False
    history: int | None = None


def read_listing(params: Mapping[str, Json]) -> Listing:
    """Return the request of a page of tasks; raise `InvalidField` for a field of another type."""
    _no_tenant(params)
    given: dict[str, Any] = {}
    if (context_id := _text(params, "contextId")) is not None:
        given["thread_id"] = context_id
    states: tuple[str, ...] = ()
    status = _text(params, "status")
    if status not in (None, "TASK_STATE_UNSPECIFIED"):
        if status not in STATES:
            raise InvalidField(f"should be one of {', '.join(STATES)}", field="status")
        states = (status,)
        given["state"] = STATES[states[0]]
    if (since := _text(params, "statusTimestampAfter")) is not None:
        try:
            given["updated_since"] = datetime.fromisoformat(since)
        except ValueError:
            problem = "should be a time such as 2026-11-23T08:00:00.000Z"
            raise InvalidField(problem, field="statusTimestampAfter") from None
    return Listing(
        given,
        states,
        _whole(params, "pageSize", "", 1, MOST_LISTED) or PAGE,
        _text(params, "pageToken"),
        params.get("includeArtifacts") is True,
        history_length(params),
    )


# ------------------------------------------------------------------------------------------------ answers


def decisions_of(received: Received, items: Sequence[Pending]) -> list[Decision]:
    """Return the verbs that a message asks for, as the answer to open requests.

    A part `{"data": {"request": ID, "answer": ...}}` answers the request of this id. If one request is open, any data
    or text is its answer.

    Args:
        received: the message.
        items: the open requests.

    Raises:
        InvalidField: an answer does not fit, or it is not clear to which request it belongs.
    """
    by_id = {f"{item.task_id}:{item.request_id}": item for item in items}
    decisions: list[Decision] = []
    for number, value in enumerate(received.data):
        named: Any = value
        if isinstance(named, dict) and "request" in named and "answer" in named:
            place = f"message.parts.data[{number}]"
            item = by_id.get(str(cast("dict[str, Any]", named)["request"]))
            if item is None:
                raise InvalidField(f"is not open; open are: {', '.join(by_id)}", field=f"{place}.request")
            decisions.append(_decision(item, cast("dict[str, Any]", named)["answer"], f"{place}.answer"))
    if decisions:
        return decisions
    if len(items) != 1:
        text = (
            f"{len(items)} requests are open: answer each by a part "
            f'{{"data": {{"request": ID, "answer": ...}}}}; open are: {", ".join(by_id)}'
        )
        raise InvalidField(text, field="message.parts")
    if received.data:
        return [_decision(items[0], received.data[0], "message.parts.data")]
    return [_decision(items[0], _spoken(items[0], received.text.strip()), "message.parts.text")]


def _spoken(item: Pending, text: str) -> Json:
    """Return an answer in words as the answer to a request: a value that fits, or yes or no."""
    if item.kind == "question":
        return read_answer(text, item.schema)
    if item.kind != "approval":
        return text
    word, _, rest = text.partition(" ")
    word = word.strip(".,:;!").lower()
    if word in _YES and not rest:
        return True
    if word in _NO:
        return {"approved": False, "reason": rest.strip() or None}
    raise InvalidField(
        "should be yes, or no with a reason, or data by the schema", field="message.parts.text"
    )


def _decision(item: Pending, payload: Json, place: str) -> Decision:
    if item.kind == "call":
        return Decision("complete", item.task_id, {"ticket": item.request_id, "value": payload})
    return decision_by(item, payload, place)

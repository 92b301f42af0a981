"""Read the request of an AG-UI run: its new messages, its tools, its answers to open requests. Pure.

The server's thread is the truth. A client sends all messages that it has, and most of them came from here. So the new
ones are found in two ways, and the later place counts:

    ids     a message after the last one whose id this server gave out
    texts   a user's message after those that the thread has, if both begin with the same one

A client that continues a conversation from elsewhere sends messages of other assistants too. They become the history of
a new thread. In a known thread they are ignored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from ag_ui.core import (
    AssistantMessage,
    DataSource,
    DeveloperMessage,
    RunAgentInput,
    SystemMessage,
    TextPart,
    Tool,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from pydantic import ValidationError

from treadle.core.data import frozen
from treadle.core.messages import Content, File, Image, Json, Message, Text, ToolCall, ToolResult, faults
from treadle.errors import InvalidField
from treadle.results.caller_tools import CallerTool
from treadle.results.pending import Pending
from treadle.server.protocols.agui import OWN, OWN_INPUT
from treadle.server.protocols.decisions import Decision, decision_by

_CONTEXT: Final = "Context from the application:"
"""The first line of the text part with the context of a run."""


def read_input(document: Mapping[str, Json]) -> RunAgentInput:
    """Return the request of a run; members that the protocol does not know are ignored.

    Raises:
        InvalidField: a member is missing or of another type.
    """
    try:
        return RunAgentInput.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidField(first["msg"], field=_path_of(first["loc"])) from None


def _path_of(places: Sequence[str | int]) -> str:
    path = ""
    for place in places:
        path += f"[{place}]" if isinstance(place, int) else f".{place}" if path else place
    return path


def command_id(run_id: str, subject: str) -> str:
    """Return the id of a command that a run sends, the same if the run is repeated."""
    digest = hashlib.sha256(f"{run_id}\x1f{subject}".encode()).hexdigest()
    return f"{OWN_INPUT}{digest[:40]}"


# ------------------------------------------------------------------------------------------------ messages


@frozen
class News:
    """The part of a request that the server does not have.

    Args:
        history: messages of a conversation from elsewhere.
        content: the user's new messages, with the context of the run first.
        results: messages with results of calls that the client ran.
        is_reply: whether the new messages follow one whose id this server gave out.
    """

    history: tuple[Message, ...]
    content: tuple[Content, ...]
    results: tuple[ToolMessage, ...]
    is_reply: bool = False


def news_of(
    asked: RunAgentInput, thread: Sequence[Message], is_own: Callable[[str], bool], *, allow_urls: bool
) -> News:
    """Return the new messages of a request.

    Args:
        asked: the request.
        thread: the messages of the thread.
        is_own: whether this server gave out the id of a message.
        allow_urls: whether pictures and files may be URLs; others are left out.
    """
    messages = asked.messages
    ids = max([index + 1 for index, each in enumerate(messages) if is_own(each.id)], default=0)
    known = max(ids, _known_by_text(messages, thread, allow_urls=allow_urls))
    later = messages[known:]
    results = tuple([each for each in messages if isinstance(each, ToolMessage) and not is_own(each.id)])
    answered = [index for index, each in enumerate(later) if isinstance(each, AssistantMessage | ToolMessage)]
    first_new = answered[-1] + 1 if answered else 0
    history: list[Message] = []
    if not thread and not known:
        history = _conversation(messages[:first_new], allow_urls=allow_urls)
    words: list[Content] = []
    for each in later[first_new:]:
        words += _words(each, allow_urls=allow_urls)
    return News(tuple(history), (*_context(asked), *words) if words else (), results, ids > 0)


def _known_by_text(messages: Sequence[Any], thread: Sequence[Message], *, allow_urls: bool) -> int:
    """Return the number of messages up to the last user's message that the thread has."""
    stored = [part.text for each in thread if each.role == "user" for part in _texts(each)]
    stored = [text for text in stored if not text.startswith(_CONTEXT)]
    sent = [
        (index + 1, part.text)
        for index, each in enumerate(messages)
        if isinstance(each, UserMessage)
        for part in _content(each.content, allow_urls=allow_urls)
        if isinstance(part, Text)
    ]
    if not stored or not sent or stored[0] != sent[0][1]:
        return 0
    known = place = 0
    for text in stored:
        if place < len(sent) and sent[place][1] == text:
            known, place = sent[place][0], place + 1
    return known


def _texts(message: Message) -> Iterator[Text]:
    return (part for part in message.parts if isinstance(part, Text))


def _context(asked: RunAgentInput) -> tuple[Content, ...]:
    if not asked.context:
        return ()
    lines = [f"- {each.description}: {each.value}" for each in asked.context]
    return (Text("\n".join([_CONTEXT, *lines])),)


def _words(message: Any, *, allow_urls: bool) -> list[Content]:
    """Return a new message as content of the task's input. A client gives no orders above those of the agent."""
    if isinstance(message, UserMessage):
        return _content(message.content, allow_urls=allow_urls)
    if isinstance(message, SystemMessage | DeveloperMessage) and message.content:
        return [Text(message.content)]
    return []


def _content(content: Any, *, allow_urls: bool) -> list[Content]:
    """Return a message's content. A part that cannot be used is left out, since it must not fail a run."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts = [
        Text(part.text) if isinstance(part, TextPart) else _file(part, allow_urls=allow_urls)
        for part in content
    ]
    return [part for part in parts if part is not None]


def _file(part: Any, *, allow_urls: bool) -> Content | None:
    source = part.source
    made: dict[str, Any] = {}
    if isinstance(source, DataSource):
        try:
            made = {"data": base64.b64decode(source.value, validate=True), "media_type": source.mime_type}
        except (binascii.Error, ValueError):
            return None
    elif isinstance(source, UrlSource) and allow_urls:
        made = {"url": source.value, "media_type": source.mime_type}
    else:
        return None
    return Image(**made) if part.type == "image" else File(**made)


def _conversation(messages: Sequence[Any], *, allow_urls: bool) -> list[Message]:
    """Return messages from elsewhere as a history; without its calls if these do not have one result each."""
    history = list(_whole(messages, allow_urls=allow_urls))
    if not any(faults(history)):
        return history
    plain: list[Message] = []
    for message in history:
        parts = tuple([part for part in message.parts if not isinstance(part, ToolCall | ToolResult)])
        if parts:
            plain.append(Message(message.role, parts))
    return plain


def _whole(messages: Sequence[Any], *, allow_urls: bool) -> Iterator[Message]:
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    for each in messages:
        if isinstance(each, ToolMessage):
            parts = tuple(_content(each.content, allow_urls=allow_urls)) or (Text(each.error or ""),)
            name = names.get(each.tool_call_id, "")
            results.append(ToolResult(each.tool_call_id, name, parts, each.error is not None))
            continue
        if results:
            yield Message("tool", tuple(results))
            results = []
        if isinstance(each, AssistantMessage):
            calls = [
                ToolCall(call.id, call.function.name, _arguments(call)) for call in each.tool_calls or ()
            ]
            names |= {call.id: call.name for call in calls}
            text = (Text(each.content),) if each.content else ()
            if text or calls:
                yield Message("assistant", (*text, *calls))
        elif parts := tuple(_words(each, allow_urls=allow_urls)):
            yield Message("user", parts)
    if results:
        yield Message("tool", tuple(results))


def _arguments(call: Any) -> dict[str, Json]:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except ValueError:
        return {}
    return cast("dict[str, Json]", arguments) if isinstance(arguments, dict) else {}


def without_task(messages: Sequence[Mapping[str, Json]], task_id: str) -> list[dict[str, Json]]:
    """Return the client's messages from before a task: those without an id that the task gave out."""
    own = f"{task_id}/"
    return [
        dict(each)
        for each in messages
        if not str(each.get("id", "")).startswith(own) and not str(each.get("toolCallId", "")).startswith(own)
    ]


# ------------------------------------------------------------------------------------------------ tools


def caller_tools(tools: Sequence[Tool]) -> list[CallerTool]:
    """Return the client's tools.

    Raises:
        ConfigurationError: a tool is not valid; the error names the field.
    """
    return [CallerTool(each.name, each.description, _parameters(each.parameters)) for each in tools]


def _parameters(schema: Any) -> Json:
    """Return the schema of a tool's arguments; an absent and an empty one mean the same."""
    if not isinstance(schema, dict):
        return schema or None
    return {"type": "object", **cast("dict[str, Json]", schema)} if schema else None


def result_of(message: ToolMessage) -> Json:
    """Return the result in a message of a tool: JSON data if the text is such, else the text."""
    text = message.content
    if not isinstance(text, str):
        text = "".join([part.text for part in text if isinstance(part, TextPart)])
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def forwarded(asked: RunAgentInput) -> Mapping[str, Json]:
    """Return Treadle's own part of `forwardedProps`."""
    props: Any = asked.forwarded_props
    own: Any = cast("dict[str, Json]", props).get(OWN) if isinstance(props, dict) else None
    if own is None:
        return {}
    if not isinstance(own, dict):
        raise InvalidField("should be an object", field=f"forwardedProps.{OWN}")
    return cast("dict[str, Json]", own)


# ------------------------------------------------------------------------------------------------ answers


def decision_of(item: Pending, entry: Any, place: str, root: str) -> Decision:
    """Return the verb that answers an open request.

    An abandoned approval is a denial. Nothing can take the place of an answer or a settlement, so to abandon one
    cancels the task.

    Args:
        item: the request.
        entry: the resume entry.
        place: the place of the entry in the request, for errors.
        root: the task of the run.

    Raises:
        InvalidField: the payload does not fit.
    """
    if entry.status != "cancelled":
        return decision_by(item, entry.payload, f"{place}.payload")
    if item.kind != "approval":
        return Decision("cancel", root, {"reason": f"{item.request_id} was abandoned"})
    reason = "the person left without a decision"
    return Decision("deny", item.task_id, {"request_id": item.request_id, "reason": reason})


def task_ids_in(ids: Sequence[str]) -> list[str]:
    """Return the tasks that ids of messages and calls may belong to, those of the last ids first."""
    found: dict[str, None] = {}
    for each in reversed(ids):
        places = [place for place, sign in enumerate(each) if sign == "/" and place]
        found |= dict.fromkeys([each[:place] for place in reversed(places[:_MOST_SLASHES])])
    return list(found)


_MOST_SLASHES: Final = 4

"""Read a request for a response: its input, its tools, its answers, its options. Pure.

Input is text, or a list of items. Without a conversation of the server, a client sends all items that it has:

    history    up to the last item of an assistant or of a call: it becomes the beginning of a new thread
    results    outputs of calls at the end of that: a task may wait for them
    content    the messages after it

A client may refer to items of the server by their ids. Then the conversation of the last one continues.

A member that this server cannot honour is refused by its name. One that is only a hint is ignored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.messages import Content, File, Image, Json, Message, Text, ToolCall, ToolResult, faults
from treadle.core.model import ModelSettings
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError, InvalidField
from treadle.policy.limits import Limits
from treadle.results.caller_tools import CallerTool
from treadle.server.protocols.responses_object import (
    IN_BACKGROUND,
    NOT_STORED,
    OWN,
    PREVIOUS,
    WITH_THREAD,
    approval_in,
    part_in,
    texts,
)

HINTS: Final = (
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "stream_options",
)
"""Members that change nothing here, and are ignored."""

DEFAULTS: Final[Mapping[str, tuple[Json, ...]]] = {
    "top_p": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "reasoning": ({},),
    "prompt": (),
    "moderation": (),
    "context_management": (),
    "verbosity": (),
    "prompt_cache_options": (),
    "background_options": (),
    "access_programs": (),
    "image": (),
}
"""Members that no agent can honour in a request, with the values that ask for nothing."""

READ: Final = (
    *("model", "input", "instructions", "previous_response_id", "conversation", "stream", "background"),
    *("store", "metadata", "tools", "tool_choice", "parallel_tool_calls", "temperature"),
    *("max_output_tokens", "max_tool_calls", "text", "include"),
)
"""Members that are read."""

MEMBERS: Final = (*READ, *DEFAULTS, *HINTS)
"""Every member of a request that this server knows."""

_INCLUDABLE: Final = ("reasoning.encrypted_content",)
"""Values of `include` that are accepted. Reasoning needs no copy for the client: its task keeps it."""

_MOST_METADATA, _LONGEST_NAME, _LONGEST_VALUE = 16, 64, 512


@frozen
class Approval:
    """A client's decision on a request for approval."""

    task_id: str
    request_id: str
    approve: bool
    reason: str | None
    field: str


@frozen
class Asked:
    """A request for a response.

    Args:
        agent: the name of the agent.
        history: messages of a conversation from elsewhere.
        content: the new messages.
        system: system messages, the request's instructions not included.
        instructions: the request's instructions.
        results: outputs of calls, by the calls' ids.
        approvals: decisions.
        previous: the task and the part of the previous response; both empty without one.
        conversation: the conversation to continue.
        tools: the client's tools.
        settings: the settings of the model.
        max_tool_calls: the most calls of tools.
        metadata: short texts to keep with the response.
        format: the form of the answer, as the client wants it.
        is_streamed: whether the response is an event stream.
        in_background: whether the response is not waited for.
        is_stored: whether the response is kept after its end.
    """

    agent: str
    history: tuple[Message, ...]
    content: tuple[Content, ...]
    system: tuple[str, ...]
    instructions: str | None
    results: Mapping[str, Json]
    approvals: tuple[Approval, ...]
    previous: tuple[str, str]
    conversation: str | None
    tools: tuple[CallerTool, ...]
    settings: ModelSettings | None
    max_tool_calls: int | None
    metadata: Mapping[str, str]
    format: Json
    is_streamed: bool
    in_background: bool
    is_stored: bool

    @property
    def labels(self) -> dict[str, str]:
        """The labels of a new task for the request."""
        labels = dict(self.metadata)
        if self.previous[0]:
            labels[PREVIOUS] = "resp_" + "~".join([each for each in self.previous if each])
        if not self.is_stored:
            labels[NOT_STORED] = "task" if self.previous[0] or self.conversation else WITH_THREAD
        if self.in_background:
            labels[IN_BACKGROUND] = "true"
        return labels

    def options(self) -> RunOptions | None:
        """Return the options of a new task for the request; None for the defaults."""
        named: dict[str, Any] = {}
        if self.tools:
            named["caller_tools"] = self.tools
        if self.settings is not None:
            named["model_settings"] = self.settings
        if self.max_tool_calls is not None:
            named["limits"] = Limits(tool_calls=self.max_tool_calls)
        if labels := self.labels:
            named["labels"] = labels
        return RunOptions(**named) if named else None


def mark_for(
    previous: str, key: str | None, results: Mapping[str, Json], approvals: Sequence[Approval]
) -> str:
    """Return the name of the part that answers begin: the same for the same answers, or for the same key."""
    facts: Json = key
    if key is None:
        decided = [[each.task_id, each.request_id, each.approve] for each in approvals]
        facts = [previous, sorted(results.items(), key=lambda item: item[0]), sorted(decided)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ members


class _Members:
    """The members of a request, each of which is read by its type; an error names it."""

    def __init__(self, document: Mapping[str, Json]) -> None:
        self._document = {name: value for name, value in document.items() if value is not None}

    def has(self, name: str) -> bool:
        return name in self._document

    def value(self, name: str) -> Json:
        return self._document.get(name)

    def text(self, name: str) -> str | None:
        return self._of(name, str, "text")

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._of(name, bool, "true or false")
        return default if value is None else value

    def number(self, name: str, least: int) -> int | None:
        value = self._of(name, int, "a whole number")
        if isinstance(value, bool) or (value is not None and value < least):
            raise InvalidField(f"should be a whole number from {least} up", field=name)
        return value

    def list(self, name: str) -> Sequence[Any]:
        return self._of(name, list, "a list") or ()

    def object(self, name: str) -> Mapping[str, Any]:
        return self._of(name, dict, "an object") or {}

    def _of(self, name: str, kind: type[Any], words: str) -> Any:
        value = self._document.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidField(f"should be {words}", field=name)
        return value


def read_request(document: Mapping[str, Json], *, allow_urls: bool) -> Asked:
    """Return a request for a response.

    Args:
        document: the body of the request.
        allow_urls: whether pictures and files may be URLs.

    Raises:
        InvalidField: a member is not valid or cannot be honoured here.
    """
    members = _Members(document)
    _check_unsupported(members)
    agent = members.text("model")
    if not agent:
        raise InvalidField("should be the name of an agent of this server", field="model")
    previous = _previous(members)
    conversation = _conversation(members)
    items = _items(members.value("input"))
    reader = _Reader(allow_urls=allow_urls)
    has_thread = bool(previous[0]) or conversation is not None
    referred = "" if has_thread else _referred_task(items)
    if referred:
        previous, items = (referred, ""), _without_known(items)
    history, results, later = _parts_of(items, has_thread=has_thread or bool(referred))
    is_stored, in_background = members.flag("store", default=True), members.flag("background")
    if in_background and not is_stored:
        raise InvalidField("a response in the background is stored: leave out `store`", field="background")
    return Asked(
        agent=agent,
        history=reader.conversation(history),
        content=reader.content_of(later),
        system=reader.system_of(items),
        instructions=members.text("instructions") or None,
        results={
            _text_in(item, "call_id", place): reader.result(item.get("output"), f"{place}.output")
            for item, place in results
        },
        approvals=tuple(
            [_approval(item, place) for item, place in items if _kind(item) == "mcp_approval_response"]
        ),
        previous=previous,
        conversation=conversation,
        tools=_tools(members.list("tools")),
        settings=_settings(members),
        max_tool_calls=members.number("max_tool_calls", 1),
        metadata=_metadata(members.object("metadata")),
        format=_format(members.object("text")),
        is_streamed=members.flag("stream"),
        in_background=in_background,
        is_stored=is_stored,
    )


def _check_unsupported(members: _Members) -> None:
    for name, harmless in DEFAULTS.items():
        value = members.value(name)
        if isinstance(value, dict):
            value = {key: each for key, each in cast("dict[str, Json]", value).items() if each is not None}
        if members.has(name) and value not in harmless:
            allowed = f"; it may be {' or '.join(map(json.dumps, harmless))}" if harmless else ""
            raise InvalidField(f"is not supported: the agent decides it{allowed}", field=name)
    for number, each in enumerate(members.list("include")):
        if each not in _INCLUDABLE:
            raise InvalidField(f"is not supported: {each!r:.80}", field=f"include[{number}]")


def _previous(members: _Members) -> tuple[str, str]:
    identifier = members.text("previous_response_id")
    if identifier is None:
        return "", ""
    task_id, part = part_in(identifier)
    if not task_id:
        raise InvalidField("should be the id of a response, such as 'resp_...'", field="previous_response_id")
    if members.has("conversation"):
        problem = "belongs to a conversation already: leave out `conversation`"
        raise InvalidField(problem, field="previous_response_id")
    return task_id, part


def _conversation(members: _Members) -> str | None:
    value = members.value("conversation")
    if isinstance(value, dict):
        value = cast("dict[str, Json]", value).get("id")
    if value is not None and not (isinstance(value, str) and value):
        raise InvalidField("should be the id of a conversation", field="conversation")
    return value


def _settings(members: _Members) -> ModelSettings | None:
    choice = members.value("tool_choice")
    if isinstance(choice, dict):
        chosen = cast("dict[str, Json]", choice)
        if chosen.get("type") != "function" or not isinstance(chosen.get("name"), str):
            kind = str(chosen.get("type"))
            raise InvalidField(f"is not supported: {kind!r:.80}; name a function", field="tool_choice")
        choice = chosen["name"]
    elif choice is not None and choice not in ("auto", "none", "required"):
        raise InvalidField("should be auto, none, required or a function", field="tool_choice")
    temperature = members.value("temperature")
    named: dict[str, Any] = {
        "temperature": temperature,
        "max_tokens": members.number("max_output_tokens", 1),
        "tool_choice": None if choice == "auto" else choice,
        "parallel_tool_calls": members.flag("parallel_tool_calls")
        if members.has("parallel_tool_calls")
        else None,
    }
    if all(value is None for value in named.values()):
        return None
    try:
        return ModelSettings(**named)
    except ConfigurationError as error:
        raise InvalidField(f"is not valid: {error}", field="temperature") from None


def _metadata(given: Mapping[str, Any]) -> dict[str, str]:
    if len(given) > _MOST_METADATA:
        raise InvalidField(f"should have at most {_MOST_METADATA} entries", field="metadata")
    for name, value in given.items():
        place = f"metadata.{name:.80}"
        if name.startswith(f"{OWN}.") or not 0 < len(name) <= _LONGEST_NAME:
            raise InvalidField(
                f"should have a name of at most {_LONGEST_NAME} characters that does not begin with '{OWN}.'",
                field=place,
            )
        if not isinstance(value, str) or len(value) > _LONGEST_VALUE:
            raise InvalidField(f"should be text of at most {_LONGEST_VALUE} characters", field=place)
    return dict(given)


def _format(text: Mapping[str, Any]) -> Json:
    if unknown := [name for name in text if name != "format" and text[name] not in (None, "medium")]:
        raise InvalidField("is not supported: the agent decides it", field=f"text.{unknown[0]:.80}")
    given: Any = text.get("format")
    if given is None:
        return None
    form = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    kind = form.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise InvalidField("should be text, json_object or json_schema", field="text.format.type")
    return None if kind == "text" else form


def _tools(tools: Sequence[Any]) -> tuple[CallerTool, ...]:
    made: list[CallerTool] = []
    for number, each in enumerate(tools):
        place = f"tools[{number}]"
        if not isinstance(each, dict):
            raise InvalidField("should be an object", field=place)
        tool = cast("dict[str, Any]", each)
        if tool.get("type") != "function":
            kind = str(tool.get("type"))
            problem = f"is not supported: {kind!r:.80}; the agent has its own tools, and yours are functions"
            raise InvalidField(problem, field=f"{place}.type")
        parameters = tool.get("parameters")
        if isinstance(parameters, dict) and parameters:
            parameters = {"type": "object", **cast("dict[str, Json]", parameters)}
        try:
            made.append(CallerTool(tool.get("name", ""), tool.get("description") or "", parameters or None))
        except ConfigurationError as error:
            raise InvalidField(str(error), field=place) from None
    return tuple(made)


# ------------------------------------------------------------------------------------------------- items

_Placed = tuple[dict[str, Any], str]
"""An item, and its place in the request for errors."""

_OF_ASSISTANT: Final = (
    *("function_call", "function_call_output", "reasoning", "mcp_call", "mcp_list_tools"),
    *("mcp_approval_request", "item_reference"),
)
_ITEM: Final = re.compile(r"(?:msg|rs|fc|mcp)_(.+)/[^/]+")
_KINDS: Final = ("message", "mcp_approval_response", *_OF_ASSISTANT)


def _kind(item: Mapping[str, Any]) -> str:
    return item.get("type") or "message"


def _items(value: Json) -> list[_Placed]:
    """Return the items of an input."""
    if value is None:
        return []
    if isinstance(value, str):
        value = [{"type": "message", "role": "user", "content": value}] if value else []
    if not isinstance(value, list):
        raise InvalidField("should be text or a list of items", field="input")
    items: list[_Placed] = []
    for number, item in enumerate(cast("list[Any]", value)):
        place = f"input[{number}]"
        if not isinstance(item, dict):
            raise InvalidField("should be an object", field=place)
        each = cast("dict[str, Any]", item)
        if _kind(each) not in _KINDS:
            kind = str(each.get("type"))
            raise InvalidField(f"is not supported: {kind!r:.80}", field=f"{place}.type")
        if _kind(each) == "message" and each.get("role") not in ("user", "assistant", "system", "developer"):
            raise InvalidField("should be user, assistant, system or developer", field=f"{place}.role")
        items.append((each, place))
    return items


def _referred_task(items: Sequence[_Placed]) -> str:
    """Return the task of the last item that a reference names; empty without references."""
    references = [each for each in items if _kind(each[0]) == "item_reference"]
    if not references:
        return ""
    item, place = references[-1]
    found = _ITEM.fullmatch(_text_in(item, "id", place))
    if found is None:
        raise InvalidField("should be the id of an item of a response", field=f"{place}.id")
    return found[1]


def _without_known(items: Sequence[_Placed]) -> list[_Placed]:
    """Return the items that are not in the conversation to which references lead."""
    last = max([number for number, (item, _) in enumerate(items) if _kind(item) == "item_reference"])
    return list(items[last + 1 :])


def _is_of_assistant(item: Mapping[str, Any]) -> bool:
    return _kind(item) in _OF_ASSISTANT or item.get("role") == "assistant"


def _parts_of(
    items: Sequence[_Placed], *, has_thread: bool
) -> tuple[list[_Placed], list[_Placed], list[_Placed]]:
    """Return the history in an input, the outputs of calls at its end, and the messages after them."""
    last = max([number + 1 for number, (item, _) in enumerate(items) if _is_of_assistant(item)], default=0)
    history, later = list(items[:last]), list(items[last:])
    asked = max(
        [number + 1 for number, (item, _) in enumerate(history) if _kind(item) == "function_call"], default=0
    )
    results = [each for each in history[asked:] if _kind(each[0]) == "function_call_output"]
    if any(item.get("role") == "assistant" for item, _ in history[asked:]):
        results = []  # the assistant had them
    if has_thread:
        foreign = [place for item, place in history if _kind(item) != "function_call_output"]
        if foreign:
            problem = "is in the conversation already: send only new messages, and outputs of calls"
            raise InvalidField(problem, field=foreign[0])
        return [], results, later
    return history, results, later


def _text_in(item: Mapping[str, Any], name: str, place: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidField("should be text", field=f"{place}.{name}")
    return value


def _approval(item: Mapping[str, Any], place: str) -> Approval:
    task_id, request_id = approval_in(_text_in(item, "approval_request_id", place))
    if not task_id:
        problem = "should be the id of an item `mcp_approval_request`"
        raise InvalidField(problem, field=f"{place}.approval_request_id")
    approve, reason = item.get("approve"), item.get("reason")
    if not isinstance(approve, bool):
        raise InvalidField("should be true or false", field=f"{place}.approve")
    if reason is not None and not isinstance(reason, str):
        raise InvalidField("should be text", field=f"{place}.reason")
    return Approval(task_id, request_id, approve, reason, place)


class _Reader:
    """Reads the content of items.

    Args:
        allow_urls: whether pictures and files may be URLs.
    """

    def __init__(self, *, allow_urls: bool) -> None:
        self._allow_urls = allow_urls
        self._parts: Mapping[str, Callable[[Mapping[str, Any], str], Content]] = {
            "input_text": self._text,
            "output_text": self._text,
            "refusal": self._refusal,
            "input_image": self._image,
            "input_file": self._file,
        }

    def content_of(self, items: Sequence[_Placed]) -> tuple[Content, ...]:
        """Return the content of the user's messages."""
        return tuple(
            [
                part
                for item, place in items
                if item.get("role") == "user"
                for part in self.content(item.get("content"), f"{place}.content")
            ]
        )

    def system_of(self, items: Sequence[_Placed]) -> tuple[str, ...]:
        """Return the texts of system messages, wherever they are."""
        found = [
            texts(self.content(item.get("content"), f"{place}.content"))
            for item, place in items
            if item.get("role") in ("system", "developer")
        ]
        return tuple(filter(None, found))

    def content(self, content: Any, place: str) -> list[Content]:
        """Return a message's content."""
        if isinstance(content, str):
            return [Text(content)] if content else []
        if not isinstance(content, list):
            raise InvalidField("should be text or a list of parts", field=place)
        made: list[Content] = []
        for number, given in enumerate(cast("list[Any]", content)):
            part = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
            kind = str(part.get("type"))
            reads = self._parts.get(kind)
            if reads is None:
                raise InvalidField(f"is not supported: {kind!r:.80}", field=f"{place}[{number}].type")
            made.append(reads(part, f"{place}[{number}]"))
        return [part for part in made if not (isinstance(part, Text) and not part.text)]

    def _text(self, part: Mapping[str, Any], place: str) -> Content:
        text = part.get("text")
        if not isinstance(text, str):
            raise InvalidField("should be text", field=f"{place}.text")
        return Text(text)

    def _refusal(self, part: Mapping[str, Any], place: str) -> Content:
        return Text(_text_in(part, "refusal", place))

    def _image(self, part: Mapping[str, Any], place: str) -> Content:
        data, media_type, url = self._source(part, "image_url", place)
        return Image(data=data, media_type=media_type, url=url)

    def _file(self, part: Mapping[str, Any], place: str) -> Content:
        name = "file_data" if part.get("file_data") is not None else "file_url"
        data, media_type, url = self._source(part, name, place)
        filename = part.get("filename")
        return File(data=data, media_type=media_type, url=url, name=filename or None)

    def _source(
        self, part: Mapping[str, Any], name: str, place: str
    ) -> tuple[bytes | None, str | None, str | None]:
        """Return the bytes and the media type of a picture or file, or its URL."""
        if part.get("file_id") is not None:
            raise InvalidField("is not supported: send the bytes", field=f"{place}.file_id")
        text = _text_in(part, name, place)
        head, comma, data = text.partition(",")
        media_type: str | None = None
        if head.startswith("data:") and comma:
            media_type = head.removeprefix("data:").partition(";")[0] or None
            if not head.endswith(";base64"):
                raise InvalidField("should be base64", field=f"{place}.{name}")
        elif name == "file_data":
            data = text
        elif self._allow_urls:
            return None, None, text
        else:
            problem = "must not be an address: send the bytes as a data URL"
            raise InvalidField(problem, field=f"{place}.{name}")
        try:
            return base64.b64decode(data, validate=True), media_type, None
        except (binascii.Error, ValueError):
            raise InvalidField("should be base64", field=f"{place}.{name}") from None

    def result(self, output: Any, place: str) -> Json:
        """Return the output of a call: JSON data if the text is such, else the text."""
        text = output if isinstance(output, str) else texts(self.content(output, place))
        if not text.startswith(("{", "[")):
            return text
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text

    def conversation(self, items: Sequence[_Placed]) -> tuple[Message, ...]:
        """Return items as a history; without its calls if these do not have one result each."""
        history: list[Message] = []
        names: dict[str, str] = {}
        for item, place in items:
            self._add(history, names, item, place)
        if any(faults(history)):
            plain = [
                Message(each.role, tuple([part for part in each.parts if isinstance(part, Text)]))
                for each in history
            ]
            history = [each for each in plain if each.parts and each.role != "tool"]
        return tuple(history)

    def _add(
        self, history: list[Message], names: dict[str, str], item: Mapping[str, Any], place: str
    ) -> None:
        """Add an item to a history, in which `names` has the tools of the calls so far."""
        kind, last = _kind(item), history[-1] if history else None
        if kind == "message":
            role = item["role"]
            parts = tuple(self.content(item.get("content"), f"{place}.content"))
            if parts and role in ("user", "assistant"):
                history.append(Message(role, parts))
        elif kind in ("function_call", "mcp_call"):
            identifier = _text_in(item, "call_id" if kind == "function_call" else "id", place)
            names[identifier] = _text_in(item, "name", place)
            call = ToolCall(identifier, names[identifier], _arguments(item))
            if last is not None and last.role == "assistant" and kind == "function_call":
                history[-1] = Message("assistant", (*last.parts, call))
            else:
                history.append(Message("assistant", (call,)))
            if kind == "mcp_call":
                output = Text(str(item.get("output") or item.get("error") or ""))
                history.append(Message("tool", (ToolResult(identifier, call.name, (output,)),)))
        elif kind == "function_call_output":
            identifier = _text_in(item, "call_id", place)
            output = item.get("output")
            parts = tuple(self.content(output, f"{place}.output")) or (Text(""),)
            made = ToolResult(identifier, names.get(identifier, ""), parts)
            if last is not None and last.role == "tool":
                history[-1] = Message("tool", (*last.parts, made))
            else:
                history.append(Message("tool", (made,)))


def _arguments(item: Mapping[str, Any]) -> dict[str, Json]:
    try:
        arguments = json.loads(item.get("arguments") or "{}")
    except (ValueError, TypeError):
        return {}
    return cast("dict[str, Json]", arguments) if isinstance(arguments, dict) else {}

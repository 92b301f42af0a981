"""Read the cards and tasks of other servers: foreign JSON, of which every part may be missing. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from treadle.core.data import frozen
from treadle.core.messages import Content, File, Image, Json
from treadle.core.observation import as_text
from treadle.ports import ToolOutput
from treadle.tools.definitions import clean, cleaned

REPEATS: Final = "urn:treadle:a2a:repeated-messages"
"""The extension in the card of a server that treats a repeated message as one task."""

ENDED: Final = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
WAITS: Final = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")
COMPLETED: Final = "TASK_STATE_COMPLETED"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"

IMAGES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
MOST_REQUESTS: Final = 20
LONGEST_QUESTION: Final = 4_000


class WrongCard(Exception):
    """A card, or a task, is not of the protocol. The message continues a sentence about the agent."""


def fields_of(value: Any) -> Mapping[str, Any]:
    """Return an object of foreign JSON; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items_of(value: Any) -> Sequence[Any]:
    """Return a list of foreign JSON; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else ()


def text_of(value: Any) -> str:
    """Return a text of foreign JSON; an empty one for anything else."""
    return value if isinstance(value, str) else ""


# ------------------------------------------------------------------------------------------------ cards


@frozen
class Card:
    """The facts in the card of an agent.

    Args:
        name: the agent's name.
        description: its description.
        url: the address of its interface for JSON-RPC.
        tenant: the tenant that each request names; empty for none.
        streams: whether the server streams updates.
        repeats: whether a repeated message is one task.
    """

    name: str
    description: str
    url: str
    tenant: str = ""
    streams: bool = False
    repeats: bool = False


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL; raises `ValueError` for one that is not valid."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port


def read_card(document: Json, card_url: str) -> Card:
    """Return a card.

    Args:
        document: the JSON of the card.
        card_url: where it was read.

    Raises:
        WrongCard: it is no card, has no interface that this client speaks, or one at another origin.
    """
    card = fields_of(document)
    interfaces = [fields_of(each) for each in items_of(card.get("supportedInterfaces"))]
    fitting = [
        each
        for each in interfaces
        if each.get("protocolBinding") == "JSONRPC"
        and text_of(each.get("protocolVersion")).split(".")[0] == "1"
    ]
    if not text_of(card.get("name")) or not interfaces:
        raise WrongCard("has no card of A2A 1.0 there: `name` and `supportedInterfaces` are missing")
    if not fitting:
        raise WrongCard("has no interface for JSON-RPC of A2A 1.0")
    url = text_of(fitting[0].get("url"))
    try:
        is_same = origin_of(url) == origin_of(card_url)
    except ValueError:
        is_same = False
    if not is_same:
        raise WrongCard(
            f"names an interface at another origin than its card, {clean(url)[:200]!r}; it is not called"
        )
    capabilities = fields_of(card.get("capabilities"))
    extensions = [fields_of(each) for each in items_of(capabilities.get("extensions"))]
    if any(each.get("required") is True for each in extensions):
        raise WrongCard("requires an extension of the protocol that this client does not know")
    return Card(
        clean(text_of(card.get("name")))[:200],
        text_of(card.get("description")),
        url,
        text_of(fitting[0].get("tenant")),
        capabilities.get("streaming") is True,
        any(each.get("uri") == REPEATS for each in extensions),
    )


# ------------------------------------------------------------------------------------------------ tasks


@frozen
class RemoteTask:
    """The task of another server.

    Args:
        task_id: its id.
        state: its state.
        document: the task as the server shows it.
    """

    task_id: str
    state: str
    document: Mapping[str, Any]

    @property
    def has_stopped(self) -> bool:
        """Whether it has ended, or waits for its caller."""
        return self.state in ENDED or self.state in WAITS

    @property
    def status_text(self) -> str:
        """The text of its status."""
        message = fields_of(fields_of(self.document.get("status")).get("message"))
        return joined(message.get("parts"))[:LONGEST_QUESTION]


def read_task(document: Json) -> RemoteTask:
    """Return a task; raises `WrongCard` if it is none."""
    task = fields_of(document)
    task_id, state = text_of(task.get("id")), text_of(fields_of(task.get("status")).get("state"))
    if not task_id or not state:
        raise WrongCard("answered with something that is no task of A2A")
    return RemoteTask(task_id, state, task)


def joined(parts: Any) -> str:
    """Return the texts of parts as one text."""
    return clean("".join([text_of(fields_of(each).get("text")) for each in items_of(parts)]))


@frozen
class Update:
    """An item of a stream.

    Args:
        state: the state of the task after it; empty if it does not tell.
        progress: the report for watchers.
        message: an answer without a task.
        task: the task, if the item is one.
    """

    state: str = ""
    progress: Json = None
    message: Mapping[str, Any] | None = None
    task: RemoteTask | None = None


def read_update(item: Json) -> Update:
    """Return an item of a stream, or the result of `SendMessage`."""
    fields = fields_of(item)
    if "task" in fields:
        task = read_task(fields["task"])
        return Update(task.state, {"state": task.state}, task=task)
    if "message" in fields:
        return Update(message=fields_of(fields["message"]))
    if "statusUpdate" in fields:
        status = fields_of(fields_of(fields["statusUpdate"]).get("status"))
        state = text_of(status.get("state"))
        text = joined(fields_of(status.get("message")).get("parts"))
        return Update(state, {"state": state, "text": text} if text else {"state": state})
    update = fields_of(fields.get("artifactUpdate"))
    text = joined(fields_of(update.get("artifact")).get("parts"))
    return Update(progress={"text": text, "append": update.get("append") is True}) if text else Update()


# ------------------------------------------------------------------------------------------------ answers


def output_of(task: RemoteTask) -> ToolOutput:
    """Return the answer of a task: its texts and data for the model, its files as artifacts."""
    parts = [part for each in items_of(task.document.get("artifacts")) for part in _parts(fields_of(each))]
    if not parts:  # a server may answer in its last message
        parts = list(_parts(fields_of(fields_of(task.document.get("status")).get("message"))))
    return _output(parts, task.task_id, text_of(task.document.get("contextId")))


def output_of_message(message: Mapping[str, Any]) -> ToolOutput:
    """Return an answer that is a message without a task."""
    return _output(list(_parts(message)), "", text_of(message.get("contextId")))


def _parts(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (fields_of(each) for each in items_of(holder.get("parts")))


def _output(parts: Sequence[Mapping[str, Any]], task_id: str, context_id: str) -> ToolOutput:
    shown: list[Content] = []
    files: list[File] = []
    texts: list[str] = []
    for part in parts:
        if "text" in part:
            texts.append(clean(text_of(part["text"])))
        elif "data" in part:
            texts.append(as_text(cleaned(part["data"])))
        else:
            _add_file(part, shown, files, texts)
    answer = "\n".join([text for text in texts if text])
    output: dict[str, Json] = {"answer": answer}
    if context_id:
        output["conversation"] = clean(context_id)[:200]
    if task_id:
        output["task"] = clean(task_id)[:200]
    told = f"{answer}\n[conversation {output['conversation']}]" if context_id else answer
    return ToolOutput(output, [told, *shown] if shown else told, artifacts=files)


def _add_file(part: Mapping[str, Any], shown: list[Content], files: list[File], texts: list[str]) -> None:
    """Add a file: pictures are shown, other bytes are stored, and an address is only told."""
    name = clean(text_of(part.get("filename")))[:200] or "file"
    media = text_of(part.get("mediaType")) or None
    if "url" in part:
        texts.append(f"[file {name}: {clean(text_of(part['url']))[:2_000]}]")
        return
    try:
        data = base64.b64decode(text_of(part.get("raw")), validate=True)
    except (binascii.Error, ValueError):
        return
    if not data:
        return
    if media in IMAGES:
        shown.append(Image(data=data, media_type=media))
    files.append(File(data=data, media_type=media, name=name))
    texts.append(f"[file {name}]")


# ------------------------------------------------------------------------------------------------ questions


@frozen
class Request:
    """A request of a task that waits for input.

    Args:
        text: the question.
        kind: the type of its answer: `text`, `yes_or_no`, `integer`, `number` or `data`.
        request_id: its id, for servers that have several at once.
        approves: whether the answer is an approval.
    """

    text: str
    kind: str = "text"
    request_id: str = ""
    approves: bool = False


_KINDS: Final = {"string": "text", "integer": "integer", "number": "number", "boolean": "yes_or_no"}
TYPES: Final[Mapping[str, Any]] = {
    "text": str,
    "yes_or_no": bool,
    "integer": int,
    "number": float,
    "data": Any,
}
"""The types of answers by kind."""


def requests_of(task: RemoteTask, name: str) -> list[Request]:
    """Return the requests of a task that waits for input; servers of Treadle describe each, others only have a text.

    Args:
        task: the task.
        name: the name of its agent.
    """
    message = fields_of(fields_of(task.document.get("status")).get("message"))
    listed = [
        fields_of(each)
        for part in _parts(message)
        for each in items_of(fields_of(part.get("data")).get("requests"))
    ]
    requests: list[Request] = []
    for each in listed[:MOST_REQUESTS]:
        request_id, kind = text_of(each.get("request")), text_of(each.get("kind"))
        text = _asked(name, text_of(each.get("text")))
        if kind == "approval":
            call = as_text(cleaned({text_of(each.get("tool")): each.get("arguments")}))[:LONGEST_QUESTION]
            requests.append(
                Request(f"{text}\n{call}\nIs it approved?", "yes_or_no", request_id, approves=True)
            )
        else:
            wanted = text_of(fields_of(each.get("schema")).get("type"))
            requests.append(Request(text, _KINDS.get(wanted, "data" if wanted else "text"), request_id))
    return requests or [Request(_asked(name, task.status_text or "It needs more input."))]


def _asked(name: str, text: str) -> str:
    """Return a question without line breaks, so that no part of it looks like a line of Treadle's."""
    return f"The agent {name} asks: {' '.join(clean(text).split())[:LONGEST_QUESTION]}"


def answer_parts(requests: Sequence[Request], answers: Sequence[Json]) -> list[Json]:
    """Return the parts of the message that answers requests."""
    if len(requests) == 1 and not requests[0].request_id:
        answer = answers[0]
        return [{"text": answer if isinstance(answer, str) else as_text(answer)}]
    parts: list[Json] = []
    for request, answer in zip(requests, answers, strict=True):
        value: Json = {"approved": answer} if request.approves else answer
        parts.append({"data": {"request": request.request_id, "answer": value}})
    return parts

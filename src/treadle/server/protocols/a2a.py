"""Fold the events of a task to the updates of an A2A task, and describe agents and tasks as A2A 1.0 does. Pure.

Theory of operation
-------------------

A stream of A2A begins with the task as it is, and continues with updates. The answer is one artifact, `answer`. Each
answer of a model replaces it, so that the artifact ends as the task's answer:

    model writes "Let me look."        artifactUpdate  answer = "Let me look."
    a call begins and ends             statusUpdate    WORKING, with the call in `metadata`
    model writes "It " and "rains."    artifactUpdate  answer = "It ", then append "rains."
    the task ends                      artifactUpdate  the rest of the answer, `lastChunk`
                                       statusUpdate    COMPLETED

Text that a crash or a retry made void is replaced by the next text. Reasoning is not sent, nor are the arguments and
results of calls: A2A keeps the work of an agent to itself.

Invariant: a client that applies all updates has the artifact that `GetTask` returns.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.deltas import AnswerKey, DeltaPlaces, ended_by
from treadle.core.ids import is_undo
from treadle.core.messages import File, Image, Json, Message, Part, Text
from treadle.results.agent_info import AgentInfo
from treadle.results.artifacts import Artifact
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.results.run_result import RunResult
from treadle.results.tasks import Task, TaskSummary
from treadle.results.wire import plain_wire
from treadle.server.protocols.decisions import SETTLEMENT, approval_schema
from treadle.server.protocols.stops import Stop, waits_for_client

VERSION: Final = "1.0"
"""The version of the protocol."""

REPEATS: Final = "urn:treadle:a2a:repeated-messages"
"""The extension of the card that tells clients that a repeated message is one task."""

OWN: Final = "treadle"
"""The key of Treadle's own data in `metadata`."""

ANSWER: Final = "answer"
"""The id of the artifact that holds the answer."""

Frame: TypeAlias = dict[str, Json]
"""A message of A2A in its JSON form."""

SUBMITTED: Final = "TASK_STATE_SUBMITTED"
WORKING: Final = "TASK_STATE_WORKING"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
CANCELED: Final = "TASK_STATE_CANCELED"
REJECTED: Final = "TASK_STATE_REJECTED"
AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"

TERMINAL: Final = (COMPLETED, FAILED, CANCELED, REJECTED)
"""The states in which a task has ended."""

_ENDED: Final = {"completed": COMPLETED, "degraded": COMPLETED, "failed": FAILED, "cancelled": CANCELED}

STATES: Final[Mapping[str, tuple[str, ...]]] = {
    SUBMITTED: ("created",),
    WORKING: ("running", "waiting", "interrupted"),
    INPUT_REQUIRED: ("waiting", "paused", "interrupted", "answered", "running"),
    COMPLETED: ("completed", "degraded"),
    FAILED: ("failed",),
    CANCELED: ("cancelled",),
    REJECTED: (),
    AUTH_REQUIRED: (),
}
"""The states of tasks that each state of the protocol may stand for."""


# ------------------------------------------------------------------------------------------------ errors

TASK_NOT_FOUND: Final = -32001
NOT_CANCELABLE: Final = -32002
NO_PUSH: Final = -32003
UNSUPPORTED: Final = -32004
CONTENT_TYPE: Final = -32005
VERSION_NOT_SUPPORTED: Final = -32009
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
NO_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603

_REASONS: Final = {
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    NO_PUSH: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE: "CONTENT_TYPE_NOT_SUPPORTED",
    VERSION_NOT_SUPPORTED: "VERSION_NOT_SUPPORTED",
}
_TYPES: Final = "type.googleapis.com/google.rpc."


class A2aError(Exception):
    """A request that is refused with an error of JSON-RPC.

    Args:
        code: the code of the error.
        message: the reason and its remedy.
        field: the path of the wrong field in the parameters, if there is one.
        facts: texts that describe the error, such as the id of a task.
    """

    def __init__(self, code: int, message: str, *, field: str = "", **facts: str) -> None:
        super().__init__(message)
        self.code, self.field, self.facts = code, field, facts

    def document(self) -> Frame:
        """Return the error object."""
        details: list[Json] = []
        if self.code in _REASONS:
            info: Frame = {"@type": f"{_TYPES}ErrorInfo", "reason": _REASONS[self.code]}
            details.append({**info, "domain": "a2a-protocol.org", "metadata": dict(self.facts)})
        if self.field:
            violation = {"field": self.field, "description": str(self)}
            details.append({"@type": f"{_TYPES}BadRequest", "fieldViolations": [violation]})
        error: Frame = {"code": self.code, "message": str(self)}
        return {**error, "data": details} if details else error


def response(request_id: Json, *, result: Json = None, error: A2aError | None = None) -> Frame:
    """Return a response of JSON-RPC."""
    head: Frame = {"jsonrpc": "2.0", "id": request_id}
    return {**head, "result": result} if error is None else {**head, "error": error.document()}


# ------------------------------------------------------------------------------------------------ agents


def agent_card(agent: AgentInfo, url: str) -> Frame:
    """Return the card of an agent.

    `agent.metadata` may add `skills`, `provider`, `documentationUrl` and `iconUrl` under the key `a2a`.

    Args:
        agent: the agent.
        url: the address of its interface.
    """
    modes = ["text/plain", "application/json"]
    output = ["application/json"] if agent.output_schema is not None else ["text/plain"]
    description = agent.description or f"The agent {agent.name}."
    skill = {"id": agent.name, "name": agent.name, "description": description, "tags": [agent.name]}
    card: Frame = {
        "name": agent.name,
        "description": description,
        "version": agent.fingerprint,
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": [{"uri": REPEATS, "description": "A repeated message is one task."}],
        },
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "defaultInputModes": [*modes, "image/*", "application/pdf"],
        "defaultOutputModes": output,
        "skills": [skill],
    }
    more = _fields(_fields(agent.metadata).get("a2a"))
    return card | {name: more[name] for name in _MORE if name in more}


_MORE: Final = ("skills", "provider", "documentationUrl", "iconUrl")


def _fields(value: Any) -> Mapping[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


# ------------------------------------------------------------------------------------------------ tasks


def state_of(stop: Stop, *, rests: bool) -> str:
    """Return the state of a task in the protocol.

    Args:
        stop: the state of the task.
        rests: whether the task has stopped, and no process is to continue it.
    """
    if stop.state in _ENDED:
        return _ENDED[stop.state]
    if stop.state == "created":
        return SUBMITTED
    return INPUT_REQUIRED if rests and waits_for_client(stop) else WORKING


def state_in_list(task: TaskSummary) -> str:
    """Return the state of a task in a list, as far as its row tells."""
    if task.state in _ENDED:
        return _ENDED[task.state]
    if task.state == "created":
        return SUBMITTED
    asks = task.state in ("paused", "answered") or (task.state == "waiting" and bool(task.pending))
    return INPUT_REQUIRED if asks and not task.driven else WORKING


def moment(microseconds: int) -> str:
    """Return a time as text, in UTC and with milliseconds."""
    text = datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def request_facts(item: Pending) -> Frame:
    """Return an open request as data for a client, with the schema of its answer."""
    schema: Any = item.schema
    facts: Frame = {"request": f"{item.task_id}:{item.request_id}", "kind": item.kind, "text": item.text}
    for name in ("tool", "arguments", "rule", "reason", "preview", "idempotency_key", "default"):
        if value := getattr(item, name):
            facts[name] = value
    if item.kind == "approval":
        facts["schema"] = approval_schema(item)
    elif item.kind == "settlement":
        facts["schema"] = SETTLEMENT
    elif isinstance(schema, dict):
        facts["schema"] = schema
    if item.expires is not None:
        facts["expires"] = moment(item.expires)
    return facts


def open_requests(pending: Sequence[Pending]) -> list[Pending]:
    """Return the requests that a message of a client can answer."""
    return [item for item in pending if item.kind in (*FOR_PEOPLE, "call")]


def status_of(task_id: str, context_id: str, state: str, stop: Stop, time: int, error: str = "") -> Frame:
    """Return the status of a task. Its message has the open requests, or the error.

    Args:
        task_id: the task.
        context_id: its conversation.
        state: its state in the protocol.
        stop: its state.
        time: when it came into this state, in microseconds since 1970, UTC.
        error: the message of its failure.
    """
    status: Frame = {"state": state, "timestamp": moment(time)}
    parts: list[Json] = []
    name = state.rpartition("_")[2].lower()
    if state == INPUT_REQUIRED:
        items = open_requests(stop.pending)
        texts = [item.text for item in items] or [item.text for item in stop.pending if item.text]
        reason = stop.reason or f"the task is {stop.state}"
        parts.append({"text": "\n".join(texts) or f"{reason}; a message continues it"})
        if items:
            parts.append({"data": {"requests": [request_facts(item) for item in items]}})
            name = ",".join([item.request_id for item in items])
    elif state == FAILED:
        parts.append({"text": error or "the task failed"})
    if parts:
        ids = {"messageId": f"{task_id}/{name}", "taskId": task_id, "contextId": context_id}
        status["message"] = {**ids, "role": "ROLE_AGENT", "parts": parts}
    return status


Link: TypeAlias = Callable[[str], str]
"""Returns the address of an artifact of the task, by its id."""


@frozen
class Standing:
    """A task with its state in the protocol.

    Args:
        task: the task.
        result: its result so far.
        stop: the state in which it is, with its open requests.
        rests: whether it has stopped.
    """

    task: Task[Any]
    result: RunResult[Any]
    stop: Stop
    rests: bool

    @property
    def context_id(self) -> str:
        """The id of its conversation."""
        return self.task.thread_id or self.task.task_id

    @property
    def state(self) -> str:
        """Its state in the protocol."""
        return state_of(self.stop, rests=self.rests)

    def document(self, link: Link | None = None, *, history: int | None = None) -> Frame:
        """Return the task as the protocol shows it.

        Args:
            link: the addresses of its files.
            history: the most messages of its history; None for all.
        """
        task, result = self.task, self.result
        document: Frame = {"id": task.task_id, "contextId": self.context_id, "status": self.status()}
        artifacts: list[Json] = []
        if self.state == COMPLETED:
            artifacts.append(answer_artifact(answer_parts(plain_wire(result.output), result.final_text)))
        artifacts += [each for each in (file_artifact(item, link) for item in result.artifacts) if each]
        if artifacts:
            document["artifacts"] = artifacts
        messages = history_of(task.task_id, self.context_id, result.messages)
        if history is not None:
            messages = messages[-history:] if history > 0 else []
        if messages:
            document["history"] = messages
        if facts := degraded(result.state, result.degraded_reasons):
            document["metadata"] = {OWN: facts}
        return document

    def status(self) -> Frame:
        """Return its status."""
        task, error = self.task, self.result.error
        failed = error.message if error is not None else ""
        return status_of(task.task_id, self.context_id, self.state, self.stop, task.updated, failed)


def submitted(task: Task[Any]) -> Frame:
    """Return a new task, before any work."""
    status: Frame = {"state": SUBMITTED, "timestamp": moment(task.created)}
    return {"id": task.task_id, "contextId": task.thread_id or task.task_id, "status": status}


def degraded(state: str, reasons: Sequence[str]) -> Frame:
    """Return the facts about a task whose answer is only a best effort; empty for others."""
    return {"state": state, "reasons": list(reasons)} if state == "degraded" else {}


def answer_parts(output: Json, text: str = "") -> list[Json]:
    """Return the answer of a task as parts: text, or JSON data."""
    if output is None or isinstance(output, str):
        return [{"text": output or text}]
    return [{"data": output, "mediaType": "application/json"}]


def answer_artifact(parts: list[Json]) -> Frame:
    """Return the artifact of the answer."""
    return {"artifactId": ANSWER, "name": ANSWER, "parts": parts}


def file_artifact(item: Artifact, link: Link | None) -> Frame | None:
    """Return a file as an artifact with its address; None if it has none."""
    url = item.url or (link(item.artifact_id) if link is not None else None)
    if url is None:
        return None
    part: Frame = {"url": url, "filename": item.name}
    if item.media_type is not None:
        part["mediaType"] = item.media_type
    return {"artifactId": item.artifact_id, "name": item.name, "parts": [part]}


def history_of(task_id: str, context_id: str, messages: Sequence[Message]) -> list[Json]:
    """Return the messages of the user and the agent, without reasoning, calls and results."""
    history: list[Json] = []
    for number, message in enumerate(messages):
        if message.role not in ("user", "assistant"):
            continue
        parts = [part for part in map(_part, message.parts) if part is not None]
        if parts:
            ids = {"messageId": f"{task_id}/{number}", "taskId": task_id, "contextId": context_id}
            role = "ROLE_USER" if message.role == "user" else "ROLE_AGENT"
            history.append({**ids, "role": role, "parts": parts})
    return history


def _part(part: Part) -> Frame | None:
    if isinstance(part, Text):
        return {"text": part.text}
    if not isinstance(part, (Image, File)):
        return None
    made: Frame = {}
    if part.data is not None:
        made["raw"] = base64.b64encode(part.data).decode()
    elif part.url is not None:
        made["url"] = part.url
    else:
        return None
    if part.media_type is not None:
        made["mediaType"] = part.media_type
    if (name := getattr(part, "name", None)) is not None:
        made["filename"] = name
    return made


# ------------------------------------------------------------------------------------------------ the fold


class A2aTask:
    """The updates of a task in one stream.

    Args:
        first: the task at the beginning of the stream, as the protocol shows it.
        link: the addresses of its files.
        time: when it was last changed, in microseconds since 1970, UTC.
    """

    def __init__(self, first: Frame, link: Link | None = None, time: int = 0) -> None:
        self.task_id: str = first["id"]
        self._context_id: str = first["contextId"]
        self._first = first
        self._link = link
        self._status: Frame = first["status"]
        self._time = time
        self._ended: e.TaskEnded | None = None
        self._text: str | None = None
        """the text of the artifact, as the client has it; None before the first part of an answer"""

        self._key: AnswerKey | None = None
        """the answer that the text belongs to; None if it is void"""

        self._gaps: set[AnswerKey] = set()
        self._places = DeltaPlaces()
        self._files: set[str] = {each["artifactId"] for each in first.get("artifacts", ())}
        self._out: list[Frame] = []

    def begin(self) -> list[Frame]:
        """Return the first item: the task."""
        return [{"task": self._first}]

    def feed(self, item: e.Event | e.Ephemeral) -> list[Frame]:
        """Return the updates that an event, a delta or another ephemeral item causes."""
        if isinstance(item, e.ChildEvent):
            return []
        event = e.known_part(item) if isinstance(item, e.Event) else item
        if isinstance(item, e.Event):
            self._time = item.time
        if isinstance(event, e.Delta):
            self._write(event)
        elif isinstance(event, e.ModelReturned):
            self._return(event)
        elif isinstance(event, (e.ModelFailed, e.ModelStopped, e.ModelRestarted)):
            answer = ended_by(event)
            assert answer is not None, "these events void an answer"
            self._void(answer)
        elif isinstance(event, e.Rewound):
            self._void(self._key)
        elif isinstance(event, e.StepStarted):
            self._work()
        elif isinstance(event, e.ToolStarted) and not event.undo:
            self._work({"kind": "call", "call": event.call, "tool": event.tool or ""})
        elif isinstance(event, e.ToolEnded) and not is_undo(event.call):
            self._work(
                {"kind": "result", "call": event.call, "tool": event.tool or "", "outcome": event.outcome}
            )
        elif isinstance(event, e.ToolProgress):
            self._work({"kind": "progress", "call": event.call, "progress": event.value})
        elif isinstance(event, e.TaskEnded):
            self._ended = event
        return self._taken()

    def end(self, stop: Stop) -> list[Frame]:
        """Return the updates for the state in which the task stopped; none if the client knows it."""
        ended = self._ended
        state = state_of(stop, rests=True)
        error = ended.error.message if ended is not None and ended.error is not None else ""
        if ended is not None and state == COMPLETED:
            self._finish(ended.output)
        self._send_files(stop.artifacts)
        metadata = degraded(stop.state, ended.reasons) if ended is not None else {}
        self._set_status(status_of(self.task_id, self._context_id, state, stop, self._time, error), metadata)
        return self._taken()

    # ---------------------------------------------------------------------------------------------- status

    def _work(self, facts: Frame | None = None) -> None:
        """Report that the task is at work, with a call that begins or ends."""
        status = {"state": WORKING, "timestamp": moment(self._time)}
        self._set_status(status, facts or {})

    def _set_status(self, status: Frame, facts: Frame) -> None:
        is_same = all(status.get(name) == self._status.get(name) for name in ("state", "message"))
        if is_same and not facts:
            return
        self._status = status
        update: Frame = {"taskId": self.task_id, "contextId": self._context_id, "status": status}
        self._out.append({"statusUpdate": {**update, "metadata": {OWN: facts}} if facts else update})

    # ---------------------------------------------------------------------------------------------- answers

    def _write(self, delta: e.Delta) -> None:
        key = (delta.step, delta.call)
        if delta.call is not None or not delta.is_text:
            return  # a request of a step function, reasoning or arguments
        if key in self._gaps or self._places.is_gap(delta):
            self._gaps.add(key)  # the stored answer has the rest
            return
        part = self._places.new_part(delta)
        if part is not None and part.text:
            self._work()
            self._append(key, part.text)

    def _append(self, key: AnswerKey, text: str) -> None:
        follows = self._text is not None and self._key == key
        self._text = f"{self._text}{text}" if follows else text
        self._key = key
        self._emit([{"text": text}], append=follows)

    def _return(self, event: e.ModelReturned) -> None:
        key = (event.step, event.call)
        self._places.forget(key)
        self._gaps.discard(key)
        text = event.message.text
        if event.call is not None or event.message.tool_calls or not text:
            if self._key == key:
                self._key = None  # the next answer replaces it
            return
        known = (self._text or "") if self._key == key else ""
        if not text.startswith(known):
            self._key, known = None, ""
        if text != known:
            self._append(key, text[len(known) :])

    def _void(self, key: AnswerKey | None) -> None:
        if key is not None:
            self._places.forget(key)
            self._gaps.discard(key)
        if key == self._key:
            self._key = None

    def _finish(self, output: Json) -> None:
        """Send the rest of the answer, or all of it where it differs from the text so far."""
        if isinstance(output, str) and self._text is not None and output.startswith(self._text):
            rest, append = [{"text": output[len(self._text) :]}], True
        else:
            rest, append = answer_parts(output, self._text or ""), False
        self._text = None
        self._emit(rest, append=append, last=True)

    def _emit(self, parts: list[Json], *, append: bool, last: bool = False) -> None:
        update: Frame = {"taskId": self.task_id, "contextId": self._context_id}
        update["artifact"] = answer_artifact(parts)
        if append:
            update["append"] = True
        if last:
            update["lastChunk"] = True
        self._out.append({"artifactUpdate": update})

    def _send_files(self, artifacts: Sequence[Artifact]) -> None:
        """Send the files that the client does not know."""
        for item in artifacts:
            artifact = file_artifact(item, self._link) if item.artifact_id not in self._files else None
            if artifact is not None:
                self._files.add(item.artifact_id)
                update: Frame = {"taskId": self.task_id, "contextId": self._context_id, "artifact": artifact}
                self._out.append({"artifactUpdate": {**update, "lastChunk": True}})

    def _taken(self) -> list[Frame]:
        taken, self._out = self._out, []
        return taken

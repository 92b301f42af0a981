"""Fold the events of a task to progress of an MCP call, and its state to results and task handles. Pure.

Theory of operation
-------------------

A call of a tool is a task. A client reads it in one of two ways:

    call      progress, progress, ...  a result, or requests for input     the connection stays open
    handle    task, then `tasks/get` ... until it has ended                the client polls, any server answers

Both read the same `Standing` of the task, so a handle and a call tell the same. A result says where the task is even
without an answer: a model that reads it must know that a repeated call would begin a second task.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast
from urllib.parse import quote

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.deltas import AnswerKey, ended_by
from treadle.core.display import clean, cut
from treadle.core.messages import File
from treadle.core.observation import as_text
from treadle.results.tasks import Task
from treadle.server.protocols.mcp_forms import Ask, asks_of
from treadle.server.protocols.mcp_tools import Frame
from treadle.server.protocols.stops import Stop

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension in which a call returns a handle at once."""

OWN: Final = "treadle/task"
"""The key of Treadle's own data in `_meta`."""

POLL_MS: Final = 1_000
"""Milliseconds between two polls of a handle."""

_TAIL: Final = 200
"""The most characters of a message of progress."""

Status = Literal["working", "input_required", "completed", "cancelled"]


# ------------------------------------------------------------------------------------------------ progress

_TOLD: Final = (e.StepStarted, e.StepFailed, e.ToolStarted, e.ToolEnded, e.CallDeferred)
"""The events that are progress; the rest concerns the journal or is told by the result."""


class CallProgress:
    """The progress of a call: its steps, its calls of tools, and the last words of the answer."""

    def __init__(self) -> None:
        self._words: dict[AnswerKey, str] = {}
        self._changed: AnswerKey | None = None

    def feed(self, item: e.Event | e.Ephemeral) -> list[str]:
        """Return the messages that an event or an ephemeral item causes."""
        if isinstance(item, e.ChildEvent):
            return [f"{item.path[-1]}: {text}" for text in self._told(item.event)] if item.path else []
        if isinstance(item, e.Delta):
            self._write(item)
            return []
        answer = ended_by(item) if isinstance(item, (e.Event, e.ModelRestarted)) else None
        if answer is not None:
            self._words.pop(answer, None)
            self._changed = None if self._changed == answer else self._changed
        return self._told(item)

    @property
    def has_words(self) -> bool:
        """Whether a model wrote since the last `words`."""
        return self._changed is not None

    def words(self) -> str:
        """Return the end of the answer that a model is writing."""
        changed, self._changed = self._changed, None
        text = self._words.get(changed, "") if changed is not None else ""
        line = text.rstrip().rpartition("\n")[2]
        return clean(line if len(line) <= _TAIL else f"…{line[1 - _TAIL :]}")

    def _told(self, item: Any) -> list[str]:
        if isinstance(item, e.ToolProgress):
            return [cut(clean(f"{item.tool}: {as_text(item.value)}"), _TAIL)]
        if isinstance(item, _TOLD) and not getattr(item, "undo", False):
            return [cut(clean(item.description), _TAIL)]
        return []

    def _write(self, delta: e.Delta) -> None:
        if delta.is_text:
            key = (delta.step, delta.call)
            self._words[key] = self._words.get(key, "")[: delta.at] + delta.text
            self._changed = key


# ------------------------------------------------------------------------------------------------ the state


@frozen
class Standing:
    """The state of a call's task.

    Args:
        task: a snapshot of it.
        stop: the state in which it stopped; None if it goes on by itself.
        result: its result in the wire form.
        is_tool: whether it is one call of a served tool, which has no conversation.
        files: the files that its tools made.
    """

    task: Task[Any]
    stop: Stop | None
    result: Frame
    is_tool: bool = False
    files: tuple[File, ...] = ()

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The open requests that a client may answer."""
        return () if self.stop is None else asks_of(self.task.task_id, self.task.head, self.stop)

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended."""
        return self.stop is not None and self.stop.state in e.END_STATES


def status_of(standing: Standing, *, may_ask: bool) -> Status:
    """Return the status of a handle.

    Args:
        standing: the state of its task.
        may_ask: whether the client can show forms. Else a task that asks is `working` with a message.
    """
    if standing.has_ended:
        return "cancelled" if standing.task.state == "cancelled" else "completed"
    return "input_required" if may_ask and standing.asks else "working"


def handle_of(standing: Standing, *, may_ask: bool) -> Frame:
    """Return a task handle, as `tasks/get` returns it."""
    task = standing.task
    status = status_of(standing, may_ask=may_ask)
    frame: Frame = {
        "taskId": task.task_id,
        "status": status,
        "createdAt": _moment(task.created),
        "lastUpdatedAt": _moment(task.updated or task.created),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
        "_meta": {OWN: _facts(standing)},
    }
    if status == "completed":
        frame["result"] = result_of(standing)
    elif status == "input_required":
        frame["inputRequests"] = {ask.key: ask.request for ask in standing.asks}
    message = _message(standing)
    if message:
        frame["statusMessage"] = message
    return frame


def new_handle(task: Task[Any]) -> Frame:
    """Return the handle of a task that was just submitted, as the result of its call."""
    frame = handle_of(Standing(task, None, {}), may_ask=False)
    return {"resultType": "task", **frame}


def result_of(standing: Standing) -> Frame:
    """Return the result of a call whose task has stopped."""
    task, result = standing.task, standing.result
    text, reasons = str(result.get("final_text") or ""), _texts(result.get("degraded_reasons"))
    answered = task.state == "completed" or bool(text)
    if standing.has_ended and not answered:
        return _failure(standing)
    if not standing.has_ended:
        return waiting(standing)
    content = [_text(text)] if text else []
    if reasons:
        content.append(_text(f"This answer is only a best effort: {'; '.join(reasons)}"))
    content += [_file(file, task.task_id) for file in standing.files]
    output = result.get("output")
    facts: Frame = {"answer": text if output is None else output}
    if reasons:
        facts["reasons"] = reasons
    return _result(standing, content, facts)


def waiting(standing: Standing, why: str = "") -> Frame:
    """Return the result of a call whose task goes on or waits: a text that names the task.

    Args:
        standing: the state of the task.
        why: the reason; by default the open requests, or the task's state.
    """
    task = standing.task
    why = why or _message(standing) or f"the task is {task.state_text}"
    again = (
        f"Do not begin it anew: call {task.agent} again with the same arguments and `task_id` "
        f'"{task.task_id}" for the result.'
    )
    if standing.is_tool:
        again = f"Do not call {task.agent} again: the task goes on by itself."
    told = f"Task {task.task_id} has no answer yet: {why}. {again}"
    if standing.stop is not None:
        told += (
            f" A person decides in the inspector of the server, or as `treadle pending {task.task_id}` shows."
        )
    return _result(standing, [_text(told)], {"waits_for": _requests(standing)})


def refusal(text: str) -> Frame:
    """Return the result of a call that began no task."""
    return {"resultType": "complete", "content": [_text(text)], "isError": True}


def _failure(standing: Standing) -> Frame:
    task = standing.task
    error: Any = standing.result.get("error")
    reasons = _texts(standing.result.get("degraded_reasons"))
    message: Any = cast("Frame", error)["message"] if isinstance(error, dict) else "; ".join(reasons)
    message = str(message or "").strip() or f"the task is {task.state}"
    told = f"{message} (task {task.task_id} is {task.state})"
    return {**_result(standing, [_text(told)], {"error": message}), "isError": True}


def _result(standing: Standing, content: list[Frame], facts: Frame) -> Frame:
    task, own = standing.task, _facts(standing)
    frame: Frame = {"resultType": "complete", "content": content, "isError": False, "_meta": {OWN: own}}
    if standing.is_tool:
        answer = facts.get("answer")
        if isinstance(answer, dict):
            frame["structuredContent"] = answer
        return frame
    # Most clients show a model the content alone, and it needs the conversation to go on with it.
    content.append(_text(f"[task_id {task.task_id}, thread_id {task.thread_id}]"))
    return {**frame, "structuredContent": {**own, **facts}}


def _facts(standing: Standing) -> Frame:
    task = standing.task
    return {"task_id": task.task_id, "thread_id": task.thread_id, "state": task.state}


def _message(standing: Standing) -> str:
    """Return why a task waits, or how far it is; empty if there is nothing to tell."""
    if standing.has_ended:
        return ""
    requests = _requests(standing)
    if requests:
        return cut(clean("; ".join(requests)), 1_000)
    stop = standing.stop
    if stop is not None and stop.state != "waiting":
        return f"it is {standing.task.state_text}{f': {clean(stop.reason)}' if stop.reason else ''}"
    return f"step {standing.task.steps}" if standing.task.steps else ""


def _requests(standing: Standing) -> list[str]:
    return [item.text for item in standing.stop.pending] if standing.stop is not None else []


def _texts(values: Any) -> list[str]:
    return [str(each) for each in values or ()]


def _file(file: File, task_id: str) -> Frame:
    """Return a file as content: a picture, a sound, or a resource."""
    media, name = file.media_type or "application/octet-stream", file.name or "file"
    if file.data is None:
        if file.url is None:
            return _text(f"[{name}: too large for a result of MCP; download it from task {task_id}]")
        return {"type": "resource_link", "name": name, "uri": file.url, "mimeType": media}
    data = base64.b64encode(file.data).decode()
    kind = media.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": media}
    uri = f"treadle:/tasks/{quote(task_id, safe='')}/{quote(name, safe='')}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media, "blob": data}}


def _text(text: str) -> Frame:
    return {"type": "text", "text": text}


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def input_required(standing: Standing) -> Frame:
    """Return the result of a call whose client answers requests, and then repeats the call."""
    state = f"{standing.task.task_id}@{standing.task.head}"
    frame: Frame = {"resultType": "input_required", "requestState": state}
    if standing.asks:
        frame["inputRequests"] = {ask.key: ask.request for ask in standing.asks}
    return frame


def task_in(state: str) -> tuple[str, int]:
    """Return the task in the `requestState` of a repeated call, and the number of the last event that it knows.

    The task is empty for any other text.
    """
    task_id, _, head = state.rpartition("@")
    return (task_id, int(head)) if head.isascii() and head.isdigit() and len(head) < 16 else ("", 0)

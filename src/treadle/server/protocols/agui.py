"""Fold the events of a task to the events of an AG-UI run. Pure.

Theory of operation
-------------------

A run of AG-UI is a part of a task: from its beginning, or from the answers to its open requests, to its next stop. The
fold reads the journal from its first event on. Events up to `after` belong to earlier runs. They are read quietly, so
that the fold knows the steps, calls and subagents that are under way.

    journal   1 2 3 4 5 6 7 8 9 . . .
    run 1     |-------|                    RUN_STARTED ... RUN_FINISHED with interrupts
    run 2       quiet |-------------->     RUN_STARTED ... RUN_FINISHED

A model's answer is one message, and its id follows from the journal: `TASK/STEP`, or `TASK/REQUEST` for a request of a
step function. A later answer in the same step has `#2` behind it. The id of a call is `TASK/CALL`, and that of its
result `TASK/CALL/result`. So the same run has the same ids each time that it is sent.

Deltas become content at once. The stored answer then adds the part that no delta brought. If an answer is void, or
differs from its deltas, a snapshot of all messages replaces it.

Invariant: `messages` are the messages that a client has which read all events so far.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.deltas import AnswerKey, DeltaPlaces, ended_by
from treadle.core.ids import approved_call, base_call_id, call_id, content_name, is_undo, undone_call
from treadle.core.messages import Content, Image, Json, Reasoning, Text, ToolCall
from treadle.core.model import Usage
from treadle.core.observation import as_text
from treadle.results.caller_tools import names_of
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.server.protocols.decisions import SETTLEMENT, approval_schema
from treadle.server.protocols.stops import Stop
from treadle.server.protocols.token_counts import TokenCounts

VERSION: Final = "1.0"
"""The version of the protocol."""

OWN: Final = "treadle"
"""The key of Treadle's own data in `metadata` and `forwardedProps`."""

Frame: TypeAlias = dict[str, Json]
"""An event or a message of AG-UI."""

RESUME: Final = "resume"
"""The request of a paused task to go on, as the part of an interrupt's id after the task."""

_IN_BACKGROUND: Final = "the call goes on in the background"


def interrupt_id(task_id: str, request_id: str) -> str:
    """Return the id of an interrupt: the task that asks, and its request."""
    return f"{task_id}:{request_id}"


def request_of(interrupt: str) -> tuple[str, str]:
    """Return the task and the request of an interrupt's id; the task is empty for any other id."""
    task_id, _, request_id = interrupt.rpartition(":")
    return task_id, request_id


def tool_call_id(task_id: str, call: str) -> str:
    """Return the id of a call for clients, the same in each attempt of its step."""
    return f"{task_id}/{base_call_id(undone_call(call))}"


def call_of(item: Pending) -> str | None:
    """Return the call, for clients, that an open request is about; None if it is about no call."""
    if item.kind == "approval":
        approved = approved_call(item.request_id)
        if approved is None or content_name(approved[0]) is not None:
            return None
        return tool_call_id(item.task_id, approved[0])
    if item.kind == "settlement":
        return tool_call_id(item.task_id, item.request_id)
    asker = item.request_id.rpartition("-q")[0]
    return tool_call_id(item.task_id, asker) if asker and item.tool else None


# ------------------------------------------------------------------------------------------------ interrupts


def interrupt_of(item: Pending, root: str) -> Frame:
    """Return an open request of a person as an interrupt.

    Args:
        item: the request.
        root: the task of the run; the request may come from a task below it.
    """
    call = call_of(item)
    schema: Any = item.schema
    facts: dict[str, Json] = {"kind": item.kind, "task_id": item.task_id, "request_id": item.request_id}
    for name in ("tool", "arguments", "rule", "reason", "preview", "idempotency_key", "default"):
        if value := getattr(item, name):
            facts[name] = value
    frame: Frame = {
        "id": interrupt_id(item.task_id, item.request_id),
        "reason": "input_required",
        "message": item.text,
        "metadata": {OWN: facts},
    }
    if item.kind == "approval":
        frame["reason"] = "confirmation" if call is None else "tool_call"
        frame["responseSchema"] = approval_schema(item)
    elif item.kind == "settlement":
        frame["reason"], frame["responseSchema"] = f"{OWN}:settlement", SETTLEMENT
    elif isinstance(schema, dict):
        frame["responseSchema"] = schema
    if call is not None:
        frame["toolCallId"] = call
    if item.expires is not None:
        frame["expiresAt"] = datetime.fromtimestamp(item.expires / 1e6, UTC).isoformat()
    if item.task_id != root:
        frame["subagentRunId"] = item.task_id
    return frame


def _resume_interrupt(task_id: str, stop: Stop) -> Frame:
    """Return the interrupt of a task that no request holds up: it was paused, or stands between two steps."""
    reasons = [item.text for item in stop.pending if item.kind == "request"]
    return {
        "id": interrupt_id(task_id, RESUME),
        "reason": f"{OWN}:{stop.state}",
        "message": "; ".join(reasons) or stop.reason or f"the task is {stop.state}",
        "metadata": {OWN: {"kind": RESUME, "task_id": task_id}},
    }


# ------------------------------------------------------------------------------------------------ the fold


@mutable
class _Answer:
    """A model's answer that is being sent, or was sent in part."""

    message_id: str
    text: str = ""
    reasoning: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """the names of its calls so far"""

    open: dict[str, str] = field(default_factory=dict[str, str])
    """its open parts: `text`, `reasoning`, or the ids of calls; each with the id in its frames"""

    sent: bool = False
    has_gap: bool = False


class AguiRun:
    """The events of one run.

    Args:
        task_id: the task.
        thread_id: the conversation, as the client names it.
        run_id: the run, as the client names it.
        messages: the messages of the client from before the events of this run.
        after: sequence number of the last event that belongs to an earlier run.
        again: whether the run was sent before, so that the client may have some of its messages.
    """

    def __init__(
        self,
        task_id: str,
        thread_id: str,
        run_id: str,
        messages: Sequence[Frame] = (),
        *,
        after: int = 0,
        again: bool = False,
    ) -> None:
        self.task_id = task_id
        self.messages: list[Frame] = list(messages)
        self.again = again
        self._ids: Frame = {"threadId": thread_id, "runId": run_id}
        self._after = after
        self._out: list[Frame] = []
        self._works: dict[str, _Work] = {task_id: _Work(self, task_id, None)}
        self._ended: e.TaskEnded | None = None
        self._tokens = TokenCounts()
        self._extra_state: dict[str, Json] | None = None
        self.caller_tools: frozenset[str] = frozenset()
        """the names of the tools that the client runs"""

        self.is_quiet = after > 0

    def begin(self) -> list[Frame]:
        """Return the events that open the run."""
        own: Json = {OWN: {"task_id": self.task_id}}
        started = {"type": "RUN_STARTED", **self._ids, "protocolVersion": VERSION, "metadata": own}
        self._out = [started]
        if self.again:
            self.snapshot()
        return self._taken()

    def feed(self, item: e.Event | e.Ephemeral) -> list[Frame]:
        """Return the events of the run that an event, a delta or another ephemeral item of its task causes."""
        if isinstance(item, e.ChildEvent):
            if not self.is_quiet:
                self._feed_child(item)
            return self._taken()
        event = e.known_part(item) if isinstance(item, e.Event) else item
        self._tokens.read(event, counts=not self.is_quiet)
        if isinstance(event, (e.TaskCreated, e.TaskForked, e.OptionsChanged)):
            self.caller_tools = names_of(event.options)
        if isinstance(event, e.TaskEnded):
            self._ended = event
        self._change_state(event)
        self._works[self.task_id].feed(event)
        if self.is_quiet and isinstance(item, e.Event) and item.seq >= self._after:
            self.is_quiet = False
            self._works[self.task_id].go_on()
        return self._taken()

    def end(self, stop: Stop) -> list[Frame]:
        """Return the events that close the run, for the state in which its task stopped."""
        self.is_quiet = False
        self._close(suspended=stop.state not in e.END_STATES)
        if stop.extra_state is not None and stop.extra_state != self._extra_state:
            self.emit("STATE_SNAPSHOT", None, snapshot=stop.extra_state)
        if stop.state == "failed":
            error = self._ended.error if self._ended is not None else None
            kind, message = (
                (error.kind, error.message) if error is not None else ("failed", "the task failed")
            )
            return [*self._taken(), {**error_frame(message, kind), **self._usage()}]
        self._out.append({**self._finished(stop), **self._usage()})
        return self._taken()

    def _usage(self) -> Frame:
        """Return the tokens of the run by model, if any: those of subagents have no model."""
        usage: list[Json] = [_token_usage(model, usage) for model, usage in self._tokens.by_model.items()]
        return {"usage": usage} if usage else {}

    def _finished(self, stop: Stop) -> Frame:
        frame: Frame = {"type": "RUN_FINISHED", **self._ids}
        if stop.state == "cancelled":
            return {**frame, "outcome": {"type": "cancelled"}}
        if stop.state in e.END_STATES:
            ended = self._ended
            if ended is not None:
                frame["result"] = ended.output
                if ended.reasons:
                    frame["metadata"] = {OWN: {"state": stop.state, "reasons": list(ended.reasons)}}
            return {**frame, "outcome": {"type": "success"}}
        interrupts = [interrupt_of(item, self.task_id) for item in stop.pending if item.kind in FOR_PEOPLE]
        calls = [call_of(item) for item in stop.pending if item.kind == "call"]
        if not interrupts and calls:
            return {**frame, "outcome": {"type": "success", "pendingToolCallIds": calls}}
        interrupts = interrupts or [_resume_interrupt(self.task_id, stop)]
        return {**frame, "outcome": {"type": "interrupt", "interrupts": interrupts}}

    # ------------------------------------------------------------------------------------- shared by the tasks

    def emit(self, kind: str, owner: str | None, **fields: Json) -> None:
        """Add an event, unless it belongs to an earlier run."""
        if not self.is_quiet:
            tag = {} if owner is None else {"subagentRunId": owner}
            self._out.append({"type": kind, **tag, **fields})

    def keep(self, message: Frame) -> None:
        """Add a message, or replace the one of the same id, unless it belongs to an earlier run."""
        if self.is_quiet:
            return
        for index, known in enumerate(self.messages):
            if known["id"] == message["id"]:
                self.messages[index] = message
                return
        self.messages.append(message)

    def drop(self, ids: Sequence[str]) -> None:
        """Remove messages by their ids."""
        gone = set(ids)
        self.messages = [message for message in self.messages if message["id"] not in gone]

    def snapshot(self) -> None:
        """Send all messages, in place of those that the client has."""
        self.emit("MESSAGES_SNAPSHOT", None, messages=list(self.messages))

    def begin_child(self, task_id: str, name: str, parent: _Work | None, call: str | None) -> None:
        """Begin to attribute events to a subagent, which is a task below this one."""
        if task_id in self._works or self.is_quiet:
            return
        fields: dict[str, Json] = {"name": name}
        if parent is not None and parent.owner is not None:
            fields["parentSubagentRunId"] = parent.owner
        if call is not None:
            fields["parentToolCallId"] = call
        self._works[task_id] = _Work(self, task_id, task_id)
        self.emit("SUBAGENT_STARTED", task_id, **fields)

    def end_child(self, task_id: str, error: e.Failure | None = None, *, suspended: bool = False) -> None:
        """End the events of a subagent."""
        work = self._works.get(task_id)
        if work is None or work.has_ended:
            return
        work.close()
        work.has_ended = True
        if error is not None:
            self.emit("SUBAGENT_ERROR", task_id, message=error.message, code=error.kind)
        elif suspended:
            self.emit("SUBAGENT_FINISHED", task_id, outcome={"type": "suspended"})
        else:
            self.emit("SUBAGENT_FINISHED", task_id, outcome={"type": "success"})

    def _feed_child(self, item: e.ChildEvent) -> None:
        if item.task_id not in self._works:  # its beginning was missed
            direct = len(item.path) == 1
            call = tool_call_id(self.task_id, item.call) if direct else None
            self.begin_child(item.task_id, item.path[-1], None, call)
        work = self._works[item.task_id]
        if not work.has_ended:
            work.feed(e.known_part(item.event) if isinstance(item.event, e.Event) else item.event)

    def _change_state(self, event: e.Event | e.Ephemeral) -> None:
        """Send the task's extra state after a change."""
        created: Any = event.extra_state if isinstance(event, e.TaskCreated) else None
        if isinstance(created, dict):
            self._extra_state = cast("dict[str, Json]", created)
        elif (changes := getattr(event, "changes", None)) is not None:
            known = self._extra_state or {}
            kept = {name: value for name, value in known.items() if name not in changes.removed}
            self._extra_state = {**kept, **changes.values}
        else:
            return
        self.emit("STATE_SNAPSHOT", None, snapshot=self._extra_state)

    def _close(self, *, suspended: bool) -> None:
        for task_id, work in reversed(self._works.items()):
            if work.owner is None:
                work.close()
            else:
                self.end_child(task_id, suspended=suspended)

    def _taken(self) -> list[Frame]:
        taken, self._out = self._out, []
        return taken


def _token_usage(model: str, usage: Usage) -> Frame:
    """Return tokens as the protocol counts them; a model without a provider has none in its name."""
    provider, separator, name = model.partition(":")
    labels = {"provider": provider, "model": name} if separator else {"model": model} if model else {}
    return {
        **labels,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def error_frame(message: str, code: str) -> Frame:
    """Return the event of a run that failed."""
    return {"type": "RUN_ERROR", "message": message, "code": code}


class _Work:
    """The part of a run that one task does: the task of the run, or one below it."""

    def __init__(self, run: AguiRun, task_id: str, owner: str | None) -> None:
        self.owner = owner
        self.has_ended = False
        self._run = run
        self._task_id = task_id
        self._steps: dict[str, int] = {}
        """the indices of the steps that began, by their ids"""

        self._open_steps: dict[str, None] = {}
        self._answers: dict[AnswerKey, _Answer] = {}
        self._counts: dict[AnswerKey, int] = {}
        """how many answers to each request returned"""

        self._places = DeltaPlaces()
        self._made: dict[str, list[str]] = {}
        """the ids of the messages of each step"""

        self._calls: dict[str, str] = {}
        """the ids of the messages that hold the calls, by the calls' ids for clients"""

        self._results: set[str] = set()
        self._children: dict[str, str] = {}
        """the tasks of calls of agents, by the calls' ids for clients"""

    def feed(self, event: e.Event | e.Ephemeral) -> None:
        """Emit the events that an event or a delta of this task causes."""
        if isinstance(event, e.Delta):
            self._write(event)
        elif isinstance(event, e.ModelReturned):
            self._return(event)
        elif isinstance(event, (e.ModelFailed, e.ModelStopped, e.ModelRestarted)):
            answer = ended_by(event)
            assert answer is not None, "these events void an answer"
            self._void([answer])
        elif isinstance(event, e.StepStarted):
            self._begin_step(event)
        elif isinstance(event, (e.StepCompleted, e.StepFailed, e.StepSkipped)):
            self._end_step(event.step)
        elif isinstance(event, e.CallRequested):
            self._request_call(event)
        elif isinstance(event, e.ToolStarted):
            self._start_call(event)
        elif isinstance(event, e.ToolStopped):
            self._stop_call(event)
        elif isinstance(event, e.ToolEnded):
            self._end_call(event)
        elif isinstance(event, e.CallDeferred):
            text = _IN_BACKGROUND if event.details is None else f"{_IN_BACKGROUND}: {as_text(event.details)}"
            self._result(event.call, event.step, text, None)
        elif isinstance(event, e.ToolProgress):
            value: Json = {"toolCallId": tool_call_id(self._task_id, event.call), "progress": event.value}
            self._emit("CUSTOM", name="tool_progress", value=value)
        elif isinstance(event, e.Rewound):
            self._rewind(event)
        elif isinstance(event, e.InputReceived):
            self._read_input(event)

    def go_on(self) -> None:
        """Emit the steps that are under way at the beginning of the run."""
        for step in self._open_steps:
            self._emit("STEP_STARTED", stepName=step)

    def close(self) -> None:
        """Close everything that is open."""
        self._void(list(self._answers))
        for step in list(self._open_steps):
            self._end_step(step)

    def _emit(self, kind: str, **fields: Json) -> None:
        self._run.emit(kind, self.owner, **fields)

    def _keep(self, step: str, message: Frame) -> None:
        tag = {} if self.owner is None else {"subagentRunId": self.owner}
        self._run.keep({**message, **tag})
        made = self._made.setdefault(step, [])
        if message["id"] not in made:
            made.append(message["id"])

    # ---------------------------------------------------------------------------------------------- steps

    def _begin_step(self, event: e.StepStarted) -> None:
        self._steps[event.step] = event.index
        if event.step not in self._open_steps:
            self._open_steps[event.step] = None
            self._emit("STEP_STARTED", stepName=event.step)

    def _end_step(self, step: str) -> None:
        self._void([answer for answer in self._answers if answer[0] == step])
        if step in self._open_steps:
            del self._open_steps[step]
            self._emit("STEP_FINISHED", stepName=step)

    def _rewind(self, event: e.Rewound) -> None:
        undone = [step for step, index in self._steps.items() if index > event.to or step in event.steps]
        for step in undone:
            self._end_step(step)
            del self._steps[step]
        ids = [made for step in undone for made in self._made.pop(step, ())]
        if ids:
            self._run.drop(ids)
            self._run.snapshot()

    # -------------------------------------------------------------------------------------------- answers

    def _answer(self, key: AnswerKey) -> _Answer:
        answer = self._answers.get(key)
        if answer is None:
            step, request = key
            count = self._counts.get(key, 0)
            message_id = f"{self._task_id}/{request or step}{f'#{count + 1}' if count else ''}"
            answer = self._answers[key] = _Answer(message_id)
        return answer

    def _write(self, delta: e.Delta) -> None:
        answer = self._answer((delta.step, delta.call))
        if answer.has_gap or self._places.is_gap(delta):
            answer.has_gap = True  # the stored answer has the rest
            return
        part = self._places.new_part(delta)
        if part is None:
            return
        if part.channel == "reasoning":
            self._write_reasoning(answer, part.text)
        elif part.is_text:
            self._write_text(answer, part.text)
        else:
            call = part.call_id or call_id(part.call or part.step, part.index)
            answer.names[call] = answer.names.get(call, "") + part.tool
            if part.text:
                self._write_arguments(answer, call, answer.names[call], part.text)

    def _write_reasoning(self, answer: _Answer, text: str) -> None:
        if not text:
            return
        message_id = f"{answer.message_id}/reasoning"
        if "reasoning" not in answer.open:
            answer.open["reasoning"] = message_id
            self._emit("REASONING_START", messageId=message_id)
            self._emit("REASONING_MESSAGE_START", messageId=message_id, role="reasoning")
        answer.reasoning += text
        answer.sent = True
        self._emit("REASONING_MESSAGE_CONTENT", messageId=message_id, delta=text)

    def _write_text(self, answer: _Answer, text: str) -> None:
        if not text:
            return
        self._close_part(answer, "reasoning")
        if "text" not in answer.open:
            answer.open["text"] = answer.message_id
            self._emit("TEXT_MESSAGE_START", messageId=answer.message_id, role="assistant")
        answer.text += text
        answer.sent = True
        self._emit("TEXT_MESSAGE_CONTENT", messageId=answer.message_id, delta=text)

    def _write_arguments(self, answer: _Answer, call: str, name: str, text: str) -> None:
        self._close_part(answer, "reasoning")
        known = tool_call_id(self._task_id, call)
        if known not in answer.open:
            answer.open[known] = known
            answer.sent = True
            self._emit(
                "TOOL_CALL_START", toolCallId=known, toolCallName=name, parentMessageId=answer.message_id
            )
        if text:
            self._emit("TOOL_CALL_ARGS", toolCallId=known, delta=text)

    def _close_part(self, answer: _Answer, part: str) -> None:
        message_id = answer.open.pop(part, None)
        if message_id is None:
            return
        if part == "reasoning":
            self._emit("REASONING_MESSAGE_END", messageId=message_id)
            self._emit("REASONING_END", messageId=message_id)
        elif part == "text":
            self._emit("TEXT_MESSAGE_END", messageId=message_id)
        else:
            self._emit("TOOL_CALL_END", toolCallId=message_id)

    def _close_parts(self, answer: _Answer) -> None:
        for part in list(answer.open):
            self._close_part(answer, part)

    def _void(self, keys: Sequence[AnswerKey]) -> None:
        """Take back answers that were sent in part: a snapshot has all other messages."""
        was_sent = False
        for key in keys:
            self._places.forget(key)
            answer = self._answers.pop(key, None)
            if answer is not None:
                self._close_parts(answer)
                was_sent = was_sent or answer.sent
        if was_sent:
            self._run.snapshot()

    def _return(self, event: e.ModelReturned) -> None:
        key = (event.step, event.call)
        answer = self._answer(key)
        self._places.forget(key)
        del self._answers[key]
        self._counts[key] = self._counts.get(key, 0) + 1
        message = event.message
        reasoning = "".join([part.text for part in message.parts if isinstance(part, Reasoning)])
        is_other = not (reasoning.startswith(answer.reasoning) and message.text.startswith(answer.text))
        calls = {tool_call_id(self._task_id, call.id): call for call in message.tool_calls}
        streamed = {part for part in answer.open if part not in ("text", "reasoning")}
        is_other = is_other or not streamed <= calls.keys()
        if not is_other:
            self._write_reasoning(answer, reasoning[len(answer.reasoning) :])
            self._write_text(answer, message.text[len(answer.text) :])
            for known, call in calls.items():
                if known not in streamed:
                    self._write_arguments(answer, call.id, call.name, _arguments_text(call))
        self._close_parts(answer)
        self._calls |= dict.fromkeys(calls, answer.message_id)
        if reasoning:
            content = {"id": f"{answer.message_id}/reasoning", "role": "reasoning", "content": reasoning}
            self._keep(event.step, content)
        if message.text or calls:
            self._keep(event.step, _assistant(answer.message_id, message.text, calls))
        if is_other:
            self._run.snapshot()

    # ---------------------------------------------------------------------------------------------- calls

    def _request_call(self, event: e.CallRequested) -> None:
        """Emit a call that a step function makes; no message of a model holds it."""
        known = tool_call_id(self._task_id, event.call)
        if known in self._calls:
            return
        self._calls[known] = known
        call = ToolCall(event.call, event.name, event.arguments)
        self._emit("TOOL_CALL_START", toolCallId=known, toolCallName=event.name)
        self._emit("TOOL_CALL_ARGS", toolCallId=known, delta=_arguments_text(call))
        self._emit("TOOL_CALL_END", toolCallId=known)
        self._keep(event.step, _assistant(known, "", {known: call}))

    def _start_call(self, event: e.ToolStarted) -> None:
        if event.child is not None and not event.undo:
            known = tool_call_id(self._task_id, event.call)
            self._children[known] = event.child
            self._run.begin_child(event.child, event.tool or "agent", self, known)

    def _stop_call(self, event: e.ToolStopped) -> None:
        """End a subagent whose task failed; another one begins again for its call."""
        child = self._children.get(tool_call_id(self._task_id, event.call))
        if child is not None and event.failed is not None:
            error = event.error or e.Failure("subagent", "failed", "the agent's task failed")
            self._run.end_child(child, error)

    def _end_call(self, event: e.ToolEnded) -> None:
        if is_undo(event.call):
            return
        known = tool_call_id(self._task_id, event.call)
        child = self._children.pop(known, None)
        if child is not None:
            failure = event.error or e.Failure("subagent", event.outcome, f"the agent's task {event.outcome}")
            self._run.end_child(child, None if event.outcome == "ok" else failure)
        content: Json
        if event.observation is not None:
            content = _parts(event.observation)
        elif event.error is not None:
            content = event.error.message
        else:
            content = as_text(event.output)
        error = event.error.message if event.error is not None else None
        if event.outcome != "ok" and error is None:
            error = event.outcome
        self._result(event.call, event.step, content, error, event.tool)

    def _result(self, call: str, step: str, content: Json, error: str | None, tool: str = "") -> None:
        """Emit the result of a call; a later result replaces it by a snapshot."""
        known = tool_call_id(self._task_id, call)
        if known not in self._calls:
            return
        if tool in self._run.caller_tools and self.owner is None and not self._run.again:
            return  # the client has the result: it sent it
        message: Frame = {"id": f"{known}/result", "role": "tool", "toolCallId": known, "content": content}
        if error is not None:
            message["error"] = error
        is_first = known not in self._results
        self._results.add(known)
        self._keep(step, message)
        if is_first:
            fields = {"messageId": message["id"], "toolCallId": known, "content": content, "role": "tool"}
            self._emit("TOOL_CALL_RESULT", **fields)
        else:
            self._run.snapshot()

    # ---------------------------------------------------------------------------------------------- input

    def _read_input(self, event: e.InputReceived) -> None:
        """Emit a message that someone else sent to the task; the client has its own."""
        text = "".join([part.text for part in event.parts if isinstance(part, Text)])
        if event.role != "user" or event.observation or not text or OWN_INPUT in (event.inbox or ""):
            return
        message_id = f"{self._task_id}/in{event.seq}"
        self._emit("TEXT_MESSAGE_START", messageId=message_id, role="user")
        self._emit("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=text)
        self._emit("TEXT_MESSAGE_END", messageId=message_id)
        self._keep("", {"id": message_id, "role": "user", "content": text})


OWN_INPUT: Final = "agui-"
"""The beginning of the ids of commands that runs of this protocol send."""


def _arguments_text(call: ToolCall) -> str:
    if call.raw is not None:
        return call.raw
    return json.dumps(call.arguments, ensure_ascii=False)


def _assistant(message_id: str, text: str, calls: dict[str, ToolCall]) -> Frame:
    message: Frame = {"id": message_id, "role": "assistant"}
    if text:
        message["content"] = text
    if calls:
        message["toolCalls"] = [
            {
                "id": known,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments_text(call)},
            }
            for known, call in calls.items()
        ]
    return message


def _parts(parts: Sequence[Content]) -> Json:
    """Return content as text, or as a list of parts if it has pictures or files."""
    if all(isinstance(part, Text) for part in parts):
        return "".join([cast("Text", part).text for part in parts])
    shown = [_part(part) for part in parts]
    return [part for part in shown if part is not None]


def _part(part: Content) -> Frame | None:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    kind = "image" if isinstance(part, Image) else "document"
    source: dict[str, Any] = {}
    if part.data is not None:
        data = base64.b64encode(part.data).decode()
        source = {"type": "data", "value": data, "mimeType": part.media_type or "application/octet-stream"}
    elif part.url is not None:
        source = {"type": "url", "value": part.url}
        if part.media_type is not None:
            source["mimeType"] = part.media_type
    else:
        return None
    return {"type": kind, "source": source}

"""Fold the events of a task to a response of the Responses API, and to the events of its stream. Pure.

Theory of operation
-------------------

A response is a part of a task: from its beginning, or from the answers of a client, to its next stop. A client that
answers gets a response of its own, so its answers carry a *mark*, the name of that part, in the ids of their commands.
The fold reads the journal from its first event on. Events of other parts are read quietly.

    journal           1 2 3 4 5 6 7 8 9 . . .
    resp_t            |-------|                  created ... completed, with a function call
    resp_t~4c1f...      quiet |-------------->   from the first event that has this mark

A sequence number is `seq * 2^20 + place`. The place of a frame of an event is fixed by the event. So a client that has
seen a number needs those after it, at any server of the store, also after a crash:

    place of a frame in the events of one answer, whose request began with event N and whose answer is event M

    N * 2^20 + 2^13                   the reasoning item was added; its text so far is 2^13 + 16 + characters
    N * 2^20 + 2^18 + 16              the message was added; its text so far is 2^18 + 32 + characters
    N * 2^20 + 2^19 + 16              the same for a message after a reasoning item
    M * 2^20 + 8 ...                  the rest of the reasoning, the rest of the text, and the ends of both items

Text is sent while it is written for one request at a time, the first that began. Events in between wait until its
answer has ended. So the order of the items follows from the journal alone.

If an answer is void after a part of it was sent, `treadle:output_void` names its item. Later deltas of the item begin
anew, and its `done` events hold the true text.

Invariant: `response()` has the items that a client has which read all frames so far, with their true content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.deltas import AnswerKey, DeltaPlaces, DeltasSoFar, ended_by
from treadle.core.ids import approval_id, content_name, is_undo
from treadle.core.messages import Json, Reasoning, Text, ToolCall
from treadle.results.caller_tools import names_of
from treadle.server.protocols.agui import tool_call_id
from treadle.server.protocols.responses_object import (
    OWN,
    PREVIOUS,
    Facts,
    Frame,
    approval_item_id,
    is_same,
    json_text,
    output_text,
    response_id,
    response_of,
    status_of,
    text_part,
    usage_of,
)
from treadle.server.protocols.stops import Stop
from treadle.server.protocols.token_counts import TokenCounts

COMMAND: Final = "responses-"
"""The beginning of the ids of commands that requests of this protocol send."""

PLACES: Final = 1 << 20
"""The places of one event in sequence numbers."""

_MARK: Final = re.compile(rf"{COMMAND}([0-9a-f]{{16}})-")
_DURABLE: Final = 8
_LIVE: Final = 1 << 13
_REASONING: Final = _LIVE + 16
_REASONING_DONE: Final = 1 << 18
_MESSAGE: Final = _REASONING_DONE + 16
_MESSAGE_AFTER_REASONING: Final = (1 << 19) + 16
_STOP: Final = PLACES - _LIVE
"""The first place of frames that a stop of the task causes."""

_VOID_REASONING, _VOID_MESSAGE, _VOID_MESSAGE_AFTER_REASONING = 1, 2, 3
"""The places of the frame that voids an attempt, which tell the items that it had."""

_VOID_WHILE_LIVE: Final = _STOP - 1
_OF_ONE_ITEM: Final = 8
"""The places of the rest of an item in the frames of an answer."""


def mark_of(inbox: str | None) -> str | None:
    """Return the name of the part that a command begins or belongs to; None for any other command."""
    found = _MARK.search(inbox) if inbox else None
    return found[1] if found is not None else None


@mutable
class _Answer:
    """A model's answer, over all attempts at it: the places of its items in the output."""

    message_id: str
    reasoning: int | None = None
    message: int | None = None
    reasoning_is_done: bool = False


@mutable
class _Slot:
    """The request whose text is sent while it is written."""

    key: AnswerKey
    seq: int
    reasoning: int = 0
    """how many characters of the reasoning the client has"""

    text: int = 0
    """how many characters of the text the client has"""

    known: str = ""
    """the text as it was written here"""

    known_reasoning: str = ""

    is_live: bool = True


@mutable
class _Item:
    """An item of the output."""

    item: Frame
    step: str
    is_done: bool = False
    is_undone: bool = False


class ResponseFold:
    """The events of one response.

    Args:
        task_id: the task.
        facts: further facts about it.
        part: the name of its part; empty for the first.
        after: the part begins after this event at the latest; None if only its mark tells.
        since: the sequence number of the last event of the stream that the client has.
    """

    def __init__(
        self,
        task_id: str,
        facts: Facts,
        part: str = "",
        *,
        after: int | None = None,
        since: int | None = None,
    ) -> None:
        self.task_id = task_id
        self.part = part
        self.is_over = False
        """whether another part of the task began, so that this response changes no more"""

        self.final: Frame | None = None
        """the response, once it changes no more or its task has stopped"""

        self._facts = facts
        self._after = after
        self._since = -1 if since is None else since
        self._out: list[Frame] = []
        self._items: list[_Item] = []
        self._is_open = self._has_mark = self._has_begun = False
        self._agent = ""
        self._options: dict[str, Any] = {}
        self._caller_tools: frozenset[str] = frozenset()
        self._previous = ""
        """the part before"""

        self._instructions: list[str] = []
        self._created = self._ended_at = self._last_time = 0
        self._seq = self._place = 0
        self._slot: _Slot | None = None
        self._waiting: list[e.Event] = []
        """events that wait for the end of the answer in the slot"""

        self._other_answers = DeltasSoFar()
        self._places = DeltaPlaces()
        self._answers: dict[AnswerKey, _Answer] = {}
        self._counts: dict[AnswerKey, int] = {}
        self._steps: dict[str, int] = {}
        self._calls: dict[str, ToolCall] = {}
        """the calls, by their ids for clients"""

        self._call_items: dict[str, int] = {}
        self._answered: set[str] = set()
        """the calls of caller tools whose results the client has sent"""

        self._approvals: dict[str, str] = {}
        """the ids of the items that ask for approvals, by the ids of the calls"""

        self._tokens = TokenCounts()
        self._ended: e.TaskEnded | None = None

    # ---------------------------------------------------------------------------------------------- reading

    def begin(self) -> list[Frame]:
        """Return no frames: those that open the response need its first event."""
        return []

    def feed(self, item: e.Event | e.Ephemeral) -> list[Frame]:
        """Return the frames that an event, a delta or another ephemeral item of its task causes."""
        if self.is_over:
            return []
        if isinstance(item, e.Delta):
            self._write(item)
        elif isinstance(item, e.ModelRestarted):
            self._restart(item)
        elif isinstance(item, e.Event):
            self._begin_or_end(item)
            if not self.is_over:
                self._seq, self._place = item.seq, _DURABLE
                self._last_time = item.time
                self._read(item)
                if self._after is not None and item.seq >= self._after:
                    self._open(item.time)
        return self._taken()

    def end(self, stop: Stop) -> list[Frame]:
        """Return the frames that close the response, for the state in which its task stopped."""
        self._release()
        self._place = _STOP
        for item in stop.pending:
            if item.kind == "approval":
                name = item.tool or (content_name(item.request_id.rpartition("-ask")[0]) or "content")
                self._request_approval(item.task_id, item.request_id, name, item.arguments, "")
        if stop.state in e.END_STATES:
            self._finish_items(range(len(self._items)))
        self._close(self.response(status_of(stop), stop))
        return self._taken()

    @property
    def is_open(self) -> bool:
        """Whether the first event of the response was read."""
        return self._is_open

    def _close(self, response: Frame) -> None:
        self.final = response
        kind = {"completed": "completed", "failed": "failed"}.get(response["status"], "incomplete")
        self._emit(f"response.{kind}", self._seq * PLACES + PLACES - 1, response=response)

    def _begin_or_end(self, event: e.Event) -> None:
        """Open the response at its first event, or end it at the first one of a later part."""
        mark = mark_of(getattr(event, "inbox", None))
        if isinstance(event, (e.TaskCreated, e.TaskForked)):
            self._agent = event.agent
            self._options = event.options or {}
            self._caller_tools = names_of(event.options)
            self._previous = ""
            if not self.part and event.seq > self._facts.forked_at:
                self._open(event.time)
        if mark is None:
            return
        if mark == self.part:
            self._open(event.time)
            self._created = self._created if self._has_mark else event.time
            self._has_mark = True
        elif self._is_open:
            self.is_over = True
            self._release()
            self._ended_at = self._last_time
            self._close(self.response("completed"))
        else:
            self._previous = mark

    def _open(self, time: int) -> None:
        if self._is_open:
            return
        self._is_open, self._created = True, time
        status = "queued" if self._facts.is_queued else "in_progress"
        self._emit("response.created", 0, response=self.response(status))
        if self._facts.is_queued:
            self._emit("response.queued", 1, response=self.response(status))
        else:
            self._tell_progress()

    def _tell_progress(self) -> None:
        """Tell once that the response is in progress."""
        if self._is_open and not self._has_begun:
            self._has_begun = True
            self._emit("response.in_progress", 2, response=self.response("in_progress"))

    def _read(self, event: e.Event) -> None:
        """Handle an event, unless it has to wait for the end of the answer that is being sent."""
        slot, ended = self._slot, ended_by(event)
        if ended is not None:
            self._other_answers.forget(ended)
        if slot is not None and ended_by_or_step(event) not in (slot.key, slot.key[0]):
            if not isinstance(event, (e.Rewound, e.TaskEnded, e.TaskReopened)):
                self._waiting.append(event)
                return
            self._release()
        self._handle(e.known_part(event))
        self._read_waiting()

    def _read_waiting(self) -> None:
        while self._waiting and self._slot is None:
            self._handle(e.known_part(self._waiting.pop(0)))

    def _release(self) -> None:
        """Void the answer that is being sent, and handle the events that wait for it."""
        while self._slot is not None:
            self._void(self._slot.key)
            self._read_waiting()

    def _handle(self, event: e.Event) -> None:
        self._tokens.read(event, counts=self._is_open)
        if isinstance(event, e.ModelStarted):
            self._begin_answer(event)
        elif isinstance(event, e.ModelReturned):
            self._return(event)
        elif isinstance(event, (e.ModelFailed, e.ModelStopped)):
            self._void((event.step, event.call))
        elif isinstance(event, e.StepStarted):
            self._tell_progress()
            self._steps[event.step] = event.index
        elif isinstance(event, (e.StepCompleted, e.StepFailed, e.StepSkipped)):
            self._end_step(event.step)
        elif isinstance(event, e.CallRequested):
            self._calls[self._known(event.call)] = ToolCall(event.call, event.name, event.arguments)
        elif isinstance(event, (e.CallEdited, e.CallJudged, e.ApprovalGiven, e.ArgumentsRewritten)):
            self._change_arguments(event.call, event.arguments)
        elif isinstance(event, e.ApprovalRequested):
            self._read_approval(event)
        elif isinstance(event, e.QuestionAnswered):
            self._answered.add(self._known(event.call))
        elif isinstance(event, e.ToolStarted):
            self._start_call(event)
        elif isinstance(event, e.ToolEnded):
            self._end_call(event)
        elif isinstance(event, e.Rewound):
            self._rewind(event)
        elif isinstance(event, e.OptionsChanged):
            self._options = event.options or {}
            self._caller_tools = names_of(event.options)
        elif isinstance(event, e.InputReceived):
            is_own = self._is_open and f"{COMMAND}{self.part}-instructions" in (event.inbox or "")
            if event.role == "system" and is_own:
                self._instructions = [part.text for part in event.parts if isinstance(part, Text)]
        elif isinstance(event, e.TaskEnded):
            self._end_task(event)
        elif isinstance(event, e.TaskReopened):
            self._ended = None

    # ------------------------------------------------------------------------------------------------ frames

    def _emit(self, kind: str, number: int, **fields: Json) -> None:
        """Add a frame, unless the client has it or it belongs to another part."""
        if self._is_open and number > self._since:
            self._out.append({"type": kind, "sequence_number": number, **fields})

    def _number(self) -> int:
        """Return the next number of the event that is handled."""
        self._place += 1
        return self._seq * PLACES + self._place - 1

    def _taken(self) -> list[Frame]:
        taken, self._out = self._out, []
        return taken

    def _known(self, call: str) -> str:
        return tool_call_id(self.task_id, call)

    def _add(self, item: Frame, step: str, number: int, shown: Frame | None = None) -> int:
        """Append an item to the output, and return its place there."""
        index = len(self._items)
        self._items.append(_Item(item, step))
        self._emit("response.output_item.added", number, output_index=index, item=shown or dict(item))
        return index

    def _done(self, index: int, number: int) -> None:
        entry = self._items[index]
        entry.is_done = True
        self._emit("response.output_item.done", number, output_index=index, item=dict(entry.item))

    def _finish_items(self, indices: Sequence[int]) -> None:
        """End items that will not be completed."""
        for index in indices:
            entry = self._items[index]
            if not entry.is_done:
                if entry.item["type"] != "reasoning":
                    entry.item["status"] = "incomplete"
                self._done(index, self._number())

    # ----------------------------------------------------------------------------------------------- answers

    def _answer(self, key: AnswerKey) -> _Answer:
        answer = self._answers.get(key)
        if answer is None:
            count = self._counts.get(key, 0)
            name = f"{self.task_id}/{key[1] or key[0]}{f'#{count + 1}' if count else ''}"
            answer = self._answers[key] = _Answer(name)
        return answer

    def _begin_answer(self, event: e.ModelStarted) -> None:
        key = (event.step, event.call)
        self._void(key)
        self._slot = _Slot(key, self._seq)
        self._place_in_slot(self._slot)
        for delta in self._other_answers.deltas():
            if (delta.step, delta.call) == key:
                self._write(delta)
        self._other_answers.forget(key)

    def _place_in_slot(self, slot: _Slot) -> None:
        """Add the items of an answer that the client has in part, from the place of the last frame that it has."""
        seq, place = divmod(self._since, PLACES)
        if seq != slot.seq or not _LIVE <= place < _STOP or not self._is_open:
            return
        answer = self._answer(slot.key)
        if place < _MESSAGE or place >= _MESSAGE_AFTER_REASONING:
            self._open_reasoning(answer, slot)
            slot.reasoning = max(0, min(place, _REASONING_DONE) - _REASONING)
            answer.reasoning_is_done = place >= _REASONING_DONE + 2
        if place >= _MESSAGE:
            after_reasoning = place >= _MESSAGE_AFTER_REASONING
            first = _MESSAGE_AFTER_REASONING if after_reasoning else _MESSAGE
            self._open_message(answer, slot)
            slot.text = 0 if place == _VOID_WHILE_LIVE else max(0, place - first - 16)
            slot.is_live = place != _VOID_WHILE_LIVE

    def _write(self, delta: e.Delta) -> None:
        """Send a piece of an answer that is being written."""
        slot, key = self._slot, (delta.step, delta.call)
        if slot is None or slot.key != key:
            self._other_answers.add(delta)
            return
        if not slot.is_live or not self._is_open or delta.channel == "arguments":
            return
        if slot.seq < self._since // PLACES:
            return  # the client has later frames
        if self._places.is_gap(delta):
            slot.is_live = False  # the stored answer has the rest
            return
        part = self._places.new_part(delta)
        if part is None or not part.text:
            return
        answer = self._answer(key)
        if part.channel == "reasoning":
            self._write_reasoning(answer, slot, part)
        else:
            slot.known += part.text
            self._write_text(answer, slot)

    def _write_reasoning(self, answer: _Answer, slot: _Slot, part: e.Delta) -> None:
        end = part.at + len(part.text)
        slot.known_reasoning += part.text
        if answer.message is not None or answer.reasoning_is_done or end > _REASONING_DONE - _REASONING:
            return
        new = part.text[max(0, slot.reasoning - part.at) :]
        if not new:
            return
        index = self._open_reasoning(answer, slot)
        slot.reasoning = end
        number = slot.seq * PLACES + _REASONING + end
        self._emit("response.reasoning_text.delta", number, **self._at(index), delta=new)

    def _write_text(self, answer: _Answer, slot: _Slot) -> None:
        first = _MESSAGE if answer.reasoning is None else _MESSAGE_AFTER_REASONING
        most = (_MESSAGE_AFTER_REASONING if answer.reasoning is None else _VOID_WHILE_LIVE) - first - 32
        new = slot.known[slot.text :]
        if not new or len(slot.known) > most:
            return
        if answer.reasoning is not None and not answer.reasoning_is_done:
            answer.reasoning_is_done = True
            self._end_reasoning(answer.reasoning, slot.seq * PLACES + _REASONING_DONE, slot.known_reasoning)
        index = self._open_message(answer, slot)
        slot.text = len(slot.known)
        number = slot.seq * PLACES + first + 16 + slot.text
        self._emit("response.output_text.delta", number, **self._at(index), delta=new, logprobs=[])

    def _at(self, index: int) -> Frame:
        return {"item_id": self._items[index].item["id"], "output_index": index, "content_index": 0}

    def _open_reasoning(self, answer: _Answer, slot: _Slot | None, number: int = 0) -> int:
        if answer.reasoning is not None:
            return answer.reasoning
        number = number if slot is None else slot.seq * PLACES + _LIVE
        item: Frame = {"type": "reasoning", "id": f"rs_{answer.message_id}", "summary": [], "content": []}
        answer.reasoning = self._add(item, self._step_of(answer), number)
        part: Frame = {"type": "reasoning_text", "text": ""}
        self._emit("response.content_part.added", number + 1, **self._at(answer.reasoning), part=part)
        return answer.reasoning

    def _open_message(self, answer: _Answer, slot: _Slot | None, number: int = 0) -> int:
        if answer.message is not None:
            return answer.message
        if slot is not None:
            number = slot.seq * PLACES + (_MESSAGE if answer.reasoning is None else _MESSAGE_AFTER_REASONING)
        item: Frame = {
            "type": "message",
            "id": f"msg_{answer.message_id}",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        answer.message = self._add(item, self._step_of(answer), number)
        part = text_part("")
        self._emit("response.content_part.added", number + 1, **self._at(answer.message), part=part)
        return answer.message

    def _step_of(self, answer: _Answer) -> str:
        return next((key[0] for key, known in self._answers.items() if known is answer), "")

    def _end_reasoning(self, index: int, number: int, text: str) -> None:
        part: Frame = {"type": "reasoning_text", "text": text}
        self._items[index].item["content"] = [part]
        self._emit("response.reasoning_text.done", number, **self._at(index), text=text)
        self._emit("response.content_part.done", number + 1, **self._at(index), part=part)
        self._done(index, number + 2)

    def _restart(self, item: e.ModelRestarted) -> None:
        """Void what was sent of an answer that begins anew within its request; the stored answer will have all."""
        slot, key = self._slot, (item.step, item.call)
        self._other_answers.forget(key)
        if slot is None or slot.key != key:
            return
        self._places.forget(key)
        slot.is_live = False
        answer = self._answer(key)
        if slot.text and answer.message is not None:
            self._emit_void(answer.message, slot.seq * PLACES + _VOID_WHILE_LIVE)
            slot.text = 0

    def _emit_void(self, index: int, number: int) -> None:
        self._emit(f"{OWN}:output_void", number, **self._at(index))

    def _void(self, key: AnswerKey) -> None:
        """End an attempt at an answer; what was sent of it is void."""
        slot = self._slot
        if slot is None or slot.key != key:
            return
        self._places.forget(key)
        answer, self._slot = self._answer(key), None
        seq, place = divmod(self._since, PLACES)
        if seq == self._seq and 0 < place < _DURABLE and self._is_open:
            self._open_void(answer, place)
        elif slot.text and answer.message is not None:
            place = _VOID_MESSAGE if answer.reasoning is None else _VOID_MESSAGE_AFTER_REASONING
            self._emit_void(answer.message, self._seq * PLACES + place)
        elif slot.reasoning and answer.reasoning is not None and not answer.reasoning_is_done:
            self._emit_void(answer.reasoning, self._seq * PLACES + _VOID_REASONING)

    def _open_void(self, answer: _Answer, place: int) -> None:
        """Add the items of a void attempt, of which the client has no later frame than that which voids it."""
        if place != _VOID_MESSAGE:
            self._open_reasoning(answer, None, self._seq * PLACES)
        if place != _VOID_REASONING:
            answer.reasoning_is_done = answer.reasoning is not None
            self._open_message(answer, None, self._seq * PLACES)

    def _return(self, event: e.ModelReturned) -> None:
        """Send the rest of an answer, and end its items."""
        key = (event.step, event.call)
        answer, slot = self._answer(key), self._slot
        slot = slot if slot is not None and slot.key == key else None
        if slot is not None:
            self._slot = None
            self._places.forget(key)
        self._counts[key] = self._counts.get(key, 0) + 1
        message = event.message
        calls = message.tool_calls
        self._calls |= {self._known(call.id): call for call in calls}
        text, typed = message.text, event.typed
        if typed is not None and typed.call is not None and typed.problem is None:
            text = json_text(typed.output)
            calls = tuple([call for call in calls if call.id != typed.call])
        reasoning = "".join([part.text for part in message.parts if isinstance(part, Reasoning)])
        number = self._seq * PLACES + self._place
        self._place += 2 * _OF_ONE_ITEM
        is_final = not calls and event.call is None and (typed is None or typed.problem is None)
        if self._is_open:
            self._return_reasoning(answer, slot, reasoning, number)
            self._return_text(answer, slot, text, number + _OF_ONE_ITEM, is_final=is_final)
        del self._answers[key]

    def _return_reasoning(self, answer: _Answer, slot: _Slot | None, text: str, number: int) -> None:
        if not text and answer.reasoning is None:
            return
        if answer.reasoning_is_done and answer.reasoning is not None:
            entry = self._items[answer.reasoning]
            was_known, content = bool(entry.item["content"]), [{"type": "reasoning_text", "text": text}]
            is_other = was_known and entry.item["content"] != content
            entry.item["content"] = content
            if is_other:  # it ended in an attempt that is void, or some of it was lost
                self._done(answer.reasoning, number + 6)
            return
        index = self._open_reasoning(answer, None, number)
        rest = text[slot.reasoning if slot is not None else 0 :]
        if rest:
            self._emit("response.reasoning_text.delta", number + 3, **self._at(index), delta=rest)
        answer.reasoning_is_done = True
        self._end_reasoning(index, number + 4, text)

    def _return_text(
        self, answer: _Answer, slot: _Slot | None, text: str, number: int, *, is_final: bool
    ) -> None:
        if not text and answer.message is None:
            return
        index = self._open_message(answer, None, number)
        sent = slot.text if slot is not None else 0
        if slot is not None and sent and not (len(text) >= sent and text.startswith(slot.known[:sent])):
            self._emit_void(index, number + 2)
            sent = 0
        if rest := text[sent:]:
            self._emit("response.output_text.delta", number + 3, **self._at(index), delta=rest, logprobs=[])
        item = self._items[index].item
        item |= {"status": "completed", "phase": "final_answer" if is_final else "commentary"}
        item["content"] = [text_part(text)]
        self._emit("response.output_text.done", number + 4, **self._at(index), text=text, logprobs=[])
        self._emit("response.content_part.done", number + 5, **self._at(index), part=text_part(text))
        self._done(index, number + 6)

    # ------------------------------------------------------------------------------------------------- steps

    def _end_step(self, step: str) -> None:
        for key in [key for key in self._answers if key[0] == step]:
            self._void(key)
            answer = self._answers.pop(key)
            self._finish_items([index for index in (answer.reasoning, answer.message) if index is not None])

    def _rewind(self, event: e.Rewound) -> None:
        undone = [step for step, index in self._steps.items() if index > event.to or step in event.steps]
        for step in undone:
            self._end_step(step)
            del self._steps[step]
        for index, entry in enumerate(self._items):
            if entry.step in undone:
                self._finish_items([index])
                entry.is_undone = True

    # ------------------------------------------------------------------------------------------------- calls

    def _change_arguments(self, call: str, arguments: dict[str, Json] | None) -> None:
        known = self._calls.get(self._known(call))
        if known is not None and arguments is not None:
            self._calls[self._known(call)] = ToolCall(known.id, known.name, arguments)

    def _read_approval(self, event: e.ApprovalRequested) -> None:
        if content_name(event.call) is not None:
            return
        known = self._known(event.call)
        call = self._calls.get(known)
        name = event.tool or (call.name if call is not None else "")
        request = approval_id(event.call, event.number)
        arguments = call.arguments if call is not None else {}
        self._request_approval(self.task_id, request, name, arguments, event.step)
        self._approvals[known] = approval_item_id(self.task_id, request)

    def _request_approval(
        self, task_id: str, request: str, name: str, arguments: dict[str, Json], step: str
    ) -> None:
        identifier = approval_item_id(task_id, request)
        if any(entry.item["id"] == identifier for entry in self._items) or not self._is_open:
            return
        item: Frame = {
            "type": "mcp_approval_request",
            "id": identifier,
            "server_label": self._agent or OWN,
            "name": name,
            "arguments": json_text(arguments),
        }
        index = self._add(item, step, self._number())
        self._done(index, self._number())

    def _start_call(self, event: e.ToolStarted) -> None:
        if event.undo or is_undo(event.call):
            return
        if event.tool in self._caller_tools:
            self._ask_caller(event)
        else:
            self._call_item(event)

    def _ask_caller(self, event: e.ToolStarted) -> None:
        known = self._known(event.call)
        if known in self._call_items or known in self._answered or not self._is_open:
            return
        text = self._arguments(known)
        item: Frame = {
            "type": "function_call",
            "id": f"fc_{known}",
            "call_id": known,
            "name": event.tool,
            "arguments": text,
            "status": "completed",
        }
        shown = {**item, "arguments": "", "status": "in_progress"}
        index = self._call_items[known] = self._add(item, event.step, self._number(), shown)
        at = {"item_id": item["id"], "output_index": index}
        self._emit("response.function_call_arguments.delta", self._number(), **at, delta=text)
        self._emit(
            "response.function_call_arguments.done",
            self._number(),
            **at,
            name=event.tool,
            arguments=text,
        )
        self._done(index, self._number())

    def _call_item(self, event: e.ToolStarted | e.ToolEnded) -> int | None:
        """Return the place of the item of a call that the server runs; add the item if it is new."""
        known = self._known(event.call)
        if known in self._call_items:
            return self._call_items[known]
        if not self._is_open:
            return None
        text = self._arguments(known)
        item: Frame = {
            "type": "mcp_call",
            "id": f"mcp_{known}",
            "server_label": self._agent or OWN,
            "name": event.tool,
            "arguments": text,
            "status": "in_progress",
            "output": None,
            "error": None,
            "approval_request_id": self._approvals.get(known),
        }
        shown = {**item, "arguments": ""}
        index = self._call_items[known] = self._add(item, event.step, self._number(), shown)
        at = {"item_id": item["id"], "output_index": index}
        self._emit("response.mcp_call.in_progress", self._number(), **at)
        self._emit("response.mcp_call_arguments.delta", self._number(), **at, delta=text)
        self._emit("response.mcp_call_arguments.done", self._number(), **at, arguments=text)
        return index

    def _arguments(self, known: str) -> str:
        call = self._calls.get(known)
        if call is None:
            return "{}"
        return call.raw if call.raw is not None else json_text(call.arguments)

    def _end_call(self, event: e.ToolEnded) -> None:
        if is_undo(event.call) or event.tool in self._caller_tools:
            return  # the client has the result of its own tool: it sent it
        index = self._call_item(event)
        if index is None:
            return
        entry = self._items[index]
        if entry.is_done:
            return
        at = {"item_id": entry.item["id"], "output_index": index}
        if event.outcome == "ok":
            entry.item |= {"status": "completed", "output": output_text(event)}
            self._emit("response.mcp_call.completed", self._number(), **at)
        else:
            why = event.error.message if event.error is not None else event.outcome
            content = [{"type": "text", "text": why}]
            entry.item |= {
                "status": "failed",
                "error": {"type": "mcp_tool_execution_error", "content": content},
            }
            self._emit("response.mcp_call.failed", self._number(), **at)
        self._done(index, self._number())

    # --------------------------------------------------------------------------------------------------- end

    def _end_task(self, event: e.TaskEnded) -> None:
        self._ended, self._ended_at = event, event.time
        has_answer = event.state in ("completed", "degraded") and event.output is not None
        if not has_answer or not self._is_open:
            return
        text = event.output if isinstance(event.output, str) else json_text(event.output)
        shown = [
            entry.item for entry in self._items if entry.item["type"] == "message" and not entry.is_undone
        ]
        if shown and is_same(shown[-1], event.output, text):
            return
        count = sum(str(item["id"]).startswith(f"msg_{self.task_id}/output") for item in shown)
        answer = _Answer(f"{self.task_id}/output{f'#{count + 1}' if count else ''}")
        number = self._seq * PLACES + self._place
        self._place += _OF_ONE_ITEM
        self._return_text(answer, None, text, number, is_final=True)

    def response(self, status: str, stop: Stop | None = None) -> Frame:
        """Return the response as it is now.

        Args:
            status: its status.
            stop: the state in which its task stopped, if it has.
        """
        previous = self._facts.labels.get(PREVIOUS)
        if self.part:
            previous = response_id(self.task_id, self._previous)
        ended_at = self._ended_at or self._last_time
        return {
            **response_of(self._facts, self._options, status, stop, self._ended),
            "id": response_id(self.task_id, self.part),
            "model": self._agent,
            "created_at": self._created // 1_000_000,
            "completed_at": ended_at // 1_000_000 if status == "completed" else None,
            "previous_response_id": previous,
            "instructions": "".join(self._instructions) or None,
            "output": [dict(entry.item) for entry in self._items if not entry.is_undone],
            "usage": usage_of(self._tokens.total),
        }


def ended_by_or_step(event: e.Event) -> AnswerKey | str | None:
    """Return the answer that an event begins or ends, or the step that it ends; None for any other event."""
    if isinstance(event, (e.StepCompleted, e.StepFailed, e.StepSkipped)):
        return event.step
    return ended_by(event)

"""Complete and fail calls in the background by their tickets, and report their progress, from any process."""

from __future__ import annotations

import asyncio
import reprlib
from contextlib import suppress
from typing import Any, Final, Literal

from treadle.core import events as e
from treadle.core.codec import exact_copy
from treadle.core.ids import is_name, is_question
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.tickets import digest_of_ticket, task_of_ticket
from treadle.errors import AlreadyDecided, ConfigurationError, TaskNotFound, TicketClosed, TicketNotFound
from treadle.runner.approvals import ApprovalVerbs
from treadle.runner.control import READ_SOON
from treadle.runner.verbs import verb
from treadle.runner.views import Ref, id_of

_Kind = Literal["complete", "fail", "progress"]
_EVENTS: Final[dict[_Kind, type[e.Event]]] = {
    "complete": e.TicketCompleted,
    "fail": e.TicketFailed,
    "progress": e.TicketProgressed,
}


class BackgroundVerbs(ApprovalVerbs):
    """The verbs for the holder of a call's ticket; they need no agent."""

    @verb
    async def complete(
        self,
        ticket: str,
        value: Json = None,
        *,
        task: Ref | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Deliver the result of a call in the background; it is durable when this returns.

        The task goes on if a driver has it or adopts it, else at the next `resume`. A repeated result changes nothing,
        so a sender that got no reply may send it again.

        Args:
            ticket: the ticket that the tool handed out, `ToolContext.ticket`. With `task=` also the id of a call of a
                caller tool (see `RunOptions.caller_tools`), or its `request_id` in `pending`.
            value: the result, JSON data.
            task: refuse a ticket of any task other than this one and those below it.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat records nothing.

        Raises:
            TicketNotFound: no call has such a ticket.
            CallNotFound: the task has no such call of a caller tool.
            TicketClosed: the call has ended without it: it expired, was cancelled or was taken back.
            AlreadyDecided: it was completed with another result, or failed.
            ConfigurationError: the value is not JSON data.
        """
        await self._tell(ticket, "complete", "value", value, task, by, command_id)

    @verb
    async def fail(
        self,
        ticket: str,
        error: str,
        *,
        task: Ref | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Report that a call in the background failed; the model reads the error.

        Args:
            ticket: the ticket that the tool handed out, `ToolContext.ticket`.
            error: the error message.
            task: refuse a ticket of any task other than this one and those below it.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat records nothing.

        Raises:
            TicketNotFound: no call has such a ticket.
            TicketClosed: the call has ended without it: it expired, was cancelled or was taken back.
            AlreadyDecided: it was completed, or failed with another error.
            ConfigurationError: the error is not a text.
        """
        await self._tell(ticket, "fail", "error", error, task, by, command_id)

    @verb
    async def progress(
        self,
        ticket: str,
        value: Json,
        *,
        task: Ref | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Report the progress of a call in the background, as an event and in `RunResult.pending`.

        Args:
            ticket: the ticket that the tool handed out, `ToolContext.ticket`.
            value: JSON data, such as a text or a number.
            task: refuse a ticket of any task other than this one and those below it.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat records nothing.

        Raises:
            TicketNotFound: no call has such a ticket.
            TicketClosed: the call has ended.
            ConfigurationError: the value is not JSON data.
        """
        await self._tell(ticket, "progress", "value", value, task, by, command_id)

    # ---------------------------------------------------------------------------------------- telling

    async def _tell(
        self,
        ticket: str,
        kind: _Kind,
        name: str,
        value: Json,
        task: Ref | None,
        by: str | None,
        command_id: str | None,
    ) -> None:
        try:
            value = exact_copy(value)
        except ValueError as error:
            raise ConfigurationError(f"{kind}: {name} {error}, got {reprlib.repr(value)}") from None
        if task is not None and kind != "progress" and _is_call(ticket):
            await self._bring(
                task, ticket, {"output" if kind == "complete" else "error": value}, by, command_id
            )
            return
        task_id, digest = await self._task_of(ticket, task), digest_of_ticket(ticket)

        async def on_repeat(event: e.Event) -> None:
            if isinstance(event, e.CommandRejected):
                _check_told(*await self._holder(task_id, digest), kind, value)
                return
            assert isinstance(event, (e.TicketCompleted, e.TicketFailed, e.TicketProgressed)), (
                "no other kind is asked for"
            )
            self._commands.check_same(task_id, command_id, event, _reported_value(event), value)
            with suppress(TicketNotFound):  # an undo took its call back
                _, call = await self._holder(task_id, digest)
                self._commands.check_same(task_id, command_id, event, event.call, call.id)

        await self._commands.once(
            task_id,
            command_id,
            (_EVENTS[kind], e.CommandRejected),
            lambda: self._tell_once(task_id, digest, kind, name, value, by, command_id),
            on_repeat,
        )

    async def _tell_once(
        self,
        task_id: str,
        digest: str,
        kind: _Kind,
        name: str,
        value: Json,
        by: str | None,
        command_id: str | None,
    ) -> None:
        state, call = await self._holder(task_id, digest)
        if _is_closed(call):
            _check_told(state, call, kind, value)
            return
        data: dict[str, Json] = {"ticket": digest, name: value, "by": by}
        seq = state.seq
        item_id = await self._commands.send(task_id, kind, data, command_id=command_id)
        try:
            async with asyncio.timeout(READ_SOON):
                answer = await self._commands.answer(task_id, item_id, after=seq)
                taken = answer is not None or not await self._commands.is_unread(task_id, item_id)
        except TimeoutError:  # the item is durable: the driver of the task will read it
            first = await self._commands.contradicted(task_id, item_id, ("complete", "fail"), "ticket")
            if first is not None:
                raise _decided(task_id, call.id, is_completed=first.kind == "complete") from None
        else:
            if isinstance(answer, e.CommandRejected) or (answer is None and taken):
                # Another completion, the expiry, or the end of the call came first.
                _check_told(*await self._holder(task_id, digest), kind, value)
        if state.parent is not None and kind != "progress":
            await self._commands.tell_parents(await self._cache.row(task_id))

    async def _task_of(self, ticket: str, task: Ref | None) -> str:
        """Return the task that a ticket names; raise `TicketNotFound` unless it is `task` or one below it."""
        named: Any = ticket
        task_id = task_of_ticket(named) if isinstance(named, str) else None
        if task_id is None or not is_name(task_id):
            raise TicketNotFound(
                "this is no ticket: pass the `ToolContext.ticket` that the tool handed out, unchanged"
            )
        if task is None:
            return task_id
        row = await self._cache.row_or_none(task_id)
        while row is not None and row.task_id != id_of(task):
            row = await self._cache.row_or_none(row.parent) if row.parent is not None else None
        if row is None:
            raise TicketNotFound(
                f"the ticket belongs to no call of task {id_of(task)}, nor of a task below it"
            )
        return task_id

    async def _holder(self, task_id: str, digest: str) -> tuple[TaskState, CallState]:
        """Return the call of a ticket, with the state of its task."""
        try:
            state = await self._state(task_id)
        except TaskNotFound:
            raise TicketNotFound("the ticket belongs to no call in this store") from None
        call = state.tickets.get(digest)
        if call is None or call.ticket is None:
            raise TicketNotFound(f"the ticket belongs to no call of task {task_id}")
        return state, call


def _is_call(ticket: Any) -> bool:
    """Whether a text is the id of a call, or of its request, rather than a ticket."""
    return (
        isinstance(ticket, str) and bool(ticket) and (is_question(ticket) or task_of_ticket(ticket) is None)
    )


def _reported_value(event: e.TicketCompleted | e.TicketFailed | e.TicketProgressed) -> Json:
    if isinstance(event, e.TicketProgressed):
        return event.value
    return event.output if isinstance(event, e.TicketCompleted) else event.error


def _is_closed(call: CallState) -> bool:
    return call.outcome is not None or (call.ticket is not None and call.ticket.completion is not None)


def _check_told(state: TaskState, call: CallState, kind: _Kind, value: Json) -> None:
    """Raise unless a call ended in the way that the holder of its ticket reports now."""
    where, done = f"task {state.task_id}: call {call.id}", call.ticket.completion if call.ticket else None
    if kind != "progress" and isinstance(done, (e.TicketCompleted, e.TicketFailed)):
        same = isinstance(done, e.TicketCompleted) == (kind == "complete")
        if same and value == (done.output if isinstance(done, e.TicketCompleted) else done.error):
            return
        raise _decided(state.task_id, call.id, is_completed=isinstance(done, e.TicketCompleted))
    is_expired = isinstance(done, e.TicketExpired) or not _is_closed(call)
    how = "its ticket has expired" if is_expired else f"it ended as {call.outcome or 'done'}"
    raise TicketClosed(f"{where} can no longer be completed: {how}", task_id=state.task_id)


def _decided(task_id: str, call_id: str, *, is_completed: bool) -> AlreadyDecided:
    how = "completed" if is_completed else "failed"
    return AlreadyDecided(
        f"task {task_id}: call {call_id} was {how} by its ticket already, and differently", task_id=task_id
    )

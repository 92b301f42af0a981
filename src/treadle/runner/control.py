"""Control tasks: send messages, edit the next step, pause, interrupt, cancel, settle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final

from treadle.core import codec
from treadle.core import events as e
from treadle.core.checks import Check, check_edit
from treadle.core.events import END_STATES
from treadle.core.ids import is_undo, undone_call
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Json, copied
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.tools import Happened, NotHappened
from treadle.drivers.arguments import parts_of
from treadle.drivers.commands import NOT_CONTENT, encoded
from treadle.drivers.continuing import reopen
from treadle.drivers.ownership import check_unmoved
from treadle.drivers.stopping import StopKind
from treadle.engine.options import from_json
from treadle.errors import (
    AgentUnknown,
    AlreadyDecided,
    CallNotFound,
    ConfigurationError,
    StepNotFound,
    TaskBusy,
    TaskFinished,
    TaskStateError,
    ToolArgumentsInvalid,
)
from treadle.ports import OutputT, Tool
from treadle.results.caller_tools import AnsweredTool
from treadle.results.pending import Pending, pending_of
from treadle.results.run_result import RunResult
from treadle.results.states import state_at_rest
from treadle.results.steps import StepInfo
from treadle.runner.verbs import verb
from treadle.runner.views import Input, Ref, Role, ViewVerbs, finished, id_of, unread_input, upcoming_steps

READ_SOON: Final = 2.0
"""Seconds that a settlement waits to learn whether another one came first."""


class ControlVerbs(ViewVerbs):
    """The verbs that send messages to a task, edit it and stop it, wherever it is driven."""

    @verb
    async def send(
        self,
        task: Ref,
        message: Input,
        *,
        role: Role = "user",
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Add a message to a task before its next model call, also while it runs; it is durable when this returns.

        Args:
            task: the task, or its id.
            message: the message: text or content parts.
            role: `user`, `system`, or `observation`: data from outside, not an instruction.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat sends nothing.

        Raises:
            TaskFinished: the task is completed, degraded or cancelled.
        """
        parts = self._load_parts(parts_of(message))
        is_data, speaker = role == "observation", "user" if role == "observation" else role
        await self._post(task, e.InputReceived(parts, speaker, is_data, by), command_id, reopens=True)

    async def _post(
        self, task: Ref, command: e.CommandEvent, command_id: str | None, *, reopens: bool = False
    ) -> None:
        """Post a command to the inbox of a task that has not ended; it is durable when this returns.

        Args:
            task: the task, or its id.
            command: the event that the command becomes.
            command_id: the id that the caller chose; None if it chose none.
            reopens: whether a failed task goes on.

        Raises:
            ConfigurationError: no journal can hold the arguments of the command.
            TaskFinished: the task has ended.
            TaskStateError: the task rejected the command.
        """
        task_id, content = id_of(task), _content(command)
        try:
            codec.check_fit(command)
        except codec.UnreadableRecord as error:
            raise ConfigurationError(f"{command.command}: {error}") from None

        async def posted(event: e.Event) -> None:
            self._commands.check_same(task_id, command_id, event, _content(event), content)

        await self._commands.once(
            task_id,
            command_id,
            (type(command),),
            lambda: self._send(task_id, command, command_id, reopens=reopens),
            posted,
        )

    async def _send(
        self, task_id: str, command: e.CommandEvent, command_id: str | None, *, reopens: bool
    ) -> None:
        kind, data, row = command.command, codec.all_fields_of(command), await self._cache.row(task_id)
        by = data.get("by")
        del data["inbox"]
        over = [state for state in END_STATES if not (reopens and state == "failed")]
        if row.state in over:
            raise TaskFinished(
                f"task {task_id} is {row.state}; fork it to go on", task_id=task_id, state=row.state
            )
        for number in count(1):
            if row.state == "failed":
                await self._commands.check_new(task_id, command_id)
                await self._take_up(task_id, by)
            item_id = await self._commands.send(task_id, kind, data, command_id=command_id, number=number)
            now = await self._cache.row(task_id)
            if now.state not in END_STATES and await self._commands.is_unread(task_id, item_id):
                return  # the task does not end before the item is read
            if (answer := await self._commands.answer(task_id, item_id, after=row.head)) is not None:
                if isinstance(answer, e.CommandRejected):
                    raise TaskStateError(f"task {task_id}: {answer.reason}", task_id=task_id)
                return
            row = now  # the task had ended before it could read this
            if row.state in over:
                message = f"task {task_id} ended ({row.state}) before it could read this"
                raise TaskFinished(message, task_id=task_id, state=row.state)

    async def _take_up(self, task_id: str, by: str | None) -> None:
        """Return once a failed task is driven again, by this driver or another."""
        while (await self._cache.row(task_id)).state == "failed":
            try:
                async with self._ownership.acquire(task_id) as owned:
                    if owned.state.ended == "failed":
                        await reopen(self._store, owned, "send", by)
            except TaskBusy:
                await self._commands.stopped(task_id, or_left="failed")

    @verb
    async def edit_step(
        self,
        task: Ref,
        input: Input,
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> StepInfo:
        """Replace the input of the next step and return the step; the journal holds both versions.

        Args:
            task: the task, or its id.
            input: text or content parts.
            expect: the last event that the caller saw, `Task.head`. Nothing is edited unless it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat edits nothing.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            TaskFinished: the task has answered or ended.
        """
        parts = self._load_parts(parts_of(input))
        task_id = await self._existing(task)

        async def edit() -> StepInfo:
            async with self._ownership.acquire(task_id, expect=expect, outside_undo=True) as owned:
                state, inbox = owned.state, await self._commands.note(owned, command_id)
                if state.ended is not None and state.ended != "failed":
                    raise finished(state, f"is {state.ended}")
                if state.ended is not None:
                    await reopen(self._store, owned, "edit_step", by)
                if state.answered:
                    raise finished(state, "has answered; undo its last step, or give input to go on")
                owned.writer.record(e.InputEdited(parts, unread_input(state), by, inbox), inbox)
                return upcoming_steps(state)[0]  # before commands that arrive meanwhile are read

        async def edited(event: e.Event) -> StepInfo:
            assert isinstance(event, e.InputEdited), "no other kind is asked for"
            self._commands.check_same(task_id, command_id, event, encoded(event.parts), encoded(parts))
            return upcoming_steps(await self._cache.state_at(task_id, event.seq))[0]

        return await self._commands.once(task_id, command_id, (e.InputEdited,), edit, edited)

    @verb
    async def edit_call(
        self,
        task: Ref,
        call_id: str,
        arguments: dict[str, Json],
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Change the arguments of a call that has not begun; the journal holds both versions.

        A runner that knows the task's agent checks them against the tool's schema. Otherwise they are checked when the
        call starts, and the model reads the error.

        Args:
            task: the task, or its id.
            call_id: the call.
            arguments: the new arguments of the tool.
            expect: the last event that the caller saw, `Task.head`. Nothing is edited unless it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat edits nothing.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            ConfigurationError: the arguments do not fit the schema.
            CallNotFound: there is no such call, or it has begun.
        """
        task_id = await self._existing(task)

        async def edit() -> None:
            async with self._ownership.acquire(task_id, expect=expect, outside_undo=True) as owned:
                state, inbox = owned.state, await self._commands.note(owned, command_id)
                if state.ended is not None and state.ended != "failed":
                    raise finished(state, f"is {state.ended}")
                call = state.open_call(call_id)
                has_begun = (
                    call is None or call.status != "proposed" or call.in_doubt or call.questions or call.slept
                )
                if call is None or has_begun or call.answers:
                    raise CallNotFound(f"task {state.task_id} has no call {call_id!r} that has not begun")
                self._check_arguments(state, call, arguments, "edit_call")
                edited = e.CallEdited(call.step, call_id, arguments, call.arguments, by, inbox)
                owned.writer.record(edited, inbox)

        async def edited(event: e.Event) -> None:
            assert isinstance(event, e.CallEdited), "no other kind is asked for"
            recorded: Json = [event.call, event.arguments]
            self._commands.check_same(task_id, command_id, event, recorded, [call_id, arguments])

        await self._commands.once(task_id, command_id, (e.CallEdited,), edit, edited)

    def _check_arguments(
        self, state: TaskState, call: CallState | Check, arguments: dict[str, Json], verb: str
    ) -> None:
        """Raise `ConfigurationError` for arguments that do not fit a tool, if the task's agent is known here.

        Edited content that guardrails ask about must keep its parts, with texts in the same places.
        """
        if isinstance(call, Check):
            check_edit(call, arguments, verb)
            return
        if self._driver.vault.is_in(arguments):
            raise ConfigurationError(
                f"{verb}: the arguments hold a secret of this process, which no journal may hold: "
                f"the tool {call.name} asks for it by ctx.secret(name)"
            )
        tool = self._tool_of(state, call.name)
        if tool is None:
            return
        try:
            tool.validate(copied(arguments))
        except ToolArgumentsInvalid as error:
            why = f"{verb}: arguments do not fit the tool {call.name} of call {call.id}: {error}"
            raise ConfigurationError(why) from error

    def _tool_of(self, state: TaskState, name: str) -> Tool | None:
        """Return a tool of a task: a caller tool, or one of its agent, if that is known here."""
        for declared in from_json(state.options).caller_tools or ():
            if declared.name == name:
                return AnsweredTool(declared)
        try:
            agent = self._agents.of(state.agent, None, state.task_id)
        except AgentUnknown:
            return None
        return next((tool for tool in agent.tools if tool.spec.name == name), None)

    @verb
    async def skip_step(
        self,
        task: Ref,
        *,
        step: str | None = None,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Skip a failed step, and record that; the task goes on with the next step.

        Args:
            task: the task, or its id.
            step: id of the step, if several failed; by default the first.
            expect: the last event that the caller saw, `Task.head`. Nothing is skipped unless it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat skips nothing.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            StepNotFound: the task's next step has not failed.
            TaskFinished: other steps failed too, and the task has ended.
            UndoUnfinished: an undo has begun and not ended.
        """
        task_id = await self._existing(task)

        async def skip() -> None:
            async with self._ownership.acquire(task_id, expect=expect, outside_undo=True) as owned:
                state, inbox = owned.state, await self._commands.note(owned, command_id)
                failed = [
                    each for each in state.under_way() if each.status == "failed" and step in (None, each.id)
                ]
                if not failed:
                    which = "no failed step" if step is None else f"no failed step {step!r}"
                    raise StepNotFound(f"task {state.task_id} has {which} to skip")
                if state.ended is not None and state.ended != "failed":
                    raise finished(state, f"is {state.ended}")
                if state.ended is not None:
                    await reopen(self._store, owned, "skip_step", by)
                owned.writer.record(e.StepSkipped(failed[0].id, by, inbox), inbox)

        async def skipped(event: e.Event) -> None:
            assert isinstance(event, e.StepSkipped), "no other kind is asked for"
            self._commands.check_same(task_id, command_id, event, event.step, step or event.step)

        await self._commands.once(task_id, command_id, (e.StepSkipped,), skip, skipped)

    @verb
    async def pause(
        self,
        task: Ref[OutputT],
        *,
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """Let running calls end and start nothing new; return when the task is paused or has ended.

        Args:
            task: the task, or its id.
            reason: why, for the record and for `pending`.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat does not pause a task that went on.
        """
        return await self._control(task, "pause", reason, by, command_id)

    @verb
    async def interrupt(
        self,
        task: Ref[OutputT],
        *,
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """Stop running calls and return when the task has stopped; it can be resumed.

        Args:
            task: the task, or its id.
            reason: why, for the record and for `pending`.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat does not stop a task that went on.
        """
        return await self._control(task, "interrupt", reason, by, command_id)

    @verb
    async def cancel(
        self,
        task: Ref[OutputT],
        *,
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """End a task for good and return when its last effect has ended; a task that has ended is left unchanged.

        Args:
            task: the task, or its id.
            reason: why, for the record.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat does not cancel a later attempt.
        """
        return await self._control(task, "cancel", reason, by, command_id)

    async def _control(
        self, task: Ref, kind: StopKind, reason: str | None, by: str | None, command_id: str | None
    ) -> RunResult:
        task_id = id_of(task)
        row = await self._cache.row(task_id)
        state = await self._stopper.stop(task_id, kind, {"reason": reason, "by": by}, command_id)
        result = await self._result_of(state, state_at_rest(state))
        if row.parent is not None and row.state not in END_STATES and kind == "cancel":
            await self._commands.tell_parents(row)
        return result

    @verb
    async def settle(
        self,
        task: Ref,
        request_id: str,
        verdict: Happened | NotHappened,
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Settle whether a call with an unknown outcome took effect; the task goes on when it is next driven.

        Args:
            task: the task, or its id; or a task above it.
            request_id: its id in `pending`; a call of this task precedes one of a task below it.
            verdict: `Happened(output)`, or `NotHappened()`, after which the call starts, perhaps again.
            expect: the last event that the caller saw of the calling task. Nothing is settled unless it is still the
                last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat settles nothing.

        Raises:
            TaskMoved: the journal of the task that made the call does not end with the event in `expect`.
            CallNotFound: no call of this id has an outcome to settle.
            AlreadyDecided: it was settled differently.
            ConfigurationError: several tasks below this one have such a call.
        """
        task_id = id_of(task)

        async def settled(event: e.Event) -> None:
            if isinstance(event, e.CommandRejected):
                await self._check_settled(await self._maker_of(task_id, request_id), request_id, verdict)
                return
            assert isinstance(event, e.OutcomeSettled), "no other kind is asked for"
            kind, output = _as_recorded(verdict)
            recorded: Json = [event.call, event.verdict, event.output]
            self._commands.check_same(task_id, command_id, event, recorded, [request_id, kind, output])

        await self._commands.once(
            task_id,
            command_id,
            (e.OutcomeSettled, e.CommandRejected),
            lambda: self._settle(task_id, request_id, verdict, expect, by, command_id),
            settled,
        )

    async def _settle(
        self,
        task_id: str,
        request_id: str,
        verdict: Happened | NotHappened,
        expect: int | None,
        by: str | None,
        command_id: str | None,
    ) -> None:
        states = await self._tree_for(task_id, command_id)
        pending = [
            (state, item)
            for state in states
            for item in pending_of(state)
            if item.kind == "settlement" and item.request_id == request_id
        ]
        if not pending:
            await self._check_settled(await self._maker_of(task_id, request_id), request_id, verdict)
            return
        state = pending[0][0]
        if len(pending) > 1 and state is not states[0]:
            raise several_pending("settle", [item for _, item in pending], request_id)
        check_unmoved(state.task_id, state.seq, expect)
        kind, output = _as_recorded(verdict)
        data: dict[str, Json] = {"request_id": request_id, "verdict": kind, "output": output, "by": by}
        if expect is not None:
            data["expect"] = expect
        seq = state.seq
        item_id = await self._commands.send(state.task_id, "settle", data, command_id=command_id)
        # The item is durable: the driver of the task will read it.
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_SOON):
                answer = await self._commands.answer(state.task_id, item_id, after=seq)
                dismissed = answer is None and not await self._commands.is_unread(state.task_id, item_id)
            if isinstance(answer, e.CommandRejected) or dismissed:
                # Another settlement came first, or the task has moved, perhaps to its end.
                now = await self._state(state.task_id)
                check_unmoved(state.task_id, now.seq if answer is None else answer.seq - 1, expect)
                await self._check_settled(now, request_id, verdict)
        if state.parent is not None:
            await self._commands.tell_parents(await self._cache.row(state.task_id))

    async def _tree_for(self, task_id: str, command_id: str | None) -> list[TaskState]:
        """Return the states of a task and of the unfinished tasks below it, for a decision on one of them.

        Raises `CarriedOut` if one of several tasks had a command of this id: a repeat might now reach another of them.
        """
        states = [state async for state in self._tree(task_id)]
        if command_id is not None and states[0].children:
            tree = [state.task_id async for state in self._tree(task_id, all_below=True)]
            await self._commands.check_new_in(tree, command_id)
        return states

    async def _maker_of(self, task_id: str, request_id: str) -> TaskState:
        """Return the task that made a call: this one or one below it; this task if none did."""
        states = [state async for state in self._tree(task_id, all_below=True)]
        called = undone_call(request_id)
        calls = [(state, state.find_call(called)) for state in states]
        makers = [state for state, call in calls if call is not None and not call.tasks]
        return makers[0] if makers and (len(makers) == 1 or makers[0] is states[0]) else states[0]

    async def _check_settled(
        self, state: TaskState, request_id: str, verdict: Happened | NotHappened
    ) -> None:
        """Raise unless a call that waits for no settlement was settled in this way."""
        call = state.find_call(undone_call(request_id))
        if call is not None and _is_settled_so(call, request_id, verdict):
            return
        # The call went on since, or an undo removed it with its step; the journal still holds its settlement.
        settled: e.OutcomeSettled | None = None
        since = call.began if call is not None else 0  # an earlier call of this id was taken back
        for _, event in events_with_epochs(state.task_id, await self._store.read(state.task_id)):
            if isinstance(event, e.OutcomeSettled) and event.call == request_id and event.seq > since:
                settled = event
        if settled is not None:
            how = f"is settled as {settled.verdict}"
            if settled.verdict == "not_happened" and isinstance(verdict, NotHappened):
                return
            if (
                settled.verdict == "happened"
                and isinstance(verdict, Happened)
                and settled.output == verdict.output
            ):
                return
        elif call is not None:
            status = call.undo_status if is_undo(request_id) else call.outcome or call.status
            how = f"needs no settlement: it is {status}"
        else:
            raise CallNotFound(f"task {state.task_id} has nothing to settle under {request_id!r}")
        message = f"task {state.task_id}: call {request_id} {how}"
        raise AlreadyDecided(message, task_id=state.task_id)


def _content(event: e.Event) -> dict[str, Json]:
    """Return the data of an event that is the same in a repeat of its command."""
    own = NOT_CONTENT | {"inbox"}
    return {name: value for name, value in codec.all_fields_of(event).items() if name not in own}


def several_pending(
    verb: str, pending: Sequence[Pending], request_id: str | None = None
) -> ConfigurationError:
    """Return the error for a decision that fits several requests or, with an id, several tasks."""
    which = "one of the requests" if request_id is None else "the task, for several requests of this id"
    is_one_task = len({item.task_id for item in pending}) == 1
    named = [
        f"{item.request_id} ({item.tool or 'its step'})" + ("" if is_one_task else f" of task {item.task_id}")
        for item in pending
    ]
    return ConfigurationError(f"{verb}: name {which} that are pending: {', '.join(named)}")


def _as_recorded(verdict: Happened | NotHappened) -> tuple[str, Json]:
    """Return a verdict and its output in the form of `OutcomeSettled`."""
    return ("happened", verdict.output) if isinstance(verdict, Happened) else ("not_happened", None)


def _is_settled_so(call: CallState, request_id: str, verdict: Happened | NotHappened) -> bool:
    """Whether a call is in the state that results from this verdict."""
    return _was_undone(call, verdict) if is_undo(request_id) else _was_settled(call, verdict)


def _was_settled(call: CallState, verdict: Happened | NotHappened) -> bool:
    if isinstance(verdict, Happened):
        return call.outcome == "ok" and call.output == verdict.output
    # A call that may write starts again for this reason alone.
    starts = {"proposed": 0, "begun": 1}.get(call.status)
    return call.effect == "write" and starts is not None and call.attempt > starts


def _was_undone(call: CallState, verdict: Happened | NotHappened) -> bool:
    if isinstance(verdict, Happened):
        return call.undo_status == "done"
    return call.undo_status == "not_happened"

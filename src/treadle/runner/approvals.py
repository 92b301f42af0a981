"""List, approve, deny and answer the requests of a task and of the tasks below it."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from treadle.core import events as e
from treadle.core.checks import Check
from treadle.core.codec import storable
from treadle.core.data import frozen
from treadle.core.events import ApprovalScope
from treadle.core.ids import approval_id, approved_call, is_question, question_id
from treadle.core.journal import events_with_epochs
from treadle.core.json_schema import misfit
from treadle.core.messages import Json
from treadle.core.permits import ABSENT, STANDING, StandingGrant, argument_at
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.core.strict_json import is_same_json
from treadle.drivers.arguments import page as check_page
from treadle.drivers.commands import of_another
from treadle.engine.approval_binding import may_decide
from treadle.engine.time_slice import TimeSlice
from treadle.errors import (
    AlreadyDecided,
    ApproverRefused,
    CallNotFound,
    ConfigurationError,
    JournalCorrupt,
    RequestClosed,
    TaskNotFound,
    TaskStateError,
    TaskTooNew,
    TicketClosed,
)
from treadle.ports import TaskFilter, TaskRow
from treadle.results.pages import PendingPage
from treadle.results.pending import Pending, caller_of, pending_outside
from treadle.runner.control import READ_SOON, ControlVerbs, several_pending
from treadle.runner.verbs import verb
from treadle.runner.views import Ref, id_of

_PAGE: Final = 200
_MAY_WAIT: Final = ("waiting", "running", "paused", "interrupted")
"""The states of tasks that may wait for people or callers."""

_Group: TypeAlias = tuple[str, list[Pending]]
"""The requests of one task, with its position in the list."""

Answer = e.ApprovalGiven | e.ApprovalDenied | e.QuestionAnswered
"""The decision of a person on a request."""


@frozen
class _Verdict:
    """The decision of a caller on a request."""

    kind: Literal["approve", "deny", "answer"]
    by: str | None
    arguments: dict[str, Json] | None = None
    scope: ApprovalScope = "once"
    reason: str | None = None
    stop: bool = False
    value: Json = None
    same: tuple[str, ...] = ()
    brings: bool = False
    """whether it is the result of a caller tool, which the caller of the task runs"""

    @property
    def about(self) -> Literal["approval", "question", "call"]:
        if self.brings:
            return "call"
        return "question" if self.kind == "answer" else "approval"

    def names(self, request_id: str) -> bool:
        return is_question(request_id) if self.kind == "answer" else approved_call(request_id) is not None

    def data(self, request_id: str) -> dict[str, Json]:
        """Return the data of the command."""
        data: dict[str, Json] = {"request_id": request_id, "by": self.by}
        if self.kind == "approve":
            data |= {"scope": self.scope, "arguments": self.arguments}
            return data | {"same": list(self.same)} if self.same else data
        if self.kind == "deny":
            return data | {"reason": self.reason, "stop": self.stop}
        return data | {"value": self.value}

    def is_that_of(self, answer: Answer) -> bool:
        """Whether an answer is equal, apart from its reason and the name of the approver."""
        if isinstance(answer, e.QuestionAnswered):
            return is_same_json(self.value, answer.value)
        if isinstance(answer, e.ApprovalDenied):
            return self.kind == "deny"
        if self.kind == "answer":  # an approval with an argument holds the value there
            values = () if answer.arguments is None else answer.arguments.values()
            return any(is_same_json(self.value, value) for value in values)
        same = answer.arguments is None if self.arguments is None else self.arguments == answer.arguments
        bound = set(self.same) == set(answer.same)
        return self.kind == "approve" and same and self.scope == answer.scope and bound


class ApprovalVerbs(ControlVerbs):
    """The verbs by which people approve and deny calls and answer questions."""

    @verb
    async def list_pending(
        self,
        task: Ref | None = None,
        *,
        thread_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> PendingPage:
        """Return a page of open requests: those of a task and the tasks below it, or of all tasks.

        Requests of kind `approval`, `question` and `settlement` wait for a person. A `call` waits for the caller of
        the task, who runs the tool. `background` waits for the holder of a ticket. A list of all tasks leaves out
        tickets of ended tasks.

        `for` iterates over the requests of the page, `async for` over those of later pages too. With `runner.sync` a
        plain `for` iterates over all pages. Each request that stays open is listed exactly once. But if the last
        request of a page is decided before the next page is read, that page may repeat some. A list of all tasks leaves
        out tasks with unreadable journals, which `verify` names.

        Args:
            task: the task, or its id; by default all tasks of the store, the newest first.
            thread_id: only tasks in this thread.
            limit: the maximum number of requests of a page, 1 to 1,000.
            cursor: the `cursor` of the previous page.

        Raises:
            TaskNotFound: there is no such task.
            ConfigurationError: an argument is not valid.
        """
        check_page("list_pending", limit, cursor)
        place, slash, last = ("", "/", "") if cursor is None else cursor.rpartition("/")
        if not slash:
            raise ConfigurationError(
                f"list_pending: cursor must be the cursor of the previous page, got {cursor!r:.80}"
            )
        if task is None:
            groups = self._pending_of_all(thread_id, place, last)
        else:
            groups = self._pending_of_tree(id_of(task), place, last)
        page = await _first_of(groups, limit)
        return page.followed_by(
            lambda after: self.list_pending(task, thread_id=thread_id, limit=limit, cursor=after)
        )

    async def _pending_of_all(self, thread_id: str | None, place: str, last: str) -> AsyncIterator[_Group]:
        """Yield the requests after the last one of a page, a task at a time, each with the cursor of its row."""
        task_filter = TaskFilter(
            _MAY_WAIT, thread_id=thread_id, limit=_PAGE, cursor=place or None, pending=True
        )
        rows = await self._store.rows(task_filter)
        is_last = len(rows) < _PAGE
        if last and (split := await self._cache.row_or_none(place.partition(".")[2])) is not None:
            rows = [split, *rows]
        time_slice = TimeSlice()
        while True:
            for row in rows:
                items = list[Pending]()
                with suppress(
                    TaskNotFound, JournalCorrupt, TaskTooNew
                ):  # deleted meanwhile, or cannot be read
                    state = (await self._cache.load(row.task_id, row)).state
                    items = pending_outside(state)
                    if items and state.parent is not None:
                        items = pending_outside(state, await self._agents_above(state))
                    items = [self._listed(item, state, row) for item in items]
                yield row.cursor, _after(items, last) if row.cursor == place else items
                if time_slice.is_over:
                    await time_slice.pause()
            if is_last:
                return
            rows = await self._store.rows(replace(task_filter, cursor=rows[-1].cursor))
            is_last = len(rows) < _PAGE

    async def _pending_of_tree(self, task_id: str, place: str, last: str) -> AsyncIterator[_Group]:
        """Yield the requests after the last one of a page, a task of the tree at a time, each with its id."""
        groups = list[_Group]()
        seen = dict[str, tuple[TaskState, tuple[str, ...]]]()
        async for state in self._tree(task_id):
            above: tuple[str, ...] = ()
            if state.parent in seen:
                caller, over = seen[state.parent]
                above = (*over, caller_of(caller, str(state.parent_call)))
            seen[state.task_id] = state, above
            items = pending_outside(state, above)
            row = await self._cache.row_or_none(state.task_id) if items else None
            if row is not None:
                items = [self._listed(item, state, row) for item in items]
            groups.append((state.task_id, items))
        ids = [each for each, _ in groups]
        start = ids.index(place) if place in ids else 0
        for each, items in groups[start:]:
            yield each, _after(items, last) if each == place else items

    def _listed(self, item: Pending, state: TaskState, row: TaskRow) -> Pending:
        """Return a request with the labels of its task, and whether the caller may decide it."""
        by = self.scope.by if self.scope is not None else None
        decides = None
        if by is not None:
            request = _terms_of(state, item)
            decides = request is None or may_decide(request, by)
        return replace(item, labels=row.labels, head=state.seq, may_decide=decides)

    async def _agents_above(self, state: TaskState) -> tuple[str, ...]:
        """Return the names of the agents above a task, the root's first, as far as their tasks exist."""
        names = list[str]()
        above = state.parent
        while above is not None and (row := await self._cache.row_or_none(above)) is not None:
            names.insert(0, row.agent)
            above = row.parent
        return tuple(names)

    @verb
    async def approve(
        self,
        task: Ref,
        request_id: str | None = None,
        *,
        arguments: dict[str, Json] | None = None,
        scope: ApprovalScope = "once",
        same: Sequence[str] = (),
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Approve a call. It starts when its task is next driven; a repeated approval changes nothing.

        Args:
            task: the task, or its id; or a task above it.
            request_id: its id in `pending`; a request of this task precedes one of a task below it. None if exactly one
                is pending.
            arguments: replace the model's arguments. They are checked in the same way, also by the policy, and the
                journal holds both.
            scope: `once` approves this call. The others also approve later calls of the same tool that the same rule
                asks about, with any arguments. `task` covers this task, `thread` its thread, and `always` all tasks of
                the store. `list_grants` lists the last two, and `revoke` ends them.
            same: with scope `task`, the arguments that must be the same in a later call: names or paths, such as
                `("to", "message.subject")`. Those that the rule names, in `Pending.same`, count too.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat decides nothing.

        Raises:
            CallNotFound: no such request was made.
            AlreadyDecided: it was decided differently, or has expired.
            RequestClosed: its call ended, was changed or was taken back without a decision.
            ApproverRefused: the policy names other approvers.
            ConfigurationError: several requests are pending and `request_id` is None; or the arguments do not fit.
        """
        await self._decide(
            task, request_id, _Verdict("approve", by, arguments, scope, same=tuple(same)), command_id
        )

    @verb
    async def deny(
        self,
        task: Ref,
        request_id: str | None = None,
        *,
        reason: str | None = None,
        stop: bool = False,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Deny a call. It never starts, and the model reads the reason; a repeated denial changes nothing.

        Args:
            task: the task, or its id; or a task above it.
            request_id: its id in `pending`; a request of this task precedes one of a task below it. None if exactly one
                is pending.
            reason: the reason, for the model and the record.
            stop: also cancel the named task, with those below it, and return once it has ended.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat decides nothing.

        Raises:
            CallNotFound: no such request was made.
            AlreadyDecided: it was decided differently, or has expired.
            RequestClosed: its call ended, was changed or was taken back without a decision.
            ApproverRefused: the policy names other approvers.
            ConfigurationError: several requests are pending and `request_id` is None.
        """
        await self._decide(task, request_id, _Verdict("deny", by, reason=reason, stop=stop), command_id)
        if stop:
            await self.cancel(task, reason=f"a call was denied{f': {reason}' if reason else ''}", by=by)

    @verb
    async def answer(
        self,
        task: Ref,
        request_id: str | None = None,
        *,
        value: Any,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """Answer a question. Its tool or step goes on when the task is next driven; a repeated answer changes nothing.

        An approval whose rule requires an argument can be answered too: the call then runs with this value.

        Args:
            task: the task, or its id; or a task above it.
            request_id: its id in `pending`; None if exactly one question is pending.
            value: the answer: JSON data that fits the schema of the question. Pydantic converts other values, such as
                a model, a dataclass or a date.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat answers nothing.

        Raises:
            ConfigurationError: the answer does not fit, and the question stays open; or several questions are pending
                and `request_id` is None.
            CallNotFound: no such question was asked.
            AlreadyDecided: it was answered differently, or has expired.
            RequestClosed: its call or step ended or was taken back without an answer.
        """
        written = _as_json(value)
        items = [
            item
            async for state in self._tree(id_of(task))
            for item in pending_outside(state)
            if request_id in (None, item.request_id)
        ]
        approvals = [item for item in items if item.argument is not None]
        if len(approvals) == 1 and not any(item.kind == "question" for item in items):
            (item,) = approvals
            arguments = {**item.arguments, str(item.argument): written}
            await self._decide(task, item.request_id, _Verdict("approve", by, arguments), command_id)
        else:
            await self._decide(task, request_id, _Verdict("answer", by, value=written), command_id)

    @verb
    async def list_grants(
        self, *, thread_id: str | None = None, revoked: bool = False
    ) -> tuple[StandingGrant, ...]:
        """Return the approvals for later calls, in a thread or in all tasks, oldest first.

        Args:
            thread_id: only the approvals for this thread alone.
            revoked: include revoked approvals.
        """
        grants = await self._store.grants(revoked=revoked)
        return tuple([grant for grant in grants if thread_id in (None, grant.thread_id)])

    @verb
    async def revoke(self, grant_id: str, *, by: str | None = None) -> None:
        """Revoke an approval for later calls, which then ask a person again; a repeat changes nothing.

        Calls that it already allowed to start are not stopped.

        Args:
            grant_id: as `list_grants` names it.
            by: the name of the caller, for the record.

        Raises:
            GrantNotFound: no approval for later calls has this id.
        """
        await self._store.revoke(grant_id, self._clock(), by)

    # --------------------------------------------------------------------------------------- deciding

    async def _bring(
        self, task: Ref, call: str, value: dict[str, Json], by: str | None, command_id: str | None
    ) -> None:
        """Answer a call of a caller tool by its id or the id of its request."""
        request_id = call if is_question(call) else question_id(call, 1)
        await self._decide(task, request_id, _Verdict("answer", by, value=value, brings=True), command_id)

    async def _decide(
        self, task: Ref, request_id: str | None, verdict: _Verdict, command_id: str | None
    ) -> None:
        """Send a decision to the requesting task, unless the command was carried out before."""
        task_id = id_of(task)

        async def decided(event: e.Event) -> None:
            if isinstance(event, e.CommandRejected):
                raise AlreadyDecided(f"task {task_id}: {event.reason}", task_id=task_id)
            assert isinstance(event, Answer), "no other kind is asked for"
            same = replace(
                verdict,
                value=self._commands.without_secrets(verdict.value),
                arguments=self._commands.without_secrets(verdict.arguments),
            )
            if not same.is_that_of(event) or request_id not in (None, _request_of(event)):
                raise of_another(task_id, command_id, event)

        await self._commands.once(
            task_id,
            command_id,
            (*_EVENTS[verdict.kind], e.CommandRejected),
            lambda: self._decide_once(task_id, request_id, verdict, command_id),
            decided,
        )

    async def _decide_once(
        self, task_id: str, request_id: str | None, verdict: _Verdict, command_id: str | None
    ) -> None:
        states = await self._tree_for(task_id, command_id)
        pending = [
            (state, item)
            for state in states
            for item in pending_outside(state)
            if item.kind == verdict.about and request_id in (None, item.request_id)
        ]
        kind = _NAMES[verdict.about]
        if request_id is not None and not verdict.names(request_id):
            raise CallNotFound(f"{request_id!r} is not the id of a {kind}: `pending` names these")
        if len(pending) > 1 and (request_id is None or pending[0][0] is not states[0]):
            raise several_pending(verdict.kind, [item for _, item in pending], request_id)
        if pending:
            state, item = pending[0]
            own = replace(verdict, stop=verdict.stop and state.task_id == task_id)
            await self._answer(state, item, own, command_id)
        elif request_id is None:
            raise CallNotFound(f"task {task_id} waits for no {verdict.about}")
        else:
            _check_kind(states, request_id, verdict)
            states = [state async for state in self._tree(task_id, all_below=True)]
            await self._check_decided(states, request_id, verdict)

    async def _answer(
        self, state: TaskState, item: Pending, verdict: _Verdict, command_id: str | None
    ) -> None:
        """Send a decision on a pending request to its task, and return once it is durable."""
        if verdict.about == "approval":
            self._check_approver(state, item, verdict)
        elif not verdict.brings and (wrong := misfit(verdict.value, item.schema)) is not None:
            raise ConfigurationError(
                f"answer: task {state.task_id}: the value does not fit the question {item.request_id}, which stays "
                f"open: {wrong}"
            )
        seq = state.seq
        item_id = await self._commands.send(
            state.task_id, verdict.kind, verdict.data(item.request_id), command_id=command_id
        )
        try:
            async with asyncio.timeout(READ_SOON):
                answer = await self._commands.answer(state.task_id, item_id, after=seq)
                dismissed = answer is None and not await self._commands.is_unread(state.task_id, item_id)
        except TimeoutError:  # the item is durable: the driver of the task will read it
            decisions = ("approve", "deny", "answer")
            if await self._commands.contradicted(state.task_id, item_id, decisions, "request_id"):
                text = f"task {state.task_id}: another decision on the request {item.request_id} was first"
                raise AlreadyDecided(text, task_id=state.task_id) from None
        else:
            if isinstance(answer, e.CommandRejected) or dismissed:
                # Another decision, the expiry, or the end of the call or the task came first.
                now = await self._state(state.task_id)
                is_pending = any(other.request_id == item.request_id for other in pending_outside(now))
                if isinstance(answer, e.CommandRejected) and is_pending:
                    raise AlreadyDecided(f"task {now.task_id}: {answer.reason}", task_id=now.task_id)
                await self._check_decided([now], item.request_id, verdict)
        if state.parent is not None:
            await self._commands.tell_parents(await self._cache.row(state.task_id))

    def _check_approver(self, state: TaskState, item: Pending, verdict: _Verdict) -> None:
        """Raise unless the caller may decide and its arguments fit."""
        approval_key = approved_call(item.request_id)
        call = state.open_approvals[approval_key[0]] if approval_key is not None else None
        request = _terms_of(state, item)
        assert call is not None, "it is pending"
        assert request is not None, "it is pending"
        if not may_decide(request, verdict.by):
            allowed = f": only {', '.join(request.approvers)}" if request.approvers else ""
            who = verdict.by or "a caller without by="
            raise ApproverRefused(
                f"task {state.task_id}: {who} may not decide on {item.request_id}{allowed}",
                task_id=state.task_id,
            )
        if request.argument is not None and verdict.kind == "approve":
            if verdict.arguments is None or request.argument not in verdict.arguments:
                raise ConfigurationError(
                    f"approve: {item.request_id} asks for the argument {request.argument!r}: pass it in arguments=, "
                    "or call `answer`"
                )
            if verdict.scope != "once":
                raise ConfigurationError(
                    f"approve: {item.request_id} asks for an argument, so an approval covers one call: use scope='once'"
                )
        if request.every_call and verdict.scope != "once":
            raise ConfigurationError(
                f"approve: rule {request.rule} asks about every call, so an approval of {item.request_id} covers "
                "this call alone: use scope='once'"
            )
        self._check_bounds(item, call, request, verdict)
        if verdict.scope in STANDING and request.rule is None:
            raise ConfigurationError(
                f"approve: scope={verdict.scope!r} covers calls that the same rule asks about, but {item.request_id} "
                "names no rule"
            )
        if verdict.scope in STANDING and not hasattr(self._store, "grants"):
            raise ConfigurationError(
                f"approve: scope={verdict.scope!r} needs a store with a method grants, and {self._store.url} has none: "
                "use scope='once' or 'task'"
            )
        if verdict.arguments is not None:
            self._check_arguments(state, call, verdict.arguments, verdict.kind)

    def _check_bounds(
        self, item: Pending, call: CallState | Check, request: e.ApprovalRequested, verdict: _Verdict
    ) -> None:
        """Raise unless the arguments in `same` fit the scope of the approval and the call."""
        if request.same and verdict.scope in STANDING:
            raise ConfigurationError(
                f"approve: rule {request.rule} limits an approval of {item.request_id} to calls in which "
                f"{', '.join(request.same)} stay the same, within the task: use scope='task'"
            )
        if verdict.same and verdict.scope != "task":
            raise ConfigurationError(
                "approve: same= limits an approval of later calls: use it with scope='task'"
            )
        arguments = call.arguments if verdict.arguments is None else verdict.arguments
        missing = [name for name in verdict.same if argument_at(arguments, name) is ABSENT]
        if missing:
            raise ConfigurationError(
                f"approve: same= names {missing[0]!r}, but the call {item.request_id} has no such argument: "
                f"{', '.join(arguments) or 'none'}"
            )

    async def _check_decided(self, states: list[TaskState], request_id: str, verdict: _Verdict) -> None:
        """Raise unless a request that is no longer pending was decided in this way; it is of one of these tasks."""
        made = [
            (state, event)
            for state in states
            if (event := await self._newest_about(state.task_id, request_id)) is not None
        ]
        if not made:
            raise CallNotFound(f"task {states[0].task_id} has no {_NAMES[verdict.about]} {request_id!r}")
        if len(made) > 1 and made[0][0] is not states[0]:
            named = ", ".join([state.task_id for state, _ in made])
            raise ConfigurationError(
                f"{verdict.kind}: several tasks have a request {request_id}, and none is pending: name one of {named}"
            )
        state, event = made[0]
        refusal: type[TaskStateError] = AlreadyDecided
        if isinstance(event, _DECISIONS):
            if verdict.is_that_of(event):
                return
            by = f" by {event.by}" if event.by else ""
            text = f"was {_HOW[type(event)]}{by} already"
        elif isinstance(event, (e.ApprovalExpired, e.QuestionExpired)):
            text = "has expired"
        else:
            refusal = TicketClosed if verdict.brings else RequestClosed
            whose = (
                f"call {_what_became_of(state, event.call)}" if event.call else "step has ended or was undone"
            )
            text = f"is not pending any more: its {whose}"
        raise refusal(f"task {state.task_id}: the request {request_id} {text}", task_id=state.task_id)

    async def _newest_about(self, task_id: str, request_id: str) -> _AboutRequest | None:
        """Return the last event of a task's journal about a request; None if it made no such request."""
        newest = None
        for _, event in events_with_epochs(task_id, await self._store.read(task_id)):
            if isinstance(event, _ABOUT_REQUESTS) and _request_of(event) == request_id:
                newest = event
        return newest


async def _first_of(groups: AsyncIterator[_Group], limit: int) -> PendingPage:
    """Return a page of the first requests.

    Its cursor names the row of its last task. If more requests of that task follow, it names the last request too.
    """
    items = list[Pending]()
    place = ""
    async for where, group in groups:
        room = limit - len(items)
        if group and not room:
            return PendingPage(tuple(items), f"{place}/")
        items += group[:room]
        if len(group) > room:
            return PendingPage(tuple(items), f"{where}/{items[-1].request_id}")
        place = where if group else place
    return PendingPage(tuple(items), None)


def _after(items: list[Pending], last: str) -> list[Pending]:
    """Return a task's requests after the one with id `last`; all if that is no longer pending, none without an id."""
    if not last:
        return []
    ids = [item.request_id for item in items]
    return items[ids.index(last) + 1 :] if last in ids else items


def _terms_of(state: TaskState, item: Pending) -> e.ApprovalRequested | None:
    """Return the event that asked for an approval; None for a request of another kind."""
    key = approved_call(item.request_id)
    call = state.open_approvals[key[0]] if key is not None else None
    return call.permit.request if call is not None and call.permit is not None else None


def _check_kind(states: list[TaskState], request_id: str, verdict: _Verdict) -> None:
    """Raise `CallNotFound` if a pending request is of another kind than the decision."""
    verbs = {"question": "`answer` it", "call": "`complete` or `fail` brings its result"}
    for state in states:
        for item in pending_outside(state):
            if item.request_id == request_id and item.kind in verbs:
                raise CallNotFound(
                    f"task {state.task_id}: {request_id} is a {_NAMES[item.kind]}, and no {_NAMES[verdict.about]}: "
                    f"{verbs[item.kind]}"
                )


_APPROVALS: Final = (e.ApprovalRequested, e.ApprovalGiven, e.ApprovalDenied, e.ApprovalExpired)
_ABOUT_REQUESTS: Final = (*_APPROVALS, e.QuestionAsked, e.QuestionAnswered, e.QuestionExpired)
_AboutRequest: TypeAlias = (
    e.ApprovalRequested
    | e.ApprovalGiven
    | e.ApprovalDenied
    | e.ApprovalExpired
    | e.QuestionAsked
    | e.QuestionAnswered
    | e.QuestionExpired
)
_EVENTS: Final[dict[str, tuple[type[e.Event], ...]]] = {
    "approve": (e.ApprovalGiven,),
    "deny": (e.ApprovalDenied,),
    "answer": (e.QuestionAnswered, e.ApprovalGiven),
}
_DECISIONS: Final = (e.ApprovalGiven, e.ApprovalDenied, e.QuestionAnswered)
_NAMES: Final = {
    "approval": "request for approval",
    "question": "question",
    "call": "call of a tool of the caller",
}
_HOW: Final[dict[type, str]] = {
    e.ApprovalGiven: "approved",
    e.ApprovalDenied: "denied",
    e.QuestionAnswered: "answered",
}


def _request_of(event: Any) -> str:
    return approval_id(event.call, event.number) if isinstance(event, _APPROVALS) else event.request_id


def _as_json(value: Any) -> Json:
    """Return an answer as JSON data; raise `ConfigurationError` for a value without a JSON form."""
    try:
        return storable(value)
    except ValueError as error:
        text = f"answer: value must be JSON data, got {reprlib.repr(value)}: {error}"
        raise ConfigurationError(text) from error


def _what_became_of(state: TaskState, call_id: str) -> str:
    call: CallState | None = state.find_call(call_id)
    if call is None:
        return "was taken back"
    return f"ended as {call.outcome}" if call.outcome is not None else "was changed since"

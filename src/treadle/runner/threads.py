"""List, compact, delete and prune threads, and import messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core import ids
from treadle.core.events import END_STATES
from treadle.core.journal import events_with_epochs, unfold
from treadle.core.messages import Message
from treadle.drivers import arguments
from treadle.drivers.commands import of_another
from treadle.drivers.compaction import CompactionRequest, ThreadCompactor
from treadle.drivers.continuing import commit
from treadle.drivers.new_task import NewRun
from treadle.drivers.random_ids import new_id
from treadle.engine.journal_writer import encode_record
from treadle.errors import TaskBusy, TaskNotFound, ThreadNotFound
from treadle.ports import Commit, Model, NewTask, TaskExists, TaskFilter, TaskRow, ThreadChange, ThreadMoved
from treadle.results.pages import ThreadPage
from treadle.results.reports import CompactionReport, PruneReport
from treadle.results.run_result import RunResult
from treadle.results.states import state_of_row, state_text
from treadle.results.threads import ThreadSummary
from treadle.runner import audit
from treadle.runner.run_and_resume import RunVerbs
from treadle.runner.verbs import verb

PAGE = 1_000
IMPORTED = "import"
"""The name of the agent in tasks that hold imported messages."""


class ThreadVerbs(RunVerbs):
    """The verbs on threads."""

    @verb
    async def list_threads(self, *, limit: int = 100, cursor: str | None = None) -> ThreadPage:
        """Return a page of the threads in which a task was finalized, by id; `cursor` is that of the previous page."""
        arguments.page("list_threads", limit, cursor)
        await self._cache.open()
        rows = await self._store.threads(limit + 1, after=cursor)
        items = tuple([ThreadSummary(row.thread_id, row.version, row.members) for row in rows[:limit]])
        page = ThreadPage(items, items[-1].thread_id if len(rows) > limit else None)
        return page.followed_by(lambda after: self.list_threads(limit=limit, cursor=after))

    @verb
    async def compact_thread(
        self,
        thread_id: str,
        *,
        keep: int = 4,
        agent: Agent[Any] | None = None,
        model: str | Model | None = None,
        context_tokens: int = 32_000,
        by: str | None = None,
    ) -> CompactionReport:
        """Replace older turns of a thread by a summary for later tasks; `get_thread` still returns all messages.

        A model call writes the summary, in a task of its own. A repeat writes no new summary, and continues after a
        crash. Tasks that run in the thread meanwhile keep the messages they began with.

        Args:
            thread_id: the thread.
            keep: how many of its newest turns (tasks) stay unchanged.
            agent: the agent that summarises, with instructions of its own; by default one is made.
            model: the model of that default agent; by default that of the newest agent of the thread that this runner
                knows.
            context_tokens: maximum number of tokens for one model call; a longer thread needs several.
            by: the name of the caller, for the record.

        Raises:
            ThreadNotFound: no task was finalized in it.
        """
        request = CompactionRequest(thread_id, keep, context_tokens, agent, model, by)
        await self._cache.open()
        compactor = ThreadCompactor(self._store, self._cache, self._agents, self._memory, self._summarise)
        return await compactor.compact(request)

    async def _summarise(self, new: NewRun) -> RunResult[Any]:
        if self.scope is not None:
            new.options = self.scope.options_of("compact_thread", new.agent, new.options)
        return await self._run(new, None)

    @verb
    async def import_thread(
        self,
        thread_id: str,
        messages: Sequence[Message],
        *,
        by: str | None = None,
        command_id: str | None = None,
    ) -> str:
        """Add messages from elsewhere to the end of a thread; return the id of the task that holds them.

        Args:
            thread_id: the thread; it may be new.
            messages: whole turns, in which a result follows each tool call.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat adds nothing to the thread.

        Raises:
            ConfigurationError: the messages are not well-formed; the error names the first fault.
        """
        conversation = arguments.conversation("import_thread", messages)
        await self._cache.open()
        version, _ = await self._store.thread(thread_id)
        task_id, now = new_id(), self._clock()
        if command_id is not None:
            task_id = ids.imported_task_id(thread_id, command_id)
        while True:
            new = NewTask(task_id, IMPORTED, thread_id, now)
            events: list[e.Event] = [
                e.TaskCreated(IMPORTED, (), thread_id, by=by),
                e.MessagesImported(conversation),
                e.TaskEnded("completed", thread_version=version + 1),
            ]
            for seq, event in enumerate(events, 1):
                event.seq, event.time = seq, now
            record = encode_record(events, 1, b"")
            change = ThreadChange("add", thread_id, version)
            try:
                await commit(
                    self._store, Commit(task_id, 1, record, new, "completed", release=True, thread=change)
                )
            except ThreadMoved as moved:
                version = moved.version
                continue
            except TaskExists:
                if command_id is None:
                    raise
                await self._check_imported(task_id, command_id, conversation)
            return task_id

    async def _check_imported(self, task_id: str, command_id: str, conversation: tuple[Message, ...]) -> None:
        """Raise `ConfigurationError` if an earlier command of this id imported other messages."""
        with suppress(TaskNotFound):  # it was deleted since
            for _, event in events_with_epochs(task_id, await self._store.read(task_id)):
                if isinstance(event, e.MessagesImported) and event.messages != conversation:
                    raise of_another(task_id, command_id, event)

    @verb
    async def delete_thread(self, thread_id: str, *, by: str | None = None) -> None:
        """Delete a thread with all its tasks and their children, in one transaction.

        A prefix that forks in other threads share is kept, unlisted, until the last of them is deleted.

        Args:
            thread_id: the thread.
            by: the name of the caller, for the log `treadle.audit`.

        Raises:
            ThreadNotFound: there is no such thread.
            TaskBusy: one of its tasks is driven, or is a child that its parent still needs.
        """
        await self._cache.open()
        rows = await self._rows_of(thread_id)
        for row in rows:
            await self._check_not_awaited(row)
        for row in rows:
            await self._ownership.release_again(row.task_id)
            self._cache.forget(row.task_id)
        await self._store.delete_thread(thread_id)
        self._cache.history.forget(thread_id)
        audit.tell("delete_thread", by, self.scope, thread_id=thread_id, tasks=len(rows))

    @verb
    async def prune(
        self,
        older_than: float | timedelta,
        *,
        states: Sequence[str] = END_STATES,
        labels: dict[str, str] | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> PruneReport:
        """Delete tasks that ended long ago: whole threads, and tasks without messages in their thread.

        A thread is deleted only if all its tasks are old enough, so that no conversation loses a part of its messages.
        Younger forks keep the prefix they share.

        Args:
            older_than: seconds since the last event of a task.
            states: the states of tasks to delete, which may include unfinished ones.
            labels: only tasks with all of these.
            dry_run: return the tasks that would be deleted, and delete none.
            by: the name of the caller, for the log `treadle.audit`, which names each deleted thread and task.
        """
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        arguments.seconds("prune: older_than", seconds)
        arguments.labels("prune: labels", labels)
        arguments.task_states("prune: states", states)
        await self._cache.open()
        now = self._clock()
        before = now - int(min(seconds, now / 1e6) * 1e6)  # an age cannot exceed the clock
        threads: dict[str, list[TaskRow]] = {}
        for row in await self._rows_of(None):
            threads.setdefault(row.thread_id, []).append(row)
        gone = PruneReport((), ())
        for thread_id, rows in threads.items():
            if not any([await self._is_old(row, before, states, labels or {}) for row in rows]):
                continue
            rows = await self._rows_of(thread_id)  # a task may have begun in it since the listing
            old = [row for row in rows if await self._is_old(row, before, states, labels or {})]
            gone = await self._prune_thread(thread_id, rows, old, gone, dry_run=dry_run, by=by)
        return gone

    async def _prune_thread(
        self,
        thread_id: str,
        rows: list[TaskRow],
        old: list[TaskRow],
        gone: PruneReport,
        *,
        dry_run: bool,
        by: str | None,
    ) -> PruneReport:
        whole = len(old) == len(rows)
        if not whole:
            _, members = await self._store.thread(thread_id)
            with_messages = {member.task_id for member in members}
            old = [row for row in old if row.task_id not in with_messages and row.parent is None]
        if not old:
            return gone
        try:
            if whole and not dry_run:
                await self.delete_thread(thread_id, by=by)
            for row in old if not whole and not dry_run else ():
                await self.delete_task(row.task_id, by=by)
        except (TaskBusy, TaskNotFound, ThreadNotFound):
            return gone  # it was driven on, or deleted, meanwhile
        ids = tuple([row.task_id for row in old])
        return PruneReport((*gone.threads, thread_id) if whole else gone.threads, (*gone.tasks, *ids))

    async def _is_old(self, row: TaskRow, before: int, states: Sequence[str], labels: dict[str, str]) -> bool:
        driven = self._owned.is_driven(row)
        words = {row.display_state, state_text(state_of_row(row), driven=driven)}
        fits = not words.isdisjoint(states) and all(
            row.labels.get(key) == value for key, value in labels.items()
        )
        if not fits or row.created >= before or driven:
            return False
        try:
            await self._check_not_awaited(row)
        except TaskBusy:
            return False
        try:
            records = await self._store.read(row.task_id, after=max(0, row.head - 1))
        except TaskNotFound:
            return False  # it was deleted meanwhile
        newest = unfold(row.task_id, records, after=row.head - 1, previous=None)
        return all(event.time < before for _, events in newest for event in events)

    async def _rows_of(self, thread_id: str | None) -> list[TaskRow]:
        rows: list[TaskRow] = []
        cursor: str | None = None
        while True:
            page = await self._store.rows(TaskFilter(thread_id=thread_id, limit=PAGE, cursor=cursor))
            rows += page
            if len(page) < PAGE:
                return rows
            cursor = page[-1].cursor

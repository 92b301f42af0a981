"""Create tasks in the store, with their first commit, at the request of a caller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core import origins
from treadle.core.data import frozen, mutable
from treadle.core.messages import Content, Json, copied
from treadle.core.state import start
from treadle.drivers.agent_registry import AgentRegistry
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.drivers.ownership import TaskOwnership
from treadle.drivers.random_ids import new_frame_key, new_id, new_incarnation
from treadle.drivers.task_cache import TaskCache
from treadle.drivers.terminal import check_interaction
from treadle.engine.journal_writer import Lease
from treadle.engine.observers import Listeners
from treadle.engine.options import RunOptions, limits_of, to_json
from treadle.errors import ConfigurationError, ThreadBusy
from treadle.ports import JournalStore, NewTask, OnBusyThread, TaskExists


@frozen
class ChildOf:
    """The parent of a new task, the parent's call, and the depth below the root.

    `relay` is called before the first event of the new task, so that watchers of its parent get all events.
    """

    task_id: str
    call: str
    depth: int
    relay: Callable[[OwnedTask], None]


@mutable
class NewRun:
    """A caller's request for a new task."""

    agent: Agent[Any]
    input: tuple[Content, ...]
    thread_id: str | None = None
    task_id: str | None = None
    options: RunOptions | None = None
    extra_state: dict[str, Json] | None = None
    summarises: e.SummaryRequested | None = None
    """the content that it summarises"""

    untrusted: tuple[str, ...] = ()
    """untrusted origins of its inherited content, without those of its thread"""

    exposed: tuple[str, ...] = ()
    """declared effects of the tools whose results its parent, or the summarised tasks, have seen"""

    child_of: ChildOf | None = None

    by: str | None = None
    """the name of the caller"""

    observers: Listeners | None = None
    """the observers of the call that creates it, or of the drive of its parent"""


class TaskCreator:
    """Creates tasks that this process owns.

    Args:
        store: receives the tasks.
        cache: begins a task with the messages of its thread.
        owned: registers the tasks.
        ownership: releases a task whose creation failed.
        agents: the registry of agents.
        load_parts: reads the local files of an input.
        options: defaults for every task.
        extra_state: initial extra state of every task, overridden by its own.
        clock: microseconds since 1970, UTC.
    """

    def __init__(
        self,
        store: JournalStore,
        cache: TaskCache,
        owned: OwnedTasks,
        ownership: TaskOwnership,
        agents: AgentRegistry,
        load_parts: Callable[[tuple[Content, ...]], tuple[Content, ...]],
        options: RunOptions,
        extra_state: dict[str, Json] | None,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._cache = cache
        self._owned = owned
        self._ownership = ownership
        self._agents = agents
        self._load_parts = load_parts
        self._clock = clock
        self._options = options
        self._extra_state = extra_state
        self._stored_options = to_json(options)

    async def create(self, new: NewRun, unused_id: str | None = None, *, drives: bool = True) -> OwnedTask:
        """Return a new task that this process owns; its first commit creates it in the store.

        `unused_id` is an id that the caller has just generated, so that no other task can have it. With `drives` the
        agent's model is resolved before the task is created. Raises `TaskExists` only for an id in `new`.
        """
        agent, parent = new.agent, new.child_of
        if drives:
            self._agents.preload(agent)
        await self._cache.open()
        options = self._options if new.options is None else new.options.over(self._options)
        if parent is not None:
            options = new.options or RunOptions()  # its parent's, which include those of the runner
        if options.caller_tools or options.delete_on_finish:
            self._check_options(agent, options)
        if drives:
            if parent is None:
                check_interaction(options)
            self._agents.model_of(agent)
            await self._agents.check_limits(agent, limits_of(agent, options), breakpoints=options.break_on)
        self._agents.register(agent)
        parts, task_id = self._load_parts(new.input), new.task_id or unused_id or new_id()
        state, base = start(task_id), 0
        if new.thread_id is not None and new.summarises is None:
            base = await self._cache.begin_with_history(state, new.thread_id)
        thread = new.thread_id or (task_id if parent is not None else new_id())
        row = NewTask(task_id, agent.name, thread, self._clock(), labels=options.labels)
        if parent is not None:
            row.parent = parent.task_id
        enter: OnBusyThread | None = None
        if drives and new.summarises is None:
            # A thread that is created with its task has no other task.
            enter = "parallel" if new.thread_id is None else options.on_busy_thread or "enqueue"
        owned = self._owned.add(state, Lease(1, b"", row, enter), new.observers)
        owned.entered, owned.labels = enter == "parallel", row.labels
        if parent is not None:
            parent.relay(owned)
        stored = self._stored_options if options is self._options else to_json(options)
        created = e.TaskCreated(agent.name, parts, thread, base, agent.fingerprint, stored)
        created.frame_key = new_frame_key()
        if new.summarises is None and (self._extra_state is not None or new.extra_state is not None):
            created.extra_state = copied({**(self._extra_state or {}), **(new.extra_state or {})})
        if new.task_id is not None:
            created.incarnation = new_incarnation()  # a task of this id may have been deleted
        if parent is not None:
            created.parent, created.parent_call, created.depth = parent.task_id, parent.call, parent.depth
        created.untrusted = origins.merged(new.untrusted, state.history_untrusted)
        created.exposed = origins.merged(new.exposed, state.history_exposed)
        created.by = new.by
        owned.writer.record(created)
        if new.summarises is not None:
            owned.writer.record(new.summarises)
        waits = enter not in (
            None,
            "parallel",
        )  # then its place in the queue decides its version of the thread
        if new.task_id is not None or waits or base:
            await self._make(owned, 0 if waits else base)
            owned.position = owned.writer.place
        return owned

    def _check_options(self, agent: Agent[Any], options: RunOptions) -> None:
        """Raise `ConfigurationError` if a caller's tool has a name of the agent's, or the store lacks `delete`."""
        self._agents.check_caller_tools(agent, options)
        if options.delete_on_finish and not hasattr(self._store, "delete"):
            raise ConfigurationError(
                f"RunOptions(delete_on_finish=True) needs a store with a method delete, and {self._store.url} has none"
            )

    async def _make(self, owned: OwnedTask, base: int) -> None:
        """Return once a new task is in the store; if the caller is cancelled meanwhile, it stays there, released.

        `base` is the version of its thread that was read. If a member was removed since, the task begins with the
        present messages of the thread. A deletion keeps no data for a task that did not exist yet.
        """
        state = owned.state
        try:
            await owned.writer.durable()
            if base:
                version, members = await self._store.thread(state.thread, since=base)
                if len(members) != version - base:
                    version = await self._cache.begin_with_history(state, state.thread)
                    owned.writer.record(
                        e.ThreadEntered(version, state.history_untrusted, state.history_exposed)
                    )
        except BaseException:
            with suppress(TaskExists, ThreadBusy):
                await self._ownership.release(owned)
            raise

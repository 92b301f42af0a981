"""Delete tasks and threads from a store in memory, and the records that are no longer needed."""

from __future__ import annotations

from bisect import bisect_left

from treadle.stores import rules
from treadle.stores.memory_tables import MemoryTables, StoredTask, StoredThread, chain, task_busy
from treadle.stores.rules import Membership


class Deletion:
    """Deletes tasks and threads.

    Args:
        tables: the data of the store.
    """

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def delete(self, roots: list[StoredTask], thread_id: str | None = None) -> frozenset[str]:
        """Delete tasks with their children, and return the ids of all of them."""
        family = self._family(roots)
        for task in family:
            if task.owned:
                raise task_busy(task)
        for task in family:
            del self._tables.listed[bisect_left(self._tables.listed, (task.new.created, task.new.task_id))]
            task.deleted = True
            task.epoch += 1
            task.state, task.waiting, task.seen, task.mark = "", {}, set(), None
            self._tables.note_owner(task)
        members = self._tables.threads[thread_id].members if thread_id in self._tables.threads else []
        bases = [part for task in (*family, *(m.task for m in members)) for part, _ in chain(task)]
        names = {task.new.thread_id for task in bases}
        for name, thread in self._tables.threads.items():
            if any(member.task in family for member in thread.members):
                names.add(name)
        if thread_id is not None:
            names.add(thread_id)
            self._tables.forget_grants(thread_id)
        self._take_out(family, thread_id)
        self._collect([*family, *self._removed_members(names)])
        # If a fork is deleted, the thread it began with may be deleted too.
        while freed := self._drop_threads(names):
            self._collect(freed)
        return frozenset([task.new.task_id for task in family])

    def _take_out(self, family: list[StoredTask], thread_id: str | None) -> None:
        """Remove all members from a thread, and the tasks of subagents from theirs."""
        called = rules.subagent_tasks((id(task), task.new.task_id, task.new.parent) for task in family)
        for name, thread in self._tables.threads.items():
            for member in reversed(thread.members):
                if member.removed is None and (name == thread_id or id(member.task) in called):
                    thread.version += 1
                    member.removed = thread.version

    def _family(self, roots: list[StoredTask]) -> list[StoredTask]:
        """Return the tasks, their listed children, the children of those, and so on."""
        children: dict[str | None, list[StoredTask]] = {}
        for task in self._tables.tasks.values():
            if not task.deleted and task.new.parent is not None:
                children.setdefault(task.new.parent, []).append(task)
        family = list(roots)
        for task in family:
            family.extend(child for child in children.get(task.new.task_id, ()) if child not in family)
        return family

    def _drop_threads(self, names: set[str]) -> list[StoredTask]:
        """Drop the threads that no task needs any more; return their former members."""
        with_readers = {
            task.new.thread_id
            for task in self._tables.tasks.values()
            if not task.deleted or _is_kept_for_forks(task)
        }
        members: list[StoredTask] = []
        for name in names:
            thread = self._tables.threads.get(name, StoredThread())
            has_members = any(member.removed is None for member in thread.members)
            if not rules.stays(has_members=has_members, has_readers=name in with_readers):
                self._tables.forget_grants(name)
                members.extend(member.task for member in thread.members)
                self._tables.threads.pop(name, None)
        return members

    def _collect(self, waiting: list[StoredTask]) -> None:
        """Drop records of deleted tasks that are no longer read, then those of tasks kept for them."""
        while waiting:
            task = waiting.pop()
            if not task.deleted or self._tables.tasks.get(task.new.task_id) is not task:
                continue
            last = rules.last_needed_event(
                [fork.new.base_seq for fork in task.forks], self._memberships(task)
            )
            end = -1 if last is None else last
            self._tables.forget_blobs([r for r in task.records if r.seq - r.count >= end])
            task.records = [r for r in task.records if r.seq - r.count < end]
            if last is not None:
                continue
            del self._tables.tasks[task.new.task_id]
            del self._tables.numbers[task.new.task_id]
            for thread in self._tables.threads.values():
                thread.members = [m for m in thread.members if m.task is not task]
            if task.base is not None:
                task.base.forks.remove(task)
                waiting.append(task.base)
            waiting += self._removed_members({task.new.thread_id})

    def _memberships(self, task: StoredTask) -> list[Membership]:
        return [
            Membership(m.version, m.seq, m.removed is not None, self._read_below(name, thread))
            for name, thread in self._tables.threads.items()
            for m in thread.members
            if m.task is task
        ]

    def _read_below(self, name: str, thread: StoredThread) -> int:
        first: dict[str, int] = {}
        for member in thread.members:
            first.setdefault(member.task.new.task_id, member.version)
        return rules.read_below(
            first.get(task.new.task_id)
            for task in self._tables.tasks.values()
            if task.new.thread_id == name and task.base is None and (not task.deleted or task.forks)
        )

    def _removed_members(self, names: set[str]) -> list[StoredTask]:
        """Return the deleted tasks that are kept since tasks of these threads may have begun with them."""
        threads = [self._tables.threads[name] for name in names if name in self._tables.threads]
        return [m.task for t in threads for m in t.members if m.removed is not None and m.task.deleted]


def _is_kept_for_forks(task: StoredTask) -> bool:
    """Return whether forks in other threads need a deleted task."""
    return any(not fork.deleted or fork.new.thread_id != task.new.thread_id for fork in task.forks)

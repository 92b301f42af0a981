"""The rules of the port `JournalStore`, as pure functions that all stores use.

A store reads rows, asks a rule, and writes. The rules neither read nor write. They are, in this order:

- the admission of commits, the recognition of repeated ones, and the checks of a claim;
- the queue of a thread;
- the records that a deletion keeps.

Commits
-------

A commit is checked by four rules, before any of it is written:

    may_be_repeated   is its record at or before the task's end?   then read the record that is there
    admit             was it written before?                       then answer it again, and write nothing
                      has the task this epoch, and does the record follow its last event?     else `Fenced`
    releases          does the inbox hold unread items?            then `InboxWaiting`, or ownership stays
    check_thread      is the thread at the expected version?       else `ThreadMoved`

Deletions
---------

A deleted task keeps its records up to the last event that is still read. Their readers are:

- its forks, up to the event at which each begins;
- its thread, while the task is a member of it;
- the tasks that began with an earlier version of the thread, in which the task was still a member.

So a task that was undone, and thus removed from its thread, is kept while a task of the thread may have begun before
that. A task begins before it becomes a member itself. A member at version 3 began with version 2 or an earlier one, so
it never reads a task that joined at version 3 or later. A task that never was a member may have begun with any version.

    version  1        2        3            4              5
             one +    two +    two -        three +        now
             `two` was a member from 2 to 3. `one` began before 1 and does not read it. `three` may have begun with
             version 2, so that `two` is kept until `three` is deleted, too.

Only tasks that are listed, or that forks share, are read. A fork reads a version of the thread only through the task at
the root of its chain.

A deleted task stays a member of its thread, since its messages belong to the conversation. Members leave a thread when
the thread itself is deleted. The tasks of subagents leave theirs when the calling task is deleted. Each departure
creates a version, like each addition. A thread is deleted when it has no members, none of its tasks is listed, and no
fork in another thread began with it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from treadle.core.data import frozen, mutable
from treadle.core.journal import check_format, missing_tail, replaced_tail
from treadle.core.messages import may_leave_thread
from treadle.core.permits import StandingGrant
from treadle.errors import AlreadyFinalized, Fenced, GrantNotFound, TaskBusy, TaskNotFound, ThreadBusy
from treadle.ports import (
    Commit,
    InboxWaiting,
    JournalEnd,
    OnBusyThread,
    QueuePosition,
    TaskExists,
    ThreadMoved,
)

# --------------------------------------------------------------------------------------------- commits


class TaskHead(Protocol):
    """The state of a task in its store."""

    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int:
        """The last event"""
        ...

    @property
    def deleted(self) -> bool: ...


RecordKey = tuple[int, bytes]
"""The identity of a record at its place: its epoch and its digest."""


def may_be_repeated(commit: Commit, head: TaskHead | None) -> bool:
    """Return whether a commit may have been written before, in which case `admit` needs the record at its place."""
    if head is None or head.deleted or commit.record is None:
        return False
    return commit.record.seq <= head.seq


def admit(
    commit: Commit,
    head: TaskHead | None,
    earlier: RecordKey | None = None,
    *,
    is_own: bool = True,
    is_resent: bool = False,
    has_joined: bool = False,
) -> bool:
    """Return whether to write a commit; False if it was written before.

    Args:
        commit: the commit of a driver.
        head: the state of its task; None if the store has no such task.
        earlier: the record that ends at the same event as the commit's record, if `may_be_repeated`.
        is_own: whether the task has no owner, or this process owns it.
        is_resent: whether the store repeats the commit since the answer of its database was lost.
        has_joined: whether the task already is the newest member of the commit's thread, at the version it would add.

    Raises:
        TaskExists: a task of this id exists, and another commit created it.
        Fenced: the task is gone, has another epoch, or ends elsewhere.
    """
    record = commit.record
    is_repeated = earlier is not None and record is not None and earlier == (record.epoch, record.digest)
    if commit.create is not None:
        if head is None:
            epoch, seq = commit.epoch, commit.create.base_seq
        elif not head.deleted and (
            (is_resent and (record is None or is_repeated))
            or (is_repeated and is_own and head.epoch == commit.epoch)
        ):
            return False
        else:
            raise task_exists(commit.task_id)
    elif head is None or head.deleted:
        raise Fenced(f"task {commit.task_id} is not in this store (any more)")
    elif is_repeated or (has_joined and is_resent and record is None and head.epoch == commit.epoch):
        return False
    else:
        epoch, seq = head.epoch, head.seq
    if epoch != commit.epoch or (record is not None and record.epoch != epoch):
        raise Fenced(
            f"task {commit.task_id} was taken over by another driver: it is at epoch {epoch}, "
            f"and a commit at epoch {commit.epoch} was refused"
        )
    if record is not None and (record.count < 1 or record.seq - record.count != seq):
        raise Fenced(
            f"task {commit.task_id} ends at event {seq}: "
            f"a record of events {record.seq - record.count + 1} to {record.seq} does not follow"
        )
    return True


def releases(commit: Commit, unread: Collection[str]) -> bool:
    """Return whether a commit ends the ownership.

    Args:
        commit: a commit with `seal` or `release`; others need no check.
        unread: ids of the inbox items that no earlier commit took.

    Raises:
        InboxWaiting: it seals the task but does not take all of them.
    """
    is_left = bool(unread) and not set(commit.taken).issuperset(unread)
    if commit.seal and is_left:
        raise InboxWaiting(f"task {commit.task_id} has unread items in its inbox")
    return commit.release and (commit.leave or not is_left)


def check_thread(commit: Commit, version: int, members: Sequence[tuple[int, int]] = ()) -> int:
    """Return the version of the member that a commit removes from its thread; 0 if it adds one.

    Args:
        commit: a commit that changes a thread.
        version: the thread's version; 0 for a thread that has no member yet.
        members: version and `covers` of the task's newest member and of all members after it, in order; needed only for
            a removal.

    Raises:
        ThreadMoved: the thread has another version than expected.
        AlreadyFinalized: the task is not a member, or newer messages or a summary follow it.
    """
    change = commit.thread
    assert change is not None
    if change.action == "add":
        if version != change.expected:
            raise ThreadMoved(version)
        return 0
    if members:
        (own_version, covers), *later = members
        if may_leave_thread(own_version, covers, [covered for _, covered in later]):
            return own_version
    raise AlreadyFinalized(
        f"newer messages follow those of task {commit.task_id} in thread {change.thread_id!r}: fork it instead",
        task_id=commit.task_id,
    )


def check_fork(base: str, base_seq: int, end: int) -> None:
    """Raise `Fenced` if a fork would begin after the last event of its base."""
    if base_seq > end:
        raise Fenced(f"task {base} ends at event {end}, no fork can begin at {base_seq}")


def check_claim(task_id: str, min_format: int, end: JournalEnd, mark: JournalEnd | None) -> None:
    """Check that a task without a living driver may be driven.

    Args:
        task_id: the task.
        min_format: the journal format that its driver must know.
        end: the last event of its journal, and the digest of its record.
        mark: the end of its journal in its row; None if the row has none.

    Raises:
        TaskTooNew: this version does not know the format.
        JournalCorrupt: the journal ends before the mark, or at the mark with another digest.
    """
    check_format(task_id, min_format)
    if mark is not None and end.seq < mark.seq:
        raise missing_tail(task_id, end.seq, mark.seq)
    if mark is not None and end.seq == mark.seq and end.digest != mark.digest:
        raise replaced_tail(task_id, end.seq)


def check_read(task_id: str, last: int, mark: int | None, upto: int | None) -> None:
    """Raise `JournalCorrupt` if a read ended before the requested events.

    Args:
        task_id: the task.
        last: the last event that was read.
        mark: the last event in its row; None if the row has none.
        upto: the last requested event; None for all.
    """
    if mark is not None and last < mark and (upto is None or last < upto):
        raise missing_tail(task_id, last, mark)


def task_exists(task_id: str) -> TaskExists:
    """Return the error for a task that would be created a second time."""
    return TaskExists(f"a task {task_id} is in this store already")


def grant_not_found(grant_id: str) -> GrantNotFound:
    """Return the error for an approval for later calls that does not exist."""
    return GrantNotFound(f"no grant {grant_id!r} in this store: `list_grants()` names them")


def grant_columns(grant: StandingGrant) -> tuple[str | int | None, ...]:
    """Return the row of an approval for later calls."""
    return (
        *(grant.grant_id, grant.tool, grant.definition, grant.rule, grant.thread_id, grant.by, grant.task_id),
        *(grant.request_id, grant.created, grant.revoked, grant.revoked_by),
    )


def task_not_found(task_id: str) -> TaskNotFound:
    """Return the error for a task that the store does not have or does not list."""
    return TaskNotFound(f"no task {task_id} in this store")


def task_busy(task_id: str, pid: int, host: str, *, is_own: bool) -> TaskBusy:
    """Return the error for a task that a living driver owns; `is_own` if that is this process."""
    process = "this process" if is_own else "process"
    return TaskBusy(f"task {task_id} is driven by {process} {pid} on {host}", task_id=task_id)


# --------------------------------------------------------------------------------------- thread queue


@mutable
class QueuedTask:
    """A task with a place in the queue of its thread: 0 has the thread, larger numbers wait.

    Args:
        row: its row in the store.
        task_id: its id.
        turn: its place.
        driver: the row of its owner.
    """

    row: int
    task_id: str
    turn: int
    driver: int


@mutable
class QueueEntry:
    """The place that a task will get, and the tasks of dead drivers that lose the thread to it."""

    turn: int
    position: QueuePosition | None
    deposed: tuple[QueuedTask, ...] = ()


IN_PARALLEL: Final = QueueEntry(0, None)
"""The place of a task that enters by `parallel`: it has the thread at once and gets no position."""


def enter_thread(
    thread_id: str,
    version: int,
    turn: int | None,
    policy: OnBusyThread,
    queued: Sequence[QueuedTask],
    dead_drivers: Container[int] = (),
) -> QueueEntry:
    """Return the place that a task gets in the queue of its thread.

    Args:
        thread_id: the thread.
        version: its version.
        turn: the place that the task has; None without one.
        policy: how it enters; not by `parallel`.
        queued: the other tasks of the queue, in the order of their places.
        dead_drivers: the dead drivers of those tasks, which lose the thread and block no other.

    Raises:
        ThreadBusy: it enters by `reject`, but a task of a living driver is there.
    """
    living = [task for task in queued if task.driver not in dead_drivers]
    holders = tuple([task.task_id for task in living if task.turn == 0])
    if policy == "reject" and living and turn != 0:
        first = living[0].task_id
        raise ThreadBusy(
            f"thread {thread_id!r} is held by task {first}: wait for that one, or choose another "
            "on_busy_thread (--on-busy-thread), such as 'enqueue'",
            task_id=first,
            thread_id=thread_id,
        )
    if policy == "reject":
        turn = 0
    elif turn != 0:
        turns = [0, *(task.turn for task in queued)]
        if policy == "interrupt" and (turn is None or turn > 0):
            turn = min(turns) - 1
        elif turn is None:
            turn = max(turns) + 1
        if not holders and all(turn < task.turn for task in living):
            turn = 0
    position = QueuePosition(turn == 0, version, holders, turn)
    deposed = [task for task in queued if task.driver in dead_drivers and task.turn == 0] if turn == 0 else ()
    return QueueEntry(turn, position, tuple(deposed))


# ------------------------------------------------------------------------------------------- deletion


ANY_VERSION: Final = 2**62
"""Larger than every version: a task that never was a member may have begun with any of them."""


K = TypeVar("K")


def subagent_tasks(family: Iterable[tuple[K, str, str | None]]) -> list[K]:
    """Return the tasks of a deleted family that leave their threads: those called by others of the family.

    Args:
        family: the key in the store, the id and the parent's id of each task.
    """
    tasks = list(family)
    ids = {task_id for _, task_id, _ in tasks}
    return [key for key, _, parent in tasks if parent in ids]


def stays(*, has_members: bool, has_readers: bool) -> bool:
    """Return whether a thread stays after a deletion.

    Args:
        has_members: whether a task is a member of its newest version.
        has_readers: whether a task of it is listed, or kept for forks in other threads.
    """
    return has_members or has_readers


@frozen
class Membership:
    """One membership of a deleted task in a thread.

    Args:
        version: the version that added it.
        seq: the last event that is part of the thread.
        taken_out: whether a later version removed it.
        read_below: the readable tasks of the thread began with versions below this one.
    """

    version: int
    seq: int
    taken_out: bool
    read_below: int


def read_below(first_versions: Iterable[int | None]) -> int:
    """Return the version below which a thread can still be read.

    Args:
        first_versions: the first version in which each task of the thread was a member; None for a task that never was
            one. Only tasks that are no forks and are listed or shared by forks count.
    """
    return max((ANY_VERSION if first is None else first for first in first_versions), default=0)


def last_needed_event(fork_points: Iterable[int], memberships: Iterable[Membership]) -> int | None:
    """Return the last event of a deleted task that is still read; None if the whole task can be dropped.

    Args:
        fork_points: for each fork, the last event that it shares.
        memberships: all memberships that the task has or had in threads.
    """
    members = [m.seq for m in memberships if not m.taken_out or m.version < m.read_below]
    return max([*fork_points, *members], default=None)

"""The rules of stores as tables: which commits are admitted, which task has a thread, what a deletion keeps."""

from dataclasses import replace
from typing import Any

import pytest

from treadle.core.data import frozen
from treadle.errors import AlreadyFinalized, Fenced, JournalCorrupt, TaskTooNew, ThreadBusy
from treadle.ports import (
    Commit,
    InboxWaiting,
    JournalEnd,
    NewTask,
    OnBusyThread,
    QueuePosition,
    Record,
    TaskExists,
    ThreadChange,
    ThreadMoved,
)
from treadle.stores.rules import (
    ANY_VERSION,
    Membership,
    QueuedTask,
    admit,
    check_claim,
    check_fork,
    check_read,
    check_thread,
    enter_thread,
    last_needed_event,
    may_be_repeated,
    read_below,
    releases,
)

# --------------------------------------------------------------------------------------------- commits


@frozen
class Head:
    epoch: int = 2
    seq: int = 5
    deleted: bool = False


HEAD = Head()
NEXT = Record(7, 2, 2, b"data", b"digest")
LAST = Record(5, 1, 2, b"data", b"digest")
NEW = NewTask("t", "agent", "talk", 0)
FIRST = Record(1, 1, 1, b"data", b"digest")
SAME = (2, b"digest")


def commit(record: Record | None = None, **fields: Any) -> Commit:
    return Commit("t", 2, record, **fields)


@pytest.mark.parametrize(
    ("requested", "head", "facts", "expected"),
    [
        # a commit of the owner, behind the last event
        (commit(NEXT), HEAD, {}, True),
        (commit(), HEAD, {}, True),
        (commit(replace(NEXT, epoch=1)), HEAD, {}, Fenced),
        # another epoch
        (commit(NEXT), Head(epoch=3), {}, Fenced),
        (commit(NEXT), Head(epoch=1), {}, Fenced),
        (commit(), Head(epoch=3), {}, Fenced),
        # a record that does not follow
        (commit(replace(NEXT, seq=8)), HEAD, {}, Fenced),
        (commit(replace(NEXT, count=0, seq=5)), HEAD, {}, Fenced),
        (commit(LAST), HEAD, {"earlier": None}, Fenced),
        (commit(LAST), HEAD, {"earlier": (2, b"other")}, Fenced),
        (commit(LAST), HEAD, {"earlier": (1, b"digest")}, Fenced),
        # a task that is gone
        (commit(NEXT), None, {}, Fenced),
        (commit(NEXT), Head(deleted=True), {}, Fenced),
        (commit(LAST), Head(deleted=True), {"earlier": SAME}, Fenced),
        # the same record again, also after another driver took the task over
        (commit(LAST), HEAD, {"earlier": SAME}, False),
        (commit(LAST), HEAD, {"earlier": SAME, "is_own": False}, False),
        (commit(LAST), Head(epoch=3, seq=9), {"earlier": SAME}, False),
        # no record: written again, unless it is known to have joined its thread
        (commit(), HEAD, {"is_resent": True}, True),
        (commit(), HEAD, {"is_resent": True, "has_joined": True}, False),
        (commit(), HEAD, {"has_joined": True}, True),
        (commit(), Head(epoch=3), {"is_resent": True, "has_joined": True}, Fenced),
    ],
)
def test_a_commit_is_written_or_was_written_or_is_fenced(
    requested: Commit, head: Head | None, facts: dict[str, Any], expected: Any
) -> None:
    if isinstance(expected, bool):
        assert admit(requested, head, **facts) is expected
    else:
        with pytest.raises(expected):
            admit(requested, head, **facts)


@pytest.mark.parametrize(
    ("record", "head", "facts", "expected"),
    [
        (FIRST, None, {}, True),
        (None, None, {}, True),
        (replace(FIRST, seq=2), None, {}, Fenced),
        (replace(FIRST, epoch=2), None, {}, Fenced),
        # the same creation again
        (FIRST, Head(1, 1), {"earlier": (1, b"digest")}, False),
        (FIRST, Head(1, 9), {"earlier": (1, b"digest")}, False),
        (FIRST, Head(1, 1), {"earlier": (1, b"digest"), "is_own": False}, TaskExists),
        (FIRST, Head(1, 1), {"earlier": (1, b"other")}, TaskExists),
        (FIRST, Head(2, 1), {"earlier": (1, b"digest")}, TaskExists),
        (FIRST, Head(1, 1, deleted=True), {"earlier": (1, b"digest")}, TaskExists),
        (None, Head(1, 0), {}, TaskExists),
        # sent again by the store itself: the task is the one that it created
        (None, Head(1, 0), {"is_resent": True}, False),
        (FIRST, Head(2, 1), {"earlier": (1, b"digest"), "is_resent": True}, False),
        (FIRST, Head(1, 1), {"earlier": (1, b"other"), "is_resent": True}, TaskExists),
    ],
)
def test_a_task_is_created_once(
    record: Record | None, head: Head | None, facts: dict[str, Any], expected: Any
) -> None:
    requested = Commit("t", 1, record, create=NEW)
    if isinstance(expected, bool):
        assert admit(requested, head, **facts) is expected
    else:
        with pytest.raises(expected):
            admit(requested, head, **facts)


def test_a_fork_begins_behind_the_events_that_it_shares() -> None:
    fork = replace(NEW, base="b", base_seq=4)
    assert admit(Commit("t", 1, replace(FIRST, seq=5), create=fork), None)
    with pytest.raises(Fenced):
        admit(Commit("t", 1, FIRST, create=fork), None)
    check_fork("b", 4, 4)
    with pytest.raises(Fenced, match="task b ends at event 3"):
        check_fork("b", 4, 3)


@pytest.mark.parametrize(
    ("requested", "head", "expected"),
    [
        (commit(LAST), HEAD, True),
        (commit(NEXT), HEAD, False),
        (commit(), HEAD, False),
        (commit(LAST), None, False),
        (commit(LAST), Head(deleted=True), False),
    ],
)
def test_only_a_record_at_or_before_the_end_may_be_repeated(
    requested: Commit, head: Head | None, expected: bool
) -> None:
    assert may_be_repeated(requested, head) is expected


@pytest.mark.parametrize(
    ("fields", "unread", "expected"),
    [
        ({}, ["i"], False),
        ({"release": True}, [], True),
        ({"release": True}, ["i"], False),
        ({"release": True, "taken": ("i",)}, ["i"], True),
        ({"release": True, "taken": ("i",)}, ["i", "j"], False),
        ({"release": True, "leave": True}, ["i"], True),
        ({"seal": True}, [], False),
        ({"seal": True, "release": True, "taken": ("j", "i")}, ["i", "j"], True),
        ({"seal": True}, ["i"], InboxWaiting),
        ({"seal": True, "release": True, "leave": True}, ["i"], InboxWaiting),
    ],
)
def test_ownership_stays_and_the_end_is_refused_while_the_inbox_holds_unread_items(
    fields: dict[str, Any], unread: list[str], expected: Any
) -> None:
    if isinstance(expected, bool):
        assert releases(commit(**fields), unread) is expected
    else:
        with pytest.raises(expected):
            releases(commit(**fields), unread)


def test_a_task_joins_its_thread_only_at_the_expected_version() -> None:
    assert check_thread(commit(thread=ThreadChange("add", "talk", 3)), 3) == 0
    with pytest.raises(ThreadMoved) as refused:
        check_thread(commit(thread=ThreadChange("add", "talk", 3)), 4)
    assert refused.value.version == 4


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([], None),
        ([(4, 0)], 4),
        ([(4, 0), (5, 0)], None),
        # summaries: they stand in the way of the members that they cover alone
        ([(4, 0), (5, 3)], 4),
        ([(4, 0), (5, 4)], None),
        ([(4, 0), (5, 3), (6, 0)], None),
        ([(4, 2), (5, 0)], 4),
    ],
)
def test_only_the_newest_member_that_no_summary_covers_leaves_its_thread(
    members: list[tuple[int, int]], expected: int | None
) -> None:
    requested = commit(thread=ThreadChange("remove", "talk"))
    if expected is not None:
        assert check_thread(requested, 9, members) == expected
    else:
        with pytest.raises(AlreadyFinalized, match="task t in thread 'talk'"):
            check_thread(requested, 9, members)


@pytest.mark.parametrize(
    ("needs", "end", "mark", "expected"),
    [
        (1, JournalEnd(3, b"c"), None, None),
        (1, JournalEnd(3, b"c"), JournalEnd(3, b"c"), None),
        (1, JournalEnd(4, b"d"), JournalEnd(3, b"c"), None),
        (1, JournalEnd(0, b""), JournalEnd(0, b""), None),
        (1, JournalEnd(2, b"b"), JournalEnd(3, b"c"), JournalCorrupt),
        (1, JournalEnd(3, b"x"), JournalEnd(3, b"c"), JournalCorrupt),
        (10_000, JournalEnd(3, b"c"), JournalEnd(3, b"c"), TaskTooNew),
    ],
)
def test_a_claim_is_refused_for_a_lost_end_and_for_a_newer_format(
    needs: int, end: JournalEnd, mark: JournalEnd | None, expected: Any
) -> None:
    if expected is None:
        check_claim("t", needs, end, mark)
    else:
        with pytest.raises(expected):
            check_claim("t", needs, end, mark)


@pytest.mark.parametrize(
    ("last", "mark", "upto", "is_whole"),
    [(3, 3, None, True), (3, None, None, True), (4, 3, None, True), (2, 3, None, False), (2, 3, 2, True)],
)
def test_a_read_that_lacks_events_up_to_the_mark_is_refused(
    last: int, mark: int | None, upto: int | None, is_whole: bool
) -> None:
    if is_whole:
        check_read("t", last, mark, upto)
    else:
        with pytest.raises(JournalCorrupt, match="events 3 to 3 are missing"):
            check_read("t", last, mark, upto)


# --------------------------------------------------------------------------------------- thread queue

LIVING, DEAD = 1, 2


def queue(*turns: int, dead: tuple[int, ...] = ()) -> list[QueuedTask]:
    """Return tasks `a`, `b` and so on, each with its place; the tasks at `dead` positions have a dead driver."""
    return [
        QueuedTask(number, "abcdef"[number], turn, DEAD if turn in dead else LIVING)
        for number, turn in enumerate(turns)
    ]


def entered(
    turn: int | None, policy: OnBusyThread, queued: list[QueuedTask]
) -> tuple[int, bool, tuple[str, ...], list[str]]:
    entry = enter_thread("talk", 7, turn, policy, queued, {DEAD})
    assert isinstance(entry.position, QueuePosition)
    assert (entry.position.version, entry.position.number) == (7, entry.turn)
    return entry.turn, entry.position.held, entry.position.holders, [other.task_id for other in entry.deposed]


@pytest.mark.parametrize(
    ("queued", "turn", "policy", "expected"),
    [
        # the queue is empty
        (queue(), None, "enqueue", (0, True, (), [])),
        (queue(), None, "interrupt", (0, True, (), [])),
        (queue(), None, "reject", (0, True, (), [])),
        # another task has the thread
        (queue(0), None, "enqueue", (1, False, ("a",), [])),
        (queue(0, 1, 5), None, "enqueue", (6, False, ("a",), [])),
        (queue(0), None, "interrupt", (-1, False, ("a",), [])),
        (queue(-3, 0, 4), None, "interrupt", (-4, False, ("b",), [])),
        (queue(0, 0, 1), None, "enqueue", (2, False, ("a", "b"), [])),
        # a task that asks again keeps its place, and has the thread once it is first
        (queue(0, 1), 2, "enqueue", (2, False, ("a",), [])),
        (queue(0, 1), -1, "interrupt", (-1, False, ("a",), [])),
        (queue(-2, 0, 1), -1, "interrupt", (-1, False, ("b",), [])),
        (queue(0, 1), 2, "interrupt", (-1, False, ("a",), [])),
        (queue(1, 3), 2, "enqueue", (2, False, (), [])),
        (queue(2, 3), 1, "enqueue", (0, True, (), [])),
        (queue(1), -1, "interrupt", (0, True, (), [])),
        (queue(-1), 1, "enqueue", (1, False, (), [])),
        # the holder keeps the thread
        (queue(1), 0, "enqueue", (0, True, (), [])),
        (queue(0, 1), 0, "enqueue", (0, True, ("a",), [])),
        (queue(0, 1), 0, "reject", (0, True, ("a",), [])),
        (queue(1), 0, "interrupt", (0, True, (), [])),
        # a task of a dead driver keeps no task waiting, and loses the thread to the task that gets it
        (queue(0, dead=(0,)), None, "enqueue", (0, True, (), ["a"])),
        (queue(0, dead=(0,)), None, "reject", (0, True, (), ["a"])),
        (queue(0, 1, dead=(0,)), None, "enqueue", (2, False, (), [])),
        (queue(0, 1, dead=(0,)), 2, "enqueue", (2, False, (), [])),
        (queue(0, 1, dead=(0, 1)), 2, "enqueue", (0, True, (), ["a"])),
        (queue(0, 1, dead=(1,)), 2, "enqueue", (2, False, ("a",), [])),
    ],
)
def test_a_task_gets_the_thread_or_a_place_in_its_queue(
    queued: list[QueuedTask], turn: int | None, policy: OnBusyThread, expected: Any
) -> None:
    assert entered(turn, policy, queued) == expected


@pytest.mark.parametrize(
    ("queued", "first"), [(queue(0, 1), "a"), (queue(1, 2), "a"), (queue(0, 1, dead=(0,)), "b")]
)
def test_a_rejected_thread_is_reported_with_its_first_task(queued: list[QueuedTask], first: str) -> None:
    for turn in (None, 3):
        with pytest.raises(ThreadBusy, match=f"held by task {first}") as raised:
            enter_thread("talk", 7, turn, "reject", queued, {DEAD})
        assert (raised.value.task_id, raised.value.thread_id) == (first, "talk")


# ------------------------------------------------------------------------------------------- deletion


@pytest.mark.parametrize(
    ("first_versions", "expected"),
    [([], 0), ([1], 1), ([1, 3, 2], 3), ([1, None], ANY_VERSION)],
)
def test_a_thread_can_be_read_below_the_latest_first_version_of_its_tasks(
    first_versions: list[int | None], expected: int
) -> None:
    assert read_below(first_versions) == expected


@pytest.mark.parametrize(
    ("fork_points", "memberships", "expected"),
    [
        ([], [], None),
        ([3, 7], [], 7),
        ([0], [], 0),
        ([3], [Membership(1, 5, taken_out=False, read_below=0)], 5),
        ([], [Membership(2, 5, taken_out=True, read_below=3)], 5),
        ([], [Membership(2, 5, taken_out=True, read_below=2)], None),
        ([4], [Membership(2, 5, taken_out=True, read_below=2)], 4),
    ],
)
def test_a_deleted_task_keeps_records_that_forks_and_threads_still_read(
    fork_points: list[int], memberships: list[Membership], expected: int | None
) -> None:
    assert last_needed_event(fork_points, memberships) == expected

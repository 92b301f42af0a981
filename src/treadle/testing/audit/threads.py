"""Invariants of threads: a thread has the messages of its members, and each task's history is readable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.core import events as e
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Message
from treadle.core.rules.fold import apply
from treadle.core.state import start
from treadle.drivers.thread_history import ThreadHistory
from treadle.errors import JournalCorrupt, TaskNotFound
from treadle.ports import JournalStore, ThreadMember
from treadle.testing.audit.events import Violation

PAGE = 100
RoleAndText = tuple[str, str]


async def threads(
    store: JournalStore, journals: Mapping[str, Sequence[tuple[int, e.Event]]]
) -> list[Violation]:
    """Return violations of the threads of a store, and of the histories that tasks began with.

    Args:
        store: an open store.
        journals: the events of its tasks, each event with its epoch.
    """
    history = ThreadHistory(store)
    violations: list[Violation] = []
    page = await store.threads(PAGE)
    while page:
        for row in page:
            violations += await _audit_thread(store, history, row.thread_id)
        page = await store.threads(PAGE, after=page[-1].thread_id)
    for task, entries in journals.items():
        thread, base = began_with([event for _, event in entries])
        read = await history.begin(thread, base) if base else None
        for turn in read.damaged if read is not None else ():
            text = f"it began with messages of task {turn.task_id}, which cannot be read: {turn}"
            violations.append(Violation("threads", task, 1, text))
    return violations


def began_with(events: Sequence[e.Event]) -> tuple[str, int]:
    """Return the thread and version that a task, or the root of a fork, began with."""
    thread, base = "", 0
    for event in events:
        if isinstance(event, e.TaskCreated):
            thread, base = event.thread, event.base
        elif isinstance(event, e.ThreadEntered) and event.base is not None:
            base = event.base
    return thread, base


async def _audit_thread(store: JournalStore, history: ThreadHistory, thread: str) -> list[Violation]:
    """Compare a thread's messages with those that its members added."""
    version, members = await store.thread(thread)
    if (version - len(members)) % 2:
        text = f"version {version} of thread {thread!r} has {len(members)} members: one is lost"
        return [Violation("threads", thread, 0, text)]
    read = await history.messages(thread)
    if read.damaged:
        return [Violation("threads", turn.task_id, turn.seq, str(turn)) for turn in read.damaged]
    expected: list[RoleAndText] = []
    turns = [member for member in members if not member.covers]
    forked = False
    for member in turns:
        try:
            added, is_fork = await _added_by(store, member)
        except (JournalCorrupt, TaskNotFound) as error:
            return [Violation("threads", member.task_id, member.seq, str(error))]
        forked = forked or (is_fork and member is turns[0])
        expected += added
    messages = _roles_and_texts(read.messages)
    same = messages[len(messages) - len(expected) :] if forked else messages
    if same != expected:
        text = f"thread {thread!r} reads as {messages}, its tasks added {expected}"
        return [Violation("threads", turns[-1].task_id if turns else thread, 0, text)]
    return []


async def _added_by(store: JournalStore, member: ThreadMember) -> tuple[list[RoleAndText], bool]:
    """Return the messages that a member added, and whether it is a fork."""
    state = start(member.task_id)
    for epoch, event in events_with_epochs(member.task_id, await store.read(member.task_id, upto=member.seq)):
        apply(state, event, epoch)
    return _roles_and_texts(state.messages[state.own_from :]), state.forked_from is not None


def _roles_and_texts(messages: Sequence[Message]) -> list[RoleAndText]:
    return [(message.role, message.text) for message in messages]

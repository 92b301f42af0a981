"""What must hold of threads: they say what their members said on their own, and what tasks began with can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.core import events as e
from treadle.core.fold import apply
from treadle.core.journal import unfold
from treadle.core.messages import Message
from treadle.core.state import start
from treadle.drivers.thread_history import ThreadHistory
from treadle.errors import JournalCorrupt, TaskNotFound
from treadle.ports import JournalStore, ThreadMember
from treadle.testing.audit.events import Violation

PAGE = 100
Said = tuple[str, str]


async def threads(
    store: JournalStore, journals: Mapping[str, Sequence[tuple[int, e.Event]]]
) -> list[Violation]:
    """Return what is wrong with the threads of a store, and with what tasks began with in them.

    Args:
        store: an open store.
        journals: the events of its tasks, each with its epoch.
    """
    history = ThreadHistory(store)
    found: list[Violation] = []
    page = await store.threads(PAGE)
    while page:
        for row in page:
            found += await _says(store, history, row.thread_id)
        page = await store.threads(PAGE, after=page[-1].thread_id)
    for task, entries in journals.items():
        thread, base = began_with([event for _, event in entries])
        words = await history.begin(thread, base) if base else None
        for turn in words.damaged if words is not None else ():
            text = f"it began with messages of task {turn.task_id}, which cannot be read: {turn}"
            found.append(Violation("threads", task, 1, text))
    return found


def began_with(events: Sequence[e.Event]) -> tuple[str, int]:
    """Return the thread and the version that a task began with, or the task at the root of a fork."""
    thread, base = "", 0
    for event in events:
        if isinstance(event, e.TaskCreated):
            thread, base = event.thread, event.base
        elif isinstance(event, e.ThreadEntered) and event.base is not None:
            base = event.base
    return thread, base


async def _says(store: JournalStore, history: ThreadHistory, thread: str) -> list[Violation]:
    version, members = await store.thread(thread)
    if (version - len(members)) % 2:
        text = f"version {version} of thread {thread!r} has {len(members)} members: one is lost"
        return [Violation("threads", thread, 0, text)]
    words = await history.words(thread)
    if words.damaged:
        return [Violation("threads", turn.task_id, turn.seq, str(turn)) for turn in words.damaged]
    expected: list[Said] = []
    turns = [member for member in members if not member.covers]
    forked = False
    for member in turns:
        try:
            own, is_fork = await _own(store, member)
        except (JournalCorrupt, TaskNotFound) as error:
            return [Violation("threads", member.task_id, member.seq, str(error))]
        forked = forked or (is_fork and member is turns[0])
        expected += own
    said = _said(words.messages)
    if (forked and said[len(said) - len(expected) :] != expected) or (not forked and said != expected):
        text = f"thread {thread!r} says {said}, its tasks said {expected}"
        return [Violation("threads", turns[-1].task_id if turns else thread, 0, text)]
    return []


async def _own(store: JournalStore, member: ThreadMember) -> tuple[list[Said], bool]:
    """Return what a member said on its own, and whether it is a fork."""
    state = start(member.task_id)
    for epoch, events in unfold(member.task_id, await store.read(member.task_id, upto=member.seq)):
        for event in events:
            apply(state, event, epoch)
    return _said(state.messages[state.own_from :]), state.forked_from is not None


def _said(messages: Sequence[Message]) -> list[Said]:
    return [(message.role, message.text) for message in messages]

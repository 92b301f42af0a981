"""Read the messages of a thread, and the first messages of a new task in it.

Theory of operation
-------------------

A thread is a list of members: tasks, in the order of their finalization. Its messages follow from their journals by one
rule. Each member adds the messages of its own task:

- a task created in the thread: everything from its input on, without the earlier messages of the thread;
- a fork: everything after its fork point;
- imported messages: those messages.

If the *first* member is a fork, it also brings the messages that it was forked with, since no other member has them.
These are the messages of the tasks it shares a prefix with. If the task at their root belongs to another thread, the
first messages of that task there are included. The first messages of a root in the same thread are not. No member
precedes the first one, so the turns that the root began with were removed.

    version  1        2        3        4        5
             one +    two +    two -    one -    two +

`two` began with version 1, and at version 5 it is the first member. The thread then holds `two, re: two`.

A summary is a member that *covers* a version. `messages` ignores it; for `begin` it replaces the members up to that
version.

An unreadable member is left out and reported as damaged. A store that does not answer is an error.

The cache
---------

Each thread has two entries: a list of all turns with their messages, and one of the turns after its newest summary. A
later request reads only the members of later versions, on two conditions:

- No member was removed since then: there are as many new members as new versions.
- The thread is the same one: the record of the newest cached turn has the same digest. A journal is chained, and a
  thread that was deleted and created again has none of its former journals.

Otherwise the cached turns are compared with the thread's members, and the equal ones at the beginning are used. An
entry is replaced, never changed. It can be dropped at any time, and is then read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field, replace
from threading import Lock
from typing import Final

from treadle.core import events as e
from treadle.core import origins
from treadle.core.data import frozen, mutable
from treadle.core.framing import nonce_of
from treadle.core.ids import id_in_thread
from treadle.core.journal import events_with_epochs, missing_tail
from treadle.core.labels import TAINTED_MODEL, Label
from treadle.core.messages import Message, Part, Text, ToolCall, ToolResult
from treadle.core.observation import summary_words
from treadle.core.state import TaskState, start
from treadle.engine import loading
from treadle.engine.time_slice import TimeSlice
from treadle.errors import JournalCorrupt, TaskNotFound, TaskTooNew, TreadleError
from treadle.ports import JournalReader, Record, ThreadMember
from treadle.results.threads import DamagedTurn

CACHED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of journals that are cached as messages, for all threads together."""

CACHED_LISTS: Final = 256
"""Maximum number of cached lists of turns."""

Inside = tuple[tuple[str, int], ...]
"""The versions of threads that are being read; each one is the beginning of the one before."""


@frozen
class ThreadMessagesRead:
    """Messages of a thread, in a shared list that must not be changed.

    Args:
        version: the version of the thread that has these messages.
        messages: the messages, oldest first.
        damaged: the members that are left out.
        summarised: whether the first message is a summary of older ones.
        untrusted: untrusted origins in the tasks of the messages.
        exposed: declared effects of the tools whose results these tasks have seen.
    """

    version: int
    messages: list[Message]
    damaged: tuple[DamagedTurn, ...] = ()
    summarised: bool = False
    untrusted: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()


@frozen
class SummaryRead:
    """A summary, with the untrusted origins and effects of its sources, and the nonce of its frame."""

    text: str
    untrusted: tuple[str, ...]
    exposed: tuple[str, ...]
    frame: str

    def as_message(self) -> Message:
        """Return the summary as the first message of a conversation, as trusted as its sources."""
        label = Label("memory", "untrusted", self.frame) if self.untrusted else Label("memory", "trusted")
        return Message("user", tuple([replace(part, label=label) for part in summary_words(self.text)]))


@frozen
class TurnRead:
    """A member that was read.

    Args:
        member: the member.
        messages: its messages.
        digest: the digest of its last record; empty for a damaged member.
        size: bytes of its journal.
        damaged: the unreadable parts of it, or of the messages that it brings.
        untrusted: untrusted origins in the task.
        exposed: declared effects of the tools whose results it has seen.
    """

    member: ThreadMember
    messages: Sequence[Message] = ()
    digest: bytes = b""
    size: int = 0
    damaged: tuple[DamagedTurn, ...] = ()
    untrusted: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()


@mutable
class _Entry:
    """The turns of a thread after version `after`, as of version `at`, and their messages in one list.

    For each turn, `ends` and `sizes` have the number of messages and the bytes of journals up to its end.
    """

    after: int = 0
    at: int = 0
    turns: list[TurnRead] = field(default_factory=list[TurnRead])
    ends: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])
    messages: list[Message] = field(default_factory=list[Message])
    summaries: tuple[ThreadMember, ...] = ()
    damaged: tuple[DamagedTurn, ...] = ()
    untrusted: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.sizes[-1] if self.sizes else 0

    def add(self, turn: TurnRead) -> None:
        """Add the next turn, before this entry is cached."""
        self.turns.append(turn)
        self.messages += turn.messages
        self.ends.append(len(self.messages))
        self.sizes.append(self.size + turn.size)
        self.damaged += turn.damaged
        if turn.untrusted:
            self.untrusted = origins.merged(self.untrusted, turn.untrusted)
        if turn.exposed:
            self.exposed = origins.merged(self.exposed, turn.exposed)


@frozen
class _Listed:
    """A version of a thread, compared with its cache entry: `shared` turns are equal, and `rest` follow."""

    at: int
    shared: int
    rest: list[ThreadMember]
    summaries: tuple[ThreadMember, ...]


class ThreadHistory:
    """Reads the threads of one store; several event loops and operating system threads may use it at once.

    Args:
        store: the store of the threads.
        most: maximum number of bytes of journals to cache as messages.
    """

    def __init__(self, store: JournalReader, most: int = CACHED_BYTES) -> None:
        self._store = store
        self._most = most
        self._lock = Lock()
        self._entries: OrderedDict[tuple[str, bool], _Entry] = OrderedDict()
        self._size = 0

    async def messages(self, thread_id: str, version: int | None = None) -> ThreadMessagesRead:
        """Return all messages of a thread, including summarised ones, at present or at an earlier version."""
        entry = self._cached(thread_id, 0)
        listed = await self._list(thread_id, version, entry)
        return await self._read(thread_id, entry, listed, ())

    async def labelled(self, thread_id: str) -> ThreadMessagesRead:
        """Return all messages of a thread for use elsewhere, with labels on a model's text after untrusted content."""
        entry = self._cached(thread_id, 0)
        listed = await self._list(thread_id, None, entry)
        entry = await self._entry(thread_id, entry, listed, ())
        messages: list[Message] = []
        for turn in entry.turns:
            messages += [_labelled(message) for message in turn.messages] if turn.untrusted else turn.messages
        return ThreadMessagesRead(listed.at, messages, entry.damaged)

    async def begin(
        self, thread_id: str, version: int | None = None, inside: Inside = ()
    ) -> ThreadMessagesRead:
        """Return the first messages of a task in a thread, at present or at a version; a summary replaces its members.

        Raises `JournalCorrupt` if this version begins with itself, which only a forged journal can do.
        """
        if version is not None and (thread_id, version) in inside:
            text = f"version {version} of thread {thread_id!r} begins with itself"
            raise JournalCorrupt(text, task_id="", seq=1)
        entry = self._cached(thread_id, None)
        listed = await self._list(thread_id, version, entry)
        inside = (*inside, (thread_id, listed.at if version is None else version))
        damaged: tuple[DamagedTurn, ...] = ()
        for summary in sorted(listed.summaries, key=_version, reverse=True):
            try:
                read = await self.summary(summary)
            except (JournalCorrupt, TaskTooNew, TaskNotFound) as error:
                damaged += (_damage(summary, error),)
                continue
            rest = await self._messages_after(thread_id, summary.covers, entry, listed, inside)
            messages = [read.as_message(), *rest.messages]
            untrusted = origins.merged(read.untrusted, rest.untrusted)
            exposed = origins.merged(read.exposed, rest.exposed)
            return ThreadMessagesRead(listed.at, messages, damaged + rest.damaged, True, untrusted, exposed)
        whole = await self._messages_after(thread_id, 0, entry, listed, inside)
        return replace(whole, version=listed.at, damaged=damaged + whole.damaged)

    async def _messages_after(
        self, thread_id: str, after: int, entry: _Entry, listed: _Listed, inside: Inside
    ) -> ThreadMessagesRead:
        """Return the messages of the members after version `after`; `entry` and `listed` may be of other members."""
        if entry.after != after:
            if entry.after and not after:
                self._drop(thread_id, summarised=True)
            entry = self._cached(thread_id, after)
            listed = await self._list(thread_id, listed.at, entry)
        return await self._read(thread_id, entry, listed, inside)

    async def turn(self, thread_id: str, member: ThreadMember, *, first: bool) -> TurnRead:
        """Return the messages of one member in its thread; none if it is damaged."""
        return await self._turn(thread_id, member, first, ())

    async def summary(self, member: ThreadMember) -> SummaryRead:
        """Return a summary; raise `JournalCorrupt` or `TaskNotFound`."""
        events = _events(member, await self._store.read(member.task_id, upto=member.seq))
        state = _folded(member, events)
        frame = nonce_of(state.frame_key, "summary")
        return SummaryRead(state.output_text, origins.of_task(state), origins.effects_of_task(state), frame)

    def forget(self, thread_id: str) -> None:
        """Drop the cache entries of a thread."""
        for summarised in (True, False):
            self._drop(thread_id, summarised=summarised)

    # -------------------------------------------------------------------------------------- the cache

    def _cached(self, thread_id: str, after: int | None) -> _Entry:
        """Return the cache entry of a thread after a version; None: after its newest summary, else all of it."""
        with self._lock:
            for summarised in (True, False) if after is None else (bool(after),):
                entry = self._entries.get((thread_id, summarised))
                if entry is not None and after in (None, entry.after):
                    self._entries.move_to_end((thread_id, summarised))
                    return entry
        return _Entry(after or 0)

    def _drop(self, thread_id: str, *, summarised: bool) -> None:
        with self._lock:
            dropped = self._entries.pop((thread_id, summarised), None)
            self._size -= dropped.size if dropped is not None else 0

    def _cache(self, thread_id: str, entry: _Entry) -> None:
        with self._lock:
            replaced = self._entries.pop((thread_id, bool(entry.after)), None)
            self._size += entry.size - (replaced.size if replaced is not None else 0)
            self._entries[thread_id, bool(entry.after)] = entry
            while self._size > self._most or len(self._entries) > CACHED_LISTS:
                _, dropped = self._entries.popitem(last=False)
                self._size -= dropped.size

    async def _list(self, thread_id: str, version: int | None, entry: _Entry) -> _Listed:
        """Read the members of a thread at a version, and compare them with the cache entry."""
        if entry.at and (version is None or version >= entry.at):
            at, new = await self._store.thread(thread_id, version=version, since=entry.at)
            if len(new) == at - entry.at and await self._is_same(entry.turns):
                summaries = (*entry.summaries, *[member for member in new if member.covers])
                return _Listed(at, len(entry.turns), [m for m in new if not m.covers], summaries)
        at, members = await self._store.thread(thread_id, version=version)
        turns = [member for member in members if not member.covers and member.version > entry.after]
        shared = 0
        while shared < min(len(turns), len(entry.turns)) and turns[shared] == entry.turns[shared].member:
            shared += 1
        if shared and not await self._is_same(entry.turns[:shared]):
            shared = 0
        return _Listed(at, shared, turns[shared:], tuple([member for member in members if member.covers]))

    async def _is_same(self, turns: list[TurnRead]) -> bool:
        """Return whether the newest readable one of these turns still has the same record."""
        newest = next((turn for turn in reversed(turns) if turn.digest), None)
        if newest is None:
            return False
        member = newest.member
        try:
            records = await self._store.read(member.task_id, after=member.seq - 1, upto=member.seq)
        except (JournalCorrupt, TaskNotFound):
            return False
        return bool(records) and records[-1].digest == newest.digest

    async def _read(
        self, thread_id: str, entry: _Entry, listed: _Listed, inside: Inside
    ) -> ThreadMessagesRead:
        entry = await self._entry(thread_id, entry, listed, inside)
        return ThreadMessagesRead(
            listed.at, entry.messages, entry.damaged, untrusted=entry.untrusted, exposed=entry.exposed
        )

    async def _entry(self, thread_id: str, entry: _Entry, listed: _Listed, inside: Inside) -> _Entry:
        """Read the members that are not cached, and cache them if the version is newer."""
        if listed.rest or listed.shared < len(entry.turns) or listed.at != entry.at:
            newer = _shared_turns(entry, listed)
            time_slice = TimeSlice()
            for member in listed.rest:
                first = entry.after == 0 and not newer.turns
                newer.add(await self._turn(thread_id, member, first, inside))
                if time_slice.is_over:
                    await time_slice.pause()
            if listed.at >= entry.at or not listed.shared:
                self._cache(thread_id, newer)
            entry = newer
        return entry

    # ------------------------------------------------------------------------------------- one member

    async def _turn(self, thread_id: str, member: ThreadMember, first: bool, inside: Inside) -> TurnRead:
        try:
            records = await self._store.read(member.task_id, upto=member.seq)
            events = _events(member, records)
            before = ThreadMessagesRead(0, [])
            is_fork = any(type(event) is e.TaskForked for _, event in events)
            if first and is_fork:
                before = await self._messages_of_root(events, thread_id, inside)
            state = _folded(member, events)
        except (JournalCorrupt, TaskTooNew, TaskNotFound) as error:
            return TurnRead(member, damaged=(_damage(member, error),))
        own = state.messages if first and is_fork else state.messages[state.own_from :]
        messages = [_with_unique_ids(message, member.version) for message in (*before.messages, *own)]
        size = sum([len(record.data) + sum(map(len, record.blobs.values())) for record in records])
        untrusted = origins.merged(before.untrusted, origins.of_task(state))
        exposed = origins.merged(before.exposed, origins.effects_of_task(state))
        digest = records[-1].digest if records else b""
        return TurnRead(member, messages, digest, size, before.damaged, untrusted, exposed)

    async def _messages_of_root(
        self, events: list[tuple[int, e.Event]], here: str, inside: Inside
    ) -> ThreadMessagesRead:
        """Return the first messages of the task at the root of a fork, if that was in another thread."""
        thread, base = "", 0
        for _, event in events:
            if isinstance(event, e.TaskCreated):
                thread, base = event.thread, event.base
            elif isinstance(event, e.ThreadEntered) and event.base is not None:
                base = event.base
        if not base or thread == here:
            return ThreadMessagesRead(base, [])
        return await self.begin(thread, base, inside)


def _shared_turns(entry: _Entry, listed: _Listed) -> _Entry:
    """Return the turns that are shared with a version of the thread, in new lists."""
    shared = listed.shared
    turns, ends, sizes = entry.turns[:shared], entry.ends[:shared], entry.sizes[:shared]
    messages = entry.messages[: ends[-1] if ends else 0]
    damaged, untrusted, exposed = entry.damaged, entry.untrusted, entry.exposed
    if shared < len(entry.turns):
        damaged = tuple([damage for turn in turns for damage in turn.damaged])
        untrusted = origins.merged(*[turn.untrusted for turn in turns])
        exposed = origins.merged(*[turn.exposed for turn in turns])
    return _Entry(
        entry.after, listed.at, turns, ends, sizes, messages, listed.summaries, damaged, untrusted, exposed
    )


def _events(member: ThreadMember, records: list[Record]) -> list[tuple[int, e.Event]]:
    """Return the events of a member up to its end in the thread, each with its epoch; raise `JournalCorrupt`."""
    events = [entry for entry in events_with_epochs(member.task_id, records) if entry[1].seq <= member.seq]
    if len(events) < member.seq:
        raise missing_tail(member.task_id, len(events), member.seq)
    return events


def _folded(member: ThreadMember, events: list[tuple[int, e.Event]]) -> TaskState:
    """Return the state of a member, without the earlier messages of its thread.

    Raises `JournalCorrupt`, or `TaskTooNew` if a newer version wrote it.
    """
    state = start(member.task_id)
    for epoch, event in events:
        loading.apply_checked(state, event, epoch)
    return state


def _damage(member: ThreadMember, error: TreadleError) -> DamagedTurn:
    seq = error.seq if isinstance(error, JournalCorrupt) else 1
    return DamagedTurn(member.task_id, seq, str(error))


def _labelled(message: Message) -> Message:
    """Return a message with the label of a model's text after untrusted content."""
    if message.role != "assistant":
        return message
    parts = [
        replace(part, label=TAINTED_MODEL) if type(part) is Text and part.label is None else part
        for part in message.parts
    ]
    return replace(message, parts=tuple(parts))


def _version(member: ThreadMember) -> int:
    return member.version


def _with_unique_ids(message: Message, version: int) -> Message:
    """Return a message with the ids of its calls made unique in their thread."""
    if all(type(part) is not ToolCall and type(part) is not ToolResult for part in message.parts):
        return message
    parts = tuple([_part_with_unique_id(part, version) for part in message.parts])
    return Message(message.role, parts, message.meta)


def _part_with_unique_id(part: Part, version: int) -> Part:
    if type(part) is ToolCall:
        return ToolCall(
            id_in_thread(version, part.id), part.name, part.arguments, part.raw, part.problem, part.meta
        )
    if type(part) is ToolResult:
        call_id = id_in_thread(version, part.call_id)
        return ToolResult(call_id, part.name, part.parts, part.is_error, part.label, part.frame)
    return part

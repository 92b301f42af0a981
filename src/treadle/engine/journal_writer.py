"""Write a task's journal. Events are applied at once, committed in the background, and published when durable.

Theory of operation
-------------------

    record(event) --> pending --submit--> in flight --the store answers--> durable, published to watchers
         |                                    |
     applied to the state              refused or lost: the writer has failed, and the drive ends

An event gets its number and its time, is applied to the state and waits in `pending`. One commit of a task is in flight
at a time, and the next takes all pending events. So a slow disk makes larger commits, not a longer queue. A caller that
needs a barrier awaits `durable`, for instance before a writing tool starts or a result is returned. Then pending events
are submitted after the commit in flight, so that the store may write both in one transaction.

The state is ahead of the disk on purpose, so that a drive continues during writes. A crash only loses events on which
neither an effect with a barrier nor a watcher depended. Watchers receive an event once it is durable.

`commit_alone` is for events that the store may refuse. An example is the end of a task, which fails if the inbox is not
empty or the thread has moved. Such an event is applied only once it is durable.

Each record has the digest of the one before, and each commit names its epoch. If another driver took the task over, the
store refuses the commit (`Fenced`). So a driver that lost its task cannot continue to write.

The row of a task shows its figures (steps, tokens, cost). The first commit of a drive and its last carry them. Between
the two a commit only notes that they are outdated: `OutdatedFigures` writes those of all such tasks of an event loop
together, `UPDATE_SECONDS` later. So a step pays for no row, and a task that ends sooner writes none.

Invariants. Events become durable in the order of their numbers. After a failure, submission stops, and all present and
later waiters raise `failure`. An event that `commit_alone` could not write is not applied.

Example: a step of three events on a slow disk.

    record 7, flush        in flight [7]         pending []
    record 8, record 9     in flight [7]         pending [8, 9]
    durable()              in flight [7] [8, 9]  pending []         both may share a transaction
    the store answers      7 is published, then 8 and 9, and `durable` returns
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol
from weakref import ref

from treadle.core import codec
from treadle.core.data import mutable
from treadle.core.events import Event
from treadle.core.permits import StandingGrant
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState
from treadle.engine import task_log
from treadle.engine.broadcast import Channel
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import Fenced, StoreUnavailable
from treadle.ports import (
    AT_ONCE,
    Commit,
    Committed,
    JournalStore,
    NewTask,
    OnBusyThread,
    QueuePosition,
    Record,
    ThreadChange,
)
from treadle.results.usage import figures_of


class Recorder(Protocol):
    """Journals an event and its consequences."""

    def __call__(self, event: Event, inbox: str | None = None) -> None: ...


@mutable
class Lease:
    """The epoch under which a task is written, and the digest of its last record."""

    epoch: int
    digest: bytes
    create: NewTask | None = None
    """the row of the task, if the first commit creates it"""

    enter: OnBusyThread | None = None
    """the way in which that commit enters the thread"""

    wanted: int = 0
    """when a driver was to adopt the task, by the system's clock; 0 or `AT_ONCE` without a timer"""


UPDATE_SECONDS: Final = 1.0
"""Seconds from a commit of a driven task to the update of the figures in its row."""

UPDATES_AT_ONCE: Final = 64
"""Number of rows that are updated before other work of the event loop gets its turn."""

TOLERANCE: Final = 1_000_000
"""Microseconds by which the system's clock may differ from a task's time before it counts as changed."""


class OutdatedFigures:
    """Collects the driven tasks whose rows show outdated figures, and updates them.

    Safe to use from several event loops, each for its own tasks.

    Args:
        on_updated: called with the id of each task whose row was updated.
    """

    def __init__(self, on_updated: Callable[[str], None]) -> None:
        self._on_updated = on_updated
        self._writers: dict[asyncio.AbstractEventLoop, list[ref[JournalWriter]]] = {}

    def add(self, writer: JournalWriter) -> None:
        """Have a task's row updated in a second, unless its drive has ended by then."""
        writers = self._writers.get(writer.loop)
        if writers is None:
            for loop in [loop for loop in self._writers if loop.is_closed()]:
                del self._writers[loop]
            writers = self._writers[writer.loop] = []
            writer.loop.call_later(UPDATE_SECONDS, self._update, writer.loop)
        writers.append(ref(writer))

    def _update(self, loop: asyncio.AbstractEventLoop) -> None:
        writers = self._writers[loop]
        for reference in writers[:UPDATES_AT_ONCE]:
            writer = reference()
            if writer is not None:
                writer.update_figures(self._on_updated)
        del writers[:UPDATES_AT_ONCE]
        if writers:
            loop.call_soon(self._update, loop)
        else:
            del self._writers[loop]


class JournalWriter:
    """The one writer of a task's journal while this process owns the task."""

    def __init__(
        self,
        store: JournalStore,
        channel: Channel,
        state: TaskState,
        lease: Lease,
        clock: Callable[[], int],
        outdated: OutdatedFigures,
        vault: Vault = NO_VAULT,
    ) -> None:
        self._vault = vault
        self._store = store
        self._channel = channel
        self._state = state
        self.loop = asyncio.get_running_loop()
        self._time, self._monotonic_start = self.loop.time, self.loop.time()
        self._system = clock
        self._base_time = _time_at_start(state, lease.wanted, clock())
        self.head = state.seq
        """the last durable event"""

        self.epoch = lease.epoch
        self.digest = lease.digest
        self._create = lease.create
        self._is_made = lease.create is None
        self._enter: OnBusyThread | None = lease.enter
        self.place: QueuePosition | None = None
        """the position of the task in its thread, from the first commit"""

        self._state_word: str | None = "running" if state.ended is None else None
        self.pending: list[Event] = []
        """recorded events that are not submitted yet"""

        self._outdated = outdated
        self._is_outdated = False
        """whether the row shows outdated figures and will be updated"""

        self._is_ending = False
        """whether a commit that may release the task is in flight"""

        self._taken: list[str] = []
        self._grants: list[StandingGrant] = []
        self._in_flight: deque[list[Event]] = deque()
        self._more = False
        """whether to submit `pending` as soon as the commit in flight is done"""

        self._waiters: list[asyncio.Future[None]] = []
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] | None = None
        self.is_heard = False
        """whether recorded events are logged"""

        self.released = False
        self.wanted = 0
        """when a driver is to adopt the released task; 0 for never"""

        self.taken: set[str] = set()

    def clock(self) -> int:
        """Return the time of this task's events and timers, in microseconds since 1970, UTC.

        It starts from the system's clock, but not before the journal's last event, and advances with the monotonic
        clock. So waits keep their length and driven time is exact, even if the system's clock changes.
        """
        return self._base_time + round((self._time() - self._monotonic_start) * 1e6)

    def to_system_time(self, time: int) -> int:
        """Return a time of this task as system time, if the system's clock does not change until then."""
        offset = self._system() - self.clock()
        return time if abs(offset) < TOLERANCE else time + offset

    def advance_to(self, time: int) -> None:
        """Advance this task's time to `time`, if it is earlier."""
        self._base_time += max(0, time - self.clock())

    @property
    def is_new(self) -> bool:
        """Whether the task may be missing in the store, so that other processes cannot have written to it."""
        return not self._is_made

    def record(self, event: Event, inbox: str | None = None) -> None:
        """Number an event, apply it and queue it for the next commit."""
        state = self._state
        if (hide := self._vault.hide_in) is not None:
            hide(event)
        event.seq = state.seq + 1
        event.time = self._base_time + round((self._time() - self._monotonic_start) * 1e6)  # as `clock` does
        apply(state, event, self.epoch)
        self.pending.append(event)
        if inbox is not None:
            self.dismiss(inbox)
        if self.is_heard and type(event) in task_log.LEVELS:
            task_log.tell_event(state, event)

    def dismiss(self, inbox: str) -> None:
        """Remove an item from the inbox with the next commit, without an event."""
        self._taken.append(inbox)
        self.taken.add(inbox)

    def flush_dismissed(self) -> None:
        """Submit the waiting events, or only the dismissed items if there are none."""
        if self.pending:
            self.flush()
        elif self._taken and self.failure is None:
            commit = Commit(self._state.task_id, self.epoch, taken=tuple(self._taken))
            self._taken.clear()
            try:
                self._store.commit(commit, self._dismissed)
            except Exception as error:  # noqa: BLE001  as in `_submit_pending`
                self.fail(error)

    def _dismissed(self, verdict: Committed | Exception) -> None:
        if isinstance(verdict, Exception):
            self.fail(verdict)
        else:
            self._channel.look_again()

    def grant(self, grant: StandingGrant) -> None:
        """Have the store save an approval for later calls, with the next commit."""
        self._grants.append(grant)

    def flush(self) -> None:
        """Submit pending events, after the commit in flight if there is one."""
        if self._in_flight:
            self._more = True
        else:
            self._submit_pending()

    def _submit_pending(self) -> None:
        self._more = False
        if not self.pending or self.failure is not None:
            return
        events, self.pending = self.pending, []
        self._in_flight.append(events)
        try:
            record = encode_record(events, self.epoch, self.digest)
            self._store.commit(self._commit(record, events), self._done)
        except Exception as error:  # noqa: BLE001  callers that wait for these events must learn that they failed
            self._in_flight.pop()
            self.fail(error)
            self._tell_waiters()
            return
        self.digest = record.digest

    def _commit(self, record: Record | None, events: Sequence[Event]) -> Commit:
        commit = Commit(self._state.task_id, self.epoch, record, self._create, self._state_word)
        for event in events:
            if (needed := event.format) > commit.format:
                commit.format = needed
        if self._create is not None:
            commit.enter = self._enter
        if self._state_word is not None:
            commit.figures = figures_of(self._state, at_rest=False)
        elif not self._is_outdated:
            self._is_outdated = True
            self._outdated.add(self)
        if self._taken:
            commit.taken = tuple(self._taken)
            self._taken.clear()
        if self._grants:
            commit.grants = tuple(self._grants)
            self._grants.clear()
        self._create = self._state_word = None
        return commit

    def _done(self, verdict: Committed | Exception) -> None:
        events = self._in_flight.popleft()
        if isinstance(verdict, Exception):
            self.fail(verdict)
        else:
            self._is_made = True
            if verdict.place is not None:
                self.place = verdict.place
            self.head = events[-1].seq
            self._channel.publish(events)
        if self.failure is None and (self._more or self._waiters):
            self._submit_pending()
            if self._in_flight:
                return
        self._tell_waiters()

    def update_figures(self, on_updated: Callable[[str], None]) -> None:
        """Write the task's present figures into its row, unless its drive has ended.

        Args:
            on_updated: called with the id of the task when they are written.
        """
        task_id = self._state.task_id

        def done(verdict: Committed | Exception) -> None:
            if isinstance(verdict, Fenced):
                self.fail(verdict)
            elif isinstance(verdict, Committed):
                on_updated(task_id)

        if self._is_ending:
            self._outdated.add(self)
            return
        self._is_outdated = False
        if self.failure is None and not self.released:
            with suppress(StoreUnavailable):  # the next commit will learn it
                figures = figures_of(self._state, at_rest=False)
                self._store.commit(Commit(task_id, self.epoch, figures=figures), done)

    def fail(self, error: BaseException) -> None:
        """Stop writing, so that the drive fails with this error or an earlier one."""
        self.failure = self.failure or error
        if self.on_failure is not None:
            self.on_failure()

    def _tell_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def durable(self) -> None:
        """Return when all recorded events are durable. Raise the error that stopped the writer."""
        self._submit_pending()
        while self.failure is None and (self._in_flight or self.pending):
            waiter = self.loop.create_future()
            self._waiters.append(waiter)
            await waiter
        if self.failure is not None:
            raise self.failure

    def check(self) -> None:
        """Ask the store whether this process still owns the task, else fail the writer."""

        def done(verdict: Committed | Exception) -> None:
            if isinstance(verdict, Fenced):
                self.fail(verdict)

        if self.failure is None and not self.released:
            with suppress(StoreUnavailable):  # the next commit will learn it
                self._store.commit(Commit(self._state.task_id, self.epoch), done)

    async def commit_alone(
        self,
        event: Event | None,
        state_word: str,
        *,
        thread: ThreadChange | None = None,
        seal: bool = False,
        release: bool = True,
        wanted: int = 0,
    ) -> Committed:
        """Commit an event that the store may refuse, after all pending events. Apply it once it is durable.

        Pending events go into the same record if no commit is in flight. If the store refuses that record, they are
        committed without the event.

        Raises `Refused` if the event was not written, or the `StoreError` that stopped the writer.
        """
        record, events = None, list[Event]()
        if event is None:
            await self.durable()
        else:
            if self._in_flight or self._create is not None:
                # A wait is not needed, since the store refuses a record that does not follow its last one.
                self._submit_pending()
            if self.failure is not None:
                raise self.failure
            if (hide := self._vault.hide_in) is not None:
                hide(event)
            event.seq, event.time = self._state.seq + 1, self.clock()
            events = [*self.pending, event]
            record = encode_record(events, self.epoch, self.digest)
        commit = self._commit(record, events)
        commit.state, commit.thread, commit.seal, commit.release = state_word, thread, seal, release
        commit.due_at, commit.figures = wanted, figures_of(self._state, events, at_rest=release)
        try:
            answer = self._submit(commit)
        except Exception:
            self._taken[:0], self._grants[:0] = commit.taken, commit.grants
            raise
        self.pending, self._is_ending = [], True
        self._in_flight.append(events)
        cancelled = await _answered(answer)
        self._in_flight.pop()
        self._is_ending = False
        self._tell_waiters()
        if self.failure is not None:
            raise self.failure from answer.exception()
        try:
            verdict = answer.result()
        except StoreUnavailable as error:
            # It may be written and only its acknowledgement lost. So the state here is uncertain, and writing must
            # stop.
            self.fail(error)
            raise
        except Exception as error:
            self._taken[:0], self._grants[:0] = commit.taken, commit.grants
            self.pending[:0] = events[:-1]
            if isinstance(error, Fenced):
                self.fail(error)
            await self.durable()  # raises if an earlier commit failed
            raise
        self.released, self._is_made, self.wanted = verdict.released, True, wanted
        if event is not None and record is not None:
            self.digest, self.head = record.digest, event.seq
            apply(self._state, event, self.epoch)
            self._channel.publish(events)
        if cancelled:
            raise asyncio.CancelledError
        return verdict

    def _submit(self, commit: Commit) -> asyncio.Future[Committed]:
        answer: asyncio.Future[Committed] = self.loop.create_future()

        def done(verdict: Committed | Exception) -> None:
            if isinstance(verdict, Exception):
                answer.set_exception(verdict)
            else:
                answer.set_result(verdict)

        self._store.commit(commit, done)
        return answer


def _time_at_start(state: TaskState, wanted: int, system: int) -> int:
    """Return the task's time when a drive begins, not before the due time of its timer."""
    due = state.next_due() if wanted > AT_ONCE else None
    if due is None:
        return max(state.time, system)
    if wanted <= system:
        return max(state.time, system, due)
    return max(state.time, due - (wanted - system))


async def _answered(answer: asyncio.Future[Committed]) -> bool:
    """Wait for the answer to a commit, and return whether the caller was cancelled meanwhile.

    A submitted commit cannot be withdrawn, so a cancelled caller still waits for its verdict.
    """
    cancelled = False
    while not answer.done():
        try:
            await asyncio.shield(answer)
        except asyncio.CancelledError:
            cancelled = not answer.cancelled()
        except Exception:  # noqa: BLE001  the caller takes it from the answer itself
            break
    return cancelled


def encode_record(events: list[Event], epoch: int, previous: bytes) -> Record:
    """Return events as the record that follows the record with digest `previous`."""
    data, blobs = codec.encode(events)
    return Record(events[-1].seq, len(events), epoch, data, codec.chain(previous, data), blobs)

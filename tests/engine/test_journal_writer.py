"""The writer of a journal, commit by commit: what each holds, when watchers see it, and what follows a failure."""

import asyncio
from typing import Any

import pytest

from treadle.core import codec
from treadle.core import events as e
from treadle.core.messages import Text
from treadle.core.state import start
from treadle.engine.broadcast import Channel
from treadle.engine.journal_writer import JournalWriter, Lease, OutdatedFigures
from treadle.errors import Fenced, StoreUnavailable
from treadle.ports import Commit, CommitDone, Committed, InboxWaiting, NewTask, QueuePosition, ThreadMoved

pytestmark = pytest.mark.anyio


class AnsweringStore:
    """A store that takes commits and answers when the test says so."""

    def __init__(self) -> None:
        self.taken: list[tuple[Commit, CommitDone]] = []

    def commit(self, commit: Commit, done: CommitDone) -> None:
        self.taken.append((commit, done))

    def answer(self, verdict: Any = None) -> Commit:
        commit, done = self.taken.pop(0)
        done(verdict or Committed())
        return commit


LATER = 10**15
"""A time that no clock of these tests shows."""


NOT_UPDATED = OutdatedFigures(lambda _: None)


def writer_of(
    store: AnsweringStore, *, new: bool = False, ended: int = 0, outdated: OutdatedFigures = NOT_UPDATED
) -> JournalWriter:
    row = NewTask("t", "math", "talk", 1) if new else None
    own = Lease(1, b"", row, "enqueue" if new else None)
    state = start("t")
    state.time = ended
    writer = JournalWriter(store, Channel(), state, own, lambda: 5, outdated)  # type: ignore[arg-type]
    writer.record(e.TaskCreated("math", (Text("go"),), "talk"))
    return writer


def say(writer: JournalWriter, *texts: str) -> None:
    for text in texts:
        writer.record(e.InputReceived((Text(text),)))


def spans(store: AnsweringStore) -> list[tuple[int, int]]:
    return [(commit.record.seq, commit.record.count) for commit, _ in store.taken if commit.record]


async def rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_the_first_commit_creates_the_task_and_sets_its_state() -> None:
    store = AnsweringStore()
    writer = writer_of(store, new=True)
    writer.flush()
    first = store.answer(Committed(place=QueuePosition(True, 3)))
    assert (first.create is not None, first.state, first.enter) == (True, "running", "enqueue")
    assert (writer.is_new, writer.place) == (False, QueuePosition(True, 3))
    say(writer, "a")
    writer.flush()
    second = store.answer()
    assert (second.create, second.state, second.enter) == (None, None, None), (
        "a row changes only with its state"
    )


async def test_an_item_is_taken_by_one_commit() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    writer.record(e.Resumed("ann", "i"), "i")
    writer.flush()
    assert store.answer().taken == ("i",)
    say(writer, "a")
    writer.flush()
    assert store.answer().taken == ()
    assert writer.taken == {"i"}, "though it is not read again"


async def test_events_flushed_during_a_commit_go_with_the_next_one() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    writer.flush()
    say(writer, "a")
    writer.flush()
    say(writer, "b")
    assert spans(store) == [(1, 1)]
    store.answer()
    assert spans(store) == [(3, 2)]
    say(writer, "c")
    store.answer()
    assert spans(store) == [], "without a flush the events wait for the next commit"
    assert len(writer.pending) == 1


async def test_a_barrier_waits_for_all_that_was_recorded_also_while_it_waited() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    writer.flush()
    say(writer, "a")
    barrier = asyncio.ensure_future(writer.durable())
    await rest()
    assert spans(store) == [(1, 1), (2, 1)], "handed over behind what is in flight"
    say(writer, "b")
    store.answer()
    await rest()
    assert not barrier.done()
    store.answer()
    await rest()
    assert not barrier.done()
    store.answer()
    await asyncio.wait_for(barrier, 10)
    assert (len(writer.pending), store.taken) == (0, [])


async def test_after_a_failure_the_writer_writes_nothing_and_raises_the_first_error() -> None:
    store, failures = AnsweringStore(), list[int]()
    writer = writer_of(store)
    writer.on_failure = lambda: failures.append(1)
    writer.flush()
    say(writer, "a")
    waiting = [asyncio.ensure_future(writer.durable()) for _ in range(2)]
    await rest()
    say(writer, "b")
    store.answer(StoreUnavailable("the disk is full"))
    store.answer(Fenced("it does not follow"))
    await rest()
    writer.flush()
    assert (store.taken, failures) == ([], [1, 1])
    for text in (*waiting, asyncio.ensure_future(writer.durable())):
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await asyncio.wait_for(text, 10)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await writer.commit_alone(e.TaskEnded("completed"), "completed")
    assert store.taken == []


async def test_an_event_that_the_store_may_refuse_is_applied_only_once_it_is_durable() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    state = writer._state
    writer.record(e.Resumed("ann", "i"), "i")
    writer.flush()
    ending = asyncio.ensure_future(
        writer.commit_alone(e.TaskEnded("completed", "done"), "completed", seal=True)
    )
    await rest()
    assert spans(store) == [(2, 2), (3, 1)]
    first, last = (commit for commit, _ in store.taken)
    assert (first.seal, first.release, first.taken) == (False, False, ("i",))
    assert (last.seal, last.release, last.state, last.taken) == (True, True, "completed", ())
    store.answer()
    await rest()
    assert (state.ended, state.seq) == (None, 2)
    store.answer(Committed(released=True))
    await asyncio.wait_for(ending, 10)
    assert (state.ended, state.seq, writer.released) == ("completed", 3, True)


async def test_an_end_is_shown_once_it_is_durable_and_the_next_record_follows_it() -> None:
    store = AnsweringStore()
    writer = writer_of(store, ended=LATER)  # by a clock that went ahead
    watcher = writer._channel.join(deltas=False)
    writer.flush()
    ending = asyncio.ensure_future(writer.commit_alone(e.TaskEnded("failed"), "failed", release=False))
    await rest()
    store.answer()
    last = store.taken[0][0].record
    await rest()
    assert [item.kind for item in watcher.take()] == ["task_created"]  # type: ignore[union-attr]
    store.answer(Committed(released=False))
    await ending
    assert [item.kind for item in watcher.take()] == ["task_ended"]  # type: ignore[union-attr]
    assert not writer.released
    assert writer._state.time >= LATER
    assert last is not None
    writer.record(e.TaskReopened(2, "resume"))
    writer.flush()
    reopened = store.answer().record
    assert reopened is not None
    assert reopened.digest == codec.chain(last.digest, reopened.data)


async def test_a_task_is_released_only_when_all_its_events_are_durable() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    parking = asyncio.ensure_future(writer.commit_alone(None, "interrupted", wanted=1))
    await rest()
    assert [commit.release for commit, _ in store.taken] == [False]
    store.answer()
    await rest()
    (back,) = [commit for commit, _ in store.taken]
    assert (back.record, back.state, back.release, back.due_at) == (None, "interrupted", True, True)
    store.answer(Committed(released=True))
    await parking
    assert writer.released
    writer.check()
    assert store.taken == [], "a task that was released is not asked about"


async def test_inbox_items_of_a_refused_commit_are_taken_by_the_next() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    await_first = asyncio.ensure_future(writer.durable())
    await rest()
    store.answer()
    await await_first
    digest = writer.digest
    writer.dismiss("i")
    parking = asyncio.ensure_future(writer.commit_alone(None, "paused"))
    await rest()
    assert store.answer(InboxWaiting("something arrived")).taken == ("i",)
    with pytest.raises(InboxWaiting):
        await parking
    assert (writer.failure, writer.released, writer.digest) == (None, False, digest)
    say(writer, "a")
    writer.flush()
    assert store.answer().taken == ("i",)


async def test_an_end_whose_acknowledgement_was_lost_ends_all_writing() -> None:
    for error in (StoreUnavailable("the answer was lost"), Fenced("taken over")):
        for in_flight in (True, False):
            store = AnsweringStore()
            writer = writer_of(store)
            if in_flight:
                writer.flush()
            ending = asyncio.ensure_future(writer.commit_alone(e.TaskEnded("completed"), "completed"))
            await rest()
            if in_flight:
                store.answer()
            store.answer(error)
            with pytest.raises(type(error)):
                await ending
            assert writer.failure is error
            with pytest.raises(type(error)):
                await writer.durable()
            assert store.taken == []


async def test_an_end_is_written_in_one_record_with_what_waits_if_nothing_is_in_flight() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    watcher = writer._channel.join(deltas=False)
    writer.record(e.Resumed("ann", "i"), "i")
    ending = asyncio.ensure_future(writer.commit_alone(e.TaskEnded("completed"), "completed", seal=True))
    barrier = asyncio.ensure_future(writer.durable())
    await rest()
    assert spans(store) == [(3, 3)]
    assert (writer._state.ended, barrier.done(), list(watcher.take())) == (None, False, [])
    commit = store.answer(Committed(released=True))
    await asyncio.wait_for(asyncio.gather(ending, barrier), 10)
    assert (commit.seal, commit.release, commit.state, commit.taken) == (True, True, "completed", ("i",))
    assert (writer._state.ended, writer._state.seq, writer.released) == ("completed", 3, True)
    assert [item.kind for item in watcher.take()] == ["task_created", "resumed", "task_ended"]  # type: ignore[union-attr]


async def test_waiting_events_are_written_without_an_end_that_the_store_refuses() -> None:
    for refusal in (InboxWaiting("something arrived"), ThreadMoved(3)):
        store = AnsweringStore()
        writer = writer_of(store)
        watcher = writer._channel.join(deltas=False)
        writer.record(e.Resumed("ann", "i"), "i")
        digest = writer.digest
        ending = asyncio.ensure_future(writer.commit_alone(e.TaskEnded("completed"), "completed"))
        await rest()
        assert store.answer(refusal).taken == ("i",)
        await rest()
        assert spans(store) == [(2, 2)], "what waited, and not the end"
        assert (ending.done(), list(watcher.take()), writer.digest != digest) == (False, [], True)
        again = store.answer()
        assert (again.taken, again.seal, again.release, again.thread) == (("i",), False, False, None)
        with pytest.raises(type(refusal)):
            await asyncio.wait_for(ending, 10)
        assert (writer.failure, writer.released, writer._state.ended, writer._state.seq) == (
            None,
            False,
            None,
            2,
        )
        assert [item.kind for item in watcher.take()] == ["task_created", "resumed"]  # type: ignore[union-attr]
        ending = asyncio.ensure_future(writer.commit_alone(e.TaskEnded("completed"), "completed"))
        await rest()
        assert spans(store) == [(3, 1)]
        store.answer(Committed(released=True))
        await asyncio.wait_for(ending, 10)
        assert [item.kind for item in watcher.take()] == ["task_ended"]  # type: ignore[union-attr]


async def test_waiting_events_are_not_lost_when_the_store_takes_no_commit() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    writer.record(e.Resumed("ann", "i"), "i")
    taking, store.commit = store.commit, _refusing  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await writer.commit_alone(e.TaskEnded("completed"), "completed")
    store.commit = taking  # type: ignore[method-assign]
    assert writer.failure is None
    writer.flush()
    assert spans(store) == [(2, 2)]
    assert store.answer().taken == ("i",)


def _refusing(commit: Commit, done: CommitDone) -> None:
    raise StoreUnavailable("the store is closed")


async def test_a_check_fails_the_writer_only_if_the_task_was_taken_over() -> None:
    store = AnsweringStore()
    writer = writer_of(store)
    writer.check()
    store.answer(StoreUnavailable("not now"))
    assert writer.failure is None
    writer.check()
    check = store.answer(Fenced("taken over"))
    assert (check.record, check.state, check.release, check.epoch) == (None, None, False, 1)
    assert isinstance(writer.failure, Fenced)
    writer.check()
    assert store.taken == [], "it knows"


async def test_the_figures_of_a_driven_task_are_written_once_a_second_and_not_by_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treadle.engine.journal_writer.UPDATE_SECONDS", 0.0)
    updated, store = list[str](), AnsweringStore()
    writer = writer_of(store, outdated=OutdatedFigures(updated.append))
    writer.flush()
    assert store.answer().figures is not None
    for text in ("a", "b", "c"):
        say(writer, text)
        writer.flush()
        assert store.answer().figures is None
    await asyncio.sleep(0.01)
    update = store.answer()
    assert (update.record, update.state) == (None, None)
    assert update.figures is not None
    assert update.figures.updated == writer._state.time, "with its last event"  # pyright: ignore[reportPrivateUsage]
    assert updated == ["t"]
    await asyncio.sleep(0.01)
    assert store.taken == [], "nothing is outdated"


async def test_no_figures_follow_the_commit_that_releases_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.engine.journal_writer.UPDATE_SECONDS", 0.0)
    updated, store = list[str](), AnsweringStore()
    writer = writer_of(store, outdated=OutdatedFigures(updated.append))
    writer.flush()
    store.answer()
    say(writer, "a")
    writer.flush()
    store.answer()
    ending = asyncio.create_task(writer.commit_alone(None, "paused"))
    await asyncio.sleep(0.01)
    (release,) = store.taken
    assert release[0].release
    store.answer(Committed(released=True))
    await ending
    await asyncio.sleep(0.01)
    assert (store.taken, updated) == ([], [])

"""The line before a thread, in one process: whose turn it is to ask, and that nobody is forgotten in it."""

import pytest

from treadle.core import events as e
from treadle.core.state import start
from treadle.engine.thread_queue import ENCLOSING_TASKS, AdmissionHooks, ThreadAdmission, ThreadQueue
from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, QueuePosition

pytestmark = pytest.mark.anyio


def test_the_first_in_line_is_woken_and_when_it_leaves_the_next() -> None:
    line, woken = ThreadQueue(), list[str]()
    for name, number in (("b", 2), ("a", 1), ("c", 3)):
        line.join("talk", name, number, lambda name=name: woken.append(name))
    line.join("elsewhere", "d", 1, lambda: woken.append("d"))
    assert [line.is_first("talk", name) for name in "abc"] == [True, False, False]
    line.wake_next("talk")
    line.leave("talk", "a")
    assert woken == ["a", "b"]
    assert line.is_first("talk", "b")
    line.leave("talk", "a")
    line.leave("nobody waits here", "a")
    assert woken == ["a", "b"], "who is not in line leaves nobody the turn"
    line.wake_next_of_all()
    assert woken == ["a", "b", "b", "d"]


class ArgumentChecks:
    """A thread as the store tells of it, and what was done on the way in."""

    def __init__(self, *places: QueuePosition | None) -> None:
        self.places = list(places)
        self.asked: list[str] = []
        self.done: list[object] = []

    def entrance(
        self, how: OnBusyThread, first: QueuePosition | None = None, line: ThreadQueue | None = None
    ) -> ThreadAdmission:
        async def ask(asked: OnBusyThread) -> QueuePosition | None:
            self.asked.append(asked)
            return self.places.pop(0)

        async def read_history(version: int) -> None:
            self.done.append(f"read {version}")

        async def interrupt(task_id: str) -> None:
            self.done.append(f"interrupt {task_id}")

        async def look_after(task_id: str) -> None:
            self.done.append(f"look after {task_id}")

        state = start("t")
        state.thread, state.base = "talk", 3
        ways = AdmissionHooks(ask, self.done.append, read_history, interrupt, look_after)
        return ThreadAdmission(line or ThreadQueue(), state, how, first, ways)


FREE, BUSY = QueuePosition(True, 3), QueuePosition(False, 3, ("h",), 1)


async def test_who_finds_the_thread_free_begins_with_what_it_knows_of_it() -> None:
    door = ArgumentChecks()
    assert await door.entrance("enqueue", FREE).enter(lambda: None)
    assert (door.asked, door.done) == ([], [])


async def test_who_finds_other_words_in_the_thread_reads_them_and_says_so() -> None:
    for version in (4, 2):
        door = ArgumentChecks(QueuePosition(True, version))
        assert await door.entrance("enqueue").enter(lambda: None)
        assert door.done == [f"read {version}", e.ThreadEntered(version)]


async def test_who_stands_in_line_asks_once_more_since_the_thread_may_be_free_by_now() -> None:
    line = ThreadQueue()
    entrance = ArgumentChecks(FREE).entrance("enqueue", BUSY, line)
    assert not await entrance.enter(lambda: None)
    assert entrance.recheck_wanted
    assert entrance.is_first
    assert await entrance.enter(lambda: None)
    assert not line.is_first("talk", "t"), "it stands in line no longer"


async def test_who_is_woken_is_to_ask_again_and_looks_after_who_keeps_it_waiting() -> None:
    door, line, woken = ArgumentChecks(BUSY), ThreadQueue(), list[int]()
    entrance = door.entrance("enqueue", BUSY, line)
    await entrance.enter(lambda: woken.append(1))
    await entrance.enter(lambda: woken.append(1))
    assert not entrance.recheck_wanted
    assert door.done == [e.ThreadAwaited(("h",)), "look after h", "look after h"]
    line.wake_next("talk")
    assert (entrance.recheck_wanted, woken) == (True, [1])


async def test_who_interrupts_stops_the_holder_once() -> None:
    door = ArgumentChecks(QueuePosition(False, 3, ("h",), -1), BUSY, FREE)
    entrance = door.entrance("interrupt", BUSY)
    assert [await entrance.enter(lambda: None) for _ in range(3)] == [False, False, True]
    assert door.asked == ["interrupt", "enqueue", "enqueue"]
    assert door.done.count("interrupt h") == 1


async def test_who_rejects_a_busy_thread_or_is_inside_of_its_holder_does_not_wait() -> None:
    with pytest.raises(ThreadBusy, match="held by task h"):
        await ArgumentChecks().entrance("reject", BUSY).enter(lambda: None)
    inside = ENCLOSING_TASKS.set(("h",))
    try:
        with pytest.raises(ThreadBusy, match="would wait for itself"):
            await ArgumentChecks().entrance("enqueue", BUSY).enter(lambda: None)
    finally:
        ENCLOSING_TASKS.reset(inside)

"""The queue of a thread within one process: which task asks next, and that each task has its turn."""

import pytest

from treadle.core import events as e
from treadle.core.state import start
from treadle.engine.thread_queue import ENCLOSING_TASKS, AdmissionHooks, ThreadAdmission, ThreadQueue
from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, QueuePosition

pytestmark = pytest.mark.anyio


def test_the_first_of_a_queue_is_woken_and_when_it_leaves_the_next() -> None:
    queue, woken = ThreadQueue(), list[str]()
    for name, number in (("b", 2), ("a", 1), ("c", 3)):
        queue.join("talk", name, number, lambda name=name: woken.append(name))
    queue.join("elsewhere", "d", 1, lambda: woken.append("d"))
    assert [queue.is_first("talk", name) for name in "abc"] == [True, False, False]
    queue.wake_next("talk")
    queue.leave("talk", "a")
    assert woken == ["a", "b"]
    assert queue.is_first("talk", "b")
    queue.leave("talk", "a")
    queue.leave("an empty queue", "a")
    assert woken == ["a", "b"], "a task that is not queued wakes no other"
    queue.wake_next_of_all()
    assert woken == ["a", "b", "b", "d"]


class FakeThread:
    """A thread with scripted positions in its queue, and a log of what its admission did."""

    def __init__(self, *positions: QueuePosition | None) -> None:
        self.positions = list(positions)
        self.requests: list[str] = []
        self.done: list[object] = []

    def admission(
        self, how: OnBusyThread, first: QueuePosition | None = None, queue: ThreadQueue | None = None
    ) -> ThreadAdmission:
        async def ask(how: OnBusyThread) -> QueuePosition | None:
            self.requests.append(how)
            return self.positions.pop(0)

        async def read_history(version: int) -> None:
            self.done.append(f"read {version}")

        async def interrupt(task_id: str) -> None:
            self.done.append(f"interrupt {task_id}")

        async def look_after(task_id: str) -> None:
            self.done.append(f"look after {task_id}")

        state = start("t")
        state.thread, state.base = "talk", 3
        hooks = AdmissionHooks(ask, self.done.append, read_history, interrupt, look_after)
        return ThreadAdmission(queue or ThreadQueue(), state, how, first, hooks)


FREE, BUSY = QueuePosition(True, 3), QueuePosition(False, 3, ("h",), 1)


async def test_a_task_that_finds_its_thread_free_begins_with_the_history_it_has() -> None:
    thread = FakeThread()
    assert await thread.admission("enqueue", FREE).enter(lambda: None)
    assert (thread.requests, thread.done) == ([], [])


async def test_a_task_that_finds_new_messages_in_its_thread_reads_and_records_them() -> None:
    for version in (4, 2):
        thread = FakeThread(QueuePosition(True, version))
        assert await thread.admission("enqueue").enter(lambda: None)
        assert thread.done == [f"read {version}", e.ThreadEntered(version)]


async def test_a_task_that_joined_a_queue_asks_again_since_the_thread_may_be_free_by_now() -> None:
    queue = ThreadQueue()
    admission = FakeThread(FREE).admission("enqueue", BUSY, queue)
    assert not await admission.enter(lambda: None)
    assert admission.recheck_wanted
    assert admission.is_first
    assert await admission.enter(lambda: None)
    assert not queue.is_first("talk", "t"), "it has left the queue"


async def test_a_task_that_is_woken_asks_again_and_looks_after_the_holders() -> None:
    thread, queue, woken = FakeThread(BUSY), ThreadQueue(), list[int]()
    admission = thread.admission("enqueue", BUSY, queue)
    await admission.enter(lambda: woken.append(1))
    await admission.enter(lambda: woken.append(1))
    assert not admission.recheck_wanted
    assert thread.done == [e.ThreadAwaited(("h",)), "look after h", "look after h"]
    queue.wake_next("talk")
    assert (admission.recheck_wanted, woken) == (True, [1])


async def test_an_interrupting_task_stops_the_holder_once() -> None:
    thread = FakeThread(QueuePosition(False, 3, ("h",), -1), BUSY, FREE)
    admission = thread.admission("interrupt", BUSY)
    assert [await admission.enter(lambda: None) for _ in range(3)] == [False, False, True]
    assert thread.requests == ["interrupt", "enqueue", "enqueue"]
    assert thread.done.count("interrupt h") == 1


async def test_a_task_that_rejects_a_busy_thread_or_is_part_of_its_holder_does_not_wait() -> None:
    with pytest.raises(ThreadBusy, match="held by task h"):
        await FakeThread().admission("reject", BUSY).enter(lambda: None)
    inside = ENCLOSING_TASKS.set(("h",))
    try:
        with pytest.raises(ThreadBusy, match="would wait for itself"):
            await FakeThread().admission("enqueue", BUSY).enter(lambda: None)
    finally:
        ENCLOSING_TASKS.reset(inside)

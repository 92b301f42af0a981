"""The conformance suite of a `JournalStore` that outlives its process: instances, processes, crashes, damage.


    class TestMyStore(PersistentStoreConformance):
        factory = "my_package:open_my_store"       # importable; called with `address(place)`
        def address(self, place):                  # `?lease=SECONDS` may follow it, see `leased_address`
            return f"mystore://{place}/journal"

Three more methods change a store from outside. Without one of them, the tests that need it are skipped; `pytest -rs`
lists them.

    stored_files        the files to damage, once no process has them open
    lose_last_record    delete the last record of a task in the database itself
    let_leases_pass     set the end of all leases to a time long past in the database itself
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from treadle.errors import Fenced, StoreError, TaskBusy, TaskNotFound
from treadle.ports import (
    AT_ONCE,
    Committed,
    InboxItem,
    JournalStore,
    Record,
    StoreChanges,
    TaskExists,
    TaskFilter,
    ThreadChange,
)
from treadle.stores.memory import MemoryStore
from treadle.testing.conformance.crashing import script
from treadle.testing.conformance.owner import Owner, dump, item, new_task, send, until
from treadle.testing.conformance.store import StoreConformance
from treadle.testing.conformance.store_succession import SuccessionConformance
from treadle.testing.crash.fork_server import KILLED, ForkServer, output_of

CRASHING = "treadle.testing.conformance.crashing"
CALLS = len(script(MemoryStore()))
TASKS = ("one", "two", "fork", "doomed")


class PersistentStoreConformance(StoreConformance, SuccessionConformance):
    """The contract of `JournalStore` for stores on disk or in a database; the memory store is the reference."""

    factory: ClassVar[str] = ""

    def address(self, place: Path) -> str:
        """Return the argument of `factory` that opens the store with its data in `place`."""
        raise NotImplementedError

    def leased_address(self, place: Path, seconds: float) -> str:
        """Return `address(place)` for a store with leases of a number of seconds."""
        return f"{self.address(place)}?lease={seconds:g}"

    def make(self, place: Path) -> JournalStore:
        return self._open_address(self.address(place))

    def leased(self, place: Path, seconds: float) -> JournalStore:
        return self._open_address(self.leased_address(place, seconds))

    def _open_address(self, address: str) -> JournalStore:
        module, _, name = self.factory.partition(":")
        return getattr(import_module(module), name)(address)

    def stored_files(self, place: Path) -> list[Path]:
        """Return the files to damage; without any, the tests of damage are skipped."""
        return []

    def child(
        self, mode: str, place: Path, *arguments: object, lease: float | None = None
    ) -> subprocess.Popen[str]:
        """Start a process that uses the store, with leases of a number of seconds."""
        command = [sys.executable, "-m", CRASHING, mode, self.factory]
        command.append(self.address(place) if lease is None else self.leased_address(place, lease))
        command += map(str, arguments)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    # ------------------------------------------------------------------------- instances and processes

    async def test_what_was_acknowledged_is_there_for_the_next_instance(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(3, blobs={"b": b"1"})
            await store.post("t", item("i"))
            content = await dump(store)
        async with self.opened(tmp_path) as store:
            assert await dump(store) == content

    async def test_a_second_instance_sees_and_continues_what_the_first_wrote(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            stale = await Owner.create(first, "t")
            with pytest.raises(TaskBusy):
                await second.claim("t")
            await stale.release()
            owner = await Owner.claim(second, "t")
            await owner.write(2)
            with pytest.raises(Fenced):
                await stale.write()
            with pytest.raises(TaskBusy):
                await first.claim("t")
            assert await first.read("t") == await second.read("t")
            assert await first.post("t", item("i")) is True
            assert await second.post("t", item("i")) is False
            assert await second.inbox("t") == [item("i")]

    async def test_two_instances_writing_at_once_lose_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:

            async def drive(store: JournalStore, name: str) -> None:
                owner = await Owner.create(store, name)
                for _ in range(20):
                    await owner.write()

            await asyncio.gather(
                *(drive(store, f"{n}-{i}") for n, store in enumerate((first, second)) for i in range(4))
            )
            assert [row.head for row in await first.rows(TaskFilter())] == [21] * 8

    async def test_two_processes_writing_at_once_lose_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            children = [self.child("write", tmp_path, name, 100) for name in ("a", "b")]
            owner = await Owner.create(store, "mine")
            for _ in range(100):
                await owner.write()
            for child in children:
                output, _ = await asyncio.to_thread(child.communicate)
                assert output.split() == [str(seq) for seq in range(2, 102)]
            assert [row.head for row in await store.rows(TaskFilter())] == [101] * 3

    async def test_a_watcher_whose_event_loop_is_closed_is_dropped_and_harms_no_other(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            loop, woken, attempts = asyncio.get_running_loop(), asyncio.Event(), list[int]()

            def left_behind(changes: StoreChanges) -> None:
                attempts.append(1)
                raise RuntimeError("Event loop is closed")

            def wake(changes: StoreChanges) -> None:
                loop.call_soon_threadsafe(woken.set)

            ends = [first.watch(left_behind), first.watch(wake)]
            for name in ("t", "u"):
                await Owner.create(second, name)
                await asyncio.wait_for(woken.wait(), 5)
                woken.clear()
            await Owner.create(first, "v")
            for end in ends:
                end()
            assert len(attempts) == 1

    async def test_a_watcher_is_woken_by_another_instance(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            loop, woken = asyncio.get_running_loop(), asyncio.Event()

            await Owner.create(
                first, "driven"
            )  # a process that drives tasks is woken as soon as one that only watches
            mail: list[Sequence[str]] = []

            def wake(changes: StoreChanges) -> None:
                mail.append(changes.mail)
                loop.call_soon_threadsafe(woken.set)

            end = first.watch(wake)
            await asyncio.sleep(0.3)
            woken.clear()
            await Owner.create(second, "t")
            await asyncio.wait_for(woken.wait(), 5)
            woken.clear()
            await second.post("t", InboxItem("hello", "send", {}, 0))
            await asyncio.wait_for(woken.wait(), 5)
            assert list(mail[-1]) == ["t"]
            end()
            await asyncio.sleep(0.3)
            woken.clear()
            await Owner.create(second, "u")
            await asyncio.sleep(0.3)
            assert not woken.is_set()

    async def test_a_watcher_learns_which_tasks_another_instance_changed(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            mine = await Owner.create(first, "mine")
            owners = {name: await Owner.create(second, name) for name in ("t", "u", "v")}
            notifications: list[StoreChanges] = []
            end = first.watch(notifications.append)
            await until(lambda: _any(notifications))
            assert notifications[0].tasks is None, "no watcher gets earlier changes"
            await asyncio.sleep(0.3)
            notifications.clear()
            await owners["t"].write()
            await until(lambda: _names(notifications, "t"))
            await owners["u"].release()
            await until(lambda: _names(notifications, "u"))
            assert not any("v" in (changes.tasks or ()) for changes in notifications), (
                "nothing happened to it"
            )
            assert None not in [changes.tasks for changes in notifications]
            notifications.clear()
            await second.claim("u")
            await until(lambda: _names(notifications, "u"))
            await second.post("v", item("i"))
            await until(lambda: _any([changes for changes in notifications if "v" in changes.mail]))
            await mine.write()
            await owners["v"].write()
            await until(lambda: _names(notifications, "v"))
            end()

    async def test_watchers_of_one_store_learn_which_tasks_changed_through_it(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner, notifications = await Owner.create(store, "t"), list[StoreChanges]()
            ends = [store.watch(notifications.append), store.watch(lambda changes: None)]
            await asyncio.sleep(0.3)
            notifications.clear()
            await owner.write()
            await until(lambda: _names(notifications, "t"))
            notifications.clear()
            await owner.release()
            await until(lambda: _names(notifications, "t"))
            notifications.clear()
            await store.delete("t")
            await until(lambda: _any([changes for changes in notifications if changes.tasks is None]))
            for end in ends:
                end()

    async def test_a_task_is_busy_while_its_process_lives_and_free_once_it_was_killed(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            child = self.child("hold", tmp_path, "t")
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "2\n"
            row = await store.row("t")
            assert row.driver is not None
            assert (row.driver.pid, row.driver.alive) == (child.pid, True)
            assert await store.rows(TaskFilter(states=("running",))) == [row]
            for method in (store.claim, store.delete):
                with pytest.raises(TaskBusy, match=str(child.pid)):
                    await method("t")
            child.kill()
            child.communicate()
            assert child.returncode == KILLED
            row = await store.row("t")
            assert row.driver is not None
            assert (row.driver.pid, row.driver.alive) == (child.pid, False)
            assert await store.rows(TaskFilter(states=("interrupted",))) == [row]
            assert await store.rows(TaskFilter(states=(row.state,))) == []
            assert (await store.claim("t")).epoch == 3

    async def test_a_killed_process_loses_its_thread_and_its_epoch_to_the_next_task_in_the_queue(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t", thread_id="talk")).release()
            child = self.child("hold", tmp_path, "t")
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "2\n"
            owner = await Owner.create(store, "u", thread_id="talk")
            position = (await owner.send(enter="enqueue")).place
            assert position is not None
            assert (position.held, position.holders) == (False, ("t",))
            child.kill()
            child.communicate()
            position = (await owner.send(enter="enqueue")).place
            assert position is not None
            assert position.held
            row = await store.row("t")
            assert (row.epoch, row.display_state) == (3, "interrupted")
            assert row.driver is not None
            assert not row.driver.alive
            with pytest.raises(Fenced):
                await Owner(store, "t", 2, 1).write()
            claim = await store.claim("t", enter=True)
            assert claim.epoch == 4
            assert claim.place is not None
            assert claim.place.holders == ("u",)

    async def test_no_task_waits_for_one_whose_process_was_killed_in_the_queue(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t", thread_id="talk")).release()
            first = await Owner.create(store, "u", thread_id="talk")
            await first.send(enter="enqueue")
            child = self.child("hold", tmp_path, "t")
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "2\n"
            waiting = await Owner.create(store, "v", thread_id="talk")
            position = (await waiting.send(enter="enqueue")).place
            assert position is not None
            assert (position.held, position.number) == (False, 2)
            child.kill()
            child.communicate()
            await first.release()
            position = (await waiting.send(enter="enqueue")).place
            assert position is not None
            assert position.held

    async def test_two_instances_never_both_have_a_thread(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            having: set[str] = set()

            async def turn(store: JournalStore, name: str) -> None:
                owner = Owner(store, name)
                position = (await owner.write(create=new_task(name, thread_id="talk"), enter="enqueue")).place
                while position is not None and not position.held:
                    await asyncio.sleep(0.002)
                    position = (await owner.send(enter="enqueue")).place
                having.add(name)
                await owner.write()
                assert having == {name}
                having.remove(name)
                await owner.release()

            async with asyncio.timeout(30):
                await asyncio.gather(
                    *(turn(store, f"{n}-{i}") for n, store in enumerate((first, second)) for i in range(10))
                )
            assert [row.driver for row in await first.rows(TaskFilter())] == [None] * 20

    async def test_a_stopped_process_loses_its_task_once_its_lease_has_passed_and_is_fenced_when_it_wakes(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            child = self.child("stall", tmp_path, "t", lease=1.0)
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "2\n"
            await asyncio.sleep(1.3)
            row = await store.row("t")
            assert row.driver is not None
            assert row.driver.alive, "its heartbeats renew its lease"
            child.send_signal(signal.SIGSTOP)
            with pytest.raises(TaskBusy, match=str(child.pid)):
                await store.claim("t")
            assert await store.orphans(10) == []
            await until(lambda: _is_orphan(store, "t"), 5)
            row = await store.row("t")
            assert row.driver is not None
            assert (row.driver.pid, row.driver.alive) == (child.pid, False)
            claim = await store.claim("t")
            assert (claim.epoch, claim.due_at) == (3, True)
            owner = Owner.of(store, "t", claim)
            assert await store.orphans(10) == []
            child.send_signal(signal.SIGCONT)
            output, _ = await asyncio.to_thread(child.communicate, "write\n")
            assert output.split() == ["Fenced", "TaskBusy", "1"]
            await owner.write()
            row = await store.row("t")
            assert row.driver is not None
            assert row.driver.alive, "a late heartbeat does not take the task back"
            assert (row.epoch, row.head) == (3, 2)

    async def test_closing_gives_up_what_the_instance_owned(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first:
            stale = await Owner.create(first, "t")
        async with self.opened(tmp_path) as second:
            row = await second.row("t")
            assert row.driver is None or not row.driver.alive
            claim = await second.claim("t")
            assert (claim.epoch, claim.due_at) == (stale.epoch + 1, AT_ONCE)

    # ---------------------------------------------------------------------------------------- crashes

    @pytest.mark.parametrize("after", range(CALLS + 1))
    async def test_what_was_acknowledged_survives_a_killed_process(self, tmp_path: Path, after: int) -> None:
        output = tmp_path / "acknowledged"
        arguments = ("crash", self.factory, self.address(tmp_path), str(after))
        start = _crashing_processes(self.factory).run
        status = await asyncio.to_thread(start, f"{CRASHING}:main", *arguments, output=output)
        assert status == KILLED, output_of(output)
        assert output.read_text().split() == [str(n) for n in range(1, after + 1)]
        # The call that was queued at the kill may be stored completely or not at all.
        allowed = [await _reference(after), await _reference(min(after + 1, CALLS))]
        async with self.opened(tmp_path) as store:

            async def is_whole() -> bool:
                return await dump(store, ["talk"], TASKS) in allowed

            await until(is_whole)  # a server may write that call during this read
            for row in await store.rows(TaskFilter()):
                claim = await store.claim(row.task_id)
                assert (claim.epoch, claim.head) == (row.epoch + 1, row.head)
                await Owner.of(store, row.task_id, claim).write()

    async def test_a_creation_by_another_instance_is_not_taken_for_an_own_one(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            owner = Owner(first, "t")
            creation = owner.commit(owner.record(), create=new_task("t"))
            await send(first, creation)
            with pytest.raises(TaskExists):
                await send(second, creation)
            assert await send(first, creation) == Committed()

    async def test_a_commit_sent_again_through_another_instance_is_recognised(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as first, self.opened(tmp_path) as second:
            owner = await Owner.create(first, "t")
            lost = owner.commit(owner.record(2, blobs={"b": b"1"}), thread=ThreadChange("add", "talk", 0))
            await send(first, lost)
            content = await dump(second, ["talk"])
            assert await send(second, lost) == Committed()
            assert await dump(second, ["talk"]) == content

    # ----------------------------------------------------------------------------------------- damage

    async def test_a_flipped_bit_is_visible_and_harms_no_other_task(self, tmp_path: Path) -> None:
        needle = b"these are the words that will be damaged"
        async with self.opened(tmp_path) as store:
            for name in ("a", "b", "c"):
                owner = await Owner.create(store, name)
                await owner.write(2)
                await owner.write(1, needle if name == "b" else None)
                await owner.write(1)
            before = {name: await store.read(name) for name in ("a", "b", "c")}
        if not self.flip(tmp_path, needle):
            pytest.skip("this store names no file that holds the data of a record as it is")
        async with self.opened(tmp_path) as store:
            assert [await store.read(name) for name in ("a", "c")] == [before["a"], before["c"]]
            assert _sound_prefix(await store.read("b")) == before["b"][:2]
            await (await Owner.claim(store, "a")).write()

    @pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 0.95])
    async def test_a_file_that_lost_its_tail_never_shows_wrong_records(
        self, tmp_path: Path, share: float
    ) -> None:
        async with self.opened(tmp_path) as store:
            for n in range(40):
                owner = await Owner.create(store, f"t{n}")
                await owner.write(2, b"w" * 400, {f"blob {n}": b"b" * 3_000})
            before = {f"t{n}": await store.read(f"t{n}") for n in range(40)}
        files = [file for file in self.stored_files(tmp_path) if file.exists()]
        if not files:
            pytest.skip("this store names no files to damage")
        for file in files:
            with file.open("r+b") as opened:
                opened.truncate(int(file.stat().st_size * share))
        store = self.make(tmp_path)
        with suppress(StoreError):
            await store.open()
            for name, records in before.items():
                with suppress(StoreError, TaskNotFound):
                    prefix = await store.read(name)
                    assert prefix == records[: len(prefix)]
        await store.close()

    def flip(self, place: Path, needle: bytes) -> bool:
        """Flip one bit in the middle of each copy of the needle; return False if no file has one."""
        copies = 0
        for file in self.stored_files(place):
            content = bytearray(file.read_bytes()) if file.exists() else bytearray()
            at = content.find(needle)
            while at >= 0:
                copies += 1
                content[at + len(needle) // 2] ^= 0x10
                at = content.find(needle, at + 1)
            if content:
                file.write_bytes(content)
        return copies > 0


async def _is_orphan(store: JournalStore, task_id: str) -> bool:
    return task_id in [row.task_id for row in await store.orphans(10)]


@cache
def _crashing_processes(factory: str) -> ForkServer:
    """Return a server that starts processes with the store's module imported but no store open."""
    server = ForkServer(CRASHING, factory.partition(":")[0])
    atexit.register(server.close)
    return server


async def _reference(calls: int) -> dict[str, Any]:
    """Return the content of a store after some calls of the script."""
    store = MemoryStore()
    for call in script(store)[:calls]:
        await call()
    return await dump(store, ["talk"], TASKS)


def _sound_prefix(records: list[Record]) -> list[Record]:
    """Return the records before the first wrong digest, as a reader of the journal would see them."""
    digest = b""
    for number, record in enumerate(records):
        if sha256(digest + record.data).digest() != record.digest:
            return records[:number]
        digest = record.digest
    return records


async def _any(items: Sequence[object]) -> bool:
    return bool(items)


async def _names(notifications: Sequence[StoreChanges], task_id: str) -> bool:
    """Return whether watchers received a task's name among the changes."""
    return any(task_id in (changes.tasks or ()) for changes in notifications)

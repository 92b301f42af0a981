"""Conformance of a `JournalStore`: the data of inboxes, threads and forks, and its deletion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import AlreadyFinalized, Fenced, TaskBusy, TaskNotFound
from treadle.ports import (
    Commit,
    InboxWaiting,
    JournalStore,
    TaskExists,
    TaskFilter,
    ThreadMember,
    ThreadMoved,
)
from treadle.testing.conformance.owner import Owner, add, item, new_task, remove, send, spans
from treadle.testing.conformance.store_subject import StoreSubject


class SharingConformance(StoreSubject):
    """Data that tasks share with senders, threads and forks, some of which survives a task's deletion."""

    # -------------------------------------------------------------------------------------------------- inbox

    async def test_an_item_sent_twice_is_there_once_also_after_it_was_taken(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            assert await store.post("t", item("i", text="a")) is True
            assert await store.post("t", item("i", text="b")) is False
            assert await store.inbox("t") == [item("i", text="a")]
            await owner.write(taken=("i",))
            assert await store.post("t", item("i")) is False
            assert await store.inbox("t") == []

    async def test_items_wait_in_the_order_of_their_arrival_until_they_are_taken(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            owner, second = await Owner.create(store, "t"), await Owner.create(store, "u")
            for index, name in enumerate(("z", "a", "m")):
                sent = replace(item(name), created=1_000 - index)  # from clocks that disagree
                await store.post("t", sent)
                await store.post("u", sent)
            await owner.write(taken=("a", "unknown"))
            assert [i.item_id for i in await store.inbox("t")] == ["z", "m"]
            assert [i.item_id for i in await store.inbox("u")] == ["z", "a", "m"]
            with pytest.raises(InboxWaiting):
                await owner.write(seal=True, taken=("z",))
            await owner.write(seal=True, taken=("z", "m"))
            assert await store.inbox("t") == []
            await second.release()
            assert (await store.row("u")).driver is not None

    async def test_any_process_may_post_to_a_task_without_an_owner(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            data: Any = {"text": "ü\n", "n": [1, 2.5, None, {"x": True}]}
            assert await store.post("t", item("i", **data))
            assert (await store.inbox("t"))[0].data == data

    async def test_an_item_holds_plain_data_of_its_own(self, tmp_path: Path) -> None:
        class Name(str):
            __slots__ = ()

        async with self.opened(tmp_path) as store:
            await (await Owner.create(store, "t")).release()
            parts = ["a"]
            await store.post("t", item("i", by=Name("me"), parts=parts))
            parts.append("b")
            (stored_item,) = await store.inbox("t")
            assert stored_item.data == {"by": "me", "parts": ["a"]}
            assert type(stored_item.data["by"]) is str

    # ------------------------------------------------------------------------------------------------ threads

    async def test_a_thread_grows_by_reference_and_only_from_the_expected_version(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            assert await store.thread("talk") == (0, [])
            first, second = await Owner.create(store, "t"), await Owner.create(store, "u")
            await first.write(3, thread=add(0))
            with pytest.raises(ThreadMoved) as moved:
                await second.write(thread=add(0))
            assert moved.value.version == 1
            await second.write(thread=add(1))
            members = [ThreadMember(1, "t", 4), ThreadMember(2, "u", 2)]
            assert await store.thread("talk") == (2, members)
            assert await store.thread("talk", version=1) == (1, members[:1])
            assert await store.thread("talk", version=0) == (0, [])

    async def test_only_the_newest_member_can_be_taken_out_and_versions_only_grow(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            first, second = await Owner.create(store, "t"), await Owner.create(store, "u")
            await first.write(thread=add(0))
            await second.write(thread=add(1))
            with pytest.raises(AlreadyFinalized) as refused:
                await first.write(thread=remove())
            assert refused.value.task_id == "t"
            await second.write(thread=remove())
            assert await store.thread("talk") == (3, [ThreadMember(1, "t", 2)])
            assert await store.thread("talk", version=2) == (
                2,
                [ThreadMember(1, "t", 2), ThreadMember(2, "u", 2)],
            )
            await first.write(thread=remove())
            await first.write(thread=add(4))
            assert await store.thread("talk") == (5, [ThreadMember(5, "t", 4)])
            with pytest.raises(AlreadyFinalized):
                await second.write(thread=remove())

    async def test_a_thread_change_without_a_record_refers_to_the_last_event(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.write(6)
            await owner.send(thread=add(0))
            assert await store.thread("talk") == (1, [ThreadMember(1, "t", 7)])

    # -------------------------------------------------------------------------------------------------- forks

    async def test_a_fork_shares_the_events_before_its_point(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "t")
            await base.write(4)
            fork = await Owner.create(store, "f", base="t", base_seq=3)
            row = await store.row("f")
            assert (row.base, row.base_seq, row.head) == ("t", 3, 3)
            assert spans(await store.read("f")) == [(1, 1, None), (2, 5, 3)]
            await fork.release()
            claim = await store.claim("f")
            assert (claim.head, claim.digest) == (3, base.digest)
            fork = Owner.of(store, "f", claim)
            await fork.write(2)
            await base.write()
            assert spans(await store.read("f")) == [(1, 1, None), (2, 5, 3), (4, 5, None)]
            assert spans(await store.read("f", after=3)) == [(4, 5, None)]
            assert spans(await store.read("f", after=1, upto=2)) == [(2, 5, 3)]
            assert spans(await store.read("t")) == [(1, 1, None), (2, 5, None), (6, 6, None)]

    async def test_a_chain_of_forks_is_read_through(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "a")
            await base.write(9, blobs={"x": b"shared"})
            await (await Owner.create(store, "b", base="a", base_seq=5)).write(4)
            await (await Owner.create(store, "c", base="b", base_seq=7)).write(2)
            await Owner.create(store, "d", base="c", base_seq=3)
            assert spans(await store.read("c")) == [(1, 1, None), (2, 10, 5), (6, 9, 7), (8, 9, None)]
            assert spans(await store.read("c", after=5)) == [(6, 9, 7), (8, 9, None)]
            assert spans(await store.read("d")) == [(1, 1, None), (2, 10, 3)]
            assert (await store.read("d"))[1].blobs == {"x": b"shared"}
            await send(store, Commit("d", 1, release=True))
            assert (await store.claim("d")).digest == base.digest

    async def test_a_fork_may_begin_with_a_record_of_its_own_or_share_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await Owner.create(store, "t")
            fork = Owner(store, "f", seq=1)
            await fork.write(2, create=new_task("f", base="t", base_seq=1), release=True)
            assert spans(await store.read("f")) == [(1, 1, None), (2, 3, None)]
            await (await Owner.create(store, "g", base="t", base_seq=0)).release()
            assert await store.read("g") == []
            assert await store.claim("g") == replace(await store.claim("f"), head=0, digest=b"")

    # ------------------------------------------------------------------------------------------------- delete

    async def test_delete_removes_a_task_and_its_children(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, parent in (("t", None), ("child", "t"), ("grandchild", "child"), ("other", None)):
                owner = await Owner.create(store, name, parent=parent)
                await store.post(name, item("i"))
                await owner.write(taken=("i",), release=True)
            await store.delete("t")
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["other"]
            for name in ("t", "child", "grandchild"):
                for method in (store.row, store.claim, store.inbox, store.read, store.delete):
                    with pytest.raises(TaskNotFound):
                        await method(name)
                with pytest.raises(TaskNotFound):
                    await store.post(name, item("j"))
            await Owner.create(store, "t")
            assert (await store.row("t")).head == 1
            assert await store.post("t", item("i")) is True

    async def test_delete_is_refused_while_the_task_or_a_child_is_driven(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            parent = await Owner.create(store, "t")
            child = await Owner.create(store, "child", parent="t")
            with pytest.raises(TaskBusy) as refused:
                await store.delete("t")
            await parent.release()
            with pytest.raises(TaskBusy) as refused:
                await store.delete("t")
            assert refused.value.task_id == "child"
            assert len(await store.rows(TaskFilter())) == 2
            await child.release()
            await store.delete("t")
            assert await store.rows(TaskFilter()) == []

    async def test_a_deleted_tasks_owner_is_fenced(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            owner = await Owner.create(store, "t")
            await owner.release()
            await store.delete("t")
            with pytest.raises(Fenced):
                await owner.write()

    async def test_what_forks_share_stays_until_the_last_fork_is_deleted(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            base = await Owner.create(store, "t")
            await base.write(4, blobs={"kept": b"1"})
            await base.write(blobs={"gone": b"1"}, release=True)
            for name, at in (("f", 3), ("g", 1)):
                await (await Owner.create(store, name, base="t", base_seq=at)).release()
            shared = await store.read("f")
            await store.delete("t")
            assert await store.read("f") == shared
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["g", "f"]
            for method in (store.row, store.claim, store.delete):
                with pytest.raises(TaskNotFound):
                    await method("t")
            with pytest.raises(TaskExists):
                await Owner.create(store, "t")
            with pytest.raises(TaskNotFound):
                await Owner.create(store, "h", base="t", base_seq=1)
            assert spans(await store.read("t")) == [(1, 1, None), (2, 5, None)]
            assert await self.bytes_of_blob(store, "gone") == b"fresh"
            await store.delete("f")
            assert await self.bytes_of_blob(store, "kept") == b"fresh"
            assert spans(await store.read("t")) == [(1, 1, None)]
            await store.delete("g")
            with pytest.raises(TaskNotFound):
                await store.read("t")

    async def test_a_chain_of_forks_deleted_from_the_root_goes_with_its_tip(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name, base in (("a", None), ("b", "a"), ("c", "b")):
                owner = await Owner.create(store, name, base=base, base_seq=0 if base is None else 2)
                await owner.write(2, release=True)
            shown = await store.read("c")
            await store.delete("a")
            await store.delete("b")
            assert await store.read("c") == shown
            await store.delete("c")
            for name in "abc":
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_what_a_thread_refers_to_stays_until_the_thread_is_deleted(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first = await Owner.create(store, "t", thread_id="talk")
            await first.write(thread=add(0))
            await first.write(blobs={"later": b"1"}, release=True)
            second = await Owner.create(store, "u", thread_id="talk")
            await second.write(thread=add(1), release=True)
            await store.delete("t")
            with pytest.raises(TaskNotFound):
                await store.row("t")
            assert await store.thread("talk") == (2, [ThreadMember(1, "t", 2), ThreadMember(2, "u", 2)])
            assert spans(await store.read("t", upto=2)) == [(1, 1, None), (2, 2, None)]
            assert await self.bytes_of_blob(store, "later") == b"fresh"
            shown = await store.thread("talk")
            await store.delete("u")
            assert await store.thread("talk") == shown, (
                "its last task was deleted, and the conversation stays"
            )
            assert [row.thread_id for row in await store.threads(10)] == ["talk"]
            assert spans(await store.read("u", upto=2)) == [(1, 1, None), (2, 2, None)]
            third = await Owner.create(store, "v", thread_id="talk")
            await third.write(thread=add(2), release=True)
            assert await store.thread("talk") == (3, [*shown[1], ThreadMember(3, "v", 2)])
            await store.delete_thread("talk")
            assert await store.thread("talk") == (0, [])
            for name in ("t", "u", "v"):
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_a_member_that_was_taken_out_of_its_thread_does_not_stay(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first = await Owner.create(store, "t", thread_id="talk")
            await first.write(thread=add(0))
            second = await Owner.create(store, "u", thread_id="talk")
            await second.write(thread=add(1))
            await second.write(thread=remove(), release=True)
            await store.delete("u")
            with pytest.raises(TaskNotFound):
                await store.read("u")
            assert await store.thread("talk") == (3, [ThreadMember(1, "t", 2)])
            assert await store.thread("talk", version=2) == (2, [ThreadMember(1, "t", 2)])

    async def test_a_blob_is_stored_once_and_freed_with_its_last_record(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            first, second = await Owner.create(store, "t"), await Owner.create(store, "u")
            await first.write(blobs={"b": b"first"}, release=True)
            await second.write(blobs={"b": b"never stored, for the digest is known", "c": b"x"})
            await second.write(blobs={"b": b"nor this"}, release=True)
            assert [r.blobs for r in await store.read("u")] == [
                {},
                {"b": b"first", "c": b"x"},
                {"b": b"first"},
            ]
            await store.delete("t")
            assert [r.blobs for r in await store.read("u")] == [
                {},
                {"b": b"first", "c": b"x"},
                {"b": b"first"},
            ]
            await store.delete("u")
            assert await self.bytes_of_blob(store, "b") == b"fresh"

    async def bytes_of_blob(self, store: JournalStore, digest: str) -> bytes:
        """Write `fresh` bytes under a digest, and return the bytes that the store has for it."""
        probe = await Owner.create(store, "probe")
        await probe.write(blobs={digest: b"fresh"}, release=True)
        stored = (await store.read("probe"))[-1].blobs[digest]
        await store.delete("probe")
        return stored

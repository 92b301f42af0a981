"""Conformance of a `JournalStore`: summaries of threads, lists of threads, and deletion of whole threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.errors import AlreadyFinalized, TaskBusy, TaskNotFound, ThreadNotFound
from treadle.ports import JournalStore, TaskFilter, ThreadChange, ThreadMember, ThreadMoved, ThreadRow
from treadle.testing.conformance.owner import Owner, add, remove
from treadle.testing.conformance.store_subject import StoreSubject


async def make_members(store: JournalStore, *names: str, thread: str = "talk") -> list[Owner]:
    """Create and release tasks that are members of a thread, in this order."""
    owners: list[Owner] = []
    for name in names:
        owner = await Owner.create(store, name, thread_id=thread)
        version, _ = await store.thread(thread)
        await owner.write(
            2, blobs={f"blob of {name}": b"b" * 9_000}, thread=add(version, thread), release=True
        )
        owners.append(owner)
    return owners


async def claim_again(store: JournalStore, name: str) -> Owner:
    """Claim a task again."""
    return await Owner.claim(store, name)


def summary(expected: int, covers: int) -> ThreadChange:
    """Build a change that adds a summary to a thread."""
    return ThreadChange("add", "talk", expected, covers)


class ThreadConformance(StoreSubject):
    """Summaries do not replace the members they cover; a thread is deleted as a whole, unless forks need it."""

    async def test_a_summary_stands_beside_the_members_it_covers(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u", "v")
            summary_owner = await Owner.create(store, "s", thread_id="talk")
            with pytest.raises(ThreadMoved):
                await summary_owner.write(thread=summary(2, 2))
            await summary_owner.write(thread=summary(3, 2), release=True)
            members = [ThreadMember(1, "t", 3), ThreadMember(2, "u", 3), ThreadMember(3, "v", 3)]
            assert await store.thread("talk") == (4, [*members, ThreadMember(4, "s", 2, covers=2)])
            assert await store.thread("talk", version=3) == (3, members)
            assert await store.thread("talk", version=99) == await store.thread("talk")
            assert await store.threads(10) == [ThreadRow("talk", 4, 3)]

    async def test_a_member_can_be_taken_out_past_a_summary_that_does_not_cover_it(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u", "v")
            summary_owner = await Owner.create(store, "s", thread_id="talk")
            await summary_owner.write(thread=summary(3, 2))
            await (await claim_again(store, "v")).write(thread=remove())
            for covered in ("u", "t"):
                owner = await claim_again(store, covered)
                with pytest.raises(AlreadyFinalized):
                    await owner.write(thread=remove())
            await summary_owner.write(thread=remove())
            assert await store.thread("talk") == (6, [ThreadMember(1, "t", 3), ThreadMember(2, "u", 3)])

    async def test_members_can_be_read_from_a_version_on(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u", "v")
            await (await claim_again(store, "v")).write(thread=remove(), release=True)
            await make_members(store, "w")
            for version in (None, 1, 2, 3, 4, 5, 9):
                at, members = await store.thread("talk", version=version)
                for since in range(7):
                    later = [member for member in members if member.version > since]
                    assert await store.thread("talk", version=version, since=since) == (at, later)
            assert await store.thread("nothing", since=3) == (0, [])

    async def test_threads_are_listed_in_pages(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("c", "a", "b"):
                await make_members(store, f"{name}1", f"{name}2", thread=name)
            await Owner.create(store, "unfinished", thread_id="d")
            assert await store.threads(2) == [ThreadRow("a", 2, 2), ThreadRow("b", 2, 2)]
            assert await store.threads(2, after="b") == [ThreadRow("c", 2, 2)]
            assert await store.threads(2, after="c") == []

    async def test_a_thread_is_deleted_with_all_its_tasks(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u")
            await make_members(store, "x", thread="other")
            for name, fields in (("unfinished", {"thread_id": "talk"}), ("child", {"parent": "t"})):
                await (await Owner.create(store, name, **fields)).release()
            await store.delete_thread("talk")
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["x"]
            assert await store.thread("talk") == (0, [])
            assert [row.thread_id for row in await store.threads(10)] == ["other"]
            for name in ("t", "u", "unfinished", "child"):
                with pytest.raises(TaskNotFound):
                    await store.read(name)
            for name in ("talk", "missing"):
                with pytest.raises(ThreadNotFound):
                    await store.delete_thread(name)
            await make_members(store, "t")
            assert (await store.thread("talk"))[0] == 1

    async def test_what_subagents_said_goes_with_the_task_that_called_them(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t")
            for name, parent in (("child", "t"), ("grandchild", "child")):
                owner = await Owner.create(store, name, thread_id=f"of {name}", parent=parent)
                await owner.write(1, thread=add(0, f"of {name}"), release=True)
            await make_members(store, "x", thread="other")
            await store.delete("t")
            assert [row.thread_id for row in await store.threads(10)] == ["other", "talk"]
            assert [member.task_id for member in (await store.thread("talk"))[1]] == ["t"]
            for name in ("child", "grandchild"):
                assert await store.thread(f"of {name}") == (0, [])
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_a_deleted_thread_that_forks_began_with_is_empty_for_new_tasks(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u")
            await (await Owner.create(store, "f", thread_id="of f", base="u", base_seq=2)).release()
            await store.delete_thread("talk")
            assert await store.thread("talk") == (4, [])
            again = await Owner.create(store, "v", thread_id="talk")
            await again.write(1, thread=add(4), release=True)
            assert [member.task_id for member in (await store.thread("talk"))[1]] == ["v"]
            await store.delete("f")
            assert [member.task_id for member in (await store.thread("talk"))[1]] == ["v"]
            await store.delete_thread("talk")
            for name in ("t", "u", "v"):
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_a_thread_is_not_deleted_while_a_task_of_it_is_driven(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t")
            busy = await Owner.create(store, "u", thread_id="talk")
            before = await store.thread("talk")
            with pytest.raises(TaskBusy) as refused:
                await store.delete_thread("talk")
            assert refused.value.task_id == "u"
            assert await store.thread("talk") == before
            assert len(await store.rows(TaskFilter())) == 2
            await busy.release()
            await store.delete_thread("talk")
            assert await store.rows(TaskFilter()) == []

    @pytest.mark.parametrize("one_by_one", [False, True])
    async def test_what_forks_in_other_threads_began_with_stays_until_the_last_is_deleted(
        self, tmp_path: Path, one_by_one: bool
    ) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t", "u", "v")
            for name, base in (("f", "u"), ("g", "f")):
                await (await Owner.create(store, name, base=base, base_seq=2)).release()
            thread, shared = await store.thread("talk"), await store.read("g")
            if one_by_one:
                for name in ("t", "u", "v", "f"):
                    await store.delete(name)
            else:
                await store.delete_thread("talk")
                await store.delete("f")
            assert [row.task_id for row in await store.rows(TaskFilter())] == ["g"]
            assert await store.thread("talk") == (thread if one_by_one else (6, []))
            assert await store.thread("talk", version=1) == (1, thread[1][:1]), (
                "the fork's journal says that it began with these words"
            )
            assert await store.read("g") == shared
            assert (await store.read("t"))[-1].seq == 3
            await store.delete("g")
            if one_by_one:
                assert await store.thread("talk") == thread, "a thread is deleted by itself alone"
                await store.delete_thread("talk")
            assert await store.thread("talk") == (0, [])
            for name in "tuvfg":
                with pytest.raises(TaskNotFound):
                    await store.read(name)

    async def test_the_messages_a_fork_began_with_go_with_it_also_when_it_has_messages_in_its_own_thread(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t")
            before = "t"
            for name in ("f", "g", "h"):
                fork = await Owner.create(store, name, thread_id=f"of {name}", base=before, base_seq=2)
                await fork.write(1, thread=add(0, f"of {name}"), release=True)
                before = name
            for name in ("t", "f", "g", "h"):
                await store.delete(name)
            assert [row.thread_id for row in await store.threads(10)] == ["of f", "of g", "of h", "talk"]
            for name in ("talk", "of f", "of g", "of h"):
                await store.delete_thread(name)
            for name in ("t", "f", "g", "h"):
                with pytest.raises(TaskNotFound):
                    await store.read(name)
            assert await store.threads(10) == []

    @pytest.mark.parametrize("forked", [False, True])
    async def test_what_a_task_began_with_stays_also_when_it_was_taken_out_of_the_thread_and_deleted(
        self, tmp_path: Path, forked: bool
    ) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "t")
            await (await Owner.create(store, "u", thread_id="talk")).release()
            if forked:
                await (await Owner.create(store, "f", base="t", base_seq=1)).release()
            before, records = await store.thread("talk"), await store.read("t")
            await (await claim_again(store, "t")).write(2, thread=remove(), release=True)
            await store.delete("t")
            assert await store.thread("talk", version=1) == before
            assert await store.read("t", upto=3) == records
            await (await claim_again(store, "u")).write(thread=add(2), release=True)
            assert await store.thread("talk", version=1) == before, "a member reads the version it began with"
            assert await store.read("t", upto=3) == records
            await store.delete("u")
            if forked:
                assert await store.thread("talk", version=1) == before, "the fork may have begun with it"
                await store.delete("f")
            assert [member.task_id for member in (await store.thread("talk"))[1]] == ["u"]
            with pytest.raises(TaskNotFound):
                await store.read("t")
            await store.delete_thread("talk")
            for name in "tuf":
                with pytest.raises(TaskNotFound):
                    await store.read(name)
            assert await store.thread("talk") == (0, [])

    async def test_a_member_that_no_task_began_with_is_deleted_with_the_last_task_that_may_have(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            await make_members(store, "one", "two")
            for name in ("three", "four"):
                await (await Owner.create(store, name, thread_id="talk")).release()
            await (await claim_again(store, "two")).write(thread=remove(), release=True)
            await store.delete("two")
            for name in ("three", "four"):
                assert (await store.read("two", upto=3))[-1].seq == 3
                await store.delete(name)
            with pytest.raises(TaskNotFound):
                await store.read("two")
            assert await store.thread("talk") == (3, [ThreadMember(1, "one", 3)])

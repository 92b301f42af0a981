"""Finding out what changed in a journal file, also where row ids are used again."""

from pathlib import Path

import pytest

from treadle.stores.sqlite import SQLiteStore
from treadle.stores.sqlite.changes import FileChanges
from treadle.stores.sqlite.schema import connect_reader
from treadle.testing.conformance.owner import Owner

pytestmark = pytest.mark.anyio


async def test_each_change_is_found_once(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "journal.db")
    await store.open()
    try:
        owners = [await Owner.create(store, name) for name in ("t", "u", "v")]
        changes = FileChanges(connect_reader(store.path))
        assert changes.look() is None
        assert changes.look() == frozenset()
        await owners[0].write()
        await owners[0].write()
        await owners[1].release()
        assert changes.look() == {"t", "u"}
        assert changes.look() == frozenset()
        await store.claim("u")
        assert changes.look() == {"u"}
        await Owner.create(store, "w")
        assert changes.look() == {"w"}
        changes.forget()
        assert changes.look() is None
    finally:
        await store.close()


async def test_after_a_deletion_any_task_may_have_changed_once(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "journal.db")
    await store.open()
    try:
        gone, _ = await Owner.create(store, "gone"), await Owner.create(store, "kept")
        await gone.release()
        changes = FileChanges(connect_reader(store.path))
        changes.look()
        await store.delete("gone")
        assert changes.look() is None
        assert changes.look() == frozenset()
    finally:
        await store.close()


async def test_after_the_newest_records_were_deleted_any_task_may_have_changed(tmp_path: Path) -> None:
    """The next records get the numbers of those that were deleted, and would look as if they had been told."""
    store = SQLiteStore(tmp_path / "journal.db")
    await store.open()
    try:
        kept, gone = await Owner.create(store, "kept"), await Owner.create(store, "gone")
        await gone.write()
        await gone.release()
        changes = FileChanges(connect_reader(store.path))
        changes.look()
        await store.delete("gone")
        for _ in range(5):
            await kept.write()
        assert changes.look() is None
        await kept.write()
        assert changes.look() == {"kept"}
    finally:
        await store.close()

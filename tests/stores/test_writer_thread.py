"""The writer thread of a store goes on, and ends, after any failure in it."""

import asyncio
from pathlib import Path

import pytest

from treadle.errors import StoreUnavailable
from treadle.stores.sqlite import SQLiteStore
from treadle.stores.sqlite.journal import Journal
from treadle.stores.sqlite.lease import Lease
from treadle.testing.conformance.owner import Owner, until

pytestmark = pytest.mark.anyio


class Broken(Exception):
    """An unforeseen error."""


async def test_due_work_that_fails_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, looks = SQLiteStore(tmp_path / "j.db", lease_seconds=0.5), list[int]()
    await store.open()
    owner = await Owner.create(store, "t")

    def broken(self: object) -> None:
        looks.append(1)
        raise Broken

    async def two_looks() -> bool:
        return len(looks) >= 2

    with monkeypatch.context() as patch:
        patch.setattr(Lease, "heartbeat", broken)
        await until(two_looks)
    async with asyncio.timeout(5):
        await owner.write()
        await store.close()


async def test_a_store_that_cannot_end_its_lease_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "j.db")
    await store.open()
    owner = await Owner.create(store, "t")

    def broken(self: object) -> None:
        raise Broken

    monkeypatch.setattr(Lease, "end", broken)
    monkeypatch.setattr(Journal, "rolled_back", broken)
    async with asyncio.timeout(5):
        await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await owner.write()

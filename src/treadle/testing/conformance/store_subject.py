"""The base of the store suite: create and open a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle.ports import JournalStore, TaskStore
from treadle.stores.run_only import MethodMissing
from treadle.wiring import open_store


class StoreSubject:
    """A kind of store under test."""

    def make(self, place: Path) -> TaskStore:
        """Return a new store, not opened yet, with its data in `place`; the same place means the same data."""
        raise NotImplementedError

    def whole(self, place: Path) -> JournalStore:
        """Return a new store; a method that a `TaskStore` lacks raises `MethodMissing`."""
        return open_store(self.make(place))

    def many(self, number: int) -> int:
        """Return the number of items of a bulk test; override it with fewer if each test runs very often."""
        return number

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        """Delete the last record of a task in the database itself; return False if that is impossible."""
        return False

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncGenerator[JournalStore]:
        """Open a store for the duration of a block; skip the test if a `TaskStore` lacks a method."""
        store = self.whole(place)
        await store.open()
        try:
            yield store
        except MethodMissing as missing:
            pytest.skip(str(missing))
        finally:
            await store.close()

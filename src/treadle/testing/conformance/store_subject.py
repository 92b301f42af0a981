"""The common base of the parts of the store suite: how a store is made and opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle.ports import JournalStore


class StoreSubject:
    """A kind of store under test."""

    def make(self, place: Path) -> JournalStore:
        """Return a store, not opened yet, whose data is in `place`; for the same place the same data."""
        raise NotImplementedError

    def many(self, number: int) -> int:
        """Return how many items a test makes that makes many; fewer where each test runs very often."""
        return number

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        """Delete the last record of a task behind the open store's back; False if there is no way to do that."""
        return False

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncGenerator[JournalStore]:
        """Open a store for the length of a block."""
        store = self.make(place)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

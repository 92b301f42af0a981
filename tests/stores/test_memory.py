"""The memory store keeps the contract of stores."""

from pathlib import Path

from treadle.ports import JournalStore
from treadle.stores.memory import MemoryStore
from treadle.testing.conformance.store import StoreConformance


class TestMemoryStore(StoreConformance):
    def make(self, place: Path) -> JournalStore:
        return MemoryStore()

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        assert isinstance(store, MemoryStore)
        store._tables.tasks[task_id].records.pop()
        return True

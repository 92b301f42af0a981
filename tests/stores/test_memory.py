"""The memory store keeps the contract of stores."""

from pathlib import Path

from treadle.ports import JournalStore
from treadle.stores.memory import MemoryStore
from treadle.testing.conformance.store import StoreConformance


class TestMemoryStore(StoreConformance):
    def make(self, place: Path) -> JournalStore:
        return MemoryStore()

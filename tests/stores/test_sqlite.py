"""The SQLite store keeps the contract of stores, and what only a file can break."""

from pathlib import Path

from treadle.ports import JournalStore
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.conformance.store import StoreConformance


class TestSQLiteStore(StoreConformance):
    def make(self, place: Path) -> JournalStore:
        return SQLiteStore(place / "journal.db")

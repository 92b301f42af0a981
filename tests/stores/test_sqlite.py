"""The SQLite store keeps the contract of stores, and what only a file can break."""

from pathlib import Path
from typing import ClassVar

from treadle.testing.conformance.durability import PersistentStoreConformance


class TestSQLiteStore(PersistentStoreConformance):
    factory: ClassVar[str] = "treadle.stores.sqlite:SQLiteStore"

    def address(self, place: Path) -> str:
        return str(place / "journal.db")

    def stored_files(self, place: Path) -> list[Path]:
        return [place / "journal.db", place / "journal.db-wal"]

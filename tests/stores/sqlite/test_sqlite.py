"""The SQLite store keeps the contract of stores, and what only a file can break."""

from pathlib import Path
from typing import ClassVar

import apsw

from tests.stores.write_behind_cases import QueuedCases
from treadle.ports import JournalStore
from treadle.testing.conformance.durability import PersistentStoreConformance


class TestSQLiteStore(PersistentStoreConformance, QueuedCases):
    factory: ClassVar[str] = "treadle.wiring:open_store"

    def address(self, place: Path) -> str:
        return f"sqlite:///{place}/journal.db"

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        connection = apsw.Connection(str(place / "journal.db"))
        connection.execute(
            "DELETE FROM records WHERE pos = (SELECT r.pos FROM records r JOIN tasks t ON t.id = r.task "
            "WHERE t.key = ? ORDER BY seq DESC LIMIT 1)",
            (task_id,),
        )
        connection.close()
        return True

    async def let_leases_pass(self, place: Path) -> None:
        connection = apsw.Connection(str(place / "journal.db"))
        connection.set_busy_timeout(10_000)
        connection.execute("UPDATE drivers SET lease = 1")
        connection.close()

    def stored_files(self, place: Path) -> list[Path]:
        return [place / "journal.db", place / "journal.db-wal"]

"""The PostgreSQL store keeps the contract of stores, on a real server."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest

from treadle.ports import JournalStore
from treadle.testing.conformance.durability import PersistentStoreConformance
from treadle.testing.postgres import PostgresServer


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        TestPostgresStore.server = server
        yield server


class TestPostgresStore(PersistentStoreConformance):
    factory: ClassVar[str] = "treadle.stores.postgres:PostgresStore"
    server: ClassVar[PostgresServer]

    def schema(self, place: Path) -> str:
        return f"t{sha256(str(place).encode()).hexdigest()[:20]}"

    def address(self, place: Path) -> str:
        return self.server.in_schema(self.schema(place))

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        with psycopg.connect(self.server.url) as connection:
            connection.execute(f"SET search_path TO {self.schema(place)}")
            connection.execute(
                "DELETE FROM records r USING tasks t WHERE t.id = r.task AND t.key = %s AND seq = "
                "(SELECT max(seq) FROM records WHERE task = t.id)",
                (task_id,),
            )
        return True

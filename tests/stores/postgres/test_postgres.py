"""The PostgreSQL store keeps the contract of stores, on a real server."""

import random
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest

from tests.stores.write_behind_cases import QueuedCases
from treadle.ports import JournalStore
from treadle.testing.conformance.durability import CALLS, PersistentStoreConformance
from treadle.testing.postgres import PostgresServer


@pytest.mark.sampled(50)  # SQLite keeps the same contract, whole in each run
class TestPostgresStore(PersistentStoreConformance, QueuedCases):
    factory: ClassVar[str] = "treadle.wiring:open_store"
    server: PostgresServer

    @pytest.fixture(autouse=True)
    def on_a_server(self, postgres: PostgresServer) -> None:
        self.server = postgres

    def schema(self, place: Path) -> str:
        return f"t{sha256(str(place).encode()).hexdigest()[:20]}"

    def address(self, place: Path) -> str:
        return self.server.in_schema(self.schema(place))

    def leased_address(self, place: Path, seconds: float) -> str:
        return f"{self.address(place)}&lease={seconds:g}"

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        with psycopg.connect(self.server.url) as connection:
            connection.execute(f"SET search_path TO {self.schema(place)}")
            connection.execute(
                "DELETE FROM records r USING tasks t WHERE t.id = r.task AND t.key = %s AND seq = "
                "(SELECT max(seq) FROM records WHERE task = t.id)",
                (task_id,),
            )
        return True

    async def let_leases_pass(self, place: Path) -> None:
        with psycopg.connect(self.server.url) as connection:
            connection.execute(f"UPDATE {self.schema(place)}.drivers SET lease = 'epoch'")

    def flip(self, place: Path, needle: bytes) -> bool:
        at = len(needle) // 2
        with psycopg.connect(self.server.url) as connection:
            row = connection.execute(
                f"UPDATE {self.schema(place)}.records SET data = set_byte(data, %s, get_byte(data, %s) # 16) "
                "WHERE position(%s in data) = 1",
                (at, at, needle),
            )
        return row.rowcount == 1

    # The server looks after its own files: it writes checksums and refuses a page that does not fit.
    test_a_file_that_lost_its_tail_never_shows_wrong_records = None

    @pytest.mark.parametrize(
        "after", [n if n in (1, 7, 13) else pytest.param(n, marks=pytest.mark.full) for n in range(CALLS + 1)]
    )
    async def test_what_was_acknowledged_survives_a_killed_process(self, tmp_path: Path, after: int) -> None:
        await super().test_what_was_acknowledged_survives_a_killed_process(tmp_path, after)


@pytest.mark.full
class TestPostgresStoreWhoseSessionsEnd(TestPostgresStore):
    """The same contract, while sessions are ended at random."""

    @pytest.fixture(autouse=True)
    def sessions_end(self, postgres: PostgresServer) -> Iterator[None]:
        stop = threading.Event()
        ended = 0

        def end() -> None:
            nonlocal ended
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                while not stop.wait(random.uniform(0.05, 0.3)):
                    rows = connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name LIKE 'treadle%' ORDER BY random() LIMIT 1"
                    )
                    ended += rows.rowcount

        thread = threading.Thread(target=end)
        thread.start()
        yield
        stop.set()
        thread.join()
        print(f"{ended} sessions were ended")

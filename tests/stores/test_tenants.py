"""A tenant sees a store of its own, whatever other tenants have under the same names."""

import inspect
from hashlib import sha256
from pathlib import Path

import apsw
import psycopg
import pytest

from tests.stores.mirrored import OTHERS, OWN, MirroredStore
from treadle.errors import JournalCorrupt, TaskBusy, TaskNotFound, ThreadNotFound
from treadle.ports import JournalStore
from treadle.stores.memory import MemoryStore
from treadle.stores.tenants import Names, Tenants, TenantStore, tenant_of
from treadle.testing.conformance.durability import CALLS, PersistentStoreConformance
from treadle.testing.conformance.owner import Owner
from treadle.testing.conformance.store import StoreConformance
from treadle.testing.postgres import PostgresServer
from treadle.wiring import open_store

FULL = Names(OWN).full("t")


class WithoutTenants:
    """A tenant has no tenants of its own."""

    test_each_tenant_lists_its_own_tasks_threads_and_grants = None
    test_what_a_tenant_does_changes_nothing_of_another = None
    test_orphans_of_all_tenants_are_listed_with_their_tenant_a_page_at_a_time = None
    test_tenants_take_turns_whatever_they_are_called_and_each_begins_with_its_oldest_task = None
    test_tasks_of_unknown_agents_or_formats_and_children_and_excluded_tasks_are_not_adoptable = None


@pytest.mark.sampled(20)
class TestATenantInMemory(WithoutTenants, StoreConformance):
    others = OTHERS

    def make(self, place: Path) -> JournalStore:
        return MirroredStore(MemoryStore(), self.others)

    async def test_refused_commits_of_a_former_owner_are_counted(self, tmp_path: Path) -> None:
        self.others = ()  # the store counts those of all tenants
        await super().test_refused_commits_of_a_former_owner_are_counted(tmp_path)

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        assert isinstance(store, TenantStore)
        assert isinstance(store._store, MemoryStore)
        store._store._tables.tasks[Names(OWN).full(task_id)].records.pop()
        return True


class PersistentTenantConformance(WithoutTenants, PersistentStoreConformance):
    """A tenant whose tasks others have too."""

    factory = "tests.stores.mirrored:open_mirrored"

    async def stand_beside(self, place: Path) -> None:
        """Let another tenant have the tasks that a test will make, and do no more: the test counts what is done."""
        self.factory = "tests.stores.mirrored:open_alone"
        store = open_store(self.address(place))
        await store.open()
        for task_id in ("t", "u"):
            await (await Owner.create(store, task_id)).release()
        await store.close()

    async def test_refused_commits_of_a_former_owner_are_counted(self, tmp_path: Path) -> None:
        await self.stand_beside(tmp_path)
        await super().test_refused_commits_of_a_former_owner_are_counted(tmp_path)

    async def test_a_stopped_process_loses_its_task_once_its_lease_has_passed_and_is_fenced_when_it_wakes(
        self, tmp_path: Path
    ) -> None:
        await self.stand_beside(tmp_path)
        await super().test_a_stopped_process_loses_its_task_once_its_lease_has_passed_and_is_fenced_when_it_wakes(
            tmp_path
        )

    @pytest.mark.parametrize(
        "after", [n if n in (1, 7, 13) else pytest.param(n, marks=pytest.mark.full) for n in range(CALLS + 1)]
    )
    async def test_what_was_acknowledged_survives_a_killed_process(self, tmp_path: Path, after: int) -> None:
        await self.stand_beside(tmp_path)
        await super().test_what_was_acknowledged_survives_a_killed_process(tmp_path, after)


@pytest.mark.sampled(12)
class TestATenantInSQLite(PersistentTenantConformance):
    def address(self, place: Path) -> str:
        return f"sqlite:///{place}/journal.db"

    async def lose_last_record(self, store: JournalStore, place: Path, task_id: str) -> bool:
        connection = apsw.Connection(str(place / "journal.db"))
        connection.execute(
            "DELETE FROM records WHERE pos = (SELECT r.pos FROM records r JOIN tasks t ON t.id = r.task "
            "WHERE t.key = ? ORDER BY seq DESC LIMIT 1)",
            (Names(OWN).full(task_id),),
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


@pytest.mark.sampled(5)
class TestATenantInPostgres(PersistentTenantConformance):
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
                (Names(OWN).full(task_id),),
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
        return row.rowcount > 0

    # The server looks after its own files: it writes checksums and refuses a page that does not fit.
    test_a_file_that_lost_its_tail_never_shows_wrong_records = None


# ------------------------------------------------------------------------------------------------ beside that


def test_a_tenant_answers_every_method_of_a_store() -> None:
    methods = [name for name in dir(JournalStore) if not name.startswith("_")]
    assert [
        name for name in methods if inspect.getattr_static(TenantStore, name) is getattr(JournalStore, name)
    ] == []
    assert len(methods) > 20


@pytest.mark.anyio
async def test_errors_name_what_the_tenant_named() -> None:
    acme = Tenants(MemoryStore()).of(OWN)
    with pytest.raises(TaskNotFound) as missing:
        await acme.row('it\'s "t"')
    assert str(missing.value) == 'no task it\'s "t" in this store'
    with pytest.raises(ThreadNotFound, match="no thread 'talk' in memory:"):
        await acme.delete_thread("talk")
    await Owner.create(acme, "t")
    with pytest.raises(TaskBusy, match="task t is driven") as busy:
        await acme.claim("t")
    assert busy.value.task_id == "t"
    damaged = JournalCorrupt(f"task {FULL}: event 3 is missing", task_id=FULL, seq=3)
    Names(OWN).bare_error(damaged)
    assert (str(damaged), damaged.task_id, damaged.seq) == ("task t: event 3 is missing", "t", 3)


def test_the_tenant_of_a_name_is_what_stands_before_the_separator() -> None:
    assert [tenant_of(name) for name in (FULL, "t", "", "a\x1fb\x1fc")] == [OWN, "", "", "a"]

"""Conformance of a `JournalStore`: tenants may use the same names, and lists never mix tenants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core.permits import StandingGrant
from treadle.ports import JournalStore, TaskFilter
from treadle.stores.tenants import Tenants
from treadle.testing.conformance.owner import Owner, add, dump, item
from treadle.testing.conformance.store_subject import StoreSubject

NAMES = ("", "acm", "acme", "acme.", "Acme")
"""Tenants whose names are close in every sort order."""

GRANT = StandingGrant("g", "pay", "digest", "rule", None, None, "t", "request", 1)


async def fill(store: JournalStore, tenant: str) -> None:
    """Create two tasks of a tenant in a thread, with inbox, blob, labels, and an approval for later calls."""
    for number, (task_id, parent) in enumerate((("t", None), ("child", "t"))):
        labels = {"tenant": tenant, "all": "yes"}
        owner = await Owner.create(store, task_id, thread_id="talk", parent=parent, labels=labels)
        await store.post(task_id, item("i"))
        grant = replace(GRANT, by=tenant)
        await owner.write(3, blobs={"b": tenant.encode()}, thread=add(number), grants=(grant,))
        await owner.send(release=True, leave=True, due_at=1)


class TenantConformance(StoreSubject):
    """Tenants of one store are invisible to each other."""

    async def test_each_tenant_lists_its_own_tasks_threads_and_grants(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            tenants = Tenants(store)
            for name in NAMES:
                await fill(tenants.of(name), name)
            for name in NAMES:
                own = tenants.of(name)
                for filters in (
                    TaskFilter(),
                    TaskFilter(agent="agent"),
                    TaskFilter(states=("created",)),
                    TaskFilter(thread_id="talk"),
                    TaskFilter(labels={"all": "yes"}),
                    TaskFilter(labels={"tenant": name}),
                    TaskFilter(beginning=""),
                ):
                    rows = await own.rows(filters)
                    assert [(row.task_id, row.labels["tenant"]) for row in rows] == [
                        ("t", name),
                        ("child", name),
                    ]
                    (first,) = await own.rows(replace(filters, limit=1))
                    assert [row.task_id for row in await own.rows(replace(filters, cursor=first.cursor))] == [
                        "child"
                    ]
                    assert [each.tasks for each in (await own.sums(filters)).values()] == [2]
                assert [row.task_id for row in await own.rows(TaskFilter(parent="t"))] == ["child"]
                assert [(row.thread_id, row.members) for row in await own.threads(9)] == [("talk", 2)]
                assert await own.threads(9, after="talk") == []
                for grants in (await own.grants(), await own.grants(tool="pay")):
                    assert grants == [replace(GRANT, by=name)]
                other = next(each for each in NAMES if each != name)
                assert await own.rows(TaskFilter(labels={"tenant": other})) == []

    @pytest.mark.parametrize("name", ["", "acme"])
    async def test_what_a_tenant_does_changes_nothing_of_another(self, tmp_path: Path, name: str) -> None:
        async with self.opened(tmp_path) as store:
            tenants = Tenants(store)
            for each in NAMES:
                await fill(tenants.of(each), each)
            others = [tenants.of(each) for each in NAMES if each != name]
            before = [await dump(other, ["talk"]) for other in others]
            own = tenants.of(name)
            await (await Owner.claim(own, "t")).write(2, taken=("i",), state="completed", release=True)
            assert await own.revoke("g", 2, None) is True
            await own.delete("t")
            await own.delete_thread("talk")
            assert [await dump(other, ["talk"]) for other in others] == before
            for other, each in zip(others, [each for each in NAMES if each != name], strict=True):
                assert [record.blobs for record in await other.read("t") if record.blobs] == [
                    {"b": each.encode()}
                ]
                assert [grant.revoked for grant in await other.grants()] == [None]
            assert await own.rows(TaskFilter()) == await own.threads(9) == []

    async def test_orphans_of_all_tenants_are_listed_with_their_tenant_a_page_at_a_time(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            tenants = Tenants(store)
            expected = [(name, task_id) for name in NAMES for task_id in ("t", "u")]
            for name, task_id in expected:
                owner = await Owner.create(tenants.of(name), task_id)
                await owner.send(release=True, due_at=1)
            seen = page = await tenants.orphans(3)
            while page:
                page = await tenants.orphans(3, after=page[-1])
                seen = [*seen, *page]
            assert sorted((row.tenant, row.task_id) for row in seen) == sorted(expected)
            for name in NAMES[1:]:
                assert [row.task_id for row in await tenants.of(name).orphans(99)] == ["t", "u"]

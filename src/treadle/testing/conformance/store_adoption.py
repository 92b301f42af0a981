"""Conformance of a `JournalStore`: the tasks that a process may adopt, and their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from treadle.ports import AT_ONCE, AdoptionQuery, JournalStore
from treadle.stores.tenants import Tenants
from treadle.testing.conformance.owner import Owner, item
from treadle.testing.conformance.store_subject import StoreSubject

QUERY = AdoptionQuery(10, ("agent",), 1)
DUE = 1_800_000_000_000_000


async def waiting(store: JournalStore, task_id: str, *, due_at: int = AT_ONCE, **fields: Any) -> None:
    """Create a task that waits for a driver."""
    min_format = fields.pop("format", 1)
    owner = await Owner.create(store, task_id, **fields)
    await owner.send(release=True, due_at=due_at, format=min_format)


class AdoptionConformance(StoreSubject):
    """`adoptable` returns tasks to drive, `unadoptable` samples the others, `orphans` returns the indirect ones."""

    async def test_tasks_of_unknown_agents_or_formats_and_children_and_excluded_tasks_are_not_adoptable(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            tasks: dict[str, dict[str, Any]] = {
                "other": {"agent": "other"},
                "newer": {"format": 2},
                "child": {"parent": "first"},
                "later": {"due_at": DUE},
                "tried": {},
                "first": {},
                "second": {},
            }
            for name, fields in tasks.items():
                await waiting(store, name, **fields)
            await (await Owner.create(store, "rest")).release()
            await Owner.create(store, "driven")
            await (await Owner.create(store, "ended")).send(release=True, state="completed", due_at=AT_ONCE)
            query = replace(QUERY, excluded=frozenset({("", "tried")}))
            assert await adoptable_ids(store, query) == ["first", "second"]
            assert await adoptable_ids(store, replace(query, limit=1)) == ["first"]
            assert await adoptable_ids(store, replace(query, until=DUE)) == ["later", "first", "second"]
            assert await adoptable_ids(store, replace(query, agents=("other", "agent"))) == [
                "other",
                "first",
                "second",
            ]
            assert await adoptable_ids(store, replace(query, format=2)) == ["newer", "first", "second"]
            assert await adoptable_ids(store, replace(query, agents=())) == []
            assert [row.task_id for row in await store.unadoptable(query)] == ["other", "newer"]
            assert await store.unadoptable(replace(query, agents=("agent", "other"), format=2)) == []
            await waiting(store, "other that is due", agent="other", due_at=DUE)
            unknown = await store.unadoptable(replace(query, until=DUE))
            assert [row.task_id for row in unknown] == ["other", "newer"]
            [row] = await store.adoptable(replace(query, limit=1))
            assert row == await store.row("first")

    async def test_tenants_take_turns_whatever_they_are_called_and_each_begins_with_its_oldest_task(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            tenants = Tenants(store)
            for name in ("z", "a", "m"):
                await waiting(tenants.of("big"), name)
            for tenant in ("zoo", "", "ant"):
                await waiting(tenants.of(tenant), "t")

            async def turns(query: AdoptionQuery) -> list[tuple[str, str]]:
                return [(row.tenant, row.task_id) for row in await tenants.adoptable(query)]

            others = [("ant", "t"), ("big", "z"), ("zoo", "t")]
            assert await turns(QUERY) == [("", "t"), *others, ("big", "a"), ("big", "m")]
            assert await turns(replace(QUERY, limit=2, last_tenant="ant")) == [("big", "z"), ("zoo", "t")]
            assert await turns(replace(QUERY, limit=3, last_tenant="big")) == [
                ("zoo", "t"),
                ("", "t"),
                ("ant", "t"),
            ]
            assert await turns(replace(QUERY, limit=2, last_tenant="zoo")) == [("", "t"), ("ant", "t")]
            full = frozenset({"big", ""})
            assert await turns(replace(QUERY, full_tenants=full)) == [("ant", "t"), ("zoo", "t")]
            assert [row.task_id for row in await tenants.of("big").adoptable(QUERY)] == ["z", "a", "m"]
            assert await tenants.of("big").unadoptable(QUERY) == []
            [row] = await tenants.unadoptable(replace(QUERY, agents=()))
            for tenant in ("ant", "big", "zoo"):
                own = await tenants.of(tenant).unadoptable(replace(QUERY, agents=()))
                assert [each.task_id for each in own] == ([row.task_id] if tenant == row.tenant else [])

    async def test_children_and_tasks_with_only_unread_items_are_listed_a_page_at_a_time(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            for name in ("c1", "c2", "c3"):
                await waiting(store, name, parent="p")
            await waiting(store, "later", parent="p", due_at=DUE)
            for name in ("m1", "m2"):
                await (await Owner.create(store, name)).release()
                await store.post(name, item("i"))
            await waiting(store, "both")
            await store.post("both", item("i"))
            assert await indirect(store, 10) == ["c1", "c2", "c3", "m1", "m2"]
            assert await indirect(store, 2) == ["c1", "c2"]
            assert await indirect(store, 2, after="c2") == ["c3", "m1"]
            assert await indirect(store, 2, after="m1") == ["m2"]
            assert await indirect(store, 10, until=DUE) == ["c1", "c2", "c3", "later", "m1", "m2"]
            assert await adoptable_ids(store, QUERY) == ["both"]


async def adoptable_ids(store: JournalStore, query: AdoptionQuery) -> list[str]:
    """Return the ids of the adoptable tasks."""
    return [row.task_id for row in await store.adoptable(query)]


async def indirect(
    store: JournalStore, limit: int, *, after: str | None = None, until: int = AT_ONCE
) -> list[str]:
    """Return the ids of a page of indirect orphans."""
    rows = await store.orphans(limit, after=after, until=until, indirect=True)
    return [row.task_id for row in rows]

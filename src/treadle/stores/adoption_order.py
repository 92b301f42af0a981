"""The order in which a process adopts tasks, for all stores: tasks of dead drivers, then tenants in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from treadle.core.data import frozen
from treadle.ports import AdoptionQuery
from treadle.stores.tenants import name_in, tenant_of

JUST_AFTER: Final = "\x01"
"""A character that no name has. A tenant's name with it appended is the smallest text after that name."""


@frozen
class Candidate:
    """An orphan that a process may adopt: its name in the store, and its number, which grows with each new task."""

    number: int
    key: str


def starts(query: AdoptionQuery) -> list[str]:
    """Return the names from which to search for tenants: after the tenant served last, then from the first."""
    return [""] if query.last_tenant is None else [query.last_tenant + JUST_AFTER, ""]


def excluded(query: AdoptionQuery) -> list[str]:
    """Return the names in the store of the tasks that a query leaves out."""
    return [name_in(*task) for task in query.excluded]


def in_order(dead: Iterable[Candidate], others: Iterable[Candidate], query: AdoptionQuery) -> list[str]:
    """Return the names of the tasks to adopt, in order, at most `query.limit`.

    Args:
        dead: tasks of dead drivers, oldest first.
        others: more tasks, in any order, perhaps with duplicates.
        query: the query.
    """
    keys = dict.fromkeys(candidate.key for candidate in dead)
    oldest = sorted({candidate.number: candidate.key for candidate in others}.items())
    waiting: dict[str, deque[str]] = {}
    for _, key in oldest:
        waiting.setdefault(tenant_of(key), deque()).append(key)
    last = query.last_tenant
    turn = deque(sorted(waiting, key=lambda tenant: (last is not None and tenant <= last, tenant)))
    while turn and len(keys) < query.limit:
        tenant = turn.popleft()
        keys[waiting[tenant].popleft()] = None
        if waiting[tenant]:
            turn.append(tenant)
    return list(keys)[: max(query.limit, 0)]


def share(query: AdoptionQuery, tenants: int) -> int:
    """Return the number of tasks of each tenant to read so that together they can fill the limit."""
    return -(-query.limit // max(tenants, 1))

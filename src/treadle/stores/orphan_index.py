"""The orphans of a store in memory: tasks that need an owner, in the order of adoption.

A query does not read tasks that its process may not take, however many wait. Tasks are indexed by agent, format and
tenant. Tasks that wait for a time are indexed by that time. Once it has come, they move to the ready tasks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import field
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from treadle.core.data import frozen, mutable
from treadle.ports import AT_ONCE, AdoptionQuery
from treadle.stores import adoption_order
from treadle.stores.adoption_order import Candidate
from treadle.stores.tenants import tenant_of

_Place = tuple[int, str]
"""The number of a task, which grows with each new task, and its name in the store."""

_AFTER_ALL: Final = "\U0010ffff"


@frozen
class Orphan:
    """A task that lacks the owner it needs.

    Args:
        number: a number that grows with each new task.
        key: the name of the task in the store.
        agent: the name of its agent.
        format: the journal format that its driver must know.
        wanted: when it is due, in microseconds since 1970, UTC; 0 for never.
        is_child: whether it has a parent.
        has_mail: whether its inbox has an untaken item.
    """

    number: int
    key: str
    agent: str
    format: int
    wanted: int
    is_child: bool
    has_mail: bool

    @property
    def place(self) -> _Place:
        """The sort key of a list, oldest first."""
        return self.number, self.key

    def is_due(self, until: int) -> bool:
        return 0 < self.wanted <= until


@mutable
class _Sort:
    """The ready tasks of one agent and format, oldest first: all, and those of each tenant."""

    all: list[_Place] = field(default_factory=list[_Place])
    of_tenants: dict[str, list[_Place]] = field(default_factory=dict[str, list[_Place]])
    tenants: list[str] = field(default_factory=list[str])
    """the names of the tenants that have a ready task, in order"""

    def add(self, place: _Place) -> None:
        tenant = tenant_of(place[1])
        insort(self.all, place)
        if tenant not in self.of_tenants:
            self.of_tenants[tenant] = []
            insort(self.tenants, tenant)
        insort(self.of_tenants[tenant], place)

    def remove(self, place: _Place) -> None:
        tenant = tenant_of(place[1])
        _remove(self.all, place)
        _remove(self.of_tenants[tenant], place)
        if not self.of_tenants[tenant]:
            del self.of_tenants[tenant]
            del self.tenants[bisect_left(self.tenants, tenant)]


class OrphanIndex:
    """Finds tasks to adopt; `put` and `discard` register changes of a task."""

    def __init__(self) -> None:
        self._orphans: dict[str, Orphan] = {}
        self._ready: dict[tuple[str, int], _Sort] = {}
        """the tasks without a parent that were due at an earlier query, or are due at once"""

        self._indirect: list[_Place] = []
        """the due children, and all tasks with unread items except those of `_ready` that are due at once"""

        self._later: list[tuple[int, int, str]] = []
        """a heap of times, numbers and names of tasks that wait for a time; it may have stale entries"""

    def put(self, orphan: Orphan) -> None:
        """Add a task, or replace its entry."""
        self.discard(orphan.key)
        self._orphans[orphan.key] = orphan
        if orphan.wanted > AT_ONCE:
            heappush(self._later, (orphan.wanted, orphan.number, orphan.key))
        elif orphan.wanted and not orphan.is_child:
            self._ready.setdefault((orphan.agent, orphan.format), _Sort()).add(orphan.place)
            return
        if orphan.has_mail or orphan.wanted == AT_ONCE:
            insort(self._indirect, orphan.place)

    def discard(self, key: str) -> None:
        """Remove a task if it is there."""
        orphan = self._orphans.pop(key, None)
        if orphan is None:
            return
        _remove(self._indirect, orphan.place)
        kind = (orphan.agent, orphan.format)
        sort = self._ready.get(kind)
        if sort is not None and _holds(sort.all, orphan.place):
            sort.remove(orphan.place)
            if not sort.all:
                del self._ready[kind]
        if len(self._later) > 2 * len(self._orphans) + 100:
            self._later = sorted({each for each in self._later if self._waits(each)})

    def _waits(self, entry: tuple[int, int, str]) -> bool:
        """Return whether the task of an entry of `_later` still waits for that time."""
        wanted, number, key = entry
        orphan = self._orphans.get(key)
        return orphan is not None and (orphan.wanted, orphan.number) == (wanted, number)

    def _move_due(self, until: int) -> None:
        """Move the tasks whose time has come to the ready ones."""
        while self._later and self._later[0][0] <= until:
            entry = heappop(self._later)
            if not self._waits(entry):
                continue
            orphan = self._orphans[entry[2]]
            if orphan.is_child:
                if not _holds(self._indirect, orphan.place):
                    insort(self._indirect, orphan.place)
                continue
            sort = self._ready.setdefault((orphan.agent, orphan.format), _Sort())
            if not _holds(sort.all, orphan.place):
                sort.add(orphan.place)

    def all(self, until: int, after: int) -> Iterator[str]:
        """Yield the names of all tasks that need an owner, the oldest first, after a number."""
        for number, key in sorted([orphan.place for orphan in self._orphans.values()]):
            orphan = self._orphans[key]
            if number > after and (orphan.has_mail or orphan.is_due(until)):
                yield key

    def indirect(self, until: int, after: int) -> Iterator[str]:
        """Yield the names of children and of tasks that need an owner only for unread items, like `all`."""
        self._move_due(until)
        for _, key in islice(self._indirect, bisect_left(self._indirect, (after, _AFTER_ALL)), None):
            orphan = self._orphans[key]
            is_due = orphan.is_due(until)
            if is_due if orphan.is_child and not orphan.has_mail else orphan.is_child or not is_due:
                yield key

    def adoptable(self, query: AdoptionQuery) -> list[str]:
        """Return the names of the tasks of `JournalStore.adoptable`."""
        self._move_due(query.until)
        excluded = frozenset(adoption_order.excluded(query))

        def ready(places: list[_Place]) -> Iterator[Candidate]:
            for number, key in places:
                if key not in excluded and self._orphans[key].wanted <= query.until:
                    yield Candidate(number, key)

        kinds = [(agent, number) for agent in query.agents for number in range(1, query.format + 1)]
        sorts = [self._ready[kind] for kind in kinds if kind in self._ready]
        names = [(sort, list(_tenants(sort, query, ready))) for sort in sorts]
        share = adoption_order.share(query, len({tenant for _, tenants in names for tenant in tenants}))
        candidates = [
            candidate
            for sort, tenants in names
            for tenant in tenants
            for candidate in islice(ready(sort.of_tenants[tenant]), share)
        ]
        return adoption_order.in_order((), candidates, query)

    def unadoptable(self, query: AdoptionQuery) -> list[str]:
        """Return the names of the tasks of `JournalStore.unadoptable`, oldest first."""
        self._move_due(query.until)
        oldest = [
            next((place for place in sort.all if self._orphans[place[1]].wanted <= query.until), None)
            for (agent, number), sort in self._ready.items()
            if agent not in query.agents or number > query.format
        ]
        return [key for _, key in sorted([place for place in oldest if place is not None])]


def _tenants(
    sort: _Sort, query: AdoptionQuery, ready: Callable[[list[_Place]], Iterator[Candidate]]
) -> Iterator[str]:
    """Yield the tenants with ready tasks, in the order of their turns."""
    names = dict[str, None]()
    for start in adoption_order.starts(query):
        count = 0
        for tenant in islice(sort.tenants, bisect_left(sort.tenants, start), None):
            if count == query.limit:
                break
            if tenant not in query.full_tenants and next(ready(sort.of_tenants[tenant]), None) is not None:
                names[tenant] = None
                count += 1
    yield from names


def _holds(places: list[_Place], place: _Place) -> bool:
    index = bisect_left(places, place)
    return index < len(places) and places[index] == place


def _remove(places: list[_Place], place: _Place) -> None:
    index = bisect_left(places, place)
    if index < len(places) and places[index] == place:
        del places[index]

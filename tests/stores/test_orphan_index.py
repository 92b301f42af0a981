"""The index of orphans finds what a walk over all tasks finds, whatever came before."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from treadle.ports import AdoptionQuery
from treadle.stores import adoption_order
from treadle.stores.adoption_order import Candidate
from treadle.stores.orphan_index import Orphan, OrphanIndex
from treadle.stores.tenants import name_in, tenant_of

ALL = 40
"""A limit beyond all tasks: below it a look may leave tasks to the next one."""

TENANTS = ["", "ant", "big"]
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.one_of(
            st.none(),
            st.tuples(
                st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 5), st.booleans(), st.booleans()
            ),
        ),
    ),
    max_size=40,
)
QUERIES = st.builds(
    AdoptionQuery,
    limit=st.sampled_from([1, 2, ALL]),
    agents=st.sampled_from([("a",), ("b",), ("a", "b")]),
    format=st.integers(1, 2),
    until=st.integers(1, 5),
    full_tenants=st.frozensets(st.sampled_from(TENANTS)),
    excluded=st.frozensets(st.tuples(st.sampled_from(TENANTS), st.sampled_from("0369"))),
    last_tenant=st.sampled_from([None, *TENANTS]),
)


def walked(orphans: Iterable[Orphan], query: AdoptionQuery) -> list[str]:
    """Return what to adopt of all tasks, by a look at each."""
    excluded = adoption_order.excluded(query)
    candidates = [
        Candidate(orphan.number, orphan.key)
        for orphan in orphans
        if not orphan.is_child
        and orphan.is_due(query.until)
        and orphan.agent in query.agents
        and orphan.format <= query.format
        and orphan.key not in excluded
        and tenant_of(orphan.key) not in query.full_tenants
    ]
    return adoption_order.in_order((), candidates, query)


def is_indirect(orphan: Orphan, until: int) -> bool:
    is_due = orphan.is_due(until)
    return (is_due or orphan.has_mail) if orphan.is_child else (orphan.has_mail and not is_due)


@given(CHANGES, st.lists(QUERIES, min_size=1, max_size=4))
def test_the_index_finds_what_a_walk_finds(
    changes: list[tuple[int, tuple[str, int, int, bool, bool] | None]], queries: list[AdoptionQuery]
) -> None:
    index, orphans = OrphanIndex(), dict[str, Orphan]()
    for step, (number, fields) in enumerate(changes):
        key = name_in(TENANTS[number % 3], str(number))
        if fields is None:
            index.discard(key)
            orphans.pop(key, None)
        else:
            orphans[key] = Orphan(number, key, *fields)
            index.put(orphans[key])
        query = queries[step % len(queries)]
        oldest_first = sorted(orphans.values(), key=lambda orphan: orphan.number)
        found, expected = index.adoptable(query), walked(oldest_first, query)
        assert found[:1] == expected[:1]
        if query.limit == ALL:
            assert found == expected
        assert list(index.indirect(query.until, 2)) == [
            orphan.key for orphan in oldest_first if orphan.number > 2 and is_indirect(orphan, query.until)
        ]
        assert list(index.all(query.until, -1)) == [
            orphan.key for orphan in oldest_first if orphan.has_mail or orphan.is_due(query.until)
        ]
        sorts = [
            (orphan.agent, orphan.format)
            for orphan in oldest_first
            if orphan.is_due(query.until)
            and not orphan.is_child
            and (orphan.agent not in query.agents or orphan.format > query.format)
        ]
        unknown = [(orphans[key].agent, orphans[key].format) for key in index.unadoptable(query)]
        assert unknown == list(dict.fromkeys(sorts))

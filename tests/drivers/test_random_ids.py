"""Random ids."""

import time

from treadle.drivers.random_ids import new_id, new_incarnation


def test_later_ids_sort_behind_earlier_ones_and_none_is_made_twice() -> None:
    ids: list[str] = []
    for _ in range(5):
        ids += [new_id() for _ in range(100)]
        time.sleep(0.002)
    assert len(set(ids)) == 500
    firsts = ids[::100]
    assert firsts == sorted(firsts)


def test_incarnations_of_one_id_differ() -> None:
    assert len({new_incarnation() for _ in range(100)}) == 100

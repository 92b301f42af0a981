"""The watchers of a store object."""

from treadle.ports import StoreChanges
from treadle.stores.watchers import Watchers


def test_a_watcher_is_told_of_changes_until_it_ends() -> None:
    watchers, told = Watchers(), list[StoreChanges]()
    end = watchers.add(told.append)
    watchers.wake(StoreChanges(mail=("t",)))
    assert len(watchers) == 1
    end()
    end()
    watchers.wake(StoreChanges(mail=("u",)))
    assert told == [StoreChanges(mail=("t",))]
    assert not watchers


def test_a_watcher_whose_loop_is_closed_is_removed_and_the_others_are_told() -> None:
    watchers, told = Watchers(), list[StoreChanges]()

    def closed(_: StoreChanges) -> None:
        raise RuntimeError("Event loop is closed")

    watchers.add(closed)
    watchers.add(told.append)
    watchers.wake(StoreChanges())
    assert told == [StoreChanges()]
    assert len(watchers) == 1

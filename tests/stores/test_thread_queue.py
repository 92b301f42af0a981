"""Who comes to have a thread, as a table: by what place, before and behind whom, and who loses it by that."""

from typing import Any

import pytest

from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, QueuePosition
from treadle.stores.thread_queue import Other, entry

LIVING, DEAD = 1, 2


def stood(*turns: int, dead: tuple[int, ...] = ()) -> list[Other]:
    """Tasks `a`, `b` and so on, each with its place; those of `dead` places have a driver that died."""
    return [
        Other(number, "abcdef"[number], turn, DEAD if turn in dead else LIVING)
        for number, turn in enumerate(turns)
    ]


def came(
    turn: int | None, how: OnBusyThread, others: list[Other]
) -> tuple[int, bool, tuple[str, ...], list[str]]:
    found = entry("talk", 7, turn, how, others, {DEAD})
    assert isinstance(found.place, QueuePosition)
    assert (found.place.version, found.place.number) == (7, found.turn)
    return found.turn, found.place.held, found.place.holders, [other.key for other in found.deposed]


@pytest.mark.parametrize(
    ("others", "turn", "how", "comes"),
    [
        # nobody is there
        (stood(), None, "enqueue", (0, True, (), [])),
        (stood(), None, "interrupt", (0, True, (), [])),
        (stood(), None, "reject", (0, True, (), [])),
        # somebody has it
        (stood(0), None, "enqueue", (1, False, ("a",), [])),
        (stood(0, 1, 5), None, "enqueue", (6, False, ("a",), [])),
        (stood(0), None, "interrupt", (-1, False, ("a",), [])),
        (stood(-3, 0, 4), None, "interrupt", (-4, False, ("b",), [])),
        (stood(0, 0, 1), None, "enqueue", (2, False, ("a", "b"), [])),
        # who asks again keeps its place, and hears when its turn has come
        (stood(0, 1), 2, "enqueue", (2, False, ("a",), [])),
        (stood(0, 1), -1, "interrupt", (-1, False, ("a",), [])),
        (stood(-2, 0, 1), -1, "interrupt", (-1, False, ("b",), [])),
        (stood(0, 1), 2, "interrupt", (-1, False, ("a",), [])),
        (stood(1, 3), 2, "enqueue", (2, False, (), [])),
        (stood(2, 3), 1, "enqueue", (0, True, (), [])),
        (stood(1), -1, "interrupt", (0, True, (), [])),
        (stood(-1), 1, "enqueue", (1, False, (), [])),
        # who has it, has it
        (stood(1), 0, "enqueue", (0, True, (), [])),
        (stood(0, 1), 0, "enqueue", (0, True, ("a",), [])),
        (stood(0, 1), 0, "reject", (0, True, ("a",), [])),
        (stood(1), 0, "interrupt", (0, True, (), [])),
        # who died keeps nobody waiting, and loses the thread to who comes to have it
        (stood(0, dead=(0,)), None, "enqueue", (0, True, (), ["a"])),
        (stood(0, dead=(0,)), None, "reject", (0, True, (), ["a"])),
        (stood(0, 1, dead=(0,)), None, "enqueue", (2, False, (), [])),
        (stood(0, 1, dead=(0,)), 2, "enqueue", (2, False, (), [])),
        (stood(0, 1, dead=(0, 1)), 2, "enqueue", (0, True, (), ["a"])),
        (stood(0, 1, dead=(1,)), 2, "enqueue", (2, False, ("a",), [])),
    ],
)
def test_a_task_comes_into_its_thread_or_stands_where_it_belongs(
    others: list[Other], turn: int | None, how: OnBusyThread, comes: Any
) -> None:
    assert came(turn, how, others) == comes


@pytest.mark.parametrize(
    ("others", "first"), [(stood(0, 1), "a"), (stood(1, 2), "a"), (stood(0, 1, dead=(0,)), "b")]
)
def test_who_rejects_a_thread_is_told_who_is_first_there(others: list[Other], first: str) -> None:
    for turn in (None, 3):
        with pytest.raises(ThreadBusy, match=f"held by task {first}") as raised:
            entry("talk", 7, turn, "reject", others, {DEAD})
        assert (raised.value.task_id, raised.value.thread_id) == (first, "talk")

"""Uses of an object that raise an error with what to write instead."""

import pytest

from treadle.core.refused_uses import refuses
from treadle.errors import MisusedVerb


@refuses(call="write `door.open()`", len="write `len(door.panels)`", enter="write `async with door`")
class Door:
    pass


def test_a_refused_use_says_what_to_write() -> None:
    with pytest.raises(MisusedVerb, match=r"^Door is not called: write `door.open\(\)`$"):
        Door()("key", wide=True)  # type: ignore[operator]
    with pytest.raises(MisusedVerb, match="has no len"):
        len(Door())  # type: ignore[arg-type]
    with pytest.raises(MisusedVerb, match="has no plain `with`"), Door():  # type: ignore[attr-defined]
        pass


def test_a_condition_and_a_list_do_not_ask_for_a_refused_length() -> None:
    assert Door()

    @refuses(len="write `len(door.panels)`")
    class Panels:
        def __iter__(self):
            return iter((1, 2))

    assert list(Panels()) == [1, 2]

"""Sums of what child tasks spent, by agent."""

from treadle.core.children import SpentBy, by_agent
from treadle.core.model import Usage


def test_amounts_of_one_agent_are_added_and_agents_stay_in_order() -> None:
    parts = [
        SpentBy("a", 1, Usage(1, 2), 1, 2, 10, ("x",)),
        SpentBy("b", 2, Usage(5, 0), 3, 0, 7),
        SpentBy("a", 3, Usage(3, 4), 5, 6, 20, ("y", "x")),
    ]
    assert by_agent(parts) == (
        SpentBy("a", 4, Usage(4, 6), 6, 8, 30, ("x", "y")),
        SpentBy("b", 2, Usage(5, 0), 3, 0, 7),
    )
    assert by_agent(()) == ()

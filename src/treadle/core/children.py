"""The spending of the tasks below a task, by agent: plain data and sums."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.core.data import frozen
from treadle.core.model import NO_USAGE, Usage


@frozen
class SpentBy:
    """The spending of one agent's tasks below another task. `tasks` is their number."""

    agent: str
    tasks: int = 1
    usage: Usage = NO_USAGE
    model_calls: int = 0
    tool_calls: int = 0
    cost: int = 0
    """pico-dollars, of the answers whose cost is known"""

    unpriced: tuple[str, ...] = ()
    """the models whose price is not known"""

    def __add__(self, other: SpentBy) -> SpentBy:
        return SpentBy(
            self.agent,
            self.tasks + other.tasks,
            self.usage + other.usage,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.cost + other.cost,
            tuple(dict.fromkeys((*self.unpriced, *other.unpriced))),
        )


def by_agent(parts: Iterable[SpentBy]) -> tuple[SpentBy, ...]:
    """Return the sums by agent, in order of appearance."""
    sums: dict[str, SpentBy] = {}
    for part in parts:
        total = sums.get(part.agent)
        sums[part.agent] = part if total is None else total + part
    return tuple(sums.values())

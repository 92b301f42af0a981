"""Rules: without its agent, a task decides only what needs no code of the agent."""

from tests.agents.stories import (
    BOOKED,
    decided,
    rules,
    state_after,
    undo,
)


def test_without_the_agent_no_compensation_is_begun() -> None:
    by = rules(knows_agent=False)
    assert decided(state_after(*BOOKED, undo("s1-1", "s1-0")), by).reason == "undo_failed"  # type: ignore[union-attr]

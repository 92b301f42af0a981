"""The worker of a drive that only carries out commands: it wants nothing, and the task can still be stopped."""

from tests.agents.stories import CREATED, numbered
from treadle.agents.decide import lifecycle
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Decision, Wait
from treadle.core.rules.fold import fold
from treadle.core.state import start
from treadle.engine.effect_context import idle


def decision_after(*events: e.Event) -> Decision:
    """Return what a drive without an agent decides after these events."""
    state = fold(start("t"), numbered(CREATED, *events))
    return lifecycle.decide(state, Rules(knows_agent=False), idle, finalize=False)


def test_a_drive_without_a_worker_starts_no_step() -> None:
    assert decision_after() == Wait("idle")


def test_a_drive_without_a_worker_still_cancels_the_task() -> None:
    ended = decision_after(e.CancelRequested())
    assert isinstance(ended, e.TaskEnded)
    assert ended.state == "cancelled"


def test_a_drive_without_a_worker_still_pauses_the_task() -> None:
    assert decision_after(e.PauseRequested()) == Wait("paused")

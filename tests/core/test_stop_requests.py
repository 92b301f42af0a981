"""Whether a request to cancel, pause or interrupt was obeyed, by the events since it was sent."""

from treadle.core import events as e
from treadle.drivers.stopping import Fate, fate_of

PAUSE = e.PauseRequested(inbox="i", seq=6)
ENDED = e.TaskEnded("completed", seq=9)
RESUMED = e.Resumed(seq=8)


def test_a_request_without_an_event_is_unrecorded() -> None:
    assert fate_of("i", [e.ToolStarted("s1", "s1-0", seq=5), RESUMED, ENDED]) == Fate("unrecorded")


def test_a_recorded_request_is_in_force_until_it_is_lifted_or_the_task_ends() -> None:
    assert fate_of("i", [PAUSE]) == Fate("in_force")
    assert fate_of("i", [RESUMED, PAUSE]) == Fate("in_force")
    assert fate_of("i", [PAUSE, RESUMED, ENDED]) == Fate("lifted", 7)
    assert fate_of("i", [PAUSE, ENDED]) == Fate("ended", 9)


def test_a_cancel_is_not_lifted_and_may_be_refused() -> None:
    cancel = e.CancelRequested(inbox="i", seq=6)
    assert fate_of("i", [cancel, RESUMED]) == Fate("in_force")
    assert fate_of("i", [e.CommandRejected("pause", "cancelled", "i", seq=6)]) == Fate("refused")

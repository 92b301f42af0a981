"""Events of commands: each describes its command, and its rule changes the requests to stop."""

from dataclasses import fields

from tests.agents.stories import state_after
from treadle.core import events as e
from treadle.core.events.control import RULES, RUNNER, StopRequests


def test_a_class_describes_the_command_that_becomes_it() -> None:
    assert {kind: cls.__name__ for kind, cls in e.COMMANDS.items()} == {
        "send": "InputReceived",
        "pause": "PauseRequested",
        "interrupt": "InterruptRequested",
        "resume": "Resumed",
        "cancel": "CancelRequested",
        "survived": "DriverSurvived",
    }
    assert all("inbox" in {field.name for field in fields(cls)} for cls in e.COMMANDS.values())


def test_a_rule_changes_the_requests_to_stop() -> None:
    state: StopRequests = state_after()
    RULES[e.InterruptRequested](state, e.InterruptRequested(RUNNER, "shutdown"))
    assert (state.interrupting, state.shutdown, state.stop_reason) == (True, True, "shutdown")
    RULES[e.CancelRequested](state, e.CancelRequested("ann", "why"))
    assert (state.cancelling, state.stop_reason) == (True, "why")

"""Effects are named by their place in the task, and are equal by what they want."""

from typing import get_args

from treadle.core import effects
from treadle.core.steps import CallState


def test_effects_are_a_closed_list() -> None:
    named = {kind.__name__ for kind in get_args(effects.Effect)}
    assert named == {
        "CallModel",
        "CallTool",
        "ChooseRoute",
        "ConsultWorker",
        "JudgeCall",
        "JudgeContent",
        "JudgeRequest",
        "Reconcile",
        "ReleaseAnswer",
        "RunAgent",
        "RunFunction",
        "StopAgent",
        "UndoCall",
    }


def test_the_same_wish_is_the_same_effect() -> None:
    call = CallState("s1-0", "s1", "put", {})
    assert effects.CallTool(call.id, call) == effects.CallTool("s1-0", CallState("s1-0", "s1", "put", {}))
    assert effects.CallTool(call.id, call) != effects.Reconcile(call.id, call)

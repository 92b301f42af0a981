"""The frames of the user's code in a traceback: which of them are kept, and how much of the text."""

import json
from typing import Any

import pytest

from treadle import tool
from treadle.core.tracebacks import (
    TRACEBACK_CHARS,
    RaisedElsewhere,
    StandsForCause,
    traceback_text,
    user_error,
)


def caught(function: Any, *arguments: Any) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        function(*arguments)
    return raised.value


def text_of(error: BaseException) -> str:
    raised = user_error(error)
    assert raised is not None
    return traceback_text(raised.pieces)


def broken(depth: int = 0, message: str = "lost") -> None:
    if depth:
        broken(depth - 1, message)
    raise KeyError(message)


def test_frames_of_the_standard_library_are_kept_behind_those_of_the_user() -> None:
    text = text_of(caught(lambda: json.loads("{")))
    assert "test_tracebacks.py" in text
    assert "json/decoder.py" in text
    assert text.splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")


def test_an_error_without_a_frame_of_the_user_has_no_traceback() -> None:
    error = caught(tool(broken, read_only=True).validate, {"depth": "many"})
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ is not None else None
    assert user_error(error) is None


def test_an_error_that_stands_for_its_cause_has_the_traceback_of_that() -> None:
    error = StandsForCause("it raised SystemExit")
    error.__cause__ = caught(broken)
    raised = user_error(error)
    assert raised is not None
    assert raised.error is error.__cause__
    assert "StandsForCause" not in traceback_text(raised.pieces)


def test_an_error_of_another_process_has_the_traceback_that_this_one_sent() -> None:
    error = ValueError("lost")
    error.__cause__ = RaisedElsewhere(["Traceback:\n", "  a frame\n", "KeyError\n"])
    assert text_of(error) == "Traceback:\n  a frame\nKeyError"


def test_causes_are_told_with_their_frames() -> None:
    def chained() -> None:
        try:
            broken()
        except KeyError as error:
            raise ValueError("no price") from error

    text = text_of(caught(chained))
    assert "direct cause" in text
    assert text.index("KeyError: 'lost'") < text.index("ValueError: no price")


def test_a_long_traceback_is_cut_at_its_beginning_and_a_long_message_leaves_room_for_frames() -> None:
    def even(n: int) -> None:
        odd(n - 1) if n else broken(0, "x" * 100_000)

    def odd(n: int) -> None:
        even(n - 1)

    text = text_of(caught(even, 200))
    assert len(text) < TRACEBACK_CHARS + 100
    assert "earlier frames cut" in text.splitlines()[0]
    assert "in broken" in text
    assert "characters cut" in text


def test_the_members_of_a_group_are_told() -> None:
    def several() -> None:
        raise ExceptionGroup("several", [caught(broken)])

    assert "KeyError: 'lost'" in text_of(caught(several))


def test_an_error_whose_text_raises_has_a_traceback() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    def raises() -> None:
        raise Mute

    assert "in raises" in text_of(caught(raises))

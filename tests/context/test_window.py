"""What a window shows is a sequence of messages."""

import pytest

from treadle.context.window import Shown
from treadle.core.messages import Message, Text


def said(content: str) -> list[Message]:
    return [Message("user", (Text(content),))]


def test_what_is_shown_is_a_sequence_like_any_other() -> None:
    messages = [said(str(number))[0] for number in range(9)]
    shown = Shown((messages[0],), messages, 4, 7)
    assert list(shown) == [messages[0], *messages[4:7]]
    assert [shown[at] for at in range(-4, 4)] == [*shown, *shown]
    for part in (slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(9, 12)):
        assert shown[part] == tuple(list(shown)[part])
    for at in (4, -5):
        with pytest.raises(IndexError, match=f"message {at} of 4"):
            shown[at]
    messages.append(said("later")[0])
    assert len(shown) == 4, "what is said later is not in it"

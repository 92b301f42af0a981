"""The view of a window is a sequence of messages."""

import pytest

from treadle.context.window import Shown
from treadle.core.messages import Message, Text


def exchange(content: str) -> list[Message]:
    return [Message("user", (Text(content),))]


def test_the_shown_messages_are_an_ordinary_sequence() -> None:
    messages = [exchange(str(number))[0] for number in range(9)]
    shown = Shown((messages[0],), messages, 4, 7)
    assert list(shown) == [messages[0], *messages[4:7]]
    assert [shown[at] for at in range(-4, 4)] == [*shown, *shown]
    for part in (slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(9, 12)):
        assert shown[part] == tuple(list(shown)[part])
    for at in (4, -5):
        with pytest.raises(IndexError, match=f"message {at} of 4"):
            shown[at]
    messages.append(exchange("later")[0])
    assert len(shown) == 4, "what is said later is not in it"

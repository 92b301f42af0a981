"""Until when a sleep lasts, by its arguments."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from treadle.agents.question import due_at
from treadle.errors import ConfigurationError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "until", "due"),
    [
        (5, None, 1_005_000_000),
        (0.5, None, 1_000_500_000),
        (0, None, 1_000_000_000),
        (None, 1_600, 1_600_000_000),
        (None, NOON, 1_767_268_800_000_000),
        (None, NOON.astimezone(timezone(timedelta(hours=5))), 1_767_268_800_000_000),
    ],
)
def test_a_sleep_ends_after_seconds_or_at_a_time(seconds: Any, until: Any, due: int) -> None:
    assert due_at("a tool", 1_000_000_000, seconds, until) == due


@pytest.mark.parametrize(
    ("seconds", "until", "words"),
    [
        (None, None, "one of them only"),
        (5, 5, "one of them only"),
        (-1, None, "from 0 up"),
        (float("nan"), None, "from 0 up"),
        (1e11, None, "from 0 up"),
        (True, None, "from 0 up"),
        ("5", None, "from 0 up"),
        (None, datetime(2026, 1, 1, 12), "with its zone"),  # noqa: DTZ001
        (None, "noon", r"until=\) takes a number"),
    ],
)
def test_a_time_that_cannot_be_is_refused(seconds: Any, until: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        due_at("a tool", 0, seconds, until)

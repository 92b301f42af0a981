"""The end of a `ctx.sleep`, from its arguments."""

from __future__ import annotations

from datetime import datetime

from treadle.errors import ConfigurationError
from treadle.ports import MAX_SECONDS


def due_at(where: str, now: int, seconds: float | None, until: datetime | float | None) -> int:
    """Return when a sleep is over, in microseconds since 1970, UTC.

    Args:
        where: the sleeping tool or step, for the error.
        now: in microseconds since 1970, UTC.
        seconds: the duration; None if `until` is given.
        until: a time with its zone, or seconds since 1970, UTC; None if `seconds` is given.

    Raises:
        ConfigurationError: not exactly one of both is given, or the time is not possible.
    """
    if (seconds is None) == (until is None):
        raise ConfigurationError(f"{where}: sleep() takes seconds, or until=, and one of them only")
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise ConfigurationError(f"{where}: sleep(until=) needs a time with its zone, got {until!r}")
        until = until.timestamp()
    value = seconds if until is None else until
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < MAX_SECONDS:
        name = "sleep()" if until is None else "sleep(until=)"
        raise ConfigurationError(f"{where}: {name} takes a number of seconds from 0 up, got {value!r}")
    return now + int(value * 1e6) if until is None else int(value * 1e6)

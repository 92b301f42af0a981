"""Times on the command line, in forms for people; programs use microseconds since 1970, UTC."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Final

from treadle.errors import ConfigurationError

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([smhdw])(?: ago)?", re.ASCII)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def now() -> float:
    """Return the current time in seconds since 1970."""
    return time.time()


def seconds_of(text: str, option: str) -> float:
    """Return an age such as `30d`, `12h` or `45m` in seconds; raise a `ConfigurationError` that names `option`."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        units = ", ".join(_UNITS)
        raise ConfigurationError(f"{option} is a number and one of {units}, such as 30d, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def time_of(text: str, option: str) -> int:
    """Return the time that an option names, in microseconds since 1970, UTC.

    Args:
        text: an age such as `2h`; a time of the last 24 hours such as `03:15`; `today` or `yesterday` for their
            beginning; or a date, with or without a time, such as `2026-11-22T03:15`. Times without a zone are local.
        option: the option, for the error.

    Raises:
        ConfigurationError: it has none of these forms, or is before 1970 or after 9999.
    """
    try:
        moment = _moment(text.strip().lower(), datetime.fromtimestamp(now()).astimezone())
        microseconds = round(moment.timestamp() * 1e6)
    except (ValueError, OverflowError, OSError):
        microseconds = -1
    if microseconds < 0:
        raise ConfigurationError(
            f"{option} takes a time between 1970 and 9999: an age (2h, 30m, 7d), a time of day (03:15), today, "
            f"yesterday, or a date (2026-11-22, 2026-11-22T03:15), not {text!r}"
        )
    return microseconds


def _moment(text: str, now: datetime) -> datetime:
    if age := _AGE.fullmatch(text):
        return now - timedelta(seconds=float(age[1]) * _UNITS[age[2]])
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    if clock := _CLOCK.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in clock.groups())
        moment = midnight.replace(hour=hour, minute=minute, second=second)
        return moment if moment <= now else moment - timedelta(days=1)
    if "-" not in text:
        raise ValueError(text)  # a bare number is ambiguous
    return datetime.fromisoformat(text.upper()).astimezone()


def age(created: int) -> str:
    """Return the age of a time, such as `3h`."""
    seconds = max(0.0, now() - created / 1e6)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def clock_time(microseconds: int) -> str:
    """Return a time as local time of day, such as `03:15:07`."""
    return _local(microseconds).strftime("%H:%M:%S")


def local_time(microseconds: int) -> str:
    """Return a time as local date and time, such as `2026-11-22 03:15:07`."""
    return _local(microseconds).strftime("%Y-%m-%d %H:%M:%S")


def short_time(microseconds: int) -> str:
    """Return a time for a column: the time of day in the last 20 hours, else date and time."""
    is_recent = abs(now() - microseconds / 1e6) < 20 * 3_600
    return _local(microseconds).strftime("%H:%M:%S" if is_recent else "%Y-%m-%d %H:%M")


def duration(microseconds: int) -> str:
    """Return a span of time, such as `840 ms`, `1.3 s` or `4 min 7 s`."""
    seconds = microseconds / 1e6
    if seconds < 1:
        return f"{microseconds / 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _local(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6).astimezone()

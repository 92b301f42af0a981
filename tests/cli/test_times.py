"""Times on the command line."""

import time
from datetime import datetime

import pytest

from treadle.cli.times import age, duration, local_time, seconds_of, time_of
from treadle.errors import ConfigurationError


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2025-11-22", "2025-11-22 00:00:00"),
        ("2025-11-22T03:15", "2025-11-22 03:15:00"),
        ("2025-11-22 03:15:07", "2025-11-22 03:15:07"),
        ("2025-11-22T03:15:00+02:00", "2025-11-22 01:15:00"),
        ("2025-11-22t03:15z", "2025-11-22 03:15:00"),
        ("9999-12-31", "9999-12-31 00:00:00"),
    ],
)
def test_a_date_is_a_time(text: str, time: str) -> None:
    assert local_time(time_of(text, "--since")) == time


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7_200), ("1.5d ago", 129_600), ("1w", 604_800)]
)
def test_an_age_counts_back_from_now(text: str, seconds: float) -> None:
    assert time.time() - time_of(text, "--since") / 1e6 == pytest.approx(seconds, abs=5)


def test_a_time_of_day_is_the_last_one_of_its_kind() -> None:
    for hour in range(24):
        moment = time_of(f"{hour}:30", "--since") / 1e6
        assert time.time() - 86_400 <= moment <= time.time()
        assert datetime.fromtimestamp(moment).hour == hour  # noqa: DTZ006
    assert time_of("today", "--since") - time_of("yesterday", "--since") == 86_400_000_000


@pytest.mark.parametrize(
    "text",
    [
        "9999999999999999",
        "99999999999999d",
        "1969-01-01",
        "25:00",
        "-2h",
        "soon",
        "",
        "1763780400",
        "2025-13-01",
        "٣h",
    ],
)
def test_what_is_no_time_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--until takes a time between 1970 and 9999: an age \(2h"):
        time_of(text, "--until")


def test_an_age_without_a_unit_is_refused() -> None:
    assert seconds_of("1.5h", "AGE") == 5_400
    with pytest.raises(ConfigurationError, match="AGE is a number and one of s, m, h, d, w"):
        seconds_of("30", "AGE")


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(840_000, "840 ms"), (1_300_000, "1.3 s"), (247_000_000, "4 min 7 s"), (7_500_000_000, "2 h 5 min")],
)
def test_a_span_is_shown_in_the_unit_that_fits(microseconds: int, text: str) -> None:
    assert duration(microseconds) == text


def test_an_age_is_shown_in_its_largest_unit() -> None:
    assert [age(round((time.time() - seconds) * 1e6)) for seconds in (5, 300, 7_300, 90_000, -9)] == [
        *("5s", "5m", "2h", "1d", "0s")
    ]

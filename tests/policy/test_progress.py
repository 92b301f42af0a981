"""Circles of calls, as a table: each letter is a call with its result."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.state import start
from treadle.core.steps import CallState, StepState
from treadle.policy.progress import LONGEST, in_circles, newest_calls, same


def call(letter: str, number: int = 0) -> CallState:
    """`a`: the call a, always with one result; `A`: one that fails; `?`: the call q with a new result each time."""
    state = CallState(
        f"c{number}", "s1", letter.lower(), {"n": 1}, status="ended", outcome="ok", output="same"
    )
    if letter == "?":
        state.output = number
    elif letter.isupper():
        state.outcome, state.output = "error", None
    return state


def circles(story: str, most: int) -> str | None:
    """Return the limit reached after a story that is read from left to right."""
    calls = [call(letter, index) for index, letter in enumerate(story)]
    reached = in_circles(most, reversed(calls))
    return None if reached is None else reached.detail


@pytest.mark.parametrize(
    ("story", "most", "stops"),
    [
        ("", 2, False),
        ("a", 2, False),
        ("aa", 2, True),
        ("aa", 3, False),
        ("aaa", 3, True),
        ("xyzaaa", 3, True),
        ("abababab", 5, False),
        ("ababa", 3, True),
        ("abab", 3, False),
        ("abcabca", 3, True),
        ("abcabc", 3, False),
        ("aabb", 2, True),
        ("abba", 2, True),
        ("AAA", 3, True),
        ("ABABA", 3, True),
        ("aAa", 2, False),  # it came to something else in between
        ("???", 2, False),  # each time something new
        ("a?a?a", 3, False),  # polling beside work that goes on
        ("axayaz", 3, False),
        ("axayaza", 3, False),  # the same test after one change and another
        ("axayazaaa", 3, True),
        ("abcdefgh" * 2 + "a", 3, True),
        ("abcdefghi" * 2 + "a", 3, True),
        ("abcdefghijklmnop" * 30, 4, False),  # longer than what is looked for
    ],
)
def test_circles(story: str, most: int, stops: bool) -> None:
    assert (circles(story, most) is not None) is stops


def test_the_description_names_the_call_its_repeats_and_its_result() -> None:
    assert circles("aaa", 3) == 'no progress: a {"n": 1} was called 3 times with the same result each time'
    assert circles("AA", 2) == 'no progress: a {"n": 1} was called 2 times and failed (error) each time'
    assert (circles("ababa", 3) or "").endswith(
        "each time, and the 2 other calls in between brought nothing new either"
    )


def test_long_arguments_are_cut() -> None:
    calls = [call("a"), call("a")]
    for one in calls:
        one.arguments = {"text": "x" * 5_000}
    reached = in_circles(2, calls)
    assert reached is not None
    assert len(reached.detail or "") < 300


@pytest.mark.parametrize(
    ("field", "value"), [("name", "b"), ("arguments", {"n": 2}), ("output", "else"), ("observation", ())]
)
def test_calls_are_the_same_if_all_of_them_is(field: str, value: Any) -> None:
    other = call("a")
    setattr(other, field, value)
    assert same(call("a"), call("a"))
    assert not same(call("a"), other)


@pytest.mark.parametrize("outcome", ["unknown", "cancelled", "refused", "abandoned"])
def test_calls_that_were_stopped_say_nothing_of_progress(outcome: Any) -> None:
    first, other = call("a"), call("a")
    first.outcome = other.outcome = outcome
    assert not same(first, other)


def test_failures_are_the_same_however_they_say_it() -> None:
    first, other = call("A"), call("A")
    other.outcome = "timeout"
    assert same(first, other)


def test_a_message_of_the_user_is_progress() -> None:
    state = start("t")
    for index in range(1, 6):
        done = StepState(f"s{index}", index, calls=[call("a", index)])
        state.steps.append(done)
    assert [call.id for call in newest_calls(state)] == ["c5", "c4", "c3", "c2", "c1"]
    from treadle.core.messages import Text

    state.steps[2].input = (Text("try something else"),)
    assert [call.id for call in newest_calls(state)] == ["c5", "c4", "c3"]


@given(st.text("abcAB?", max_size=60), st.integers(2, 4))
def test_only_repeated_calls_are_a_circle(story: str, most: int) -> None:
    """Stopped means: the newest call came to the same so many times, and none of those since was new."""
    if circles(story, most) is None:
        return
    assert "?" not in story[-1]
    window = story[-most * LONGEST :]
    assert window.count(story[-1]) >= most
    since = "".join(reversed(window)).split(story[-1], most)[1:most]
    assert all(window.count(letter) > 1 and letter != "?" for part in since for letter in part)


@given(st.text("abcd", min_size=1, max_size=LONGEST), st.integers(2, 4))
def test_every_circle_is_found_at_the_latest_when_its_last_round_is_over(circle: str, most: int) -> None:
    assert circles(circle * most, most) is not None

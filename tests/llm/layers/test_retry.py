"""Which failures are retried, when, and how often; the engine does the waiting."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import ScriptedModel, TextDelta
from treadle.core.model import FailedAttempt
from treadle.errors import ConfigurationError, ModelError, ModelErrorKind, ModelUnknown
from treadle.llm.errors import PASSING, kind_of_status
from treadle.llm.layers.retry import backoff
from treadle.models import CircuitBreaker, Fallback, Retry, fail, text
from treadle.testing.conformance.model import ask, request

SECOND = 1_000_000
BEGIN = 1_767_225_600 * SECOND


async def error_of(model, asked=None):
    with pytest.raises(ModelError) as caught:
        await ask(model, asked or request())
    return caught.value


def request_after(*failures: tuple[float, str]):
    """Return a request after failures of a kind, each so many seconds after the first attempt began."""
    last_request = request(attempt=len(failures) + 1)
    last_request.asked_at = BEGIN
    last_request.failures = tuple(
        FailedAttempt("own:model", kind, None, BEGIN + int(at * SECOND)) for at, kind in failures
    )
    return last_request


def failing(status=None, **options):
    return ScriptedModel(lambda _: fail(status, **options))


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529, 599])
@pytest.mark.anyio
async def test_failures_that_may_pass_are_retried(status):
    error = await error_of(Retry(failing(status), chance=lambda: 0.5))
    assert (error.status, error.again_in) == (status, 0.25)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 451])
@pytest.mark.anyio
async def test_other_failures_are_not_retried(status):
    assert (await error_of(Retry(failing(status, retry_after=1)))).again_in is None


@pytest.mark.parametrize("kind", get_args(ModelErrorKind))
@pytest.mark.anyio
async def test_kinds_of_failure_decide(kind):
    error = await error_of(Retry(failing(kind=kind)))
    assert (error.again_in is not None) == (
        kind in ("rate_limit", "overloaded", "server", "timeout", "connection", "not_sent")
    )
    chosen = await error_of(Retry(failing(kind=kind), on=["unparsable"]))
    assert (chosen.again_in is not None) == (kind == "unparsable")


@pytest.mark.anyio
async def test_no_attempt_follows_the_last_one():
    model = Retry(failing(503), attempts=3)
    for failed in range(3):
        error = await error_of(model, request_after(*((number, "server") for number in range(failed))))
        assert (error.again_in is None) == (failed == 2)


@pytest.mark.anyio
async def test_requests_that_were_not_sent_are_not_attempts():
    held = [(0.0, "not_sent")] * 20
    assert (await error_of(Retry(failing(503), attempts=2), request_after(*held))).again_in is not None
    model = Retry(failing(kind="not_sent", retry_after=12), attempts=1, chance=lambda: 0.5, cap=4)
    assert (await error_of(model, request_after(*held))).again_in == 12 + 2


@pytest.mark.anyio
async def test_the_wait_is_the_providers_plus_a_random_part():
    model = Retry(failing(429, retry_after=20), chance=lambda: 0.5, base=1)
    assert (await error_of(model)).again_in == 20.5
    assert (await error_of(model, request_after((1, "rate_limit")))).again_in == 21


@pytest.mark.anyio
async def test_a_providers_wait_of_up_to_a_day_is_accepted():
    assert (await error_of(Retry(failing(429, retry_after=86_400)))).again_in >= 86_400
    error = await error_of(Retry(failing(429, retry_after=86_401)))
    assert (error.again_in, error.retry_after) == (None, 86_401)


@pytest.mark.anyio
async def test_retries_end_after_max_seconds():
    model = Retry(failing(503), attempts=99, chance=lambda: 1.0, base=1, cap=1, max_seconds=60)
    assert (await error_of(model, request_after((10, "server"), (58.9, "server")))).again_in == 1
    assert (await error_of(model, request_after((10, "server"), (59.1, "server")))).again_in is None


@pytest.mark.anyio
async def test_max_seconds_restarts_after_a_longer_wait_of_the_provider():
    model = Retry(failing(503), attempts=99, chance=lambda: 1.0, base=1, cap=1, max_seconds=60)
    hours = request_after((1, "rate_limit"), (7_200, "server"), (7_210, "server"))
    assert (await error_of(model, hours)).again_in == 1
    hours = request_after((1, "rate_limit"), (7_200, "server"), (7_230, "server"), (7_261, "server"))
    assert (await error_of(model, hours)).again_in is None


@pytest.mark.anyio
async def test_the_decision_of_an_inner_layer_stands():
    class Inner:
        name = "own:inner"

        async def stream(self, _):
            raise ModelError("later", kind="not_sent", again_in=40.0)
            yield

    assert (await error_of(Retry(Inner(), attempts=1))).again_in == 40


@pytest.mark.anyio
async def test_a_stream_that_ends_without_an_answer_is_a_lost_connection():
    class Mute:
        name = "own:mute"

        async def stream(self, _):
            yield TextDelta("so")

    error = await error_of(Retry(Mute()))
    assert (error.kind, error.again_in is not None) == ("connection", True)
    assert str(error) == "own:mute ended its stream without an answer"
    assert (await error_of(Fallback([Mute(), Mute()]))).next_route == "1"
    breaker = CircuitBreaker(Mute(), failures=1, open_for=60)
    await error_of(breaker)
    assert breaker.state == "open"


@pytest.mark.anyio
async def test_attempts_before_a_durable_wait_count_but_their_time_does_not():
    model = Retry(failing(503), attempts=4, chance=lambda: 1.0, base=1, cap=1, max_seconds=60)
    late = request_after((-7_200, "rate_limit"), (30, "server"))
    assert (await error_of(model, late)).again_in == 1
    late = request_after((-7_200, "rate_limit"), (30, "server"), (31, "server"))
    assert (await error_of(model, late)).again_in is None


@pytest.mark.anyio
async def test_an_answer_and_its_deltas_pass_unchanged():
    plain, layered = (
        ScriptedModel([text("so it is", chunk=2)]),
        Retry(ScriptedModel([text("so it is", chunk=2)])),
    )
    assert await ask(plain, request()) == await ask(layered, request())


@given(
    base=st.floats(0, 100),
    cap=st.floats(0, 100),
    attempt=st.integers(1, 10_000),
    chance=st.floats(0, 1),
)
def test_back_off_is_a_random_part_of_a_bound_that_doubles_up_to_the_cap(base, cap, attempt, chance):
    wait = backoff(base, cap, attempt, chance)
    assert 0 <= wait <= cap
    assert wait <= backoff(base, cap, attempt + 1, chance)
    assert wait <= base * 2.0 ** min(attempt - 1, 900)
    assert backoff(base, cap, attempt, 0) == 0


def test_waits_by_default_double_from_half_a_second():
    longest = [backoff(0.5, 30, attempt, 1.0) for attempt in range(1, 9)]
    assert longest == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert all(later >= earlier for earlier, later in pairwise(longest))


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({"attempts": 0}, "attempts must be a whole number, 1 or more, got 0"),
        ({"attempts": 2.0}, "attempts must be"),
        ({"base": -1}, "base must be a number, 0 or more, got -1"),
        ({"cap": None}, "cap must be a number, 0 or more, got None"),
        ({"max_seconds": 0}, "max_seconds must be a number above 0, got 0"),
        ({"max_wait": "1 h"}, "max_wait must be a number, 0 or more"),
        ({"on": "timeout"}, "on must be a list of kinds of failure"),
        ({"on": ["slow"]}, "on: no kind of failure is called 'slow'; known are authentication"),
        ({"chance": 0.5}, "chance must be a function"),
    ],
)
def test_arguments_are_checked_by_name(argument, said):
    with pytest.raises(ConfigurationError, match=f"^Retry: {said}"):
        Retry(ScriptedModel([]), **argument)


def test_an_object_that_is_not_a_model_cannot_have_a_layer():
    with pytest.raises(ConfigurationError, match=r"^Retry: a model is a name such as"):
        Retry(7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelUnknown, match=r"^Retry: no provider is called 'opnai'"):
        Retry("opnai:gpt-x")
    with pytest.raises(ConfigurationError, match=r"^Retry: a model is"):
        Retry(ScriptedModel)  # pyright: ignore[reportArgumentType]


def test_the_classes_of_failures_are_those_of_the_table():
    passing = {status for status in range(400, 600) if kind_of_status(status) in PASSING}
    assert passing == {408, 409, 425, 429, *range(500, 600)}

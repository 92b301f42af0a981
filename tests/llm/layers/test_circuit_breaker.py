"""A service that keeps failing gets no requests from any task of the process; probes are always released."""

import asyncio
import threading
from itertools import count

import pytest

from treadle import ModelAnswer, TextDelta
from treadle.errors import ConfigurationError, ModelError
from treadle.models import CircuitBreaker, OpenAIChat, Retry, ScriptedModel, Timeout, breakers, fail
from treadle.testing.conformance.model import ask, request

services = count()


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Provider:
    """A service whose requests end as scripted, and wait without a script."""

    def __init__(self):
        self.name = f"own{next(services)}:model"
        self.fails: str | None = "server"
        self.asked = 0
        self.gate: asyncio.Event | None = None

    async def stream(self, _):
        self.asked += 1
        if self.gate is not None:
            yield TextDelta("so")
            await self.gate.wait()
        if self.fails is not None:
            raise ModelError("no", kind=self.fails)
        yield [item async for item in ScriptedModel(["so"]).stream(request())][-1]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def breaker(provider, clock):
    return CircuitBreaker(provider, failures=3, within=10, open_for=20, clock=clock)


async def error_of(model):
    with pytest.raises(ModelError) as caught:
        await ask(model, request())
    return caught.value


async def opened(breaker, times=3):
    for _ in range(times):
        await error_of(breaker)
    assert breaker.state == "open"


@pytest.mark.anyio
async def test_failures_in_a_row_open_the_breaker_and_then_nothing_is_sent(breaker, provider, clock):
    await opened(breaker)
    clock.now += 5
    error = await error_of(breaker)
    assert (error.kind, error.retry_after, error.again_in) == ("not_sent", 15, None)
    assert str(error) == (
        f"not sent: {breaker.service} failed 3 times in a row, and gets no requests for 15.0 s more"
    )
    assert (provider.asked, breaker.ready_in()) == (3, 15)
    assert (await error_of(Retry(breaker, chance=lambda: 0.0))).again_in == 15


@pytest.mark.anyio
async def test_an_answer_resets_the_count_and_old_failures_do_not_count(breaker, provider, clock):
    await error_of(breaker)
    await error_of(breaker)
    provider.fails = None
    await ask(breaker, request())
    provider.fails = "timeout"
    await error_of(breaker)
    clock.now += 10.1
    await error_of(breaker)
    await error_of(breaker)
    assert breaker.state == "closed"
    await error_of(breaker)
    assert breaker.state == "open"


@pytest.mark.parametrize("kind", ["server", "overloaded", "timeout", "connection"])
@pytest.mark.anyio
async def test_failures_of_the_service_count(breaker, provider, kind):
    provider.fails = kind
    await opened(breaker)


@pytest.mark.parametrize(
    "kind",
    [
        "rate_limit",
        "authentication",
        "invalid_request",
        "refused",
        "unparsable",
        "not_sent",
        "unknown",
        "too_large",
    ],
)
@pytest.mark.anyio
async def test_failures_of_the_request_do_not_count(breaker, provider, kind):
    provider.fails = kind
    for _ in range(10):
        await error_of(breaker)
    assert breaker.state == "closed"


@pytest.mark.anyio
async def test_a_probe_that_is_answered_closes_the_breaker(breaker, provider, clock):
    await opened(breaker)
    clock.now += 20
    assert (breaker.state, breaker.ready_in()) == ("half_open", 0)
    provider.fails = None
    await ask(breaker, request())
    assert breaker.state == "closed"
    await ask(breaker, request())


@pytest.mark.anyio
async def test_a_probe_that_fails_opens_the_breaker_again(breaker, provider, clock):
    await opened(breaker)
    clock.now += 20
    await error_of(breaker)
    assert (breaker.state, breaker.ready_in(), provider.asked) == ("open", 20, 4)


@pytest.mark.anyio
async def test_a_refused_probe_shows_that_the_service_works(breaker, provider, clock):
    await opened(breaker)
    clock.now += 20
    provider.fails = "rate_limit"
    await error_of(breaker)
    assert breaker.state == "closed"


@pytest.mark.anyio
async def test_no_more_probes_run_than_configured(provider, clock):
    breaker = CircuitBreaker(provider, failures=1, open_for=20, probes=2, clock=clock)
    await opened(breaker, 1)
    clock.now += 20
    provider.fails, provider.gate = None, asyncio.Event()
    probes = [asyncio.create_task(ask(breaker, request())) for _ in range(2)]
    await asyncio.sleep(0)
    error = await error_of(breaker)
    assert (error.kind, error.retry_after, breaker.ready_in()) == ("not_sent", 1, 1)
    assert "until a probe has ended" in str(error)
    provider.gate.set()
    await asyncio.gather(*probes)
    assert (breaker.state, provider.asked) == ("closed", 3)


@pytest.mark.parametrize("ending", ["cancelled", "left", "closed before it began", "crashed", "held back"])
@pytest.mark.anyio
async def test_a_probe_is_released_however_it_ends(breaker, provider, clock, ending):
    await opened(breaker)
    clock.now += 20
    provider.gate = asyncio.Event()
    if ending == "cancelled":
        task = asyncio.create_task(ask(breaker, request()))
        await asyncio.sleep(0)
        assert [state.probes for state in breakers() if state.service == breaker.service] == [1]
        task.cancel()
        await asyncio.wait([task])
    elif ending == "left":
        stream = breaker.stream(request())
        await anext(stream)
        await stream.aclose()
    elif ending == "closed before it began":
        await breaker.stream(request()).aclose()
    else:
        provider.gate.set()
        provider.fails = "not_sent"
        if ending == "crashed":
            provider.stream = None
            with pytest.raises(TypeError):
                await ask(breaker, request())
            del provider.stream
        else:
            await error_of(breaker)
    assert [state.probes for state in breakers() if state.service == breaker.service] == [0]
    assert (breaker.state, breaker.ready_in()) == ("half_open", 0)
    provider.gate, provider.fails = None, None
    await ask(breaker, request())
    assert breaker.state == "closed"


@pytest.mark.anyio
async def test_a_probe_that_never_ends_blocks_the_next_probe_only_for_its_lease(breaker, provider, clock):
    await opened(breaker)
    clock.now += 20
    provider.gate = asyncio.Event()
    lost = breaker.stream(request())
    await anext(lost)
    clock.now += 19.5
    assert breaker.ready_in() == 0.5
    clock.now += 0.5
    provider.gate, provider.fails = None, None
    await ask(breaker, request())
    assert breaker.state == "closed"
    await lost.aclose()


@pytest.mark.anyio
async def test_requests_from_before_a_switch_change_nothing_when_they_end(breaker, provider, clock):
    provider.gate = asyncio.Event()
    early = [asyncio.create_task(error_of(breaker)) for _ in range(10)]
    await asyncio.sleep(0)
    gate, provider.gate = provider.gate, None
    await opened(breaker)
    clock.now += 20
    provider.fails = None
    await ask(breaker, request())
    provider.fails = "timeout"
    gate.set()
    await asyncio.gather(*early)
    assert breaker.state == "closed"


@pytest.mark.anyio
async def test_breakers_of_a_service_share_one_state_across_layers_and_threads(provider, clock):
    def made():
        return CircuitBreaker(Timeout(provider), failures=2, clock=clock)

    await error_of(made())
    thread = threading.Thread(target=lambda: asyncio.run(error_of(made())))
    thread.start()
    thread.join()
    assert made().state == "open"
    assert (
        CircuitBreaker(provider, failures=3, clock=clock).state == "closed"
    )  # other numbers: another breaker
    state = next(state for state in breakers() if state.service == provider.name.partition(":")[0])
    assert (state.state, state.failures, state.probes) == ("open", 2, 0)


def test_a_service_is_a_provider_at_an_address():
    first_url, second_url = "http://user:secret@127.0.0.1:1/v1?key=secret", "http://127.0.0.1:2/v1"
    assert CircuitBreaker(OpenAIChat("a", base_url=first_url)).service == "openai at http://127.0.0.1:1/v1"
    assert (
        CircuitBreaker(OpenAIChat("b", base_url=second_url, api_key="x")).service
        != CircuitBreaker(OpenAIChat("b", base_url=first_url)).service
    )
    assert (
        CircuitBreaker(OpenAIChat("a", base_url=first_url, api_key="x")).service
        == CircuitBreaker(OpenAIChat("b", base_url=first_url, api_key="y")).service
    )


@pytest.mark.anyio
async def test_closing_the_stream_after_the_answer_counts_as_an_answer(breaker, provider):
    await error_of(breaker)
    await error_of(breaker)
    provider.fails = None
    stream = breaker.stream(request())
    async for item in stream:
        if isinstance(item, ModelAnswer):
            break
    await stream.aclose()
    provider.fails = "server"
    await error_of(breaker)
    assert breaker.state == "closed"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ({"failures": 0}, "failures must be a whole number"),
        ({"within": 0}, "within must be a number above 0"),
        ({"open_for": "15"}, "open_for must be a number above 0"),
        ({"probes": 1.5}, "probes must be a whole number"),
        ({"clock": 7}, "clock must be a function"),
    ],
)
def test_arguments_are_checked_by_name(argument, said):
    with pytest.raises(ConfigurationError, match=f"^CircuitBreaker: {said}"):
        CircuitBreaker(ScriptedModel([fail(503)]), **argument)


def test_the_repr_shows_the_arguments():
    assert repr(CircuitBreaker(ScriptedModel([]))) == (
        "CircuitBreaker(ScriptedModel('scripted'), failures=5, within=30, open_for=15, probes=1)"
    )

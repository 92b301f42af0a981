"""Which of several models is asked first, and which one after a failure."""

import pytest

from treadle import ModelAnswer
from treadle.core.model import FailedAttempt
from treadle.errors import ConfigurationError, ModelError
from treadle.models import CircuitBreaker, Fallback, Retry, ScriptedModel, Timeout, fail, text
from treadle.ports import chosen_model
from treadle.testing.conformance.model import ask, request


class Model:
    """A model that records its requests and has a settable `ready_in`."""

    def __init__(self, name, *script, ready=0.0, output_mode="tool"):
        self.name = name
        self.script = script
        self.ready = ready
        self.output_mode = output_mode
        self.asked = []

    def ready_in(self):
        return self.ready

    async def stream(self, asked):
        self.asked.append(asked)
        item = self.script[min(len(self.asked), len(self.script)) - 1]
        async for each in ScriptedModel(lambda _: item).stream(asked):
            yield each


async def tried(model, asked=None):
    """Send attempts while a layer asks for them; return the answer or last failure, and each route."""
    asked = asked or request()
    routes = []
    for attempt in range(1, 20):
        asked.attempt = attempt
        try:
            return (await ask(model, asked))[1], routes
        except ModelError as error:
            routes.append((error.route, error.next_route, error.again_in))
            if error.again_in is None:
                return error, routes
            failed = FailedAttempt(error.model, error.kind, error.status, attempt * 1_000_000, error.route)
            asked.failures = (*asked.failures, failed)
            asked.route = error.next_route
    raise AssertionError("it never ends")


@pytest.mark.anyio
async def test_the_first_model_answers_and_is_named():
    first, two = Model("a:one", text("Hello.")), Model("b:two", text("never"))
    answer, routes = await tried(Fallback([first, two]))
    assert (answer.message.text, answer.model, routes, two.asked) == ("Hello.", "a:one", [], [])


@pytest.mark.parametrize(
    "failure",
    [
        fail(503),
        fail(429),
        fail(kind="timeout"),
        fail(401),
        fail(404),
        fail(402),
        fail(503, after="Half an ans"),
    ],
)
@pytest.mark.anyio
async def test_after_a_failure_the_next_model_is_asked_at_once_as_a_new_attempt(failure):
    first, two = Model("a:one", failure), Model("b:two", text("Hello."))
    answer, routes = await tried(Fallback([first, two]))
    assert (answer.message.text, answer.model) == ("Hello.", "b:two")
    assert routes == [("0", "1", 0.0)]
    assert (two.asked[0].attempt, two.asked[0].failures, two.asked[0].route) == (1, (), "")


@pytest.mark.parametrize("failure", [fail(400), fail(kind="refused"), fail(kind="unparsable"), fail(413)])
@pytest.mark.anyio
async def test_a_failure_that_no_other_model_can_avoid_is_final(failure):
    two = Model("b:two", text("never"))
    error, routes = await tried(Fallback([Model("a:one", failure), two]))
    assert (error.model, routes, two.asked) == ("a:one", [("0", "", None)], [])
    answer, _ = await tried(Fallback([Model("a:one", failure), two], on=[error.kind]))
    assert isinstance(answer, ModelAnswer)


@pytest.mark.anyio
async def test_the_failure_of_the_last_model_is_the_failure_of_all():
    error, routes = await tried(Fallback([Model("a:one", fail(503)), Model("b:two", fail(500))]))
    assert (error.status, error.model, error.again_in) == (500, "b:two", None)
    assert routes == [("0", "1", 0.0), ("1", "", None)]


@pytest.mark.anyio
async def test_retries_inside_come_first_and_see_only_their_own_attempts():
    first, two = Model("a:one", fail(503)), Model("b:two", fail(503), fail(503), text("Hello."))
    inside = [Retry(model, attempts=3, chance=lambda: 0.5, base=1) for model in (first, two)]
    answer, routes = await tried(Fallback(inside))
    assert answer.message.text == "Hello."
    assert routes == [("0", "0", 0.5), ("0", "0", 1.0), ("0", "1", 0.0), ("1", "1", 0.5), ("1", "1", 1.0)]
    last = two.asked[-1]
    assert (last.attempt, [failed.route for failed in last.failures]) == (3, ["", ""])
    assert last.asked_at == 3_000_000  # when the last attempt at another model failed


@pytest.mark.anyio
async def test_retries_outside_cycle_through_all_models_and_count_every_request():
    first, two = Model("a:one", fail(503)), Model("b:two", fail(503))
    error, routes = await tried(Retry(Fallback([first, two]), attempts=5, chance=lambda: 0.0))
    assert [route for route, _, _ in routes] == ["0", "1", "0", "1", "0", "1"][: len(routes)]
    assert (len(first.asked), len(two.asked), error.again_in) == (3, 3, None)


@pytest.mark.anyio
async def test_a_fallback_inside_a_fallback_has_a_route_of_two_parts():
    models = [Model(f"a:{number}", fail(503)) for number in range(3)] + [Model("a:3", text("Hello."))]
    answer, routes = await tried(Fallback([Fallback(models[:2]), Fallback(models[2:])]))
    assert answer.model == "a:3"
    assert routes == [("0.0", "0.1", 0.0), ("0.1", "1", 0.0), ("1.0", "1.1", 0.0)]


@pytest.mark.anyio
async def test_a_long_wait_falls_back_to_the_next_model_except_for_the_last_one():
    first, two = (
        Model("a:one", fail(429, retry_after=60)),
        Model("b:two", fail(429, retry_after=90), text("Hello.")),
    )
    retried = [Retry(model, chance=lambda: 0.0) for model in (first, two)]
    _, routes = await tried(Fallback(retried))
    assert routes == [("0", "1", 0.0), ("1", "1", 90.0)]
    soon = Retry(Model("a:one", fail(429, retry_after=60), text("Hi.")), chance=lambda: 0.0)
    _, routes = await tried(Fallback([soon, two], patience=60))
    assert routes == [("0", "0", 60.0)]


@pytest.mark.anyio
async def test_a_model_that_is_not_ready_costs_no_attempt():
    first, two, three = (Model(f"a:{name}", text(name)) for name in ("one", "two", "three"))
    first.ready, two.ready = 10.0, 3.0
    model = Fallback([first, two, three])
    assert (await tried(model))[0].model == "a:three"
    three.ready = 5.0
    assert (model.ready_in(), (await tried(model))[0].model) == (3.0, "a:two")


@pytest.mark.anyio
async def test_a_model_behind_an_open_breaker_is_skipped():
    first, two = Model("open-a:one", fail(503)), Model("b:two", text("Hello."))
    model = Fallback([CircuitBreaker(Timeout(first), failures=2), two])
    for _ in range(5):
        assert (await tried(model))[0].model == "b:two"
    assert len(first.asked) == 2


@pytest.mark.anyio
async def test_an_invalid_route_is_replaced():
    routed = request()
    routed.route = "7.1"
    routed.failures = (FailedAttempt("gone:model", "server", None, 1, "7.1"),)
    answer, _ = await tried(Fallback([Model("a:one", text("Hi.")), Model("b:two", text("never"))]), routed)
    assert answer.model == "a:one"


def test_the_output_mode_is_one_that_all_models_support():
    native, tool, prompt = (Model("a:b", output_mode=mode) for mode in ("native", "tool", "prompt"))
    assert Fallback([native, native]).output_mode == "native"
    assert Fallback([native, tool]).output_mode == "tool"
    assert Fallback([tool, prompt, native]).output_mode == "prompt"


@pytest.mark.parametrize("models", [[], ["openai:a"], "openai:a", None, ScriptedModel([])])
def test_a_fallback_needs_at_least_two_models(models):
    with pytest.raises(ConfigurationError, match=r"^Fallback: models must be a list of at least two"):
        Fallback(models)


def test_arguments_are_checked_by_name():
    with pytest.raises(ConfigurationError, match=r"^Fallback: patience must be a number, 0 or more"):
        Fallback(["openai:a", "openai:b"], patience=-1)
    with pytest.raises(ConfigurationError, match=r"^Fallback: on: no kind"):
        Fallback(["openai:a", "openai:b"], on=["slowness"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=r"^Fallback: a model is a name such as"):
        Fallback(["openai:a", 7])  # pyright: ignore[reportArgumentType]


def test_the_repr_shows_all_models():
    model = Fallback([Retry("openai:a"), "anthropic:b"], on=["timeout"])
    assert repr(model).startswith("Fallback([Retry(OpenAIChat('openai:a'), attempts=4, ")
    assert repr(model).endswith("Anthropic('anthropic:b')], patience=5, on=['timeout'])")
    assert model.name == "openai:a"


@pytest.mark.parametrize(
    ("route", "chosen"),
    [("", ("c:three", "1.0")), ("0", ("a:one", "0")), ("1", ("c:three", "1.0")), ("1.1", ("d:four", "1.1"))],
)
def test_the_model_that_is_asked_next_is_known_before_it_is_asked(route, chosen):
    busy, inner = Model("a:one", ready=9.0), Fallback([Model("c:three"), Model("d:four")])
    layered = Retry(Timeout(Fallback([busy, CircuitBreaker(inner)])))
    assert chosen_model(layered, route) == chosen
    assert chosen_model(busy, route) == ("a:one", route)

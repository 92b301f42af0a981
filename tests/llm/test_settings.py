"""Settings as they reach a provider: prompt caching, idempotency keys, thinking, answers that are not streamed."""

import json

import pytest

from tests.llm.wires import WIRES, anthropic, chat, scripted
from treadle import Agent, ModelSettings, Runner
from treadle.errors import ConfigurationError
from treadle.models import Anthropic, OpenAIChat, ProviderModel, Retry
from treadle.testing.conformance.model import ask, request
from treadle.testing.provider import ProviderServer, fail

pytestmark = pytest.mark.anyio


async def body_of(make_model, settings, **options):
    with scripted(make_model, "Hello.", **options) as (server, model):
        await ask(model, request(settings=settings))
        assert server.problems == []
        return server.requests[-1].body


@pytest.mark.parametrize(
    ("cache", "kept"), [(True, {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})]
)
async def test_the_prompt_is_cached_where_the_provider_has_to_be_told(cache, kept):
    body = await body_of(anthropic, ModelSettings(cache=cache))
    marks = [part["cache_control"] for part in _objects(body) if "cache_control" in part]
    assert marks
    assert all(
        mark["type"] == "ephemeral" and mark.get("ttl", "5m") == kept.get("ttl", "5m") for mark in marks
    )


@pytest.mark.parametrize("cache", [None, False])
async def test_nothing_is_written_into_a_cache_that_costs_unless_it_is_asked_for(cache):
    body = await body_of(anthropic, ModelSettings(cache=cache))
    assert "cache_control" not in json.dumps(body)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("cache", [None, True, "1h", False])
@pytest.mark.parametrize("make_model", [WIRES["chat"], WIRES["responses"], WIRES["google"]])
async def test_a_provider_that_caches_by_itself_is_sent_nothing(make_model, cache):
    assert await body_of(make_model, ModelSettings(cache=cache)) == await body_of(make_model, ModelSettings())


def _objects(value):
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-sonnet-5-5", {"type": "adaptive"}),
        ("claude-x", {"type": "enabled", "budget_tokens": 2000}),
    ],
)
async def test_thinking_reaches_anthropic_as_each_model_takes_it(model, thinking):
    with ProviderServer(["Hello."]) as server:
        made = Anthropic(model, base_url=server.anthropic_base_url, api_key="k")
        await ask(made, request(settings=ModelSettings(extra={"thinking": thinking})))
        assert server.requests[-1].body["thinking"] == thinking


@pytest.mark.parametrize("max_tokens", [None, 100, 64_000])
@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-x"])
async def test_an_answer_of_anthropic_that_is_not_to_be_streamed_is_not_streamed(model, max_tokens):
    with ProviderServer(["Hello."]) as server:
        made = Anthropic(model, base_url=server.anthropic_base_url, api_key="k", stream=False)
        _, answer = await ask(made, request(settings=ModelSettings(max_tokens=max_tokens)))
        assert answer.message.text == "Hello."
        assert not server.requests[-1].body.get("stream")


# ------------------------------------------------------------------------------------ idempotency keys


async def test_each_attempt_at_a_question_carries_the_same_key_in_another_process_too(tmp_path):
    url = str(tmp_path / "journal.db")
    with ProviderServer([fail(503), fail(503), "Hello.", "Bye."]) as server:
        agent = Agent(chat(server, idempotency_header="Idempotency-Key"), name="a", tools=[])
        async with Runner(url) as runner:
            first = await runner.run(agent, "Hi", task_id="t", thread_id="th")
            assert first.state == "failed"
        async with Runner(url, agents=[agent]) as runner:
            assert (await runner.resume("t")).state == "failed"
            assert (await runner.resume("t")).final_text == "Hello."
            await runner.run(agent, "Hi", thread_id="th")
        keys = [sent.headers["idempotency-key"] for sent in server.requests]
    assert len(keys[0]) == 32
    assert [keys.index(key) for key in keys] == [0, 0, 0, 3]


@pytest.mark.parametrize("make_model", WIRES.values(), ids=WIRES)
async def test_no_provider_is_sent_a_key_unless_a_header_is_named(make_model):
    with scripted(make_model, "Hello.") as (server, model):
        await ask(model, request())
        assert not [name for name in server.requests[0].headers if "idempot" in name]
    with scripted(
        make_model,
        "Hello.",
    ) as (server, _):
        model = make_model(server, idempotency_header="X-Idempotency")
        await ask(model, request(settings=ModelSettings(extra={"extra_headers": {"X-Team": "red"}})))
        headers = server.requests[0].headers
        assert (len(headers["x-idempotency"]), headers["x-team"]) == (32, "red")


@pytest.mark.parametrize("header", ["", "Two words", 3, "a:b"])
def test_a_header_that_is_none_is_refused(header):
    for make in (OpenAIChat, lambda name, **options: ProviderModel("groq", name, **options)):
        with pytest.raises(ConfigurationError, match="idempotency_header must be the name of a header"):
            make("m", idempotency_header=header)


async def test_a_retry_layer_sends_the_same_key_again():
    with ProviderServer([fail(503), "Hello."]) as server:
        model = Retry(chat(server, idempotency_header="Idempotency-Key"), base=0.0)
        async with Runner("memory:") as runner:
            assert (await runner.run(Agent(model), "Hi")).final_text == "Hello."
        one, two = [sent.headers["idempotency-key"] for sent in server.requests]
        assert one == two

"""A model given as text: its default layers, its packages and its deadlines."""

import asyncio

import pytest

from treadle import Agent
from treadle.errors import MissingExtra
from treadle.llm.default_layers import resolve
from treadle.models import OpenAIChat, Retry, Timeout


def test_a_model_given_as_text_has_deadlines_and_retries_around_it():
    model = resolve("openai:gpt-x")
    assert repr(model) == (
        "Retry(Timeout(OpenAIChat('openai:gpt-x'), connect=10, first_byte=120, between=60, total=600), "
        "attempts=4, base=0.5, cap=30, max_seconds=600, max_wait=86400)"
    )
    assert (model.name, model.output_mode) == ("openai:gpt-x", "native")


def test_an_agent_shows_the_default_layers_of_a_model_given_as_text():
    agent = Agent("openai:gpt-x")
    assert repr(agent.model) == repr(resolve("openai:gpt-x"))
    assert agent.model == "openai:gpt-x"
    assert type(agent.model_name) is str
    assert repr(agent.replace(name="other").model) == repr(agent.model)


def test_text_inside_a_layer_means_the_model_without_layers():
    assert repr(Timeout("openai:gpt-x", total=9)).startswith("Timeout(OpenAIChat('openai:gpt-x'), connect=10")
    model = Retry(OpenAIChat("gpt-x"))
    assert resolve(model) is model


def test_missing_packages_are_reported_through_layers(monkeypatch):
    monkeypatch.setattr(OpenAIChat, "require", _missing)
    with pytest.raises(MissingExtra):
        resolve("openai:gpt-x")
    Retry(Timeout("openai:gpt-x"))  # written, but not needed yet


def _missing(_):
    raise MissingExtra("openai", "The model")


def test_deadlines_reach_the_client_through_the_layers():
    model = OpenAIChat("gpt-x", base_url="http://127.0.0.1:9/v1")
    Retry(Timeout(Retry(model), connect=3, first_byte=700, between=None))

    async def waits():
        client = (await model._ready()).client
        return client.timeout.connect, client.timeout.read

    assert asyncio.run(waits()) == (3, 705)

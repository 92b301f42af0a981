"""Every model passes the conformance suite, over real HTTP where it uses HTTP, streamed and whole."""

import json
from contextlib import contextmanager

import pytest

from tests.llm.wires import WHOLE, WIRES
from treadle.models import ProviderModel, ScriptedModel
from treadle.testing.conformance.model import (
    AS_TEXT,
    CHECKS,
    PIECEWISE,
    SECRET,
    WIRE_CHECKS,
    provider_script,
)
from treadle.testing.provider import ProviderServer


@contextmanager
def in_process(script):
    yield ScriptedModel(script)


def over(make_model):
    @contextmanager
    def scripted(script):
        with ProviderServer(provider_script(script)) as server:
            yield make_model(server)
        assert server.problems == []

    return scripted


def recorded_over(make_model):
    @contextmanager
    def recorded(script):
        with ProviderServer(provider_script(script)) as server:
            yield make_model(server), lambda: [json.dumps(request.body) for request in server.requests]

    return recorded


def other(provider, name="acme/m"):
    def make_model(server, **options):
        return ProviderModel(provider, name, base_url=server.openai_base_url, api_key=SECRET, **options)

    return make_model


OTHERS = {
    "deepseek": other("deepseek"),
    "zai": other("zai"),
    "azure-responses": other("azure-responses"),
}
"""Other providers: a plain one, one with a model class of its own, and one of Responses."""

STREAMED = WIRES | OTHERS
ALL = {"in process": in_process} | {
    name: over(make_model) for name, make_model in {**STREAMED, **WHOLE}.items()
}
PARSED = {"google", "google whole", "anthropic whole"}
"""The wire formats that carry the arguments of calls as objects."""
CASES = [
    pytest.param(scripted, check, id=f"{name}-{check.__name__}")
    for name, scripted in ALL.items()
    for check in CHECKS
    if not (check in PIECEWISE and name in WHOLE) and not (check in AS_TEXT and name in PARSED)
]


@pytest.mark.sampled(16)
@pytest.mark.anyio
@pytest.mark.parametrize(("scripted", "check"), CASES)
async def test_each_model_passes_the_conformance_suite(scripted, check):
    await check(scripted)


@pytest.mark.sampled(8)
@pytest.mark.anyio
@pytest.mark.parametrize("check", WIRE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("wire", {**STREAMED, **WHOLE})
async def test_each_provider_is_sent_what_was_asked_and_shows_no_key(wire, check):
    await check(recorded_over({**STREAMED, **WHOLE}[wire]))
